"""Disks: what a foreground and greedy background guests of several QEMU processes do to a shared disk."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from tests.framework.qemu import Machine
from tests.testbed.attach import DEVICE, RESOURCE
from tests.testbed.disk import Disk
from tests.testbed.requests import bursts, early, most_at_once, of_client, overlap, turnaround_ns

MS = 1_000_000
"""Nanoseconds."""

SLACK_NS = 2 * MS
"""From the gate to the disk a request needs less than a tenth of this on an idle host, see `not_held`."""

PAUSE_NS = 30 * MS
"""What parts two bursts of the foreground: 70 ms do in these loads, less than a millisecond lies between a burst's requests."""

Start = Callable[..., Any]


def info(machine: Machine) -> dict[str, Any]:
    """query-idletime of the machine's only resource."""
    return machine.qmp.execute("query-idletime")[0]


def promotions(machine: Machine) -> int:
    """Requests of this machine's device that were released before the interval allowed it."""
    return sum(info(machine)["devices"][0]["promotions"].values())


def not_held(foreground: np.ndarray, background: np.ndarray, interval_ns: int) -> int:
    """How many background requests came early, beyond those that stalls of the host explain.

    The slack is SLACK_NS, or the foreground's own longest turnaround within a
    burst, which was measured on the same processors at the same time. A stall
    that meets only a background request on its way to the disk is seen by
    nothing: one request in ten bursts may be late by itself. A gate that holds
    nothing lets several into each burst, see the control experiments.
    """
    slack_ns = max(SLACK_NS, int(turnaround_ns(foreground, PAUSE_NS).max(initial=0)))
    return max(len(early(foreground, background, interval_ns, slack_ns)) - bursts(foreground, PAUSE_NS) // 10, 0)


def test_nothing_starts_within_the_interval(disk: Start, machine: Start) -> None:
    """Two processes: no background request comes to the disk while foreground is there, or within 20 ms after it."""
    shared: Disk = disk(service_us=5000)
    fg, bg = (machine(shared, name, name, interval_us=20000) for name in ("foreground", "background"))
    loads = [bg.guest.load(outstanding=4, seconds=5), fg.guest.load(intensity=30, seconds=5)]
    reports = [load.result() for load in loads]
    log = shared.read()
    foreground, background = of_client(log, "foreground"), of_client(log, "background")

    assert all(report["operations"] > 0 for report in reports)
    # 50 quanta of 100 ms, each with 70 ms without foreground: room for background in every one of them.
    assert len(background) > 50
    assert not_held(foreground, background, 20 * MS) <= promotions(bg)


def test_class_foreground_holds_nothing_back(disk: Start, machine: Start) -> None:
    """The control experiment: with its class changed live, the same guest is early most of the time."""
    shared: Disk = disk(service_us=5000)
    fg, bg = (machine(shared, name, name, interval_us=20000) for name in ("foreground", "background"))
    bg.qmp.execute("idletime-set", device=DEVICE, **{"class": "foreground"})
    mark = shared.mark()
    for load in [bg.guest.load(seconds=3), fg.guest.load(intensity=30, seconds=3)]:
        load.result()
    log = shared.read(mark)
    foreground, background = of_client(log, "foreground"), of_client(log, "background")

    # 30 bursts, each of several requests that alternate with the other guest's. One stall of the host must not excuse them
    # all, so the slack is that of an idle host.
    assert len(early(foreground, background, 20 * MS, SLACK_NS)) > 30


def test_interval_changes_live(disk: Start, machine: Start) -> None:
    """qom-set of interval-us is in force for the next burst."""
    shared: Disk = disk(service_us=5000)
    fg, bg = (machine(shared, name, name, interval_us=0) for name in ("foreground", "background"))
    for interval_us in (5000, 50000):
        bg.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property="interval-us", value=interval_us)
        mark, before = shared.mark(), promotions(bg)
        for load in [bg.guest.load(seconds=2), fg.guest.load(intensity=30, seconds=2)]:
            load.result()
        foreground, background = (of_client(shared.read(mark), name) for name in ("foreground", "background"))
        assert info(bg)["interval-us"] == interval_us
        assert len(background) > 0
        assert not_held(foreground, background, interval_us * 1000) <= promotions(bg) - before


@pytest.mark.parametrize("cap", [1, 3])
def test_inflight_cap_holds_across_processes(disk: Start, machine: Start, cap: int) -> None:
    """Two greedy background processes together never have more than max-inflight requests at the disk."""
    shared: Disk = disk(service_us=2000)
    machines = [machine(shared, name, "background", max_inflight=cap) for name in ("bg1", "bg2")]
    mark = shared.mark()
    for load in [each.guest.load(outstanding=4, seconds=3) for each in machines]:
        assert load.result()["operations"] > 0
    log = shared.read(mark)

    # Eight outstanding requests in the guests: enough to reach either cap.
    assert most_at_once(of_client(log, "bg*")) == cap


@pytest.mark.parametrize("weight", [100, 200, 400])
def test_shares_follow_weights(disk: Start, machine: Start, weight: int) -> None:
    """Greedy background processes of weight 100 and `weight` share the disk within 10 % of that."""
    shared: Disk = disk(service_us=2000)
    one = machine(shared, "bg1", "background", weight=100)
    other = machine(shared, "bg2", "background", weight=weight)
    mark = shared.mark()
    for load in [each.guest.load(outstanding=4, seconds=5) for each in (one, other)]:
        load.result()
    a, b = overlap(*(of_client(shared.read(mark), name) for name in ("bg1", "bg2")))

    assert len(b) / len(a) == pytest.approx(weight / 100, rel=0.1)


