"""The network's instruments: a link or a load that is wrong would make every other test of the network worthless."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from tests.bench.net.stages import joined, summary
from tests.e2e.test_net import wait_until
from tests.framework import paths
from tests.testbed.link import SINK_ADDRESS, Link, Model
from tests.testbed.namespace import Namespace, NamespaceError
from tests.testbed.nic import NetMachine
from tests.testbed.passage import Passage
from tests.testbed.queuewatch import QueueWatch
from tests.testbed.sink import Sink, Window, goodput_mbit
from tests.testbed.timetable import PACKETS, busy_ns, ideal_ns, late_ns, within_ns

Start = Callable[..., Link]
HOST_ADDRESS = "10.9.0.9"


def netload(link: Link, command: str, **parameters: object) -> dict[str, Any]:
    """Run netload on the host's side of the link, and return its report."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in parameters.items()]
    program = str(paths.find_tool("netload", "loadgen"))
    return json.loads(link.host.command(program, command, f"--host={SINK_ADDRESS}", *options))


@pytest.fixture
def host_link(link: Start) -> Start:
    """A link whose bridge has an address, so that the host itself can send."""

    def build(**parameters: Any) -> Link:
        result = link(**parameters)
        result.host.command("ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", "bridge0")
        return result

    return build


def test_rate_is_kept_and_the_queue_is_bounded(host_link: Start) -> None:
    """A greedy sender: never more than rate x time + burst, never more in the queue than its limit, and it was full."""
    link = host_link(rate_mbit=10, queue_bytes=30_000)
    with Sink(link, "sink", protocol="udp", seconds=60), QueueWatch(link) as watch:
        netload(link, "send", protocol="udp", seconds=1)
    first, last = watch.samples[0], watch.samples[-1]
    elapsed_ns = last.time_ns - first.time_ns
    backlog = [each.backlog_bytes for each in watch.samples]

    # A sample's time is taken after the kernel's answer: 20 ms of slack, as it may wait for a processor.
    most = 10e6 / 8 * (elapsed_ns / 1e9 + 0.02) + link.model.burst_bytes
    assert last.sent_bytes - first.sent_bytes <= most
    assert 28_000 < max(backlog) <= 30_000
    assert watch.summary()["drops"] > 0


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_nothing_is_faster_than_the_delay(host_link: Start, protocol: str) -> None:
    """5 ms each way: no request is answered in less than 10 ms, and none is lost."""
    link = host_link(delay_us=5000)
    with Sink(link, "answer", protocol=protocol, port=5003):
        report = netload(link, "ask", protocol=protocol, port=5003, seconds=0.5, every_ms=5, latency_file=link.folder / "l")
    latencies = (link.folder / "l").read_bytes()

    assert report["operations"] * 8 == len(latencies) > 0
    assert report["lost"] == 0
    assert report["p50_us"] >= 10_000
    assert min(memoryview(latencies).cast("I")[1::2]) >= 10_000


def test_delay_keeps_all_packets(host_link: Start) -> None:
    """What enters a delayed link within its rate leaves it: every datagram, in order, without jitter that reorders."""
    link = host_link(delay_us=2000, rate_mbit=1000)
    with Sink(link, "sink", protocol="udp", seconds=60) as sink:
        # 20 quanta of 28,000 bytes: 20 datagrams each, far below the rate.
        sent = netload(link, "send", protocol="udp", seconds=2, connections=1, intensity=50, quantum_bytes=28_000)
        wait_until("all datagrams at the sink", lambda: link.arrived() >= sent["writes"])
        report = sink.report()

    assert report["bytes"] == sent["bytes"] and report["lost"] == 0
    assert report["datagrams"] == sent["writes"]


def test_sender_keeps_its_quantum(host_link: Start) -> None:
    """With a bound, a sender writes that in each quantum and no more: 10 of 14,000 bytes, fewer on a busy host."""
    link = host_link(rate_mbit=1000)
    with Sink(link, "sink", protocol="tcp", seconds=60):
        report = netload(link, "send", protocol="tcp", seconds=1, intensity=50, quantum_bytes=14_000)

    # Three sockets in turn: the bound is seen after all three, so up to two more writes a quantum.
    assert 14_000 <= report["bytes"] <= 10 * (14_000 + 2 * 1400)


