"""The instruments themselves: a disk that is wrong would make every other test here worthless."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import Any, Callable

import numpy as np
import pytest

from tests.bench.eval import clairvoyant, rules
from tests.framework import paths
from tests.framework.guest import GuestError
from tests.framework.process import ProcessError
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import (
    FLUSH, REQUESTS, bursts, early, met_by_chance_ns, most_at_once, of_client, overlap, paid, pauses_ns, turnaround_ns, waited_ns,
)
from tests.testbed.seek import services_ns

Start = Callable[..., Any]


def requests(*times: tuple[int, int], client: str = "fg") -> np.ndarray:
    """Requests from (arrival, finish) pairs."""
    return np.array([(client, 0, 4096, 0, arrival, arrival, finish) for arrival, finish in times], REQUESTS)


def test_most_at_once() -> None:
    """Three that overlap, then one that begins in the nanosecond in which they end."""
    assert most_at_once(requests((0, 10), (2, 10), (9, 10), (10, 20))) == 3
    assert most_at_once(requests()) == 0


def test_early() -> None:
    """Foreground at the disk from 100 to 150, interval 30: early from 100 + slack to 180."""
    foreground = requests((100, 150))
    background = requests((99, 0), (104, 0), (106, 0), (150, 0), (179, 0), (180, 0), client="bg")
    assert early(foreground, background, 30, slack_ns=5)["arrival_ns"].tolist() == [106, 150, 179]
    assert len(early(requests(), background, 30, slack_ns=5)) == 0


def test_paid() -> None:
    """Of three bursts one meets background as it begins, one with two of its requests, one not at all."""
    foreground = requests((5, 15), (16, 20), (100, 110), (112, 120), (200, 210))
    background = requests((0, 10), (99, 101), (111, 113), (205, 206), client="bg")
    assert paid(foreground, background, 50).tolist() == [1, 2, 0]
    assert bursts(foreground, 50) == 3


def test_overlap_and_turnaround() -> None:
    """Both clients are there from 20 to 40; gaps of 5 and of 100 with a limit of 50."""
    a, b = overlap(requests((0, 1), (25, 26), (40, 41)), requests((20, 21), (30, 31), (90, 91)))
    assert a["arrival_ns"].tolist() == [25, 40] and b["arrival_ns"].tolist() == [20, 30]
    assert turnaround_ns(requests((0, 10), (15, 20), (120, 130)), 50).tolist() == [5]


def test_waited() -> None:
    """5 for another, then one that waits for us alone, then one that waits for us and for what we waited for, then none."""
    log = requests((0, 15), (20, 30), (21, 40), (32, 60))
    log["start_ns"] = [5, 20, 30, 50]
    assert waited_ns(log).tolist() == [5, 0, 0, 10]
    assert len(waited_ns(requests())) == 0


def test_waited_with_channels() -> None:
    """Two channels. Ours at 0 and 1; one of others at 2, in service from 10 to 20; ours at 3 gets the channel that is free at 11, not at 10."""
    log = requests((0, 10), (1, 11), (3, 21), (40, 50))
    log["start_ns"] = [0, 1, 11, 40]
    assert waited_ns(log, 2).tolist() == [0, 0, 1, 0]


def test_waited_where_others_move_the_arm() -> None:
    """In service for 8 with the others and for 5 without: that is waiting, too, and the second waits for the first."""
    log = requests((0, 8), (2, 13))
    log["start_ns"] = [0, 8]
    assert waited_ns(log, service_ns=np.array([5, 5])).tolist() == [3, 3]


def test_met_by_chance() -> None:
    """Gaps of 10 and 1 us; starts take 4: 8 of 10 in the first gap for the first, and what is above 1 for the two after it (9 of 10); 3.5 for each of those two in the second."""
    log = requests((0, 5000), (15000, 20000), (21000, 26000), (22000, 31000))
    assert met_by_chance_ns(log, 4000) == pytest.approx(1000 * (8 + 2 * 4.5 + 2 * 3.5) / 11, rel=1e-3)
    assert np.isnan(met_by_chance_ns(log[:1], 4000)) and np.isnan(met_by_chance_ns(log[:0], 4000))


def test_met_by_chance_of_poisson_arrivals() -> None:
    """30 % of a disk of 5 ms, an hour: 1.07 ms."""
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1e9 / 60, 200_000)).astype(np.int64)
    finished = np.maximum.accumulate(arrivals - 5_000_000 * np.arange(len(arrivals))) + 5_000_000 * np.arange(1, len(arrivals) + 1)
    log = np.zeros(len(arrivals), REQUESTS)
    log["arrival_ns"], log["start_ns"], log["finish_ns"] = arrivals, finished - 5_000_000, finished
    assert met_by_chance_ns(log, 5_000_000) == pytest.approx(60 * 0.005 ** 2 / 2 / (1 - 0.3) * 1e9, rel=0.03)


def test_the_other_rules_fit_the_core() -> None:
    """What the evaluation compiles them from."""
    overlay = paths.ROOT / "qemu-patches" / "overlay"
    subprocess.run(["patch", "--dry-run", "-s", "-p1", "--fuzz=0", "-d", str(overlay), "-i", str(rules.PATCH)], check=True)


def test_clairvoyant_with_channels() -> None:
    """Two channels for 10 s, requests of 1 s. Taken are one from 2.5 to 3.9 and both from 6 to 6.9: 6 and 3 on one, 2, 2 and 3 on the other."""
    assert clairvoyant.packed([(2.5, 3.9), (6.0, 6.9), (6.0, 6.9)], 10, 1, 2) * 10 == 16
    # One channel, gaps of 0.5, 2.5 and 1.2 service times: what operations_per_second() counts.
    assert clairvoyant.packed([(0.5, 1.0), (3.51, 4.0), (5.21, 10.0)], 10, 1, 1) * 10 == 3
    assert clairvoyant.packed([], 10, 1, 16) * 10 >= 16 * 9.9


def test_pauses() -> None:
    """Only the first background request after a foreground one is preceded by a pause."""
    foreground, background = requests((0, 10), (11, 20), (60, 70)), requests((23, 30), (31, 40), (68, 75), client="bg")
    assert pauses_ns(foreground, background).tolist() == [3, -2]
    assert len(pauses_ns(foreground, requests())) == len(pauses_ns(requests(), background)) == 0


def test_of_client() -> None:
    """One name, and all that begin with it; flushes are not meant."""
    log = np.concatenate([requests((0, 1), client=name) for name in ("bg", "bg1", "fg", "bg1")])
    log["operation"][3] = 2
    assert len(of_client(log, "bg")) == 1 and len(of_client(log, "bg*")) == 2


@pytest.fixture
def stock(stack: ExitStack, boot: Boot) -> Callable[[Disk], Machine]:
    """A guest with a disk that has no idletime property."""
    return lambda shared: stack.enter_context(Machine(boot, "stock", attach(shared, "stock", None)))


def test_fixed_disk_serves_one_at_a_time_without_drift(disk: Start, stock: Start) -> None:
    """Each service takes 3 ms to the nanosecond, starts when the one before ends, and never before the arrival."""
    shared: Disk = disk(service_us=3000)
    stock(shared).guest.load(outstanding=4, seconds=1).result()
    log = of_client(shared.read(), "stock")

    assert set(log["finish_ns"] - log["start_ns"]) == {3_000_000}
    free = np.concatenate([[0], log["finish_ns"][:-1]])
    assert (log["start_ns"] == np.maximum(log["arrival_ns"], free)).all()
    assert most_at_once(log) == 4


@pytest.mark.parametrize("channels", [2, 8])
def test_channels_serve_side_by_side(disk: Start, stock: Start, channels: int) -> None:
    """So many requests are in service at a time, not one and not all; each when the rule of waited_ns() says, which is slowdisk's."""
    shared: Disk = disk(service_us=10000, channels=channels)
    stock(shared).guest.load(outstanding=14, seconds=1).result()
    log = of_client(shared.read(), "stock")

    assert not waited_ns(log, channels).any()
    log["arrival_ns"] = log["start_ns"]
    assert most_at_once(log) == channels


