# SPDX-License-Identifier: GPL-2.0-or-later
"""Rate windows of 003: Fig. 8 (two tars), Table 4 (dilation), hysteresis, equations 1 and 2."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import windows
from idletime.police.windows import Operation, State, Thresholds

PAPER = Thresholds.of(10_000_000)
STEP = 0.25


def test_thresholds_are_the_papers():
    assert (PAPER.high, PAPER.low, PAPER.limit) == (1_000_000, 500_000, 500_000)


def test_two_tars():
    """Fig. 8 b: the guest is alone, the host runs from 20 to 40 s, the guest goes up again after the window has emptied."""
    state, fore, back, limits, whys = State(), (), (), [], []
    for number in range(1, 241):
        now = number * STEP
        if 20 < now <= 40:
            fore = windows.add(fore, Operation(now, STEP, int(3_000_000 * STEP), 12), now)
        back = windows.add(back, Operation(now, STEP, int((state.limit or 4_000_000) * STEP), 10), now)
        decision = windows.decide(state, fore, back, PAPER, now)
        assert decision.changed == (decision.state.limit != state.limit)
        whys += [decision.why] if decision.why else []
        state = decision.state
        limits.append((now, state.limit))
    on = [now for now, limit in limits if limit is not None]
    assert {limit for _, limit in limits if limit} == {500_000}
    assert 20 < on[0] <= 20.5
    # Off when 3 MB/s of at most 100 operations (2.1 s of them) over the time since is below 500 KB/s, within the 5 s.
    assert 41 < on[-1] <= 45.0
    assert len(on) == (on[-1] - on[0]) / STEP + 1
    assert [why.split(": ")[1] for why in whys] == ["background 500 KB/s", "no limits"]


@pytest.mark.parametrize("program, file, disk, limit", [
    ("tar", 103.0, 103.0, 500_000), ("agrep", 50.0, 58.1, 430_292), ("compile", 23.3, 10.0, 1_165_000)])
def test_dilation_of_table_4(program, file, disk, limit):
    back = (Operation(1, 1, int(file * 1e6), 10, int(disk * 1e6)),)
    fore = (Operation(1, 1, 2_000_000),)
    assert windows.decide(State(), fore, back, PAPER, 1).state.limit == pytest.approx(limit, abs=1)


def test_hysteresis():
    def look(state, rate):
        return windows.decide(state, (Operation(1, 1, rate),), (), PAPER, 1).state.on
    assert [look(State(on), rate) for on, rate in [(False, 700_000), (True, 700_000), (False, 1_000_001), (True, 499_999)]] \
        == [False, True, True, False]


def test_a_limit_is_told_once():
    fore = (Operation(1, 1, 2_000_000),)
    first = windows.decide(State(), fore, (), PAPER, 1)
    assert first.changed
    assert windows.decide(first.state, fore, (Operation(1, 1, 100, 1, 95),), PAPER, 1) == windows.Decision(first.state)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 40), st.integers(0, 1 << 20)), max_size=40))
def test_a_window_is_of_100_operations_and_5_seconds(steps):
    window, now = (), 0.0
    for pause, count, size in steps:
        now += pause
        window = windows.add(window, Operation(now, 0, size, count), now)
        assert window[-1].end_s == now
        assert all(one.end_s > now - 5 for one in window)
        assert sum(one.count for one in window) <= 100
        assert windows.rate(window, now) >= 0
    assert windows.rate(window, now + 5.1) == 0


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(512, 1 << 20)), max_size=40),
       st.sampled_from([100_000, 500_000]))
def test_equation_2_keeps_each_window_at_the_rate(steps, limit):
    """Whoever sleeps as told has moved at most limit x time in the window that was judged, and a shortest sleep of it."""
    window, now = (), 0.0
    for pause, size in steps:
        now += pause
        waits = windows.delays(window, size, now, limit)
        assert all(windows.SHORTEST_S / 2 <= wait <= windows.LONGEST_S for wait in waits)
        begin = window[0].end_s if window else now
        now += sum(waits)
        moved = sum(one.bytes_ for one in window) + size
        assert moved <= limit * (now - begin + windows.SHORTEST_S) + 1
        window = windows.add(window, Operation(now, 0, size), now)


def test_short_sleeps_are_dropped_long_ones_split():
    assert windows.delays((Operation(0, 0, 500_000),), 4_000, 1.0, 500_000) == ()  # 504,000 / 500,000 - 1 = 8 ms
    assert windows.delays((Operation(0, 0, 500_000),), 500_000, 1.0, 500_000) == pytest.approx((1 / 3,) * 3)


@given(st.integers(0, 1 << 40), st.dictionaries(st.text(max_size=3), st.floats(0, 1e12), max_size=8))
def test_shares_sum_to_the_limit_and_none_is_without(limit, demand):
    found = windows.shares(limit, demand)
    assert found.keys() == demand.keys()
    assert all(one >= 1 for one in found.values())
    assert sum(found.values()) <= limit * 1.000001 + len(demand)


def test_words_of_libvirt():
    assert windows.block_tune(500_000)["total_bytes_sec"] == 500_000
    assert set(windows.block_tune(None).values()) == set(windows.bandwidth(None).values()) == {0}
    assert windows.bandwidth(100)["outbound.average"] == 1