def test_the_probe_is_seen_on_its_way(link: Start, nic: Callable[..., NetMachine]) -> None:
    """5 ms each way: no request is faster, at none of both ways, and what is left of its latency is the guest's."""
    shared = link(delay_us=5000)
    machine = nic(shared, "fg", "foreground")
    with Sink(shared, "answer", protocol="udp", port=5003), Passage(shared, machine.tap, 5003) as passage:
        load = machine.guest.netload("ask", host=SINK_ADDRESS, port=5003, protocol="udp", every_ms=10, seconds=0.5)
        load.result()
        samples = joined(load.samples(), passage)

    assert len(samples) > 0
    for stage, least_us in (("uplink", 5000), ("far", 0), ("back", 5000), ("guest", 0)):
        assert samples[f"{stage}_us"].min() > least_us
    assert summary(samples)["uplink"]["p99_us"] > 5000


def test_a_guest_moves_to_another_link(link: Start, nic: Callable[..., NetMachine]) -> None:
    """Its tap on another bridge: the guest is not told, and reaches the sink there."""
    one, other = link(), link()
    machine = nic(one, "bg", "background")
    before = one.uplink()["packets"]
    other.take(machine.tap, one)
    with Sink(other, "sink", protocol="tcp", seconds=60) as sink:
        machine.guest.netload("send", host=SINK_ADDRESS, protocol="tcp", seconds=0.5).result()
        assert sink.report()["bytes"] > 0

    assert other.uplink()["bytes"] > 100_000
    assert one.uplink()["packets"] == before


def test_goodput_counts_whole_buckets_within_the_window() -> None:
    """Buckets of 100 ms from 0 on; the window 100 to 350 ms has two whole ones: 3000 bytes in 200 ms."""
    report = {"bucket_ms": 100, "begin_ns": 0, "buckets": [9999, 1000, 2000, 9999]}
    assert goodput_mbit(report, Window(100_000_000, 350_000_000)) == pytest.approx(3000 * 8 / 1e6 / 0.2)
    assert goodput_mbit({**report, "buckets": []}, Window(0, 10**9)) == 0


def test_the_network_is_gone_afterwards(scratch: Path) -> None:
    """No file descriptor of ours is left, so no namespace, tap or bridge either."""
    before = set(os.listdir("/proc/self/fd"))
    try:
        with Link(Model(delay_us=1000)) as link:
            link.add_tap("one", 2)
            inode = os.fstat(link.host.fd).st_ino
            assert set(os.listdir("/proc/self/fd")) > before
    except NamespaceError as error:
        pytest.skip(str(error))

    assert set(os.listdir("/proc/self/fd")) == before
    assert inode not in {os.stat(path).st_ino for path in Path("/proc").glob("[0-9]*/ns/net") if readable(path)}


def readable(path: Path) -> bool:
    """Whether a process still runs and shows its namespace."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def test_what_is_missing_is_said() -> None:
    """A command that fails is quoted with its reason."""
    try:
        with Namespace() as own, pytest.raises(NamespaceError, match="`ip link set nosuch up` failed: Cannot find device"):
            own.command("ip", "link", "set", "nosuch", "up")
    except NamespaceError as error:
        pytest.skip(str(error))


def test_the_ideal_schedule_is_a_token_bucket_without_others() -> None:
    """100 Mbit/s, 3,200 bytes at once, packets of 1,400: two leave at once, then one each 112 us, and one after a pause."""
    model = Model()
    came = np.zeros(5, PACKETS)
    came["bytes"], came["number"], came["when_ns"] = 1400, range(5), [0, 1000, 2000, 3000, 10_000_000]
    ideal = ideal_ns(came, model)
    assert ideal.tolist() == [0, 1000, 80_000, 192_000, 10_000_000]
    assert busy_ns(came, ideal, model).tolist() == [[0, 192_000], [10_000_000, 10_112_000]]

    left = came[:4].copy()
    left["when_ns"] = ideal[:4] + [0, 5000, 0, 70_000]
    assert late_ns(came, left, ideal).tolist()[:4] == [0, 5000, 0, 70_000]
    assert np.isnan(late_ns(came, left, ideal)[4])


def test_what_lies_within_busy_times() -> None:
    """From before one to within it, from within one to within the next, and over the end of the last."""
    spans = np.array([[10, 20], [30, 50]])
    assert within_ns(np.array([0.0, 15, 40]), np.array([15.0, 35, 60]), spans) == 5 + (5 + 5) + 10
    assert within_ns(np.array([0.0]), np.array([9.0]), spans) == 0
