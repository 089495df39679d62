"""The network: what leaves a background guest, and when, counted at the devices and at the uplink's queue."""

from __future__ import annotations

import json
import time
from typing import Any, Callable

import pytest

from tests.framework import paths
from tests.framework.guest import Load
from tests.framework.process import tail
from tests.testbed.link import SINK_ADDRESS, Link
from tests.testbed.nic import NetMachine
from tests.testbed.queuewatch import QueueWatch
from tests.testbed.sink import Sink

Start = Callable[..., Any]

POLL_SECONDS = 0.02
LONG_SECONDS = 120
"""A load that outlasts its test; it ends with its machine."""

LONG_INTERVAL_US = 2_000_000
"""Longer than any pause that a busy host puts into the foreground's load."""

FRAME_BYTES = 1514

HOLD_MAX_US = 1_000_000
"""Ten times the deadline of a packet: a busy host makes it late, a lost timer for ever."""


def wait_until(what: str, condition: Callable[[], bool], timeout_seconds: float = 30) -> None:
    """Return when a condition holds."""
    end = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_seconds} s: {what}"
        time.sleep(POLL_SECONDS)


def greedy(machine: NetMachine, protocol: str = "udp", **parameters: object) -> Load:
    """A sender without pauses. Datagrams need nobody who takes them."""
    return machine.guest.netload("send", host=SINK_ADDRESS, protocol=protocol,
                                 **{"seconds": LONG_SECONDS, **parameters})


def await_sent(machine: NetMachine, role: str, count: int) -> None:
    """Return when the NIC has sent so many more packets of this class."""
    wanted = machine.sent(role) + count
    wait_until(f"{count} more {role} packets", lambda: machine.sent(role) >= wanted)


def busy_foreground(machine: NetMachine) -> Load:
    """A foreground that never pauses for as long as LONG_INTERVAL_US."""
    load = greedy(machine, intensity=10)
    await_sent(machine, "foreground", 50)
    return load


@pytest.mark.parametrize("inflight", [1, 2])
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_inflight_cap_holds_at_the_uplink(link: Start, nic: Start, protocol: str, inflight: int) -> None:
    """A greedy background guest alone: never more than max-inflight packets in the queue of the uplink."""
    shared: Link = link(rate_mbit=10)
    bg = nic(shared, "bg", "background", interval_us=5000, max_inflight=inflight)
    with Sink(shared, "sink", protocol=protocol, seconds=60):
        before = shared.uplink()["bytes"]
        with QueueWatch(shared) as watch:
            greedy(bg, protocol, seconds=2).result()
    carried = shared.uplink()["bytes"] - before

    assert watch.summary()["most_bytes"] <= inflight * FRAME_BYTES
    assert watch.summary()["drops"] == 0
    # 2 s at 10 Mbit/s are 2.5 MB: the cap must not stop it, either.
    assert carried > 500_000


def test_class_foreground_is_not_bounded(link: Start, nic: Start) -> None:
    """The control experiment: with its class changed live, the same guest fills the queue; and back again."""
    shared: Link = link(rate_mbit=10)
    bg = nic(shared, "bg", "background", max_inflight=1)
    most = {}
    for device_class in ("foreground", "background"):
        bg.set_class(device_class)
        with QueueWatch(shared) as watch:
            greedy(bg, seconds=1).result()
        wait_until("an empty uplink", lambda: shared.uplink()["backlog"] == 0)
        most[device_class] = watch.summary()["most_bytes"]

    assert most["foreground"] > 20 * FRAME_BYTES
    assert most["background"] <= FRAME_BYTES


@pytest.mark.parametrize(("rate_mbit", "least_us", "most_us"), [(10, 4000, 8000), (100, 2000, 4000)])
def test_auto_goes_by_the_time_of_packets(link: Start, nic: Start, rate_mbit: int, least_us: int, most_us: int) -> None:
    """A full packet takes 1.23 ms at 10 Mbit/s: 4.9 ms for four. At 100 Mbit/s it is 2 ms, the least."""
    bg = nic(link(rate_mbit=rate_mbit), "bg", "background", auto="on")
    load = greedy(bg)
    await_sent(bg, "background", 500)
    assert least_us <= bg.info()["interval-us"] <= most_us
    load.stop()
    load.result()


def test_nothing_leaves_within_the_interval(link: Start, nic: Start) -> None:
    """Two processes: while the foreground sends without long pauses, a held packet leaves by its deadline only."""
    shared: Link = link()
    fg, bg = (nic(shared, name, name, interval_us=LONG_INTERVAL_US) for name in ("foreground", "background"))
    load = busy_foreground(fg)
    greedy(bg)
    wait_until("held packets", lambda: bg.info()["held"] > 0)
    before = (bg.sent("background"), bg.promotions())
    await_sent(fg, "foreground", 500)
    after = (bg.sent("background"), bg.promotions())

    assert fg.sent("background") == 0
    assert after[0] - before[0] <= after[1] - before[1] + 1  # the first number is read before the second
    load.stop()
    load.result()
    await_sent(bg, "background", 200)


