"""Marks and the network: what `idletime run` sends is background at the uplink, with iperf3 as the marked program."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from tests.e2e.test_net import LONG_INTERVAL_US, LONG_SECONDS, Start, await_sent, busy_foreground, wait_until
from tests.framework import accel, agent, kernel, series
from tests.framework.guest import Load
from tests.framework.qemu import Boot
from tests.testbed.link import SINK_ADDRESS, Link
from tests.testbed.nic import NetMachine
from tests.testbed.sink import Sink

LEAST_LIMIT = "cat /sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit_min"

GSO_BYTES = 65536
"""The largest packet that a guest hands over."""


@pytest.fixture(scope="module")
def net_boot(request: pytest.FixtureRequest) -> Boot:
    """Guests with a NIC and the agent, instead of those with a NIC only; the parameter is the series of the kernel."""
    guest_kernel = series.get_series(request.param) if hasattr(request, "param") else kernel.get_kernel()
    return agent.boot_with_agent(accel.prepare(network=True), guest_kernel, network=True)


@pytest.fixture
def marking(nic: Callable[..., NetMachine]) -> Callable[..., NetMachine]:
    """Boot a machine whose NIC has class `guest` and whose agent runs."""

    def start(shared: Link, **parameters: Any) -> NetMachine:
        machine = nic(shared, "guest", "guest", **parameters)
        agent.AgentGuest(machine.guest).start()
        return machine

    return start


def iperf3(*options: str) -> str:
    """A shell command that sends to the far end."""
    return f"iperf3 --client {SINK_ADDRESS} --connect-timeout 20000 {' '.join(options)}"


def serve(shared: Link, stack: Any, machine: NetMachine) -> None:
    """Start iperf3 at the far end; it does not say when it listens: ask until it does."""
    server = shared.start(["iperf3", "--server"], shared.folder / "iperf3")
    stack.callback(server.stop)
    machine.guest.run(f"for _ in $(seq 100); do nc -w 1 {SINK_ADDRESS} 5201 </dev/null && exit; usleep 50000; done; exit 1")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_what_a_marked_program_sends_is_background(link: Start, marking: Start, stack: Any, protocol: str) -> None:
    """The whole way: mark, cgroup, nftables, DSCP, class. The same program without a mark is foreground."""
    shared: Link = link()
    guest = marking(shared, interval_us=1000)
    serve(shared, stack, guest)
    options = ["--json", "--time 1"] + (["--udp", "--bitrate 5M"] if protocol == "udp" else [])
    guest.guest.run("chmod 1777 /tmp")  # iperf3 keeps what it sends in a file there
    plain = iperf3(*options)
    marked = f"idletime run -- {plain}"
    for command, is_background in ((marked, True), (plain, False), (agent.as_user("user", marked), True)):
        before = guest.sent("background")
        report = json.loads(guest.guest.run(command, timeout_seconds=60).text)
        assert "error" not in report, (command, report["error"])
        grown = guest.sent("background") - before
        if is_background:
            assert grown >= report["end"]["sum_sent" if protocol == "tcp" else "sum"]["bytes"] // GSO_BYTES > 0
        else:
            assert grown == 0


def test_a_marked_program_waits_for_another_vm(link: Start, nic: Start, marking: Start, stack: Any) -> None:
    """While the foreground of another VM sends without long pauses, marked packets leave by their deadline only."""
    shared: Link = link()
    fg = nic(shared, "foreground", "foreground", interval_us=LONG_INTERVAL_US)
    guest = marking(shared, interval_us=LONG_INTERVAL_US)
    serve(shared, stack, guest)
    guest.guest.start(f"idletime run -- {iperf3('--udp', '--bitrate 20M', f'--time {LONG_SECONDS}')}")
    await_sent(guest, "background", 200)
    load = busy_foreground(fg)
    wait_until("held packets", lambda: guest.info()["held"] > 0)
    before = (guest.sent("background"), guest.promotions())
    await_sent(fg, "foreground", 500)
    after = (guest.sent("background"), guest.promotions())

    assert after[0] - before[0] <= after[1] - before[1] + 1  # the first number is read before the second
    load.stop()
    load.result()
    await_sent(guest, "background", 200)

@pytest.mark.parametrize("net_boot", ["6.12"], indirect=True)
def test_a_marked_flood_does_not_stop_its_own_guest(link: Start, marking: Start) -> None:
    """Linux 6.12 counts held packets as on their way (Byte Queue Limits); the agent lifts that while any are marked.

    The interval is longer than all pauses, so marked packets leave by their deadline. Where foreground has to wait for a place that one
    of them leaves, it sends no more than a few packets to each.
    """
    shared: Link = link(rate_mbit=20)
    guest = marking(shared, interval_us=LONG_INTERVAL_US)
    load = {"host": SINK_ADDRESS, "seconds": LONG_SECONDS}
    with Sink(shared, "sink", protocol="tcp", port=5001, seconds=2 * LONG_SECONDS), \
            Sink(shared, "sink", protocol="udp", port=5002, seconds=2 * LONG_SECONDS):
        flood = Load(guest.guest, "idletime run -- netload send", {**load, "port": 5002, "protocol": "udp"}, latencies=False)
        wait_until("held packets", lambda: guest.info()["held"] > 0)
        foreground = guest.guest.netload("send", **load, port=5001, protocol="tcp")
        await_sent(guest, "foreground", 100)
        before = (guest.sent("foreground"), guest.sent("background"))
        await_sent(guest, "foreground", 2000)
        after = (guest.sent("foreground"), guest.sent("background"))
        assert int(guest.guest.run(LEAST_LIMIT).text) > 0
        for each in (foreground, flood):
            each.stop()
            each.result()
    assert after[0] - before[0] > 20 * (after[1] - before[1])
    assert int(guest.guest.run(f"idletime-agent --clean; {LEAST_LIMIT}").text) == 0
