#!/usr/bin/python3
"""Running VMs become background and stock again: live.py NAME... in the network namespace of a host (see host.sh).

The first VM is the foreground; each of the others is marked while it runs, under load. From then on what it asks of the disk
and sends is held, which query-idletime and the figures of both show; its QEMU is the same process, its XML has the policy
more and nothing else, and VNC answers. Unmarked it is stock. Guests: tests/framework.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
import libvirt_qemu
from lxml import etree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.framework import paths
from tests.framework.guest import Guest

URI = "qemu:///system"
CHANNELS = Path("/run/channel")
GATEWAY = "192.168.122.1"
POLICY = "{urn:idletime:policy:1}policy"
LOAD_SECONDS = 6.0
BOOT_SECONDS = 300.0
COME_SECONDS = 60.0
POLL_SECONDS = 0.05
HELD_TO = 0.5
"""A background beside a foreground that never pauses gets less than this part of what it had: promotions alone."""


@dataclass
class Vm:
    """A domain, and the control channel into its guest."""

    name: str
    dom: Any
    guest: Guest

    def qmp(self, command: str) -> Any:
        """A monitor command through libvirt."""
        answer = json.loads(libvirt_qemu.qemuMonitorCommand(self.dom, json.dumps({"execute": command}), 0))
        if "error" in answer:
            raise AssertionError(f"{self.name}: {command}: {answer['error']}")
        return answer["return"]

    def devices(self) -> dict[str, dict[str, Any]]:
        """Each scheduled device by "disk" or "net", from query-idletime."""
        return {kind_of(device["device"]): device for resource in self.qmp("query-idletime") for device in resource["devices"]}

    def classes(self) -> dict[str, str]:
        """What QEMU does with each."""
        return {kind: str(device["class"]) for kind, device in self.devices().items()}

    def pid(self) -> str:
        """Its QEMU's."""
        return Path(f"/run/libvirt/qemu/{self.name}.pid").read_text().strip()

    def xml(self) -> list[bytes]:
        """Live and persistent XML without the policy, each as one text."""
        return [_without_policy(self.dom.XMLDesc(flags)) for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)]


def kind_of(alias: str) -> str:
    """libvirt's names of devices."""
    return "net" if "net" in alias else "disk"


def _without_policy(text: str) -> bytes:
    root = etree.fromstring(text, etree.XMLParser(remove_blank_text=True))
    for policy in root.iter(POLICY):
        policy.getparent().remove(policy)
    for metadata in root.findall("metadata"):
        if len(metadata) == 0:
            root.remove(metadata)
    return bytes(etree.tostring(root, method="c14n"))