def test_large_requests_come_in_pieces(disk: Start, machine: Start) -> None:
    """1 MiB reads of a background guest arrive in pieces of max-request-bytes, and all bytes of them do."""
    shared: Disk = disk(service_us=500)
    bg = machine(shared, "bg", "background", max_request_bytes=65536)
    mark = shared.mark()
    report = bg.guest.load(block_bytes=1 << 20, outstanding=2, seconds=2).result()
    log = of_client(shared.read(mark), "bg")

    assert report["operations"] > 0
    assert log["bytes"].max() == 65536
    assert log["bytes"].sum() == report["bytes"]
    assert info(bg)["devices"][0]["pieces"] > 0


def test_foreground_is_not_cut(disk: Start, machine: Start) -> None:
    """The same reads of a foreground guest stay whole."""
    shared: Disk = disk(service_us=500)
    fg = machine(shared, "fg", "foreground", max_request_bytes=65536)
    fg.guest.load(block_bytes=1 << 20, seconds=1).result()

    assert of_client(shared.read(), "fg")["bytes"].max() > 65536


@pytest.mark.parametrize("size", [1 << 20, 300 * 1024 + 512, 4096, 512])
def test_pieces_carry_the_right_data(disk: Start, machine: Start, size: int) -> None:
    """What a background guest writes in one request is what it, and another guest, reads."""
    shared: Disk = disk(service_us=200)
    bg = machine(shared, "bg", "background", max_request_bytes=65536)
    fg = machine(shared, "fg", "foreground")
    write = f"dd if=/tmp/a of=/dev/vda bs={size} count=1 oflag=direct 2>&-"
    read = f"dd if=/dev/vda bs={size} count=1 iflag=direct 2>&- | sha256sum"
    text = bg.guest.run(f"head -c {size} /dev/urandom >/tmp/a; sha256sum </tmp/a; {write}; {read}").text
    other = fg.guest.run(read).text

    assert text == other * 2


def test_held_requests_are_released_when_the_foreground_stops(disk: Start, machine: Start) -> None:
    """A foreground without gaps holds all background back, without promotions; when it stops, all of it runs."""
    shared: Disk = disk(service_us=2000)
    fg = machine(shared, "fg", "foreground")
    # 200 ms: longer than any pause that a busy host puts into the foreground's load.
    bg = machine(shared, "bg", "background", interval_us=200_000, max_hold_ms=0)
    greedy = fg.guest.load(outstanding=2, seconds=3)
    await_requests(shared, "fg")
    mark = shared.mark()
    waiting = [bg.guest.start(f"dd if=/dev/vda of=/dev/null bs=4096 count=1 skip={n} iflag=direct") for n in range(4)]
    greedy.result()
    for each in waiting:
        bg.guest.finish(each, "dd", timeout_seconds=30)
    foreground, background = (of_client(shared.read(mark), name) for name in ("fg", "bg"))

    assert len(background) == len(waiting)
    assert background["arrival_ns"][0] >= foreground["finish_ns"][-1] + 200 * MS
    assert promotions(bg) == 0
    assert info(bg)["held"] == 0


def await_requests(shared: Disk, client: str, count: int = 20) -> None:
    """Return when so many more requests of a client have come to the disk."""
    shared.wait_for(shared.mark(), lambda log: len(of_client(log, client)) >= count)


def test_deadline_promotes(disk: Start, machine: Start) -> None:
    """Behind a foreground without gaps, a held request is still served once max-hold-ms have passed."""
    shared: Disk = disk(service_us=2000)
    fg = machine(shared, "fg", "foreground")
    bg = machine(shared, "bg", "background", interval_us=200_000, max_hold_ms=500)
    greedy = fg.guest.load(outstanding=2, seconds=60)
    await_requests(shared, "fg")
    before = info(bg)["devices"][0]["promotions"]["deadline"]
    bg.guest.run("dd if=/dev/vda of=/dev/null bs=4096 count=1 iflag=direct")

    assert not greedy.wait(0), "the foreground ended before the held request was served"
    assert info(bg)["devices"][0]["promotions"]["deadline"] == before + 1
    greedy.stop()
    greedy.result()


def test_background_queues(disk: Start, machine: Start) -> None:
    """On a foreground device with two queues, only what passes the listed queue is background."""
    shared: Disk = disk(service_us=1000)
    device = {"num_queues": 2, "idletime-background-queues": "1"}
    both = machine(shared, "both", "foreground", cpus=2, device=device)
    for queue, role in ((0, "foreground"), (1, "background")):
        before = info(both)
        cpu = both.guest.run(f"cat /sys/block/vda/mq/{queue}/cpu_list").text.strip()
        both.guest.run(f"taskset -c {cpu} dd if=/dev/vda of=/dev/null bs=4096 count=25 iflag=direct")
        after = info(both)
        grown = {name: after[name]["requests"] - before[name]["requests"] for name in ("foreground", "background")}
        assert grown == {"foreground": 0, "background": 0, role: 25}


@pytest.mark.parametrize("victim_class", ["foreground", "background"])
def test_a_killed_process_leaves_the_disk_to_others(disk: Start, machine: Start, victim_class: str) -> None:
    """SIGKILL with requests in service: neither its busy state nor its in-flight share outlives the process."""
    shared: Disk = disk(service_us=2000)
    victim = machine(shared, "victim", victim_class)
    bg = machine(shared, "bg", "background", max_hold_ms=0)
    victim.guest.load(outstanding=4, seconds=60)
    await_requests(shared, "victim")
    victim.process.kill()
    victim.process.wait(timeout_seconds=10)
    mark = shared.mark()
    report = bg.guest.load(outstanding=4, seconds=2).result()

    assert report["operations"] > 0
    assert most_at_once(of_client(shared.read(mark), "bg")) == 1
    assert promotions(bg) == 0
