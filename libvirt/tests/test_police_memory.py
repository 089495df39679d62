# SPDX-License-Identifier: GPL-2.0-or-later
"""Low and High of 003, section 4, and the give-back: within its time, never below a minimum, as few VMs lost as possible."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import memory, space
from idletime.police.memory import MIB, Group, Host, How, Saved, State, Vm
from idletime.police.space import Filesystem, Scratch

GIB = 1 << 30


def test_slices_of_figure_5():
    """179 MB, Low 50, High 70: what the foreground has is safe up to 109, what the background has up to 50."""
    groups = [Group("/m.slice/fg", 200 * MIB), Group("/m.slice/bg", 128 * MIB, 50 * MIB, 70 * MIB)]
    assert memory.protections(179 * MIB, groups) == {
        "/m.slice/fg": 109 * MIB, "/m.slice/bg": 50 * MIB, "/m.slice": 159 * MIB}
    assert memory.protections(179 * MIB, groups[:1]) == {}, "nobody is background"


groups_ = st.lists(st.builds(lambda number, size, low, high: Group(f"/m.slice/v{number}", size, low, high),
                             st.integers(0, 99), st.integers(0, 1 << 40), st.none() | st.integers(0, 1 << 40),
                             st.none() | st.integers(0, 1 << 41)), max_size=6, unique_by=lambda one: one.folder)


@given(st.integers(0, 1 << 40), groups_)
def test_protections_fit_the_host(total, groups):
    found = memory.protections(total, groups)
    assert all(0 <= found.get(one.folder, 0) <= one.size for one in groups)
    assert sum(found.get(one.folder, 0) for one in groups if one.low is None) <= total
    assert found.get("/m.slice", 0) == sum(low for folder, low in found.items() if folder != "/m.slice")


vms_ = st.lists(st.builds(
    lambda number, low, more, less, high, balloon, reclaim, swapped:
    Vm(f"v{number}", low + more, low + less, low, high, low + more + GIB, balloon, reclaim, swapped=swapped),
    st.integers(0, 1 << 30), st.integers(0, 4 * GIB), st.integers(0, 4 * GIB), st.integers(0, 4 * GIB),
    st.none() | st.integers(0, 8 * GIB),
    st.booleans(), st.booleans(), st.integers(0, 4 * GIB)), max_size=6, unique_by=lambda vm: vm.name)
hosts = st.builds(Host, st.integers(0, 8 * GIB), st.integers(0, 2 * GIB), st.integers(0, 8 * GIB),
                  st.none() | st.floats(0, 100))


@given(vms_, hosts, st.floats(0, 30))
def test_never_below_a_minimum(vms, host, age):
    decision = memory.decide(State(0.0, None), host, vms, age)
    by_name = {vm.name: vm for vm in vms}
    assert len({act.name for act in decision.acts}) == len(decision.acts)
    for act in decision.acts:
        vm = by_name[act.name]
        if act.how is How.BALLOON:
            assert vm.low <= act.bytes_ <= max(vm.target, vm.was)
        elif act.how is How.RECLAIM:
            assert vm.resident - act.bytes_ >= vm.low and not vm.balloon
        assert act.why
    assert sum(act.how is How.SAVE for act in decision.acts) <= 1
    asked = sum(by_name[act.name].has - act.bytes_ if act.how is How.BALLOON else act.bytes_ for act in decision.acts
                if act.how in (How.BALLOON, How.RECLAIM))
    if memory.shortage(host):
        assert asked <= memory.shortage(host)


@pytest.mark.parametrize("host, cause", [
    (Host(GIB, 2 * GIB), "reserve"), (Host(2 * GIB, 2 * GIB, GIB), "starting"), (Host(2 * GIB, GIB, 0, 5.0), "pressure")])
def test_each_act_has_its_cause(host, cause):
    (act,) = memory.decide(State(), host, two(), 0).acts
    assert (act.how, act.cause) == (How.BALLOON, cause) and act.gives == 2 * GIB - act.bytes_ > 0


def test_what_the_kernel_does_is_not_asked():
    """A reserve that is short is no reason where all foreground is protected and swap takes what is missing."""
    short = Host(GIB, 2 * GIB, protected=True, swap=GIB)
    assert memory.shortage(short) == 0 and memory.decide(State(0.0), short, two(), 100).acts == ()
    for other in (replace(short, protected=False), replace(short, swap=GIB - 1)):
        assert memory.shortage(other) == GIB
    starts = replace(short, starting=GIB)
    assert memory.shortage(starts) == 2 * GIB
    assert {act.cause for act in memory.decide(State(), starts, two(), 0).acts} == {"reserve"}
    (act,) = memory.decide(State(0.0), replace(short, pressure=5.0), two(), 100).acts
    assert (act.gives, act.cause) == (memory.SMALLEST_STEP, "pressure")


@given(vms_, hosts)
def test_who_lacks_nothing_takes_nothing(vms, host):
    host = replace(host, available=host.reserve + host.starting, pressure=0.5)
    assert memory.decide(State(), host, vms, 0).acts == ()


def live(vms, host, seconds, obeys):
    """Balloons that move obeys MiB a second; what is saved is gone after two looks. -> time until nothing is missing, acts."""
    state, acts, going, targets = State(), [], {}, {}
    for now in range(seconds):
        if not memory.shortage(host):
            return now, acts, vms
        decision = memory.decide(state, host, vms, now)
        state = decision.state
        for act in decision.acts:
            acts.append(act)
            if act.how is How.BALLOON:
                targets[act.name] = act.bytes_
            else:
                going[act.name] = now + 2
        after = []
        for vm in vms:
            gone = going.get(vm.name) == now
            has = max(targets.get(vm.name, vm.resident), vm.resident - obeys * MIB)
            host = replace(host, available=host.available + (vm.resident if gone else vm.resident - has))
            after += [] if gone else [replace(vm, resident=has, target=targets.get(vm.name, vm.target))]
        vms = after
    return seconds, acts, vms


def two():
    return [Vm("a", 2 * GIB, 2 * GIB, GIB // 2), Vm("b", 2 * GIB, 2 * GIB, GIB // 2)]


def test_given_back_within_the_time():
    took, acts, vms = live(two(), Host(GIB // 4, GIB // 4, 2 * GIB), 60, 1024)
    assert took <= memory.WITHIN_S
    assert {act.how for act in acts} == {How.BALLOON}
    assert all(vm.resident >= vm.low for vm in vms)


def test_who_does_not_obey_is_saved_after_the_time_and_only_one_where_one_suffices():
    took, acts, vms = live(two(), Host(GIB // 4, GIB // 4, GIB), 60, 0)
    saved = [act for act in acts if act.how is How.SAVE]
    assert len(saved) == 1 and "10 s were not enough" in saved[0].why
    assert took <= memory.WITHIN_S + 4 and len(vms) == 1


def test_where_minima_leave_too_little_one_goes_at_once():
    _, acts, _ = live(two(), Host(GIB // 4, GIB // 4, 7 * GIB // 2), 60, 1024)
    assert acts[0].how is How.SAVE and "minima" in acts[0].why


def test_who_cannot_be_saved_stays():
    vms = [replace(one, can_save=False, balloon=False) for one in two()]
    assert memory.decide(State(0.0), Host(0, 0, 4 * GIB), vms, 100).acts == ()
    (act,) = memory.decide(State(0.0), Host(0, 0, 4 * GIB), [vms[0], replace(vms[1], can_save=True)], 100).acts
    assert (act.name, act.how) == ("b", How.SAVE)


def test_who_is_paused_is_saved_last_and_not_before_the_time():
    """It may run again in a moment and give then; who paused it expects to find it so."""
    paused = Vm("p", 4 * GIB, 4 * GIB, GIB, balloon=False, paused=True)
    assert memory.decide(State(), Host(0, 0, GIB), [paused], 0).acts == ()
    (act,) = memory.decide(State(0.0), Host(0, 0, GIB), [paused], 11).acts
    assert (act.name, act.how) == ("p", How.SAVE)
    runs = replace(paused, name="r", resident=8 * GIB, balloon=True, paused=False)
    acts = memory.decide(State(0.0), Host(0, 0, GIB), [paused, runs], 11).acts
    assert [act.name for act in acts if act.how is How.SAVE] == ["r"]


def test_a_guest_that_has_not_touched_its_memory():
    """What is asked of it counts from what it has; nobody asks a balloon to be larger than it was."""
    (act,) = memory.decide(State(), Host(0, 16 * MIB), [replace(two()[0], resident=GIB)], 0).acts
    assert act.bytes_ == GIB - 16 * MIB
    calm = memory.decide(State(None, 0.0), Host(9 * GIB, GIB), [replace(two()[0], resident=GIB)], 100)
    assert calm.acts == ()


def test_what_the_host_has_swapped_out_the_guest_has_in_use():
    """A balloon of what is resident would take all of that at once, and the guest's kernel would kill for it."""
    (act,) = memory.decide(State(), Host(0, 16 * MIB), [replace(two()[0], resident=GIB, swapped=GIB // 2)], 0).acts
    assert act.bytes_ == GIB + GIB // 2 - 16 * MIB
    (act,) = memory.decide(State(), Host(0, 16 * MIB), [replace(two()[0], resident=GIB, swapped=9 * GIB)], 0).acts
    assert act.bytes_ == 2 * GIB - 16 * MIB
    assert replace(two()[0], resident=GIB, swapped=9 * GIB).may_come == GIB


def test_who_is_above_high_gives_first():
    vms = [replace(two()[0], high=2 * GIB), replace(two()[1], high=GIB)]
    (act,) = memory.decide(State(), Host(0, 100 * MIB), vms, 0).acts
    assert (act.name, act.how) == ("b", How.BALLOON)


def test_pressure_alone_saves_nobody():
    vms = [Vm("a", GIB, GIB, GIB)]
    assert memory.decide(State(0.0), Host(GIB, 0, 0, 50.0), vms, 100).acts == ()


def test_pressure_before_does_not_count_for_the_time():
    """A moment in which bytes are missing is none in which they have been for ten seconds."""
    found = memory.decide(State(), Host(GIB, 0, 0, 50.0), two(), 0)
    found = memory.decide(found.state, Host(GIB, GIB + MIB, 0, 50.0), two(), 20)
    assert [act.how for act in found.acts] == [How.BALLOON] and found.state.short_since_s == 20


def test_memory_comes_back_after_a_minute():
    vms, host = [replace(two()[0], target=GIB, was=2 * GIB)], Host(3 * GIB, GIB // 4)
    first = memory.decide(State(0.0), host, vms, 5)
    assert first.acts == () and first.state.short_since_s is None
    assert memory.decide(first.state, host, vms, 64).acts == ()
    (act,) = memory.decide(first.state, host, vms, 65).acts
    assert act.bytes_ == GIB + memory.LARGEST_STEP
    (act,) = memory.decide(first.state, host, [replace(vms[0], target=2 * GIB - MIB)], 65).acts
    assert act.bytes_ == 2 * GIB


def test_the_saved_come_back_first_and_one_at_a_time():
    saved = [Saved("x", 4 * GIB), Saved("y", 2 * GIB)]
    vms, host = [replace(two()[0], target=GIB, was=2 * GIB)], Host(3 * GIB, GIB // 2)
    found = memory.decide(State(None, 0.0), host, vms, 60, saved=saved)
    assert [(act.name, act.how) for act in found.acts] == [("y", How.START)]
    assert memory.decide(found.state, host, vms, 100, saved=saved[:1]).acts == ()
    (act,) = memory.decide(found.state, host, vms, 120, saved=saved[:1]).acts
    assert act.how is How.BALLOON, "there is no room for the other"


# ---- space

def test_space_is_trimmed_then_dropped():
    full = Filesystem(4 * GIB, 100 * GIB)
    disks = [Scratch("a", 5 * GIB, agent=True), Scratch("b", 9 * GIB)]
    first = space.decide(space.State(), full, disks, 0)
    assert [(act.name, act.how) for act in first.acts] == [("a", space.How.TRIM)]
    disks[0] = replace(disks[0], trimmed_s=0)
    assert space.decide(first.state, full, disks, 29).acts == ()
    late = space.decide(first.state, full, disks, 30)
    assert [(act.name, act.how) for act in late.acts] == [("b", space.How.DROP)]
    assert space.decide(late.state, full, disks, 31).acts == ()  # it is going
    over = space.decide(late.state, Filesystem(13 * GIB, 100 * GIB), disks[:1], 32)
    assert over == space.Decision(space.State())
    (act,) = space.decide(over.state, full, disks[:1], space.AGAIN_S).acts
    assert act.how is space.How.TRIM, "another shortage"
    (act,) = space.decide(over.state, full, disks[:1], space.AGAIN_S - 1).acts
    assert act.how is space.How.DROP, "it has just shown what its trim is worth"


def test_what_was_dropped_may_come_free_later():
    """One goes; the next one after half a minute, or at once where the space does not last so long."""
    short, disks = Filesystem(4 * GIB, 100 * GIB), [Scratch("a", GIB), Scratch("b", 2 * GIB)]
    first = space.decide(space.State(), short, disks, 0)
    assert [act.name for act in first.acts] == ["b"]
    gone = disks[:1]
    assert space.decide(first.state, short, gone, 29).acts == ()
    assert [act.name for act in space.decide(first.state, short, gone, 30).acts] == ["a"]
    assert [act.name for act in space.decide(first.state, Filesystem(4 * GIB, 100 * GIB, GIB), gone, 2).acts] == ["a"]
    assert [act.name for act in space.decide(first.state, Filesystem(0, 100 * GIB), gone, 2).acts] == ["a"]


def test_who_cannot_be_dropped_is_passed_over():
    disks = [Scratch("a", GIB), Scratch("b", 2 * GIB, can_drop=False)]
    (act,) = space.decide(space.State(), Filesystem(4 * GIB, 100 * GIB), disks, 0).acts
    assert (act.name, act.how) == ("a", space.How.DROP)


def test_space_that_does_not_last_is_not_trimmed_for():
    (act,) = space.decide(space.State(), Filesystem(2 * GIB, 100 * GIB, GIB / 5), [Scratch("a", GIB, agent=True)], 0).acts
    assert act.how is space.How.DROP


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40), st.floats(0, 1e9), st.floats(0, 1000),
       st.lists(st.builds(Scratch, st.text(max_size=2), st.integers(0, 1 << 40), st.booleans(), st.none() | st.floats(0, 1000)),
                unique_by=lambda disk: disk.name, max_size=5))
def test_space_touches_nobody_above_the_mark(free, size, rate, now, disks):
    there = Filesystem(free, size, rate)
    acts = space.decide(space.State(0.0), there, disks, now).acts
    assert not (acts and free >= there.low_water)
    assert sum(act.how is space.How.DROP for act in acts) <= 1