def find(connection: Any, name: str, number: int) -> Vm:
    """A running VM, when its guest listens; its guest gets an address."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(str(CHANNELS / name))
    console = CHANNELS / f"{name}.console"
    guest = Guest(channel, lambda: console.read_text(errors="replace")[-2000:] if console.exists() else "(no console)")
    guest.wait_ready(BOOT_SECONDS)
    guest.run(f"ip addr add 192.168.122.{10 + number}/24 dev eth0 && ip link set eth0 up", BOOT_SECONDS)
    return Vm(name, connection.lookupByName(name), guest)


def come_to(what: str, reached: Callable[[], bool], seen: Callable[[], object]) -> None:
    """Return when something holds."""
    end = time.monotonic() + COME_SECONDS
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"not within {COME_SECONDS:g} s: {what}; it is {seen()}")
        time.sleep(POLL_SECONDS)


def virt_idletime(*arguments: str, statuses: tuple[int, ...] = (0,)) -> str:
    """The command, as a user calls it."""
    done = subprocess.run(["virt-idletime", *arguments], capture_output=True, text=True, timeout=COME_SECONDS)
    print(f"   $ virt-idletime {' '.join(arguments)}",
          *(f"     {line}" for line in (done.stdout + done.stderr).splitlines()), sep="\n")
    if done.returncode not in statuses:
        raise AssertionError(f"virt-idletime {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout + done.stderr


# ---- load

def disk_load(vm: Vm) -> Any:
    """Random reads, one at a time and without a pause."""
    return vm.guest.load(outstanding=1, seconds=LOAD_SECONDS, block_bytes=4096)


def net_load(vm: Vm) -> Any:
    """As much as the connections take."""
    return vm.guest.netload("send", host=GATEWAY, protocol="tcp", seconds=LOAD_SECONDS)


LOADS = {"disk": disk_load, "net": net_load}


def rate(kind: str, result: dict[str, Any]) -> float:
    """Requests per second, Mbit/s."""
    return float(result["operations_per_second"] if kind == "disk" else result["bytes"] * 8 / result["seconds"] / 1e6)


UNITS = {"disk": "requests/s", "net": "Mbit/s"}


@dataclass(frozen=True)
class Figure:
    """What each VM reached, and the most that the second one held at a time."""

    rates: tuple[float, ...]
    held: int


def together(kind: str, *vms: Vm) -> Figure:
    """Load all at once."""
    loads = [LOADS[kind](vm) for vm in vms]
    held = 0
    while not loads[0].wait(POLL_SECONDS):
        held = max([held, *(device["held"] for device in vms[-1].devices().values())]) if len(vms) > 1 else 0
    return Figure(tuple(rate(kind, load.result(COME_SECONDS)) for load in loads), held)


@contextlib.contextmanager
def sink() -> Iterator[None]:
    """Who takes what the guests send."""
    program = str(paths.find_tool("netload", "loadgen"))
    process = subprocess.Popen([program, "sink", "--protocol", "tcp", "--seconds", "3600"], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


# ---- a VM's life

def answers_vnc(vm: Vm) -> None:
    """A VNC server begins with its version."""
    port = etree.fromstring(vm.dom.XMLDesc(0)).find("./devices/graphics[@type='vnc']").get("port")
    with socket.create_connection(("127.0.0.1", int(port)), COME_SECONDS) as client:
        assert client.recv(3) == b"RFB", f"{vm.name}: no VNC at port {port}"


BOTH = {"disk": "background", "net": "background"}


def becomes_background_and_stock(web: Vm, vm: Vm) -> None:
    """Mark it while it runs, look at what that does, and take it back."""
    print(f"   {vm.name}, beside {web.name}:")
    before = vm.xml(), vm.pid()
    assert vm.qmp("query-idletime") == [], f"{vm.name} is not stock before it is marked"
    stock = {kind: together(kind, web, vm) for kind in LOADS}
    load = disk_load(vm)  # it is marked under load
    virt_idletime("mark", vm.name)
    come_to(f"{vm.name} is background", lambda: vm.classes() == BOTH, vm.classes)
    load.result(COME_SECONDS)
    marked = {kind: together(kind, web, vm) for kind in LOADS}
    virt_idletime("status", statuses=(0, 5))
    report(web, vm, stock, marked)
    for kind, figure in marked.items():
        assert figure.held > 0, f"{vm.name}: nothing was held on its {kind}"
        assert figure.rates[1] < stock[kind].rates[1] * HELD_TO, \
            f"{vm.name}: {kind} is hardly held: {figure}, it was {stock[kind]}"
        assert vm.devices()[kind]["background"]["requests"] > 0, f"{vm.name}: nothing left its {kind} as background"
    answers_vnc(vm)
    assert (vm.xml(), vm.pid()) == before, f"{vm.name} was started anew, or its XML is another"
    virt_idletime("unmark", vm.name)
    come_to(f"{vm.name} is stock", lambda: vm.qmp("query-idletime") == [], vm.classes)
    answers_vnc(vm)
    assert (vm.xml(), vm.pid()) == before, f"{vm.name} was started anew, or its XML is another"


def report(web: Vm, vm: Vm, stock: dict[str, Figure], marked: dict[str, Figure]) -> None:
    """The figures."""
    for kind, unit in UNITS.items():
        alone = together(kind, web).rates[0]
        print(f"   {kind}, {unit}: {web.name} {alone:.1f} alone, {stock[kind].rates[0]:.1f} beside {vm.name}, "
              f"{marked[kind].rates[0]:.1f} beside it as background; {vm.name} {stock[kind].rates[1]:.1f}, then "
              f"{marked[kind].rates[1]:.1f} with up to {marked[kind].held} held")


def main() -> int:
    """Exit status 0: all was as it should be."""
    connection = libvirt.open(URI)
    web, *others = (find(connection, name, number) for number, name in enumerate(sys.argv[1:], 1))
    with sink():
        virt_idletime("enable", web.name)
        come_to(f"{web.name} is foreground", lambda: set(web.classes().values()) == {"foreground"}, web.classes)
        for vm in others:
            becomes_background_and_stock(web, vm)
        # The last one stays marked: what becomes of it without our packages is seen later.
        virt_idletime("mark", others[-1].name)
        come_to("it is background once more", lambda: others[-1].classes() == BOTH, others[-1].classes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
