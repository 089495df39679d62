"""The network's life cycle with real guests: what happens while packets are held must lose none that a real NIC would keep."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.e2e.test_net import LONG_INTERVAL_US, await_sent, busy_foreground, greedy, packets, wait_until
from tests.framework import paths
from tests.framework.qemu import Boot, Machine
from tests.testbed.link import SINK_ADDRESS, Link
from tests.testbed.nic import NIC, NetMachine, attach_nic

Start = Callable[..., Any]

UNPATCHED = paths.BUILD / "unpatched" / "stage" / "bin" / "qemu-system-x86_64"


@pytest.fixture
def holding(link: Start, nic: Start) -> tuple[Link, NetMachine, NetMachine]:
    """A busy foreground, and a background whose packets are held behind it; neither ends by itself."""
    shared: Link = link()
    fg, bg = (nic(shared, name, name, interval_us=LONG_INTERVAL_US) for name in ("foreground", "background"))
    busy_foreground(fg)
    greedy(bg)
    wait_until("held packets", lambda: bg.info()["held"] > 0)
    return shared, fg, bg


Holding = tuple[Link, NetMachine, NetMachine]


def works(machine: NetMachine) -> bool:
    """Whether the guest reaches the sink."""
    return machine.guest.run(f"ping -c 1 -W 5 {SINK_ADDRESS}", check=False).status == 0


def release(fg: NetMachine) -> None:
    """End the foreground: what is held may leave after one more interval."""
    fg.machine.stop()


def test_stop_and_cont_while_holding(holding: Holding) -> None:
    """A stopped VM sends nothing and holds nothing; continued, it sends what the guest had queued."""
    _, fg, bg = holding
    for _ in range(3):
        bg.machine.qmp.execute("stop")
        before = bg.sent("background")
        assert bg.info()["held"] == 0
        await_sent(fg, "foreground", 100)
        assert bg.sent("background") == before
        bg.machine.qmp.execute("cont")
        wait_until("held again", lambda: bg.info()["held"] > 0)
    release(fg)
    await_sent(bg, "background", 200)
    assert works(bg)


def test_link_down_and_up_while_holding(holding: Holding) -> None:
    """With the link down packets are dropped as by a NIC without a cable; with the link up again the guest goes on."""
    _, fg, bg = holding
    bg.machine.qmp.execute("set_link", name=NIC, up=False)
    wait_until("the guest sees it", lambda: bg.guest.run("cat /sys/class/net/eth0/carrier").text.strip() == "0")
    bg.machine.qmp.execute("set_link", name=NIC, up=True)
    wait_until("the guest sees it", lambda: bg.guest.run("cat /sys/class/net/eth0/carrier").text.strip() == "1")
    release(fg)
    await_sent(bg, "background", 200)
    assert works(bg)


def test_unplug_while_holding(holding: Holding) -> None:
    """The NIC goes when the guest lets it; the QEMU and its neighbour stay, and the resource can be deleted then."""
    _, fg, bg = holding
    bg.machine.qmp.execute("device_del", id=NIC)
    wait_until("no NIC in the guest", lambda: bg.guest.run("test -e /sys/class/net/eth0", check=False).status != 0)
    wait_until("no device of the resource", lambda: bg.info()["devices"] == [])
    bg.machine.qmp.execute("object-del", id="uplink")
    await_sent(fg, "foreground", 100)
    assert bg.machine.qmp.execute("query-status")["running"]


def test_reset_of_the_driver_while_holding(holding: Holding) -> None:
    """The guest takes the driver away and binds it again; afterwards the NIC works."""
    _, fg, bg = holding
    device = bg.guest.run("basename $(readlink /sys/class/net/eth0/device)").text.strip()
    driver = "/sys/bus/virtio/drivers/virtio_net"
    bg.guest.run(f"echo {device} >{driver}/unbind; echo {device} >{driver}/bind")
    bg.guest.run(f"ip link set eth0 up && ip address add {bg.tap.address}/24 dev eth0")
    release(fg)
    wait_until("the sink is reached", lambda: works(bg))


def test_queue_pairs_change_while_holding(link: Start, nic: Start) -> None:
    """The guest changes the number of its queue pairs (ethtool -L) under load, to and fro; nothing hangs."""
    shared: Link = link()
    fg = nic(shared, "fg", "foreground", interval_us=LONG_INTERVAL_US)
    bg = nic(shared, "bg", "background", queues=2, interval_us=LONG_INTERVAL_US)
    busy_foreground(fg)
    greedy(bg)
    wait_until("held packets", lambda: bg.info()["held"] > 0)
    for pairs in (1, 2, 1, 2):
        bg.guest.run(f"ethtool -L eth0 combined {pairs}")
    release(fg)
    await_sent(bg, "background", 200)
    assert works(bg)


@pytest.mark.parametrize("target", ["patched", "property unset", "unpatched"])
def test_migration_while_holding(
    holding: Holding, stack: ExitStack, net_boot: Boot, arena: Path, scratch: Path, target: str
) -> None:
    """The guest moves with held packets to another QEMU, and there sends them: to one of ours, and to a stock one."""
    shared, fg, bg = holding
    boot = net_boot
    if target == "unpatched":
        if not UNPATCHED.exists():
            pytest.skip(f"{UNPATCHED} is not there: build it with `make qemu-unpatched`")
        boot = Boot(UNPATCHED, net_boot.kernel, net_boot.initramfs, net_boot.accel)
    moved = incoming(shared, stack, boot, bg, arena if target == "patched" else None)
    migrate(bg, moved)
    assert moved.machine.qmp.execute("query-status")["running"]
    bg.machine.stop()
    release(fg)
    before = packets(moved, "tx")
    wait_until("the guest sends again", lambda: packets(moved, "tx") > before + 200)
    assert works(moved)


def test_migration_from_stock(link: Start, stack: ExitStack, net_boot: Boot, nic: Start, arena: Path) -> None:
    """A guest that sends on a stock NIC moves to a background one, where it is held, and goes on when it may."""
    shared: Link = link()
    fg = nic(shared, "foreground", "foreground", interval_us=LONG_INTERVAL_US)
    busy_foreground(fg)
    tap = shared.add_tap("stock")
    machine = stack.enter_context(Machine(net_boot, "stock", attach_nic(tap, None), tap.fds))
    shared.release(tap)
    stock = NetMachine(machine, tap)
    stock.guest.run(f"ip link set eth0 up && ip address add {tap.address}/24 dev eth0")
    greedy(stock)
    wait_until("it sends", lambda: packets(stock, "tx") > 200)
    moved = incoming(shared, stack, net_boot, stock, arena)
    migrate(stock, moved)
    stock.machine.stop()
    wait_until("held packets", lambda: moved.info()["held"] > 0)
    release(fg)
    await_sent(moved, "background", 200)
    assert works(moved)


def incoming(shared: Link, stack: ExitStack, boot: Boot, source: NetMachine, arena: Path | None) -> NetMachine:
    """A QEMU on a tap of its own that waits for this guest; without an arena, with a stock NIC."""
    tap = shared.add_tap("moved")
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
