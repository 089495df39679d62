# SPDX-License-Identifier: GPL-2.0-or-later
"""Suspension of 004: replays of its control (Fig. 5), its processors (Fig. 1), and what always holds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import suspend
from idletime.police.suspend import Act, Mode, Rule, Sample, Settings, State, Use

STEP = 0.25
EII, IPD = Settings(), Settings(rule=Rule.IPD)


def sample(at, disk=(0, 0), cpu=(0.0, 0.0), cpus=1, seconds=STEP):
    """disk, cpu: (foreground, background) of the VM "b"."""
    idle = max(0.0, cpus * seconds - sum(cpu))
    return Sample(at, seconds, cpus, idle, Use(cpu[0], {"b": cpu[1]}), {"sda": Use(disk[0], {"b": disk[1]})})


def replay(settings, foreground, seconds):
    """A VM that reads 50 times a sample whenever it runs, beside foreground(time) reads. -> [(time, act)]."""
    state, window, acts, running, ran = State(), (), [], True, 0.0
    for number in range(1, int(seconds / STEP) + 1):
        now = number * STEP
        window = suspend.add(window, sample(now, (foreground(now), 50 if running else 0)), settings.aggregation_s)
        ran += STEP if running else 0
        decision = suspend.decide("b", state, window, now, settings)
        assert bool(decision.why) == (decision.act is not Act.NOTHING)
        state = decision.state
        if decision.act is not Act.NOTHING:
            acts.append((now, decision.act.value))
            running = decision.act is Act.CONT
    return acts, ran


def test_eii_doubles_to_sixteen_seconds():
    acts, _ = replay(EII, lambda _: 50, 60)
    stopped = [end - begin for (begin, act), (end, _) in pairwise(acts) if act == "stop"]
    probes = [end - begin for (begin, act), (end, _) in pairwise(acts) if act == "cont"]
    assert acts[0] == (1.25, "stop")
    assert stopped == [1, 2, 4, 8, 16, 16]
    assert set(probes) == {1.25}


def test_eii_in_steady_contention_runs_1_25_of_17_25_seconds():
    _, ran = replay(EII, lambda _: 50, 17.25 * 40)
    assert ran / (17.25 * 40) == pytest.approx(1.25 / 17.25, rel=0.1)


def test_eii_after_the_foreground_left_runs_on_and_forgets():
    acts, _ = replay(EII, lambda now: 50 if now < 10 or now > 40 else 0, 45)
    # 1.25 stop, 2.25 probe, 3.5 stop 2, 5.5 probe, 6.75 stop 4, 10.75 probe: clear until 40.25
    assert acts[5] == (10.75, "cont")
    assert acts[6][1] == "stop" and 40 < acts[6][0] <= 41.5
    assert acts[7][0] - acts[6][0] == 1


def test_ipd_never_probes_and_resumes_one_interval_after_the_foreground():
    acts, ran = replay(IPD, lambda now: 50 if 5 < now <= 20 else 0, 30)
    # Stopped at the first look that sees it; 20 + 1.25 s without any access.
    assert acts == [(5.25, "stop"), (21.25, "cont")]
    assert ran == pytest.approx(5.25 + 8.75)


def test_ipd_wakes_for_its_tcp_peers():
    acts, ran = replay(IPD, lambda _: 50, 100)
    assert acts == [(1.25, "stop"), (31.25, "cont"), (31.5, "stop"), (61.5, "cont"), (61.75, "stop"), (91.75, "cont"),
                    (92.0, "stop")]
    assert (ran - 1.25) / 98.75 < 0.0085


@pytest.mark.parametrize("cpu, cpus, contended", [
    ((0.5, 0.5), 1, True),      # equal, nothing idle
    ((0.1, 0.9), 1, False),     # 90 % of it: above the threshold
    ((0.4, 0.3), 1, False),     # 30 % idle: a low share is all that it needs (4.3.1)
    ((0.5, 0.0), 1, False),     # a share of zero is no contention (4.4.2)
    ((3.0, 1.0), 4, True),      # Fig. 1, right: four threads of the foreground on three processors
    ((2.0, 1.0), 4, False),     # one is idle
])
def test_processors(cpu, cpus, contended):
    seen = sample(1, cpu=cpu, cpus=cpus, seconds=1.0)
    assert bool(suspend.contention("b", seen, EII.thresholds)) == contended


def test_only_who_uses_the_device_is_stopped():
    seen = Sample(1, 1.25, 1, 1.25, Use(), {"disk sda": Use(10, {"b": 10}), "uplink eth0": Use(0, {"c": 10})})
    found = suspend.contention("b", seen, EII.thresholds)
    assert found.cause == "disk" and found.why.startswith("disk sda: background 50%")
    assert suspend.contention("c", seen, EII.thresholds) is None


def test_multiprocessor_is_judged_within_a_quarter_of_a_second():
    window = (sample(0.25, cpu=(0, 0.5), cpus=2), )
    assert suspend.decide("b", State(), window, 0.25, EII).act is Act.NOTHING
    window = (*window, sample(0.5, cpu=(0.25, 0.25), cpus=2))
    assert suspend.decide("b", State(), window, 0.5, EII).act is Act.STOP


@pytest.mark.parametrize("foreground, free", [(0, 3), (0.04, 3), (1, 2), (1.5, 1), (3, 0), (4, 0)])
def test_background_gets_the_free_processors_less_one(foreground, free):
    assert suspend.free_cpus(4, foreground, 1.0) == free


def test_who_runs_stays():
    assert suspend.placed(2, {"a": 1, "b": 2, "c": 1}, ["b"]) == ("b",)
    assert suspend.placed(2, {"a": 1, "b": 2, "c": 1}, ["c"]) == ("c", "a")


@given(st.integers(0, 16), st.dictionaries(st.text(max_size=3), st.integers(0, 8)), st.sets(st.text(max_size=3)))
def test_never_more_threads_than_processors(free, threads, running):
    chosen = suspend.placed(free, threads, running)
    assert sum(threads[name] for name in chosen) <= free
    assert all(threads[name] > free - sum(threads[one] for one in chosen) for name in threads if name not in chosen)


@pytest.mark.parametrize("background", [1, 2, 4])
def test_accuracy_falls_where_the_share_of_equals_lies(background):
    """004, 7.2: n backgrounds beside one foreground have n / (n + 1); a threshold there or below sees nothing."""
    share = background / (background + 1)
    assert suspend.accuracy([share], [1.0], share - 0.01) == 0
    assert suspend.accuracy([share], [1.0], 0.98) == 1
    assert suspend.calibrated([share], [1.0], 0.5) == 1.0


def test_calibration_keeps_what_it_had_where_shares_tell_nothing():
    assert suspend.calibrated([], [], 0.85) == 0.85
    assert suspend.calibrated([0.9, 0.95], [0.9, 0.95], 0.85) == 0.85


@st.composite
def histories(draw):
    return draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.floats(0, 0.25), st.floats(0, 0.25)),
                         max_size=160))


@given(histories(), st.sampled_from(Rule))
def test_acts_alternate_and_no_suspension_is_longer_than_it_may(history, rule):
    settings = Settings(rule=rule)
    state, window, running, stopped_at = State(), (), True, 0.0
    for number, (fore, back, cpu_fore, cpu_back) in enumerate(history, 1):
        now = number * STEP
        mine = (fore, back if running else 0)
        window = suspend.add(window, sample(now, mine, (cpu_fore, cpu_back if running else 0)), settings.aggregation_s)
        decision = suspend.decide("b", state, window, now, settings)
        if decision.act is Act.STOP:
            assert running
            running, stopped_at = False, now
        elif decision.act is Act.CONT:
            assert not running
            running = True
        state = decision.state
        assert running == (state.mode is not Mode.STOPPED)
        longest = settings.longest_s if rule is Rule.EII else settings.wake_after_s
        assert running or now - stopped_at < longest
        assert len(window) <= 6


def test_without_samples_a_vm_runs_on_and_a_stopped_one_comes_back():
    assert suspend.decide("b", State(), (), 5, EII) == suspend.Decision(State())
    for settings in (EII, IPD):
        assert suspend.decide("b", State(Mode.STOPPED, 0, 1), (), 40, settings).act is Act.CONT