def test_received_packets_are_foreground_events(link: Start, nic: Start) -> None:
    """A foreground guest that only receives announces the answers that it will send: the background is held as well."""
    shared: Link = link()
    fg, bg = (nic(shared, name, name, interval_us=LONG_INTERVAL_US) for name in ("foreground", "background"))
    fg.guest.start("nc -u -l -p 5001 >/dev/null")  # else the guest would answer that nobody listens
    program = str(paths.find_tool("netload", "loadgen"))
    argv = [program, "send", f"--host={fg.tap.address}", "--protocol=udp", "--intensity=50", "--quantum-bytes=14000",
            f"--seconds={LONG_SECONDS}"]
    sender = shared.start(argv, shared.folder / "sender")
    try:
        greedy(bg)
        wait_until("held packets", lambda: bg.info()["held"] > 0)
        before, received = (bg.sent("background"), bg.promotions()), packets(fg, "rx")
        wait_until("500 more received packets", lambda: packets(fg, "rx") >= received + 500)
        after = (bg.sent("background"), bg.promotions())
        assert after[0] - before[0] <= after[1] - before[1] + 1
        assert packets(fg, "tx") < 50  # answers to ARP, and nothing for the datagrams
    finally:
        sender.stop()
    await_sent(bg, "background", 200)


def packets(machine: NetMachine, direction: str) -> int:
    """What the guest's kernel has sent ("tx") or received ("rx") on its NIC."""
    return int(machine.guest.read(f"/sys/class/net/eth0/statistics/{direction}_packets"))


def test_background_queues(link: Start, nic: Start) -> None:
    """On a foreground NIC with two queue pairs, what leaves by the listed queue is background."""
    shared: Link = link()
    both = nic(shared, "both", "foreground", queues=2, device={"idletime-background-queues": "1"})
    both.guest.run(f"ethtool -L eth0 combined 2 && ping -c 1 {SINK_ADDRESS}")  # ARP is over then
    for cpu, role, other in ((0, "foreground", "background"), (1, "background", "foreground")):
        before = {name: both.sent(name) for name in (role, other)}
        # XPS gives each processor the queue of its number.
        report = both.guest.run(f"taskset -c {cpu} netload send --host {SINK_ADDRESS} --protocol udp --connections 1"
                                " --seconds 0.5 --intensity 50 --quantum-bytes 14000")
        count = json.loads(report.text)["writes"]
        wait_until(f"{count} {role} packets", lambda: both.sent(role) - before[role] >= count)
        assert count > 0
        assert both.sent(other) - before[other] < count / 2  # ARP and the like


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_class_guest_reads_the_code_point(link: Start, nic: Start, protocol: str) -> None:
    """Class guest: what the guest marks with code point 1 (LE) is background, all else foreground."""
    shared: Link = link()
    guest = nic(shared, "guest", "guest", interval_us=1000)
    guest.guest.run(f"ping -c 1 {SINK_ADDRESS}")
    with Sink(shared, "sink", protocol=protocol, seconds=60):
        for dscp, role, other in ((0, "foreground", "background"), (1, "background", "foreground"),
                                  (46, "foreground", "background")):
            before = {name: guest.sent(name) for name in (role, other)}
            load = greedy(guest, protocol, seconds=1, dscp=dscp, intensity=50, quantum_bytes=14_000)
            payload = load.result()["bytes"]
            grown = {name: guest.sent(name) - before[name] for name in before}
            # In class foreground received packets count as well, and a TCP guest gets acknowledgements.
            assert grown[role] >= payload // 65536
            if role == "foreground":
                assert grown["background"] == 0
            elif protocol == "udp":
                assert grown["foreground"] <= 5


def test_background_stays_background(link: Start, nic: Start) -> None:
    """Downward only: no code point makes a packet of a background NIC foreground."""
    bg = nic(link(), "bg", "background", interval_us=1000)
    for dscp in (0, 1, 46):
        before = bg.sent("background")
        count = greedy(bg, seconds=0.5, dscp=dscp, intensity=50, quantum_bytes=14_000).result()["writes"]
        wait_until(f"{count} packets", lambda: bg.sent("background") >= before + count)
    assert bg.guest.run(f"ping -c 1 {SINK_ADDRESS}").status == 0


def test_br_netfilter_is_noticed_and_the_clock_bounds(link: Start, nic: Start) -> None:
    """Where the bridge forgets whose a packet is, the send buffer holds nothing: the link clock takes over."""
    shared: Link = link(rate_mbit=10, br_netfilter=True)
    bg = nic(shared, "bg", "background", max_inflight=1, **{"rate-bps": 9_000_000})
    load = greedy(bg)
    wait_until("service by the clock", lambda: bg.info()["devices"][0]["service"] == "clock")
    wait_until("an empty uplink", lambda: shared.uplink()["backlog"] <= FRAME_BYTES)
    with QueueWatch(shared) as watch:
        await_sent(bg, "background", 500)
    load.stop()
    load.result()

    # Its timer may be late, and then the next packet is not: two at a time in the queue, seldom three.
    assert watch.summary()["most_bytes"] <= 3 * FRAME_BYTES
    assert "rate-bps" not in tail(bg.machine.folder / "qemu.log")  # the warning asks for it only where it is not set


def test_the_clock_lets_no_packet_wait_for_ever(link: Start, nic: Start) -> None:
    """By the link clock, too, nothing of a background beside a busy foreground waits longer than its deadline."""
    shared: Link = link(br_netfilter=True)
    rate = {"rate-bps": shared.model.rate_mbit * 1_000_000, "max-inflight": 2}
    fg, bg = (nic(shared, name, name, interval_us=1000, **rate) for name in ("foreground", "background"))
    greedy(bg)
    wait_until("service by the clock", lambda: bg.info()["devices"][0]["service"] == "clock")
    greedy(fg, intensity=30, quantum_bytes=375_000, pace_mbit=100)
    for _ in range(10):
        await_sent(bg, "background", 500)

    assert bg.info()["devices"][0]["hold"]["max-us"] < HOLD_MAX_US