def test_seek_disk(disk: Start, stock: Start) -> None:
    """Sequential requests need the overhead and the media time; random ones at least a track's seek more."""
    shared: Disk = disk(model="seek", size="64G")
    guest = stock(shared).guest
    services = {}
    for pattern in ("sequential", "random"):
        mark = shared.mark()
        guest.load(pattern=pattern, seconds=1).result()
        log = of_client(shared.read(mark), "stock")
        services[pattern] = (log["finish_ns"] - log["start_ns"])[1:]

    # 100 us + 4096 bytes at 150 MB/s (27 us).
    assert set(services["sequential"] // 1000) == {127}
    # Besides: 800 us of seek at least, 16000 us and a turn of 8333 us at most.
    assert services["random"].min() > 927_000
    assert services["random"].max() < (127 + 16_000 + 8_334) * 1000


def test_services_without_others(disk: Start, stock: Start) -> None:
    """A disk with seeks that serves nobody else takes as long as it is said to take, to a rounded nanosecond."""
    shared: Disk = disk(model="seek", size="1G", seek_max_us=28000, rotation="half")
    guest = stock(shared).guest
    guest.load(seconds=1).result()
    guest.load(pattern="sequential", seconds=0.2).result()
    log = shared.read()
    off = log["finish_ns"] - log["start_ns"] - services_ns(shared.model, log)

    assert len(log) > 50 and (np.abs(off[log["operation"] != FLUSH]) <= 2).all()


def test_load_keeps_its_quantum(disk: Start, stock: Start) -> None:
    """Intensity 30: requests start in the first 30 ms of each 100 ms, in every quantum of the second."""
    shared: Disk = disk(service_us=3000)
    load = stock(shared).guest.load(intensity=30, seconds=1)
    report = load.result()
    starts = load.samples()["start_us"]

    assert report["operations"] == len(starts)
    # Between the look at the clock and the start, the guest may be interrupted: 2 ms for that.
    assert (starts % 100_000).max() < 32_000
    assert set(starts // 100_000) == set(range(10))


def test_wrong_disk_parameter_is_explained(scratch: object) -> None:
    """The error names the parameter, its value and what is allowed."""
    with pytest.raises(ProcessError, match="channels=0: use a number from 1 to 64"):
        Disk(Model(channels=0)).start()


def test_guest_that_dies_is_explained(stack: ExitStack, boot: Boot) -> None:
    """A guest that powers off fails its pending command at once, with its console in the error."""
    guest = stack.enter_context(Machine(boot, "short-lived")).guest
    guest.start("poweroff -f")
    with pytest.raises(GuestError, match="went away during `sleep 1000`(?s:.*)reboot: Power down"):
        guest.finish(guest.start("sleep 1000"), "sleep 1000", timeout_seconds=60)
