# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory of background VMs: Low and High (paper 003, section 4), and how it is given back (dissertation, 7.2.3). Pure.

    background has      003, Fig. 4                          here
    less than Low       foreground's old pages go first      memory.low = Low on the background's slice
    more than High      background's pages go first          memory.low = memory - High on the foreground's
    between             the kernel's own order               nothing

That much the kernel does by itself. Where memory runs short, or a foreground VM is about to start, background VMs give back in
steps down to their Low, by balloon or memory.reclaim; what is still missing after WITHIN_S is taken by saving VMs, one at a
look. Sizes are bytes, times seconds of one monotonic clock.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20

WITHIN_S = 10.0
"""The stated time of the give-back: libvirt's clients wait 30 s for a VM to start, and a save comes after it."""

SMALLEST_STEP, LARGEST_STEP = 16 * MIB, 256 * MIB
"""Of one VM at one look. A balloon moves some 1 GiB/s and takes the guest's own free pages first; more at once makes its
kernel kill processes instead of writing pages out."""

CALM_S = 60.0
"""Without a shortage for so long, memory goes back to the VMs: else two VMs would exchange it with every burst."""

PRESSED_PERCENT = 1.0
"""PSI some, avg10, of the foreground: 1 % of its time waited for memory is what it can feel (003, Table 3: 0.8 %)."""


# ---- slices

@dataclass(frozen=True)
class Protection:
    """memory.low of the two slices; no memory.high, which throttles even where memory is free."""

    foreground: int
    background: int


def protection(memory: int, low: int, high: int) -> Protection:
    """For a host of so many bytes. low, high: of all background together. What exceeds the host is cut to it, and a High
    below Low counts as Low."""
    low = min(max(low, 0), memory)
    return Protection(memory - min(max(high, low), memory), low)


class Victim(str, enum.Enum):
    FOREGROUND = "foreground"
    BACKGROUND = "background"
    EITHER = "either"


def victim(background: int, low: int, high: int) -> Victim:
    """Whose pages go first (003, Fig. 4): the model that a plot of Fig. 5 is compared with."""
    if background < low:
        return Victim.FOREGROUND
    return Victim.BACKGROUND if background > high else Victim.EITHER


# ---- facts

@dataclass(frozen=True)
class Vm:
    """A background VM. resident: of its QEMU. low: its minimum; high: beyond it goes first; None: not said, which is all.
    largest: its memory. can_save: no device forbids it, and there is disk space for its pages."""

    name: str
    resident: int
    low: int
    high: int | None
    largest: int
    balloon: bool = True
    reclaim: bool = False  # memory.reclaim is there (Linux 5.19, cgroup v2), and swap or a page cache to reclaim to
    can_save: bool = True

    @property
    def spare(self) -> int:
        return max(0, self.resident - self.low)


@dataclass(frozen=True)
class Host:
    """available: MemAvailable. reserve: what is to be available. starting: of foreground VMs that are about to start. pressure:
    PSI some avg10 of the foreground in percent, None: there is no PSI."""

    available: int
    reserve: int
    starting: int = 0
    pressure: float | None = None


def shortage(host: Host) -> int:
    """Bytes that background is to give back now. Pressure alone asks for one small step at each look: it says that something
    is missing, not how much."""
    missing = host.starting + host.reserve - host.available
    pressed = SMALLEST_STEP if (host.pressure or 0.0) >= PRESSED_PERCENT else 0
    return max(0, missing, pressed)


# ---- the decision

class How(str, enum.Enum):
    BALLOON = "balloon"        # setMemory: bytes is the target
    RECLAIM = "reclaim"        # memory.reclaim: bytes is how much
    SAVE = "save"              # managed save; it starts again when there is room
    SHUT_DOWN = "shut-down"    # where it cannot be saved


@dataclass(frozen=True)
class Act:
    name: str
    how: How
    bytes_: int
    why: str


@dataclass(frozen=True)
class State:
    """short_since_s: since when something is missing; calm_since_s: since when nothing is. leaving: VMs that were told to go,
    and are not asked again."""

    short_since_s: float | None = None
    calm_since_s: float | None = None
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Decision:
    state: State
    acts: tuple[Act, ...] = ()


