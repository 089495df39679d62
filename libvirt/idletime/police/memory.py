# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory of background VMs: Low and High (paper 003, section 4), and how it is given back (dissertation, 7.2.3). Pure.

    background has      003, Fig. 4                          here
    less than Low       foreground's old pages go first      cgroup v2: memory.low = Low of the background VM
    more than High      background's pages go first          v2: memory.low = memory - High, shared by foreground VMs;
                                                             v1: the soft limit of the background VM is High
    between             the kernel's own order               nothing

That much the kernel does by itself. Where it cannot (no memory.low, or no swap for what background loses) and memory is short,
or a foreground VM is about to start, or waits for memory, background VMs give back in steps down to their Low, by balloon or by
memory.reclaim; what is still missing after within_s is taken by saving VMs, one at a look. Who was saved is started when there
is room again. Sizes are bytes, times seconds of one monotonic clock.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MIB = 1 << 20

WITHIN_S = 10.0
"""The stated time of the give-back: libvirt's clients wait 30 s for a VM to start, and a save comes after it."""

SMALLEST_STEP, LARGEST_STEP = 16 * MIB, 256 * MIB
"""Of one VM at one look. A balloon moves some 1 GiB/s and takes the guest's own free pages first; more at once makes its
kernel kill processes instead of writing pages out."""

CALM_S = 60.0
"""Without a shortage for so long, memory goes back to the VMs: else two VMs would exchange it with every burst."""

PRESSED_PERCENT = 1.0
"""PSI some, avg10, of a foreground VM: 1 % of its time waited for memory is what it can feel (003, Table 3: 0.8 %)."""

AGAIN_S = 300.0
"""Who could not be saved, as during a migration, is not chosen again before."""

ROOM = 1.25
"""A saved VM starts where so many times its memory is free: else it would be saved again at once."""


# ---- protection, by cgroups of version 2

@dataclass(frozen=True)
class Group:
    """The cgroup of a VM that its policy names, folder below the root of all. size: its memory. low None: it is foreground."""

    folder: str
    size: int
    low: int | None = None
    high: int | None = None


