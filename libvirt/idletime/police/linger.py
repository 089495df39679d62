# SPDX-License-Identifier: GPL-2.0-or-later
"""Linger, migrate, pause or evict: what a background VM does when its host's owner is back (paper 003, section 2). Pure.

An episode is a time in which the foreground uses its host. While it lasts, T seconds more, a VM that lingers gets (1 - h) T of
a processor, one that moves (1 - l)(T - T_m): h and l are the foreground's use here and there, T_m the time of the migration.
Moving pays where T > T_m (1 - l) / (h - l), and an episode is expected to last as long again as it has lasted.

Worked number: h 0.8, l 0.1, T_m 20 s: 20 * 0.9 / 0.7 = 25.7 s. A VM lingers for the first 25.7 s of the episode, then moves.
Uses are from 0 to 1, times seconds, sizes bytes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass


class Policy(str, enum.Enum):
    """What the operator allows. linger: the rule below. The others are the peers in 003, section 6, and for the evaluation."""

    LINGER = "linger"
    FOREVER = "forever"
    EVICT = "evict"
    PAUSE = "pause"


class Do(str, enum.Enum):
    LINGER = "linger"
    MIGRATE = "migrate"
    PAUSE = "pause"
    EVICT = "evict"  # saved or requeued: it leaves although no host has room


@dataclass(frozen=True)
class Target:
    """A host that could take the VM. use: its foreground's, 0 to 1. room: its free memory is enough."""

    name: str
    use: float
    room: bool = True


@dataclass(frozen=True)
class Facts:
    """One VM on one host. busy_s: age of the episode, 0 where the foreground is idle. moved_s: since it last moved, or None.
    memory, dirty_rate, bandwidth: bytes, and bytes a second (domdirtyrate-calc, migrate-setspeed)."""

    vm: str
    use: float
    busy_s: float
    memory: int
    dirty_rate: float
    bandwidth: float
    targets: Sequence[Target] = ()
    moved_s: float | None = None


@dataclass(frozen=True)
class Settings:
    """busy: a foreground below this is none (003, section 1: three quarters of all time, hosts are used less than 10 %).
    margin: moving is to pay this much more than lingering: the expected rest of an episode is only a guess. rest_factor:
    after a move a VM stays for so many times T_m, at least rest_s."""

    policy: Policy = Policy.LINGER
    busy: float = 0.10
    margin: float = 1.2
    rest_factor: float = 10.0
    rest_s: float = 60.0
    evict_s: float = 60.0  # of EVICT and PAUSE: patience before a VM goes that no host takes


@dataclass(frozen=True)
class Decision:
    """do, and where to. stay_s, move_s: processor seconds that both bring in the rest of the episode that is expected; None:
    moving is not possible."""

    do: Do
    target: str | None
    why: str
    stay_s: float | None = None
    move_s: float | None = None


def migration_s(memory: int, dirty_rate: float, bandwidth: float) -> float:
    """T_m in seconds: memory / (bandwidth - dirty rate); infinite where the guest dirties faster than is sent."""
    return memory / (bandwidth - dirty_rate) if bandwidth > dirty_rate and bandwidth > 0 else math.inf


def patience_s(t_m: float, here: float, there: float) -> float:
    """Age of an episode from which on moving pays, in seconds: T_m (1 - l) / (h - l); infinite where it is no better there."""
    return t_m * (1 - there) / (here - there) if here > there else math.inf


def decide(facts: Facts, settings: Settings) -> Decision:
    """What this VM does now. Looked at every few seconds, and when an episode begins."""
    if facts.use < settings.busy or facts.busy_s <= 0:
        return Decision(Do.LINGER, None, f"the foreground uses {facts.use:.0%}, below {settings.busy:.0%}: nothing to leave")
    return _RULES[settings.policy](facts, settings)


def _best(facts: Facts) -> Target | None:
    there = sorted((one for one in facts.targets if one.room), key=lambda one: (one.use, one.name))
    return there[0] if there else None


def _linger(facts: Facts, settings: Settings) -> Decision:
    t_m = migration_s(facts.memory, facts.dirty_rate, facts.bandwidth)
    best = _best(facts)
    stay = (1 - min(facts.use, 1.0)) * facts.busy_s
    if best is None:
        return Decision(Do.LINGER, None, "no other host has room", stay)
    if math.isinf(t_m):
        return Decision(Do.LINGER, None, "a migration would not end: the guest dirties memory faster than it is sent", stay)
    move = (1 - best.use) * max(0.0, facts.busy_s - t_m)
    pays = patience_s(t_m, facts.use, best.use) * settings.margin
    rests = max(settings.rest_s, settings.rest_factor * t_m)
    if facts.moved_s is not None and facts.moved_s < rests:
        return Decision(Do.LINGER, None, f"it moved {facts.moved_s:.0f} s ago, and stays for {rests:.0f}", stay, move)
    if best.use >= settings.busy and best.use > facts.use / 2:
        return Decision(Do.LINGER, None, f"{best.name} is used {best.use:.0%} by its own foreground", stay, move)
    why = f"the episode is {facts.busy_s:.0f} s old, and moving pays from {pays:.0f} s on"
    if facts.busy_s <= pays:
        return Decision(Do.LINGER, None, why, stay, move)
    return Decision(Do.MIGRATE, best.name, why, stay, move)


def _forever(_facts: Facts, _settings: Settings) -> Decision:
    return Decision(Do.LINGER, None, "it never moves (policy forever)")


def _pause(_facts: Facts, _settings: Settings) -> Decision:
    return Decision(Do.PAUSE, None, "the foreground is back (policy pause)")


def _evict(facts: Facts, settings: Settings) -> Decision:
    """Leaves at once where a host takes it (Condor), else is paused, and goes after a while."""
    best = _best(facts)
    if best is not None and best.use < settings.busy and not math.isinf(
            migration_s(facts.memory, facts.dirty_rate, facts.bandwidth)):
        return Decision(Do.MIGRATE, best.name, "the foreground is back (policy evict)")
    if facts.busy_s < settings.evict_s:
        left = settings.evict_s - facts.busy_s
        return Decision(Do.PAUSE, None, f"no idle host takes it; it goes in {left:.0f} s (policy evict)")
    return Decision(Do.EVICT, None, f"no idle host took it in {settings.evict_s:.0f} s (policy evict)")


_RULES = {Policy.LINGER: _linger, Policy.FOREVER: _forever, Policy.PAUSE: _pause, Policy.EVICT: _evict}


def line(facts: Facts, decision: Decision, dry_run: bool = False) -> str:
    """One line for the log, with all facts and costs, so that a decision can be judged and replayed."""
    t_m = migration_s(facts.memory, facts.dirty_rate, facts.bandwidth)
    costs = "" if decision.stay_s is None else f" stay={decision.stay_s:.1f}s"
    costs += "" if decision.move_s is None else f" move={decision.move_s:.1f}s"
    there = ",".join(f"{one.name}:{one.use:.2f}{'' if one.room else ':full'}" for one in facts.targets) or "none"
    moved = "never" if facts.moved_s is None else f"{facts.moved_s:.0f}s"
    where = f" to={decision.target}" if decision.target else ""
    return (f"{facts.vm}: {'would ' if dry_run else ''}{decision.do.value}{where} h={facts.use:.2f} busy={facts.busy_s:.0f}s "
            f"T_m={t_m:.1f}s memory={facts.memory >> 20}MiB dirty={facts.dirty_rate / 2**20:.1f}MiB/s "
            f"bandwidth={facts.bandwidth / 2**20:.1f}MiB/s moved={moved} targets={there}{costs}: {decision.why}")
