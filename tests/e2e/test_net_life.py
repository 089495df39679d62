"""The network's life cycle with real guests: what happens while packets are held must lose none that a real NIC would keep."""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from tests.e2e.test_net import LONG_INTERVAL_US, await_sent, busy_foreground, greedy, packets, wait_until
from tests.framework import paths
from tests.framework.qemu import Boot, Machine
from tests.framework.qmp import CommandError
from tests.testbed.link import SINK_ADDRESS, Link
from tests.testbed.namespace import NamespaceError
from tests.testbed.nic import NIC, RESOURCE, NetMachine, attach_nic, configure

Start = Callable[..., Any]
NUMBERS = itertools.count()

ROLES = ("foreground", "background")
PORT = ["-device", "pcie-root-port,id=port0"]
UNPATCHED = paths.BUILD / "unpatched" / "stage" / "bin" / "qemu-system-x86_64"


Holding = tuple[NetMachine, NetMachine]


@pytest.fixture(scope="module")
def pair(net_boot: Boot) -> Iterator[tuple[Link, NetMachine, NetMachine]]:
    """A foreground and a background guest that the tests here share; the background can be unplugged."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        try:
            shared = stack.enter_context(Link())
        except NamespaceError as error:
            if os.geteuid() == 0:
                raise
            pytest.skip(str(error))
        fg, bg = (start(stack, shared, net_boot, role, folder / "arena", role) for role in ROLES)
        yield shared, fg, bg


def start(stack: ExitStack, shared: Link, boot: Boot, name: str, arena: Path | None, role: str) -> NetMachine:
    """A guest with two queue pairs behind a port of its own, where it can be unplugged."""
    tap = shared.add_tap(name[:8], 2)
    arguments = [*PORT, *attach_nic(tap, arena, role, {"bus": "port0"}, interval_us=LONG_INTERVAL_US)]
    machine = stack.enter_context(Machine(boot, name, arguments, tap.fds, cpus=2))
    shared.release(tap)
    configure(machine.guest, tap)
    return NetMachine(machine, tap)


@pytest.fixture
def holding(pair: tuple[Link, NetMachine, NetMachine]) -> Iterator[Holding]:
    """A busy foreground, and a background whose packets are held behind it, until release()."""
    _, fg, bg = pair
    loads = [busy_foreground(fg), greedy(bg)]
    wait_until("held packets", lambda: bg.info()["held"] > 0)
    yield fg, bg
    for load in loads:
        load.stop()
        assert load.wait(load.seconds)  # its status: some tests take the network away below it


def release(fg: NetMachine) -> None:
    """End the foreground's load: what is held may leave after one more interval."""
    fg.guest.run("killall netload", check=False)


def works(machine: NetMachine) -> bool:
    """Whether the guest reaches the sink; in its own queues the ping is behind its load."""
    return machine.guest.run(f"ping -c 1 -W 5 {SINK_ADDRESS}", check=False).status == 0


def goes_on(fg: NetMachine, bg: NetMachine) -> None:
    """When the foreground ends, the background sends what it had and more, and gets answers."""
    release(fg)
    await_sent(bg, "background", 200)
    wait_until("an answer", lambda: works(bg))


def test_stop_and_cont_while_holding(holding: Holding) -> None:
    """A stopped VM sends nothing; continued, it sends what the guest had queued."""
    fg, bg = holding
    for _ in range(3):
        bg.machine.qmp.execute("stop")
        before = bg.sent("background")
        await_sent(fg, "foreground", 100)
        assert bg.sent("background") == before
        bg.machine.qmp.execute("cont")
        wait_until("held again", lambda: bg.info()["held"] > 0)
    goes_on(fg, bg)


def test_link_down_and_up_while_holding(holding: Holding) -> None:
    """With the link down packets are dropped as by a NIC without a cable; with the link up again the guest goes on."""
    fg, bg = holding
    for up, carrier in ((False, "0"), (True, "1")):
        bg.machine.qmp.execute("set_link", name=NIC, up=up)
        seen = "cat /sys/class/net/eth0/carrier"
        wait_until("the guest sees it", lambda: bg.guest.run(seen).text.strip() == carrier)
    goes_on(fg, bg)


def test_reset_of_the_driver_while_holding(holding: Holding) -> None:
    """The guest takes the driver away and binds it again; afterwards the NIC works."""
    fg, bg = holding
    device = bg.guest.run("basename $(readlink /sys/class/net/eth0/device)").text.strip()
    driver = "/sys/bus/virtio/drivers/virtio_net"
    bg.guest.run(f"echo {device} >{driver}/unbind; echo {device} >{driver}/bind")
    configure(bg.guest, bg.tap)
    release(fg)
    wait_until("an answer", lambda: works(bg))


