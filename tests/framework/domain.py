"""A domain of a private libvirtd with a real guest in it, and its disks."""

from __future__ import annotations

import json
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

import libvirt_qemu

from tests.framework.guest import Guest
from tests.framework.libvirtd import Libvirtd
from tests.framework.process import tail
from tests.framework.qemu import BOOT_SECONDS, KERNEL_OPTIONS, Boot
from tests.testbed.disk import Disk

CONNECT_SECONDS = 10.0

POLICY = "urn:idletime:policy:1"

AGENT_CHANNEL = "<channel type='unix'><target type='virtio' name='org.idletime.agent.0'/></channel>"


def policy(device_class: str, inner: str = "") -> str:
    """A policy element."""
    return f"<idletime:policy xmlns:idletime='{POLICY}' class='{device_class}'>{inner}</idletime:policy>"


def disk_xml(disk: Disk, client: str, target: str = "vda") -> str:
    """A virtio disk on a shared slow disk, known there as `client`."""
    disk.folder.chmod(0o755)
    disk.socket.chmod(0o666)  # the user of QEMU connects
    return (
        "<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/>"
        f"<source protocol='nbd' name='{client}'><host transport='unix' socket='{disk.socket}'/></source>"
        f"<target dev='{target}' bus='virtio'/></disk>"
    )


@dataclass
class Domain:
    """How a domain is described, and what tests do with one that runs."""

    host: Libvirtd
    name: str
    policy: str = ""
    devices: Sequence[str] = ()
    memory_mib: int = 192
    boot: Boot | None = None
    """Another kernel and initramfs than the host's."""
    wait_seconds: float = BOOT_SECONDS
    emulator: str = ""
    """Another than the tested QEMU."""
    balloon: str = "none"
    """The model of its balloon; the guest needs a driver for one."""
    guest: Guest | None = field(init=False, default=None)

    def xml(self) -> str:
        """Domain XML as an operator would write it."""
        boot = self.boot or self.host.boot
        metadata = f"<metadata>{self.policy}</metadata>" if self.policy else ""
        kind = "kvm" if boot.accel == "kvm" else "qemu"
        return f"""<domain type='{kind}'>
  <name>{self.name}</name>
  <uuid>{uuid.uuid5(uuid.NAMESPACE_OID, self.name)}</uuid>
  {metadata}
  <memory unit='MiB'>{self.memory_mib}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{self.host.guest_path(boot.kernel)}</kernel>
    <initrd>{self.host.guest_path(boot.initramfs)}</initrd>
    <cmdline>{KERNEL_OPTIONS}</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>{self.emulator or self.host.emulator}</emulator>
    <controller type='usb' model='none'/>
    <controller type='pci' model='pcie-root'/>
    <controller type='pci' model='pcie-root-port'/>
    <controller type='pci' model='pcie-root-port'/>
    <controller type='pci' model='pcie-root-port'/>
    <controller type='pci' model='pcie-root-port'/>
    <controller type='pci' model='pcie-root-port'/>
    <controller type='pci' model='pcie-root-port'/>
    {''.join(self.devices)}
    <serial type='file'><source path='{self.console}'/></serial>
    <channel type='unix'>
      <source mode='bind' path='/run/channel/{self.name}'/>
      <target type='virtio' name='org.idletime.test.0'/>
    </channel>
    <memballoon model='{self.balloon}'/>
  </devices>
</domain>
"""

    @property
    def console(self) -> str:
        """The guest's console, seen from inside."""
        return f"/run/channel/{self.name}.console"

    @property
    def dom(self) -> Any:
        """The virDomain, looked up anew: connections come and go."""
        return self.host.connection.lookupByName(self.name)

    @property
    def pid(self) -> int:
        """Of its QEMU, as this machine knows it, and not libvirtd."""
        namespace = Path(f"/proc/{self.host.libvirtd.pid}/ns/pid").readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"guest={self.name}," in (folder / "cmdline").read_text() and (folder / "ns/pid").readlink() == namespace:
                    return int(folder.name)
            except OSError:
                continue  # it has ended
        raise AssertionError(f"no QEMU of {self.name}")

    def define(self, xml: str | None = None) -> Any:
        """Define it."""
        return self.host.connection.defineXML(xml or self.xml())

    def start(self) -> Domain:
        """Start it; returns when the guest listens."""
        self.dom.create()
        return self.attach()

    def attach(self) -> Domain:
        """Talk to the guest of a domain that has been started."""
        self.detach()
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(CONNECT_SECONDS)
        channel.connect(str(self.host.run / "channel" / self.name))
        channel.settimeout(None)
        self.guest = Guest(channel, self.context)
        return self

    def booted(self) -> Domain:
        """Wait until the guest listens."""
        assert self.guest is not None
        self.guest.wait_ready(self.wait_seconds)
        return self

    def detach(self) -> None:
        """Stop talking to the guest; it goes on."""
        if self.guest is not None:
            self.guest.close()
            self.guest = None

    def context(self) -> str:
        """What the guest's console and QEMU said last."""
        console = self.host.run / "channel" / f"{self.name}.console"
        log = self.host.folder / "log" / "qemu" / f"{self.name}.log"
        return f"--- console of {self.name}:\n{tail(console)}\n--- QEMU of {self.name}:\n{tail(log)}"

    def qmp(self, command: str, **arguments: Any) -> Any:
        """A monitor command through libvirt."""
        request: dict[str, Any] = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        answer = json.loads(libvirt_qemu.qemuMonitorCommand(self.dom, json.dumps(request), 0))
        if "error" in answer:
            raise AssertionError(f"{command}: {answer['error']}")
        return answer["return"]

    def scheduler(self) -> dict[str, dict[str, Any]]:
        """query-idletime by the id of the device: its class, queues and resource with properties."""
        return {
            device["device"]: {"class": device["class"], "queues": device["background-queues"], "resource": resource}
            for resource in self.qmp("query-idletime") for device in resource["devices"]
        }
