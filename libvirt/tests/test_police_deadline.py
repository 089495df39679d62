# SPDX-License-Identifier: GPL-2.0-or-later
"""Jobs with deadlines, in simulated time: none is late that could be in time; what idle time is enough for is not urgent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import pytest

from idletime.police import deadline
from idletime.police.deadline import MARGIN_SECONDS, PERIOD_SECONDS, SAFE, Track, decide, expected_end

MIB = 1 << 20
BEGAN = 1_800_000_000.0


@dataclass
class Outcome:
    """end: seconds after the job began; None: not within three times its time. urgent_seconds: at full speed."""

    end: float | None
    urgent_seconds: float


def run(total: int, seconds: float, full: Callable[[float], float], idle: Callable[[float], float]) -> Outcome:
    """A job of `total` bytes that has `seconds`; its paces by time, in bytes a second."""
    track = Track(BEGAN + seconds, BEGAN, 0, BEGAN, BEGAN, "06:00")
    done, now, urgent = 0.0, 0.0, 0.0
    while now < 3 * seconds + 600:
        pace = (full if track.urgent else idle)(now)
        if pace > 0 and done + pace * PERIOD_SECONDS >= total:
            end = now + (total - done) / pace
            return Outcome(end, urgent + (end - now if track.urgent else 0))
        urgent += PERIOD_SECONDS if track.urgent else 0
        done, now = done + pace * PERIOD_SECONDS, now + PERIOD_SECONDS
        track = decide(track, BEGAN + now, int(done), total)
    return Outcome(None, urgent)


def steady(pace: float) -> Callable[[float], float]:
    return lambda _now: pace


def test_what_idle_time_is_enough_for_is_never_urgent() -> None:
    """A tenth of the time in hand."""
    found = run(900 * MIB, 1000, steady(10 * MIB), steady(MIB))
    assert found == Outcome(900.0, 0.0)


def test_what_full_speed_is_not_enough_for_is_urgent_from_its_first_look_that_knows() -> None:
    found = run(2000 * MIB, 100, steady(10 * MIB), steady(MIB))
    assert found.end is not None and found.end < 2000 / 10 + 3 * MARGIN_SECONDS
    assert found.urgent_seconds > 0.9 * (found.end - 2 * MARGIN_SECONDS)


def test_half_of_it_in_idle_time() -> None:
    """2000 MiB at 1 MiB/s of idle time, in 1100 s: 10 MiB/s for 100 s and 1 MiB/s for 1000 s is the least. It learns what
    full speed is, and begins a little early."""
    found = run(2000 * MIB, 1100, steady(10 * MIB), steady(MIB))
    assert found.end is not None and found.end <= 1100
    assert 100 <= found.urgent_seconds <= 100 * SAFE + 2 * MARGIN_SECONDS


def test_no_idle_time_at_all() -> None:
    found = run(600 * MIB, 1000, steady(MIB), steady(0))
    assert found.end is not None and found.end <= 1000 and found.urgent_seconds >= 600


def test_a_burst_at_its_start_is_no_pace() -> None:
    """What was in flight when it was attached: a ninth of it in the first look, and nothing after that."""
    found = run(900 * MIB, 120, steady(10 * MIB), lambda now: 20 * MIB if now < 5 else 0)
    assert found.end is not None and found.end <= 120


def test_idle_time_that_ends() -> None:
    """Enough for the first half of the night, none after it."""
    found = run(1000 * MIB, 2000, steady(5 * MIB), lambda now: MIB if now < 500 else 0)
    assert found.end is not None and found.end <= 2000


@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_jobs(seed: int) -> None:
    """From generous to impossible: a job is done in time that at full speed needs 4/5 of its time, less the time to learn."""
    dice = random.Random(seed)
    late = idle_enough = 0
    for _ in range(100):
        total, seconds = dice.randrange(MIB, 1 << 38), 60 * 10 ** dice.uniform(0, 2.7)
        mean = total / seconds * 10 ** dice.uniform(-0.3, 2)
        share, noise = dice.choice([0.0, 0.01, 0.1, 0.5, 1.0]), random.Random(dice.random())
        slots = [noise.uniform(0.9, 1.1) for _ in range(97)]
        full = lambda now, m=mean, s=slots: m * s[int(now) % 97]  # noqa: E731
        idle = lambda now, m=mean, s=share, n=slots: m * min(1.0, s * 2 * max(0.0, 10 * n[int(now / 300) % 97] - 9.5))  # noqa: E731
        found = run(total, seconds, full, idle)
        if total / mean * SAFE * 1.1 + 5 * MARGIN_SECONDS < seconds:
            late += found.end is None or found.end > seconds
            if sum(idle(now) for now in range(int(seconds / 3))) > total:
                idle_enough += 1
                assert found.urgent_seconds <= 0.05 * seconds + 10
    assert late == 0 and idle_enough > 0


# ---- by the day

def test_the_next_time_of_day() -> None:
    noon = time.mktime((2026, 11, 24, 12, 0, 0, 0, 0, -1))
    six, one = deadline.deadline_after(noon, "06:00"), deadline.deadline_after(noon, "13:00")
    assert time.localtime(six)[:5] == (2026, 11, 25, 6, 0) and time.localtime(one)[:5] == (2026, 11, 24, 13, 0)
    assert deadline.deadline_after(noon, "12:00") - noon == 24 * 3600
    assert deadline.begun(noon, 7, "13:00") == Track(one, noon, 7, noon, noon, "13:00")
    assert deadline.due(deadline.begun(noon, 7, "13:00"), "06:00").deadline == six


def test_when_it_will_be_done() -> None:
    track = Track(BEGAN + 100, BEGAN, 0, BEGAN, BEGAN, "06:00", idle=MIB)
    assert expected_end(track, 50 * MIB) == BEGAN + 50
    assert expected_end(track, 200 * MIB) == BEGAN + 200
    assert expected_end(replace(track, full=10 * MIB), 200 * MIB) == BEGAN + 100
    assert expected_end(replace(track, full=MIB, urgent=True), 200 * MIB) == BEGAN + 200
    assert expected_end(replace(track, idle=None), MIB) == float("inf")


def test_a_clock_that_goes_back() -> None:
    """No pace is learned of it."""
    track = Track(BEGAN + 1000, BEGAN, 50, BEGAN, BEGAN, "06:00", idle=1.0)
    back = decide(track, BEGAN - 100, 60, 100)
    assert back.idle == 1.0 and back.since == BEGAN - 100, "else its pace would count as unknown for all of the way back"


def test_records() -> None:
    track = Track(BEGAN + 1000, BEGAN, 50, BEGAN, BEGAN, "06:00", idle=1.0)
    assert deadline.of_record({"a": asdict(track), "b": {"deadline": 1}, "c": {**asdict(track), "at": "x"}}) == {"a": track}
    assert deadline.of_record(()) == {}  # type: ignore[arg-type]
