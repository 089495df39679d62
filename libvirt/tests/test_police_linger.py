# SPDX-License-Identifier: GPL-2.0-or-later
"""Linger or migrate (003, 2): what a VM gets, since when it is too little, and when a move pays."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import linger
from idletime.police.linger import Counts, Got, Place, Subject

MB = 1_000_000
SHARES = st.floats(0.0, 1.0)


def seen(seconds: float, ran: float, waited: float, stopped: float = 0.0, off: float = 0.0,
         before: tuple[Counts, ...] = (), vcpus: int = 1) -> tuple[Counts, ...]:
    """So many seconds of these rates, of each vCPU, looked at every two."""
    found = before or (Counts(0.0, ((0.0, 0.0),) * vcpus),)
    for _ in range(int(seconds / 2)):
        last = found[-1]
        found = linger.window(found, Counts(last.at_s + 2, tuple((one[0] + 2 * ran, one[1] + 2 * waited) for one in last.vcpus),
                                            last.stopped_s + 2 * stopped, last.off_s + 2 * off))
    return found


# ---- what it gets

@pytest.mark.parametrize(("rates", "vcpus", "share", "cpus"), [
    ((1.0, 0.0), 1, 1.0, 1.0),
    ((0.5, 0.5), 1, 0.5, 1.0),
    ((0.25, 0.75), 2, 0.25, 2.0),
    ((0.01, 0.0), 1, 1.0, 0.01),
    ((0.01, 0.03), 1, 1.0, 0.01),  # it loses hardly anything of a processor
    ((0.01, 0.15), 1, 1.0, 0.012),  # 3 ms at each of 50 wake-ups, for 10 ms/s of work
    ((0.4, 0.4), 1, 0.6, 0.667),  # of each second it sleeps 0.2: alone it would do two thirds more
    ((0.25, 0.25, 0.5), 1, 0.25, 1.0),  # stopped for half of the time, and half of the rest is another's
    ((0.25, 0.25, 0.0, 0.5), 1, 0.5, 1.0),  # what it was stopped for is no processor
    ((0.0, 0.0, 1.0), 1, 0.0, 7.0),  # stopped all the time: what it wanted before
])
def test_what_it_gets(rates: tuple[float, ...], vcpus: int, share: float, cpus: float) -> None:
    found = linger.got(seen(30, *rates, vcpus=vcpus), Got(1.0, 7.0))
    assert found is not None
    assert (found.share, found.cpus) == (pytest.approx(share), pytest.approx(cpus, abs=0.001))


def test_one_of_four_vcpus_works():
    """Its waiting is what counts."""
    found = linger.got((Counts(0.0, ((0.0, 0.0),) * 4), Counts(10.0, ((5.0, 5.0), *((0.0, 0.0),) * 3))), Got())
    assert found == Got(0.5, 1.0)


def test_what_is_not_known():
    assert linger.got(seen(8, 0.5, 0.5), Got()) is None, "a window is not full"
    assert linger.got(seen(10, 0.5, 0.5), Got()) is not None
    assert linger.got(seen(30, 0.0, 0.0, 0.0, 1.0), Got()) is None, "stopped for something else all the time"
    assert linger.got(seen(30, 0.0, 0.0), Got()) is None, "it may have waited all the time, which is counted when it is over"


@pytest.mark.parametrize("late", [0.0, 0.05, 0.25])
def test_who_is_stopped_stays_in_his_episode(late: float) -> None:
    """What police.py counts is up to a quarter of a second old."""
    window, got = seen(20, 0.5, 0.5), Got(0.5, 1.0)
    began = window[-1]
    for number in range(1, 100):
        window = linger.window(window, replace(began, at_s=began.at_s + 2 * number, stopped_s=2 * number - late * (number % 2)))
        found = linger.got(window, got)
        assert found is None or found.share < 0.5, found
        got = found or got
    assert got == Got(0.0, 1.0)


def test_who_wanted_nothing_is_stopped():
    assert linger.got(seen(30, 0.0, 0.0, 1.0), Got(1.0, 0.0)) == Got(1.0, 0.0)


def test_the_window_is_the_last_one():
    found = linger.got(seen(10, 1.0, 0.0, before=seen(600, 0.0, 1.0)), Got())
    assert found == Got(pytest.approx(1.0), pytest.approx(1.0))
    assert len(seen(600, 1.0, 0.0)) <= 7


@pytest.mark.parametrize("one", [Counts(32.0, ((0.5, 0.0),)), Counts(32.0, ((30.5, 0.0), (0.5, 0.0)))])
def test_counters_that_begin_anew(one: Counts) -> None:
    """The domain was restarted between two looks, or has another vCPU."""
    assert linger.window(seen(30, 1.0, 0.0), one) == (one,)


# ---- since when

def test_hysteresis():
    since = linger.episodes({}, {"a": Got(0.92, 1), "b": Got(0.89, 1), "c": None}, 10.0)
    assert since == {"b": 10.0}
    since = linger.episodes(since, {"a": Got(0.92, 1), "b": Got(0.94, 1)}, 20.0)
    assert since == {"b": 10.0}
    assert linger.episodes(since, {"b": None}, 30.0) == {"b": 10.0}, "of whom nothing is known it goes on"
    assert linger.episodes(since, {"b": Got(0.95, 1)}, 30.0) == {} == linger.episodes(since, {}, 30.0)


# ---- what a move costs

@given(SHARES, SHARES, st.floats(0.1, 1e4), st.floats(0.1, 1e5))
def test_the_rule_is_the_better_of_both(here: float, there: float, move: float, age: float) -> None:
    """Staying brings (1-h) T, moving (1-l) (T - T_m), where T is the age: as long again."""
    if there - here < 1e-6:
        return
    stays, moves = here * age, there * (age - move)
    if abs(stays - moves) > 1e-6 * age:
        assert (age >= linger.pays_after(here, there, move)) == (moves >= stays)


def test_the_worked_number():
    seconds = linger.move_seconds(1000 * MB, 20 * MB, 100 * MB)
    assert seconds == 12.5 and linger.pays_after(0.2, 0.9, seconds) == pytest.approx(16.07, abs=0.01)


def test_a_guest_that_writes_as_much_as_is_sent():
    assert math.isinf(linger.move_seconds(1, 100 * MB, 100 * MB))


# ---- what is done

def subject(name: str = "b", share: float = 0.2, cpus: float = 1.0, memory: int = 1000 * MB, writes: float = 20 * MB,
            hindered: str = "") -> Subject:
    return Subject(name, Got(share, cpus), 2 * memory, memory, writes, hindered)


HERE = Place("", 0.1, 8000 * MB)
FREE = Place("qemu+ssh://free/system", 0.9, 8000 * MB)


def verdict(one: Subject, age: float, *places: Place, here: Place = HERE) -> linger.Verdict:
    (found,) = linger.decide([one], {one.name: 0.0}, here, places, 100 * MB, age)
    return found


def test_it_stays_then_moves():
    stays, moves = verdict(subject(), 16, FREE), verdict(subject(), 17, FREE)
    assert (stays.kind, stays.to) == ("stay", "") and (moves.kind, moves.to) == ("move", FREE.uri)
    assert moves.why == (
        "it does 20% of what it would alone, with 1.0 processors, and would do 90% at qemu+ssh://free/system; a move takes "
        "12 s (1000 MB at 100 MB/s, of which it writes 20.0) and pays after 16 s, and this has lasted for 17 s")


@pytest.mark.parametrize(("one", "place", "here", "kind"), [
    (subject(hindered="it has just come"), FREE, HERE, "hindered"),
    (subject(memory=4500 * MB), FREE, HERE, "room"),
    (subject(share=0.85), FREE, HERE, "gain"),
    (subject(cpus=9.0), FREE, HERE, "gain"),
    (subject(writes=200 * MB), FREE, HERE, "writes"),
    (subject(), FREE, Place("", 0.85, 0), "own"),
])
def test_it_stays(one: Subject, place: Place, here: Place, kind: str) -> None:
    assert (found := verdict(one, 1e6, place, here=here)).kind == kind and found.to == "" and found.kind in linger.KINDS


def test_where_to():
    busy, small = Place("busy", 0.5, 8000 * MB), Place("small", 4.0, 10 * MB)
    assert verdict(subject(), 1e6, busy, small, FREE).to == FREE.uri
    equal = Place("second", 0.9, 8000 * MB)
    assert verdict(subject(), 1e6, equal, FREE).to == "second", "of equals the operator's first"
    assert verdict(subject(), 1e6).kind == "room"


def test_one_moves_at_a_time():
    """Who is there soonest: it costs least, and the others may have enough then."""
    all_ = [subject("a", memory=3000 * MB), subject("b"), subject("c", memory=2000 * MB), subject("gone")]
    found = linger.decide(all_, dict.fromkeys("abc", 0.0), HERE, [FREE], 100 * MB, 1e6)
    assert [(one.name, one.kind, one.to) for one in found] == [("a", "next", ""), ("b", "move", FREE.uri), ("c", "next", "")]
    assert found[0].why.startswith("another one moves first; it does")
