# SPDX-License-Identifier: GPL-2.0-or-later
"""Rate windows of 003: on and off with hysteresis, whose rate it is, and what each of the background gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import windows
from idletime.police.windows import Reading, Thresholds, Window

KB = 1000
OF_THE_PAPER = Thresholds()


def run(window: Window, seconds: float, foreground: float, **own: float) -> Window:
    """So many seconds at these rates in KB/s, looked at four times a second."""
    for _ in range(int(seconds * 4)):
        last = window[-1] if window else Reading(0.0, 0, dict.fromkeys(own, 0))
        ours = {name: last.own.get(name, 0) + int(rate * KB / 4) for name, rate in own.items()}
        total = last.total + int((foreground + sum(own.values())) * KB / 4)
        window = windows.add(window, Reading(last.at_s + 0.25, total, ours))
    return window


def test_figure_8():
    """Background alone is not limited; it is while the foreground moves 4,000 KB/s, and 5 s after that no more."""
    window = run((), 10, 0, tar=8000)
    assert windows.decide(None, window, OF_THE_PAPER) == windows.Decision(None)
    window = run(window, 1, 4000, tar=4000)
    assert windows.foreground(window) == 4000 * KB / 5
    assert windows.decide(None, window, OF_THE_PAPER).limits is None
    window = run(window, 0.5, 4000, tar=4000)
    on = windows.decide(None, window, OF_THE_PAPER)
    assert on.limits == {"tar": 500 * KB} and on.why == "the foreground moves 1200 KB/s, more than 1000 KB/s"
    assert windows.decide(on.limits, run(window, 20, 4000, tar=500), OF_THE_PAPER) == windows.Decision(on.limits)
    window = run(run(window, 20, 4000, tar=500), 4, 0, tar=500)
    assert windows.decide(on.limits, window, OF_THE_PAPER).limits == on.limits, "4,000 of the last 5 s"
    window = run(window, 1, 0, tar=500)
    off = windows.decide(on.limits, window, OF_THE_PAPER)
    assert off.limits is None and off.why == "the foreground moves 0 KB/s, less than 500 KB/s"


def test_hysteresis():
    """Between Low and High all stays as it is."""
    window = run((), 10, 700, a=100)
    assert windows.decide(None, window, OF_THE_PAPER).limits is None
    assert windows.decide({"a": 500 * KB}, window, OF_THE_PAPER).limits == {"a": 500 * KB}


def test_several_share():
    """Half of 500 alike, half by what they move: 125 + 250 * 3/4, 125 + 250 * 1/4."""
    assert windows.decide(None, run((), 10, 9000, a=300, b=100), OF_THE_PAPER).limits == {"a": 312500, "b": 187500}
    assert windows.decide(None, run((), 10, 9000, a=0, b=0), OF_THE_PAPER).limits == {"a": 250 * KB, "b": 250 * KB}


def test_counters_that_begin_anew():
    """What is not known is nobody's; what was known before counts on."""
    window = run((), 10, 9000, a=300)
    for reading in (Reading(10.25, 5, {"a": 5}), Reading(10.25, 1 << 40, {"a": 1 << 30, "b": 1 << 30}), Reading(10.25, 5, {})):
        assert windows.foreground(windows.add(window, reading)) == 9000 * KB
    assert windows.foreground(()) == 0 and windows.foreground((Reading(1, 1 << 40),)) == 0


def test_limits_outlast_who_comes_and_goes():
    """Another background VM starts, or a foreground one ends: nobody's limits are lifted, and the newcomer has its own."""
    window = run((), 10, 700, a=100)
    last = window[-1]
    more = windows.add(window, Reading(last.at_s + 0.25, last.total + 1, {**last.own, "b": 0}))
    assert windows.decide({"a": 500 * KB}, more, OF_THE_PAPER).limits == {"a": 375 * KB, "b": 125 * KB}
    less = windows.add(window, Reading(last.at_s + 0.25, 5, last.own))
    assert windows.decide({"a": 500 * KB}, less, OF_THE_PAPER).limits == {"a": 500 * KB}
    assert windows.decide({"a": 500 * KB}, run(less, 6, 0, a=500), OF_THE_PAPER).limits is None


def test_limits_stay_while_too_little_is_known():
    """One starts at every look."""
    window, now = run((), 10, 0, a=500), {"a": 500 * KB}
    for number in range(40):
        last = window[-1]
        window = windows.add(window, Reading(last.at_s + 0.25, last.total, {**last.own, f"n{number}": 0}))
    assert windows.decide(now, window, OF_THE_PAPER).limits is not None
    assert windows.decide(now, run(window, 3, 0, a=500), OF_THE_PAPER).limits is None


def test_a_window_is_bounded():
    assert len(run((), 60, 1, a=1)) == 21


own_ = st.dictionaries(st.sampled_from("abc"), st.integers(0, 1 << 50))


@given(st.lists(st.tuples(st.floats(0.01, 9), st.integers(0, 1 << 50), own_), max_size=9),
       st.none() | st.dictionaries(st.sampled_from("abc"), st.integers(1, 1 << 30)))
def test_limits_fit_whatever_is_read(readings, now):
    window, at = (), 0.0
    for seconds, total, own in readings:
        at += seconds
        window = windows.add(window, Reading(at, total, own))
    found = windows.decide(now, window, OF_THE_PAPER).limits
    if found and found is not now:
        assert sum(found.values()) <= OF_THE_PAPER.limit and min(found.values()) >= 1 and found.keys() == window[-1].own.keys()