def decide(state: State, host: Host, vms: Sequence[Vm], now_s: float, look_s: float = 1.0,
           within_s: float = WITHIN_S) -> Decision:
    """What background VMs are to do about memory, at each look (every look_s). A VM is never asked below its Low, and none goes
    while what is missing can still come in time."""
    leaving = state.leaving & {vm.name for vm in vms}
    staying = [vm for vm in vms if vm.name not in leaving]
    missing = shortage(host)
    if not missing:
        return _calm(State(None, state.calm_since_s, leaving), staying, host, now_s)
    since = now_s if state.short_since_s is None else state.short_since_s
    coming = sum(vm.resident for vm in vms if vm.name in leaving)
    left = max(0, missing - coming)
    spare = sum(vm.spare for vm in staying if vm.balloon or vm.reclaim)
    late = now_s - since >= within_s
    # Pressure alone sends nobody away: it may be the foreground's own.
    hard = host.starting + host.reserve - host.available - coming
    goes = _who_goes(staying, hard) if hard > 0 and (late or spare < hard) else None
    acts = [_goes(goes, hard, late, within_s)] if goes else []
    share = _step(left, since + within_s - now_s, look_s)
    acts += _steps([vm for vm in staying if vm is not goes], share)
    return Decision(State(since, None, leaving | ({goes.name} if goes else set())), tuple(acts))


def _step(left: int, seconds: float, look_s: float) -> int:
    """What is to come at this look, so that it is all there in time. All of it is planned into the first half: balloons lag."""
    looks = max(1.0, seconds / 2 / look_s)
    return min(left, max(int(left / looks), SMALLEST_STEP))


def _steps(vms: Sequence[Vm], need: int) -> list[Act]:
    """One step, first of VMs above their High (003, Fig. 4), then of all by what they can spare."""
    acts: list[Act] = []
    given: dict[str, int] = {}
    above = {vm.name: max(0, vm.resident - max(vm.high, vm.low)) for vm in vms if vm.high is not None}
    for limits in (above, {vm.name: vm.spare for vm in vms}):
        for vm in sorted(vms, key=lambda one: -limits.get(one.name, 0)):
            room = min(limits.get(vm.name, 0), vm.spare, LARGEST_STEP) - given.get(vm.name, 0)
            if room > 0 and need > 0 and (vm.balloon or vm.reclaim):
                part = min(room, need)
                given[vm.name] = given.get(vm.name, 0) + part
                need -= part
    for vm in vms:
        part = given.get(vm.name, 0)
        if part:
            acts.append(_give(vm, part))
    return acts


def _give(vm: Vm, part: int) -> Act:
    why = f"the foreground is short of memory: gives {part // MIB} of {vm.resident // MIB} MiB, its minimum is {vm.low // MIB}"
    if vm.balloon:
        return Act(vm.name, How.BALLOON, vm.resident - part, why)
    return Act(vm.name, How.RECLAIM, part, why)


def _who_goes(vms: Sequence[Vm], missing: int) -> Vm | None:
    """The smallest VM that suffices, else the largest: so that as few as possible go."""
    enough = [vm for vm in vms if vm.resident >= missing]
    if enough:
        return min(enough, key=lambda vm: (vm.resident, vm.name))
    return max(vms, key=lambda vm: (vm.resident, vm.name)) if vms else None


def _goes(vm: Vm, missing: int, late: bool, within_s: float) -> Act:
    cause = f"{within_s:g} s were not enough" if late else "all background's minima together leave too little"
    how = How.SAVE if vm.can_save else How.SHUT_DOWN
    return Act(vm.name, how, vm.resident, f"the foreground is short of {missing // MIB} MiB, and {cause}")


def _calm(state: State, vms: Sequence[Vm], host: Host, now_s: float) -> Decision:
    """Nothing is missing: after a while VMs get back what is beyond the reserve, a step at a look."""
    since = now_s if state.calm_since_s is None else state.calm_since_s
    state = State(None, since, state.leaving)
    free = host.available - host.reserve - host.starting
    below = [vm for vm in vms if vm.balloon and vm.resident < vm.largest]
    if now_s - since < CALM_S or not below or free < 2 * SMALLEST_STEP:
        return Decision(state)
    part = min(free // 2 // len(below), LARGEST_STEP)
    if part < SMALLEST_STEP:
        return Decision(state)
    return Decision(state, tuple(
        Act(vm.name, How.BALLOON, min(vm.largest, vm.resident + part), f"no shortage for {now_s - since:.0f} s")
        for vm in below))
