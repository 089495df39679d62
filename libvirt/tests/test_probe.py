# SPDX-License-Identifier: GPL-2.0-or-later
"""What an emulator is asked, and what its answer comes to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from idletime import domains, resolve
from idletime.cli.main import main
from idletime.compiler.result import DevicePlan
from idletime.compiler.want import device_properties
from idletime.policy import Class
from idletime.policy.grammar import SETTINGS
from idletime.resolve import probe

STAGED = Path(__file__).parents[2] / "build/stage/bin/qemu-system-x86_64"

ANSWER = """#!/bin/sh
case "$*" in
    *idletime-resource,help*) printf 'idletime-resource options:\\n  interval-us=<uint>\\n  path=<string>\\n' ;;
    *virtio-blk-pci,help*) printf 'virtio-blk-pci options:\\n  idletime=<str> - (default: "")\\n  drive=<str>\\n' ;;
    *) exit 1 ;;
esac
"""


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_properties(tmp_path):
    assert probe.emulator(program(tmp_path / "qemu", ANSWER)) == {
        "idletime-resource.interval-us", "idletime-resource.path", "virtio-blk-pci.idletime"}  # fmt: skip


def test_stock_qemu_has_none(tmp_path):
    assert probe.emulator(program(tmp_path / "qemu", "#!/bin/sh\nexit 1\n")) == frozenset()


@pytest.mark.parametrize("text", ["not a program", "#!/no/such/interpreter\n"])
def test_what_cannot_be_asked_is_unknown(tmp_path, text):
    assert probe.emulator(program(tmp_path / "qemu", text)) is None
    assert probe.emulator(str(tmp_path / "absent")) is None
    os.chmod(tmp_path / "qemu", 0o644)
    assert probe.emulator(str(tmp_path)) is None


def test_a_new_emulator_is_asked_again(tmp_path):
    path = program(tmp_path / "qemu", "#!/bin/sh\nexit 1\n")
    assert probe.emulator(path) == frozenset()
    program(tmp_path / "qemu", ANSWER)
    assert probe.emulator(path)


def test_an_emulator_from_anybodys_file_is_not_run(tmp_path, capsys):
    """virt-idletime check FILE: the file may come from anybody, and what it names would run as root."""
    ran = tmp_path / "ran"
    path = program(tmp_path / "qemu", f"#!/bin/sh\necho ran >>{ran}\nexit 1\n")
    xml = f"""<domain type='kvm'><name>d</name><metadata><p:policy xmlns:p='urn:idletime:policy:1' class='background'/>
      </metadata><devices><emulator>{path}</emulator></devices></domain>"""
    (tmp_path / "d.xml").write_text(xml)
    for command in ("check", "compile"):
        assert main(["-c", "test:///default", command, str(tmp_path / "d.xml")]) == 0
    assert not ran.exists()
    assert resolve.gather(xml).emulator is None and not ran.exists()
    assert resolve.gather(xml, emulators=lambda: [path]).emulator == frozenset() and ran.exists()


def test_emulators_of_libvirts_capabilities():
    class Connection:
        def getCapabilities(self):
            return """<capabilities><guest><arch name='x86_64'><emulator>/usr/bin/qemu-system-x86_64</emulator>
              <domain type='kvm'><emulator>/usr/bin/kvm</emulator></domain></arch></guest></capabilities>"""

    assert domains.HostLookup(Connection()).emulators() == {"/usr/bin/qemu-system-x86_64", "/usr/bin/kvm"}


@pytest.mark.skipif(not STAGED.exists(), reason="no QEMU was built: make qemu")
def test_the_policy_reaches_all_that_our_qemu_has():
    """A property that is added to QEMU is added to the policy, or to this test with the reason why not."""
    every = DevicePlan("interface", "x", "x", "r", Class.GUEST, queues="1", dscp="1")
    of_a_nic = set(device_properties(every))
    assert probe.emulator(str(STAGED)) == {
        "idletime-resource.path",  # from the resource's name and the run directory
        *(f"idletime-resource.{name}" for name in SETTINGS.values()),
        *(f"virtio-net-pci.{name}" for name in of_a_nic),
        *(f"virtio-blk-pci.{name}" for name in of_a_nic - {"idletime-dscp"}),
    }
