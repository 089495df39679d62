# SPDX-License-Identifier: GPL-2.0-or-later
"""The last ten seconds of a resource, from what the boards say at some moments."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401  (how long, and how often)
from idletime.arena import Moment, Transitions
from idletime.hostd.timeline import BIN_MS, BINS, Timeline

MS = 1_000_000
T0 = 1_000_000 * MS  # the beginning of bin 50,000
FIRST = T0 // (BIN_MS * MS)


def moment(ms: float, *slots: Transitions, started: int = 0, interval_ms: int | None = 30, **more: Any) -> Moment:
    interval_us = None if interval_ms is None else interval_ms * 1000
    return Moment(T0 + int(ms * MS), slots, {0: started}, interval_us=interval_us, **more)


def slot(*events: tuple[float, bool], number: int = 0, first: int = 0) -> Transitions:
    """Busy (True) or idle since these times, in ms."""
    all_ = tuple((T0 + int(at * MS), busy) for at, busy in events)
    return Transitions(number, int(bool(events) and events[-1][1]), first + len(events), first, all_)


def test_foreground_interval_background() -> None:
    """Busy from 25 to 35 ms: half of bin 1. The interval of 30 ms: from 35 to 65 ms, a quarter of bins 1 and 3, all of bin 2.
    Background: 8 requests from 60 to 100 ms, 4 a bin."""
    line = Timeline()
    line.add(moment(0))
    line.add(moment(60, slot((25, True), (35, False))))
    line.add(moment(100, slot(first=2), started=8, in_service=1, waiting=2))
    found = line.read(FIRST)
    assert found["first"] == FIRST and found["bin_ms"] == 20 and found["interval_us"] == 30000
    assert found["foreground"] == [0, 500, 0, 0, 0]
    assert found["interval"] == [0, 250, 1000, 250, 0]
    assert found["background"] == [0, 0, 0, 4, 4]
    assert found["in_service"] == [0, 0, 0, 1, 1] and found["waiting"] == [0, 0, 0, 2, 2]


def test_what_was_before_the_first_moment() -> None:
    """Of the foreground the ring tells; of background nothing is known."""
    line = Timeline()
    line.add(moment(40, slot((0, True), (10, False))))
    line.add(moment(60, slot(first=2)))
    found = line.read(FIRST)
    assert found["foreground"] == [500, 0, 0] and found["interval"] == [500, 1000, 0]
    assert found["background"] == [None, None, 0]


def test_what_is_told_twice() -> None:
    """As of an observer, whose newest transition is: it changes nothing, though a later one was told before."""
    line = Timeline()
    line.add(moment(0))
    line.add(moment(20, slot((5, True), (10, False), (15, True))))
    line.add(moment(40, slot((10, False), (15, True), first=1)))
    line.add(moment(60, slot((35, False), first=3)))
    assert line.read(FIRST)["foreground"] == [500, 750, 0]


def test_two_slots_are_one_disk() -> None:
    """0 to 15 and 10 to 20 ms: one busy period, no interval within it. The second one is busy still, and has no interval."""
    line = Timeline()
    line.add(moment(0))
    line.add(moment(40, slot((0, True), (15, False)), slot((10, True), (20, False), (30, True), number=1)))
    found = line.read(FIRST)
    assert found["foreground"] == [1000, 500]
    assert found["interval"] == [0, 500]


def test_a_ring_that_ran_over() -> None:
    """More happened between two moments than the ring holds: that time is foreground."""
    line = Timeline()
    line.add(moment(0, slot((-10, True), (-5, False))))
    line.add(moment(40, slot((38, True), (39, False), first=100)))
    assert line.read(FIRST)["foreground"] == [1000, 950]
    assert line.heads == {0: 102}


def test_slots_come_go_and_change_hands() -> None:
    """Who dies while it is busy was busy until it was seen last; a head that is less than before is another's."""
    line = Timeline()
    line.add(moment(0))
    line.add(moment(20, slot((0, True))))
    line.add(moment(40))
    assert line.read(FIRST)["foreground"] == [1000, 0] and line.heads == {}
    line.add(moment(60, slot((41, True), (51, False))))
    line.add(moment(80, slot((70, True))))
    assert line.read(FIRST)["foreground"] == [1000, 0, 500, 500]


def test_since_and_the_longest() -> None:
    line = Timeline()
    assert line.read() == {"bin_ms": 20, "first": 0, "foreground": [], "interval": [], "background": [], "in_service": [],
                           "waiting": [], "interval_us": None}
    for number in range(2000):
        line.add(moment(20 * number, started=number))
    found = line.read()
    assert len(found["foreground"]) == BINS and found["first"] == FIRST + 1999 - BINS
    assert found["background"] == [1] * BINS
    assert len(line.read(FIRST + 1990)["background"]) == 9
    assert line.read(10 ** 18)["foreground"] == []
    assert len(line._samples) <= BINS + 2


@given(st.lists(st.tuples(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 2000), st.booleans()), max_size=5),
                          st.integers(0, 300), st.one_of(st.none(), st.integers(0, 500))), max_size=30))
def test_whatever_a_board_says(moments: list[tuple[int, list[tuple[int, bool]], int, int | None]]) -> None:
    """Damaged boards: any times, heads, intervals. Shares stay shares, and add up to a bin at most."""
    line, now = Timeline(), 0
    for wait, events, head, interval in moments:
        now += wait
        line.add(moment(now, slot(*events, first=head), started=head, interval_ms=interval))
        found = line.read()
        assert all(fg >= 0 and rest >= 0 and fg + rest <= 1001
                   for fg, rest in zip(found["foreground"], found["interval"], strict=True))
        assert all(count is None or count >= 0 for count in found["background"])