def protections(memory: int, groups: Sequence[Group]) -> dict[str, int]:
    """memory.low of each folder, and of those above it: the kernel protects a group as far as its parent is. memory: what VMs
    may have, all of them. No memory.high: it throttles even where memory is free."""
    background = [one for one in groups if one.low is not None]
    if not background:
        return {}
    high = sum(min(one.size, max(one.high or one.size, one.low or 0)) for one in background)
    whole = sum(one.size for one in groups if one.low is None)
    rest = max(0, memory - high)
    found: dict[str, int] = {}
    for one in groups:
        low = min(one.size, rest * one.size // max(whole, 1)) if one.low is None else min(one.size, one.low)
        found[one.folder] = low
        for above in _above(one.folder):
            found[above] = found.get(above, 0) + low
    return found


def _above(folder: str) -> Iterable[str]:
    while (folder := folder.rpartition("/")[0]):
        yield folder


# ---- facts

@dataclass(frozen=True)
class Vm:
    """A background VM. resident: of its QEMU; swapped: of the same, in the host's swap. target: of its balloon. low: its
    minimum; high: beyond it goes first; None: not said, which is all. was: what its balloon had before we took of it, None:
    nothing was taken. balloon: it has one, and runs. reclaim: memory.reclaim is there (Linux 5.19, cgroup v2). can_save: it has
    a definition to come back to. paused: it has a balloon, which moves when it runs again."""

    name: str
    resident: int
    target: int
    low: int
    high: int | None = None
    was: int | None = None
    balloon: bool = True
    reclaim: bool = False
    can_save: bool = True
    swapped: int = 0
    paused: bool = False

    @property
    def _used(self) -> int:
        """What the host has swapped out the guest has in use: a balloon of what is resident would take that, too, at once.
        memory.reclaim only moves there, so it is not asked for what has gone."""
        return self.resident + (self.swapped if self.balloon else 0)

    @property
    def has(self) -> int:
        """A guest that has not touched all of its memory has less than its balloon allows; QEMU itself needs some."""
        return min(self._used, self.target)

    @property
    def spare(self) -> int:
        """What may still be asked of it."""
        return max(0, self.has - self.low) if self.balloon or self.reclaim else 0

    @property
    def may_come(self) -> int:
        """That, and what was asked and is not there yet: balloons lag, and that of a paused VM waits for it."""
        there = min(self.resident, max(0, self._used - self.low))
        return there if self.balloon or self.reclaim or self.paused else 0


@dataclass(frozen=True)
class Saved:
    """A VM that we saved, and what it had then."""

    name: str
    bytes_: int


@dataclass(frozen=True)
class Host:
    """available: MemAvailable. reserve: what is to be available. starting: of foreground VMs that are about to start. pressure:
    PSI some avg10 of the foreground VM that has most, in percent; None: there is no PSI. protected: memory.low of all
    foreground VMs is in force. swap: SwapFree."""

    available: int
    reserve: int
    starting: int = 0
    pressure: float | None = None
    protected: bool = False
    swap: int = 0

    @property
    def free(self) -> int:
        """Beyond what is to be available; below 0 it is missing."""
        return self.available - self.reserve - self.starting

    @property
    def missing(self) -> int:
        """Bytes; none where the kernel takes from the background alone, when it has to: who asks it to earlier reads and writes
        the same swap by the same processors."""
        return 0 if self.protected and not self.starting and self.swap >= -self.free else max(0, -self.free)

    @property
    def cause(self) -> str:
        """What asks for memory, in a word."""
        if not self.missing:
            return "pressure"
        return "starting" if self.available >= self.reserve else "reserve"


def shortage(host: Host) -> int:
    """Bytes that background is to give back now. Pressure alone asks for one small step at each look: it says that something
    is missing, not how much."""
    pressed = SMALLEST_STEP if (host.pressure or 0.0) >= PRESSED_PERCENT else 0
    return max(host.missing, pressed)


# ---- the decision

CALM = "calm"  # nothing was short


class How(str, enum.Enum):
    BALLOON = "balloon"  # bytes is the target
    RECLAIM = "reclaim"  # memory.reclaim: bytes is how much
    SAVE = "save"        # managed save
    START = "start"      # of one that was saved


@dataclass(frozen=True)
class Act:
    """gives: bytes that it has less when this is done. cause: why, in a word."""

    name: str
    how: How
    bytes_: int
    why: str
    gives: int = 0
    cause: str = CALM


@dataclass(frozen=True)
class State:
    """short_since_s: since when bytes are missing, which pressure alone does not say; calm_since_s: since when nothing is.
    leaving: VMs that are being saved, and are not asked again."""

    short_since_s: float | None = None
    calm_since_s: float | None = None
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Settings:
    within_s: float = WITHIN_S
    calm_s: float = CALM_S
    look_s: float = 1.0


@dataclass(frozen=True)
class Decision:
    state: State
    acts: tuple[Act, ...] = ()


def decide(state: State, host: Host, vms: Sequence[Vm], now_s: float, settings: Settings = Settings(),
           saved: Sequence[Saved] = ()) -> Decision:
    """What background VMs are to do about memory, at each look. A VM is never asked below its Low, and none is saved while what
    is missing can still come in time."""
    state = replace(state, leaving=state.leaving & {vm.name for vm in vms})
    missing = shortage(host)
    if not missing:
        return _calm(state, host, vms, saved, now_s, settings)
    since = (now_s if state.short_since_s is None else state.short_since_s) if host.missing else None
    left_s = settings.within_s - (now_s - since if since is not None else 0.0)
    staying = [vm for vm in vms if vm.name not in state.leaving]
    coming = sum(vm.resident for vm in vms if vm.name in state.leaving)
    late = left_s <= 0
    # Pressure alone sends nobody away: it may be the foreground's own.
    hard = host.missing - coming
    goes = _who_goes(staying, hard) if hard > 0 and (late or sum(vm.may_come for vm in staying) < hard) else None
    acts = [_save(goes, hard, late, settings.within_s)] if goes else []
    share = _step(max(0, missing - coming), left_s, settings.look_s)
    acts += _steps([vm for vm in staying if vm is not goes], share)
    return Decision(State(since, None, state.leaving | ({goes.name} if goes else set())),
                    tuple(replace(act, cause=host.cause) for act in acts))


def _step(left: int, seconds: float, look_s: float) -> int:
    """What is to come at this look, so that it is all there in time. All of it is planned into the first half: balloons lag."""
    looks = max(1.0, seconds / 2 / look_s)
    return min(left, max(int(left / looks), SMALLEST_STEP))


def _steps(vms: Sequence[Vm], need: int) -> list[Act]:
    """One step, first of VMs above their High (003, Fig. 4), then of all by what they can spare."""
    given: dict[str, int] = {}
    above = {vm.name: max(0, vm.has - max(vm.high, vm.low)) for vm in vms if vm.high is not None}
    for limits in (above, {vm.name: vm.spare for vm in vms}):
        for vm in sorted(vms, key=lambda one: -limits.get(one.name, 0)):
            part = min(limits.get(vm.name, 0), vm.spare, LARGEST_STEP, need + given.get(vm.name, 0)) - given.get(vm.name, 0)
            if part > 0:
                given[vm.name] = given.get(vm.name, 0) + part
                need -= part
    return [_give(vm, given[vm.name]) for vm in vms if vm.name in given]


def _give(vm: Vm, part: int) -> Act:
    why = f"the foreground is short of memory: gives {part // MIB} of {vm.has // MIB} MiB, keeps {vm.low // MIB}"
    if vm.balloon:
        return Act(vm.name, How.BALLOON, vm.has - part, why, part)
    return Act(vm.name, How.RECLAIM, part, why, part)


def _who_goes(vms: Sequence[Vm], missing: int) -> Vm | None:
    """The smallest VM that suffices, else the largest: so that as few as possible go. One that is paused goes last: who paused
    it expects to find it so."""
    can = [vm for vm in vms if vm.can_save and not vm.paused] or [vm for vm in vms if vm.can_save]
    enough = [vm for vm in can if vm.resident >= missing]
    if enough:
        return min(enough, key=lambda vm: (vm.resident, vm.name))
    return max(can, key=lambda vm: (vm.resident, vm.name)) if can else None


def _save(vm: Vm, missing: int, late: bool, within_s: float) -> Act:
    cause = f"{within_s:g} s were not enough to get it" if late else "the minima of the background leave too little"
    return Act(vm.name, How.SAVE, vm.resident, f"the foreground is short of {missing // MIB} MiB, and {cause}", vm.resident)


def _calm(state: State, host: Host, vms: Sequence[Vm], saved: Sequence[Saved], now_s: float, settings: Settings) -> Decision:
    """Nothing is missing: after a while saved VMs come back, then all get back what was taken and is free, a step at a look."""
    since = now_s if state.calm_since_s is None else state.calm_since_s
    state = State(None, since, state.leaving)
    if now_s - since < settings.calm_s:
        return Decision(state)
    words = f"nothing was short for {now_s - since:.0f} s"
    fits = min((one for one in saved if one.bytes_ * ROOM <= host.free), key=lambda one: one.bytes_, default=None)
    if fits is not None:  # the next one, when it is seen what this one takes
        return Decision(replace(state, calm_since_s=now_s), (Act(fits.name, How.START, fits.bytes_, words),))
    below = [vm for vm in vms if vm.balloon and vm.was is not None]
    part = min(host.free // 2 // len(below), LARGEST_STEP) if below else 0
    if part < SMALLEST_STEP:
        return Decision(state)
    return Decision(state, tuple(Act(vm.name, How.BALLOON, min(vm.was or 0, vm.target + part), words) for vm in below))
