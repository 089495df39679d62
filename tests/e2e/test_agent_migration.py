"""Migration of a guest with the agent: its port finds the new host, its request is told again, its marks stay."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

from tests.e2e.test_life import device
from tests.e2e.test_migration import wait_for_migration, wait_until_running
from tests.framework import agent, hostend, kernel
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import DEVICE, attach
from tests.testbed.disk import Disk

SERIAL = "root"


def host_of(machine: Machine, folder: Path) -> hostend.HostEnd:
    """The host's end of this machine's port; a context manager."""
    return hostend.HostEnd(folder / machine.name, machine.qmp, devices={SERIAL: DEVICE})


def wants(device_class: str) -> Callable[[dict[str, Any]], bool]:
    """The condition of a state that asks for this class."""
    return lambda state: state["request"]["class"] == device_class


def grown_to(machine: Machine, device_class: str, count: int) -> None:
    """Return when the disk has served so many more requests of this class; all of them are of it, but one on its way."""
    other = {"foreground": "background", "background": "foreground"}[device_class]
    before = device(machine)
    while (now := device(machine))[device_class]["requests"] < before[device_class]["requests"] + count:
        assert machine.guest.run("true").status == 0
    assert now[other]["requests"] <= before[other]["requests"] + 1


def test_marks_and_requests_survive_a_migration(
    boot: Boot, disk: Callable[..., Disk], arena: Path, stack: ExitStack
) -> None:
    """The guest asks its old host to be background, is moved, and tells the new one without being asked."""
    shared = disk(service_us=500)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
    with_agent = agent.boot_with_agent(boot, kernel.get_kernel())

    def mover(name: str, *extra: str) -> Machine:
        arguments = attach(shared, name, arena, "guest", device={"serial": SERIAL}, interval_us=0)
        arguments += [*hostend.port_arguments(folder / name), *extra]
        return stack.enter_context(Machine(with_agent, name, arguments, wait_for_guest=not extra))

    source, target = mover("source"), mover("target", "-incoming", f"unix:{folder / 'stream'}")
    moved = agent.AgentGuest(source.guest)
    moved.start()
    pid = moved.begin("idleload --device /dev/vda --seconds 600")
    moved.call("mark", "--pid", str(pid))
    with host_of(source, folder) as old:
        assert moved.call("vm", "background").text == "granted\n"
        asked = old.await_state(wants("background"))
        source.qmp.execute("migrate", uri=f"unix:{folder / 'stream'}")
        wait_for_migration(source)
    wait_until_running(target)
    moved.guest = target.guest
    # Nobody has asked the new host yet: there the device is what its own options say.
    assert device(target)["class"] == "guest"
    grown_to(target, "background", 50)

    with host_of(target, folder) as new:
        told = new.await_state(wants("background"))
        assert (told["session"], told["sequence"]) == (asked["session"], asked["sequence"])
        assert moved.call("vm", "background").text == "granted\n"
        assert device(target)["class"] == "background"
        assert moved.call("vm", "foreground").text == "taken back\n"
        assert device(target)["class"] == "guest"
        assert moved.status()["marks"]["processes"] == 1
        moved.call("unmark", "--pid", str(pid))
        grown_to(target, "foreground", 50)
        moved.end(pid)
