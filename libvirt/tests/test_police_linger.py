# SPDX-License-Identifier: GPL-2.0-or-later
"""Linger or migrate (003, section 2), and which policy holds a VM."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import enforce, linger
from idletime.police.enforce import Device, Enforce, Through, Vm
from idletime.police.linger import Do, Facts, Policy, Settings, Target

GIB = 1 << 30
# 2 GiB over (110 - 7.6) MiB/s: 20 s.
FACTS = Facts("ci", 0.8, 10, 2 * GIB, 7.6 * 2**20, 110 * 2**20, (Target("b", 0.1), Target("c", 0.0, room=False)))
EXACT = Settings(margin=1.0)


def test_the_worked_number():
    t_m = linger.migration_s(FACTS.memory, FACTS.dirty_rate, FACTS.bandwidth)
    assert t_m == pytest.approx(20)
    assert linger.patience_s(t_m, 0.8, 0.1) == pytest.approx(25.7, abs=0.05)
    busy = {now: linger.decide(replace(FACTS, busy_s=now), EXACT) for now in (0, 25, 26)}
    assert [one.do for one in busy.values()] == [Do.LINGER, Do.LINGER, Do.MIGRATE]
    assert busy[26].target == "b"


def test_the_log_line_has_facts_and_costs():
    facts = replace(FACTS, busy_s=100)
    assert linger.line(facts, linger.decide(facts, EXACT), dry_run=True) == (
        "ci: would migrate to=b h=0.80 busy=100s T_m=20.0s memory=2048MiB dirty=7.6MiB/s bandwidth=110.0MiB/s moved=never "
        "targets=b:0.10,c:0.00:full stay=20.0s move=72.0s: the episode is 100 s old, and moving pays from 26 s on")


@pytest.mark.parametrize("facts, why", [
    (replace(FACTS, dirty_rate=FACTS.bandwidth), "would not end"),
    (replace(FACTS, bandwidth=0.0), "would not end"),
    (replace(FACTS, targets=(Target("c", 0, room=False),)), "no other host"),
    (replace(FACTS, moved_s=199), "moved 199 s ago"),
    (replace(FACTS, targets=(Target("b", 0.5),)), "its own foreground"),
    (replace(FACTS, use=0.05), "nothing to leave"),
])
def test_it_lingers(facts, why):
    decision = linger.decide(replace(facts, busy_s=1e6), EXACT)
    assert decision.do is Do.LINGER and why in decision.why
    assert linger.line(facts, decision)


def test_the_papers_peers():
    busy = replace(FACTS, busy_s=30)
    full = replace(busy, targets=())
    assert linger.decide(busy, Settings(Policy.FOREVER)).do is Do.LINGER
    assert linger.decide(busy, Settings(Policy.PAUSE)).do is Do.PAUSE
    assert linger.decide(replace(busy, targets=(Target("b", 0),)), Settings(Policy.EVICT)).do is Do.MIGRATE
    assert [linger.decide(replace(full, busy_s=now), Settings(Policy.EVICT)).do for now in (59, 60)] == [Do.PAUSE, Do.EVICT]


facts_ = st.builds(Facts, st.just("v"), st.floats(0, 1), st.floats(0, 1e6), st.integers(0, 1 << 40), st.floats(0, 1e10),
                   st.floats(0, 1e10),
                   st.lists(st.builds(Target, st.text(max_size=2), st.floats(0, 1), st.booleans()), max_size=3),
                   st.none() | st.floats(0, 1e6))


@given(facts_)
def test_it_moves_only_where_that_brings_more(facts):
    decision = linger.decide(facts, EXACT)
    assert linger.line(facts, decision).startswith("v: ")
    if decision.do is Do.MIGRATE:
        assert decision.move_s >= decision.stay_s * (1 - 1e-9)
        assert any(one.name == decision.target and one.room for one in facts.targets)
        assert math.isfinite(linger.migration_s(facts.memory, facts.dirty_rate, facts.bandwidth))


@given(facts_, st.floats(1, 10))
def test_a_margin_only_makes_it_stay(facts, margin):
    if linger.decide(facts, Settings(margin=margin)).do is Do.MIGRATE:
        assert linger.decide(facts, EXACT).do is Do.MIGRATE


def test_two_equal_hosts_do_not_exchange_a_vm():
    """It is on the busier one; both take turns every 40 s. It moves at most once in its rest."""
    moves, here, moved = [], "a", None
    for now in range(400):
        uses = {"a": 0.9 if now // 40 % 2 == 0 else 0.0, "b": 0.0 if now // 40 % 2 == 0 else 0.9}
        there = "b" if here == "a" else "a"
        facts = replace(FACTS, use=uses[here], busy_s=now % 40 if uses[here] else 0, targets=(Target(there, uses[there]),),
                        moved_s=None if moved is None else now - moved)
        if linger.decide(facts, EXACT).do is Do.MIGRATE:
            here, moved = there, now
            moves.append(now)
    assert moves and all(later - earlier >= 200 for earlier, later in pairwise(moves))


# ---- enforce

DISK, VFIO, IDE, VHOST = (Device("disk vda", Through.QEMU), Device("hostdev 0", Through.VFIO),
                          Device("disk hda", Through.OTHER), Device("interface net0", Through.VHOST))


@pytest.mark.parametrize("wish, vm, in_force, words", [
    ("auto", Vm(True, (DISK, VHOST)), (True, False, False), "all its devices pass QEMU"),
    ("auto", Vm(True, (DISK, VFIO)), (True, True, False), "nothing holds: hostdev 0 (VFIO)"),
    ("auto", Vm(True, (DISK, IDE)), (True, True, False), "nothing holds: disk hda (other)"),
    ("auto", Vm(True, (VFIO,)), (False, True, False), "nothing holds hostdev 0 (VFIO)"),
    ("auto", Vm(False, (DISK,)), (False, True, False), "its QEMU is stock"),
    ("auto", Vm(False, (VFIO,)), (False, True, False), "its QEMU is stock"),
    ("auto", Vm(True), (False, True, False), "it has no device to hold"),
    ("interval", Vm(True, (DISK,)), (True, False, False), "is held by the interval"),
    ("interval", Vm(True, (DISK, VFIO)), (True, False, False), "nothing holds hostdev 0 (VFIO)"),
    ("interval", Vm(False, (DISK,)), (False, False, False), "its QEMU is stock"),
    ("interval", Vm(True), (False, False, False), "no device to hold"),
    ("suspend", Vm(True, (DISK,)), (False, True, False), "stopped as a whole"),
    ("rate", Vm(True, (DISK, IDE)), (False, False, True), "is limited on disk vda (QEMU), disk hda (other) while"),
    ("rate", Vm(False, (VHOST, VFIO)), (False, False, True), "; nothing limits hostdev 0 (VFIO)"),
    ("rate", Vm(False, (VFIO,)), (False, False, False), "no device that libvirt throttles"),
    ("suspend", Vm(True, (DISK,), background=False), (False, False, False), "is foreground"),
])
def test_which_policy_holds(wish, vm, in_force, words):
    found = enforce.choose(Enforce(wish), vm)
    assert (found.interval, found.suspend, found.rate) == in_force
    assert words in found.why


@given(st.sampled_from(Enforce), st.builds(
    Vm, st.booleans(), st.lists(st.builds(Device, st.text(max_size=3), st.sampled_from(Through)), max_size=4), st.booleans()))
def test_auto_leaves_no_background_vm_without_a_policy(wish, vm):
    found = enforce.choose(wish, vm)
    assert found.why.startswith("is ")
    assert not (found.interval and not vm.ours)
    if wish is Enforce.AUTO and vm.background:
        assert found.interval or found.suspend
    if not vm.background:
        assert not (found.interval or found.suspend or found.rate)