def test_queue_pairs_change_while_holding(holding: Holding) -> None:
    """The guest changes the number of its queue pairs (ethtool -L) under load, to and fro; nothing hangs."""
    fg, bg = holding
    for pairs in (1, 2, 1, 2):
        bg.guest.run(f"ethtool -L eth0 combined {pairs}")
    goes_on(fg, bg)


def test_class_change_while_holding(holding: Holding) -> None:
    """What is held leaves when the device becomes foreground; as background it is held again."""
    fg, bg = holding
    bg.set_class("foreground")
    wait_until("nothing held", lambda: bg.info()["held"] == 0)
    await_sent(bg, "foreground", 200)
    bg.set_class("background")
    wait_until("held again", lambda: bg.info()["held"] > 0)
    goes_on(fg, bg)


def test_unplug_while_holding(holding: Holding) -> None:
    """The last test of this pair: the NIC goes, its QEMU and its neighbour stay, the resource can be deleted then."""
    fg, bg = holding
    with pytest.raises(CommandError, match="in use"):
        bg.machine.qmp.execute("object-del", id=RESOURCE)
    bg.machine.qmp.execute("device_del", id=NIC)
    wait_until("no NIC in the guest", lambda: bg.guest.run("test -e /sys/class/net/eth0", check=False).status != 0)
    wait_until("no device of the resource", lambda: bg.info()["devices"] == [])
    bg.machine.qmp.execute("object-del", id=RESOURCE)
    await_sent(fg, "foreground", 100)
    assert bg.machine.qmp.execute("query-status")["running"]


def test_migration_while_holding(link: Start, nic: Start, stack: ExitStack, net_boot: Boot, arena: Path) -> None:
    """A guest moves while its packets are held: to another QEMU of ours, to stock ones, and back; there it goes on."""
    shared: Link = link()
    fg, bg = (nic(shared, name, name, interval_us=LONG_INTERVAL_US) for name in ("foreground", "background"))
    greedy(bg, intensity=30)  # on a stock NIC a flood would leave no room for the ping
    for boot, target_arena in targets(net_boot, arena):
        load = busy_foreground(fg)
        if bg.machine.boot is net_boot and has_resource(bg):
            wait_until("held packets", lambda: bg.info()["held"] > 0)
        moved = incoming(shared, stack, boot, bg, target_arena)
        migrate(bg, moved)
        bg.machine.stop()
        load.stop()
        load.result()
        before = packets(moved, "tx")
        wait_until("the guest sends again", lambda: packets(moved, "tx") > before + 200)
        wait_until("an answer", lambda: works(moved))
        bg = moved


def targets(net_boot: Boot, arena: Path) -> list[tuple[Boot, Path | None]]:
    """Ours as background, with the property unset, as background again; unpatched between these where it is built."""
    result: list[tuple[Boot, Path | None]] = [(net_boot, arena), (net_boot, None), (net_boot, arena)]
    if UNPATCHED.exists():
        result[2:2] = [(net_boot, arena), (replace(net_boot, qemu=UNPATCHED), None)]
    return result


def has_resource(machine: NetMachine) -> bool:
    """Whether its QEMU takes part in a resource."""
    return bool(machine.machine.qmp.execute("query-idletime"))


def incoming(shared: Link, stack: ExitStack, boot: Boot, source: NetMachine, arena: Path | None) -> NetMachine:
    """A QEMU on a tap of its own that waits for this guest; without an arena, with a stock NIC."""
    tap = shared.add_tap(f"moved{next(NUMBERS)}")
    arguments = attach_nic(tap, arena, "background", interval_us=LONG_INTERVAL_US)
    arguments = [each.replace(tap.mac, source.tap.mac) for each in arguments]
    machine = Machine(boot, "moved", [*arguments, "-incoming", "defer"], tap.fds, wait_for_guest=False)
    stack.enter_context(machine)
    shared.release(tap)
    return NetMachine(machine, source.tap)


def migrate(source: NetMachine, target: NetMachine) -> None:
    """Move the guest; returns when it runs at the target."""
    address = f"unix:{target.machine.folder / 'migrate'}"
    target.machine.qmp.execute("migrate-incoming", uri=address)
    source.machine.qmp.execute("migrate", uri=address)
    wait_until("the migration completes", lambda: migration(source) == "completed", timeout_seconds=60)
    wait_until("the guest runs", lambda: target.machine.qmp.execute("query-status")["running"])


def migration(machine: NetMachine) -> str:
    """State of the migration; a failed one is an error at once."""
    status = machine.machine.qmp.execute("query-migrate").get("status", "none")
    assert status != "failed"
    return str(status)
