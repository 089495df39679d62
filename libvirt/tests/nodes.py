# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts of libvirt's test driver: a file with as many running domains as are wanted (test:///FILE)."""

from pathlib import Path

_DOMAIN = """<domain type='test'>
  <name>vm{number:02}</name>
  <metadata>{policy}</metadata>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os><type>hvm</type></os>
  <devices>
    <disk type='file' device='disk'>
      <source file='/var/lib/libvirt/images/vm{number:02}.img'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:{number:02x}'/>
      <source bridge='br0'/>
      <model type='virtio'/>
    </interface>
  </devices>
</domain>
"""

POLICY = """<idletime:policy xmlns:idletime='urn:idletime:policy:1' class='{class_}'>
  <idletime:disk resource='sda'/><idletime:interface resource='eth0'/>
  <idletime:interval us='20000'/>
  <idletime:guest control='demote'/></idletime:policy>"""


def write(path: Path, marked: int, unmarked: int = 0) -> str:
    """A host with this many domains with and without a policy. Returns its URI."""
    domains = [
        _DOMAIN.format(
            number=number,
            policy=POLICY.format(class_=("background", "foreground")[number % 2]) if number < marked else "",
        )
        for number in range(marked + unmarked)
    ]
    path.write_text("<node>" + "".join(domains) + "</node>", encoding="utf-8")
    return f"test://{path}"
