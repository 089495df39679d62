# SPDX-License-Identifier: GPL-2.0-or-later
"""Disk space of background VMs' scratch disks (<idletime:space target='vda' reclaim='yes'/>): no ENOSPC for others. Pure.

    free space          act
    above low water     none
    below low water     scratch disks are trimmed by their guests (fstrim through the guest agent)
    still below         the VM is stopped and its scratch overlay dropped; the largest first, one at a look

Sizes are bytes, times seconds of one monotonic clock. Only VMs that the operator has marked are here, and of those only the
overlay: what is below it, and all other disks, stay.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

LOW_WATER = 0.05
"""Of the file system: ext4 keeps 5 % for root, btrfs and xfs slow down near there."""

TRIM_S = 30.0
"""fstrim of a disk of 100 GB takes some seconds; what it has not freed by then it will not."""

FREED_S = 30.0
"""btrfs and ZFS free blocks when a transaction ends, some 30 s at most: until then nobody else goes, if space lasts."""

AGAIN_S = 300.0
"""Who was trimmed is not trimmed anew before: a guest that writes as fast as it trims would be kept busy by us."""


@dataclass(frozen=True)
class Scratch:
    """A background VM's thin overlays on this file system. allocated: their blocks. agent: its guest can trim them. can_drop:
    nothing was found against it."""

    name: str
    allocated: int
    agent: bool = False
    trimmed_s: float | None = None
    can_drop: bool = True


@dataclass(frozen=True)
class Filesystem:
    """fill_rate: bytes a second by which free space falls, 0 where it does not. low: low-water mark, a share of size."""

    free: int
    size: int
    fill_rate: float = 0.0
    low: float = LOW_WATER

    @property
    def low_water(self) -> int:
        return int(self.size * self.low)


class How(str, enum.Enum):
    TRIM = "trim"
    DROP = "drop"


@dataclass(frozen=True)
class Act:
    """frees: bytes of its disks that are gone when this is done."""

    name: str
    how: How
    why: str
    frees: int = 0


@dataclass(frozen=True)
class State:
    """below_since_s: since when free space is below low water. leaving: VMs that were told to go. dropped_s: when the
    last one was."""

    below_since_s: float | None = None
    leaving: frozenset[str] = frozenset()
    dropped_s: float | None = None


@dataclass(frozen=True)
class Decision:
    state: State
    acts: tuple[Act, ...] = ()


def decide(state: State, there: Filesystem, disks: Sequence[Scratch], now_s: float) -> Decision:
    """What is done about one file system at this look, every few seconds. At most one VM goes at a look: what it frees is seen
    at the next."""
    leaving = state.leaving & {disk.name for disk in disks}
    missing = there.low_water - there.free
    if missing <= 0:
        return Decision(State(None, leaving))
    since = now_s if state.below_since_s is None else state.below_since_s
    state = State(since, leaving, state.dropped_s)
    disks = [disk for disk in disks if disk.name not in leaving]
    waits = [disk for disk in disks if disk.agent and (_due(disk, now_s) or now_s - (disk.trimmed_s or 0.0) < TRIM_S)]
    # Trimming is given its time only where the space lasts that long.
    if waits and now_s - since < TRIM_S and _lasts(there, since + TRIM_S - now_s):
        return Decision(state, tuple(_trim(disk, there) for disk in waits if _due(disk, now_s)))
    if state.dropped_s is not None and now_s - state.dropped_s < FREED_S and _lasts(there, state.dropped_s + FREED_S - now_s):
        return Decision(state)
    goes = max((disk for disk in disks if disk.can_drop), key=lambda disk: (disk.allocated, disk.name), default=None)
    if goes is None or goes.allocated <= 0 or leaving:
        return Decision(state)
    return Decision(State(since, leaving | {goes.name}, now_s), (Act(goes.name, How.DROP, _words(there), goes.allocated),))


def _lasts(there: Filesystem, seconds: float) -> bool:
    return there.free > there.fill_rate * seconds


def _due(disk: Scratch, now_s: float) -> bool:
    return disk.trimmed_s is None or now_s - disk.trimmed_s >= AGAIN_S


def _trim(disk: Scratch, there: Filesystem) -> Act:
    return Act(disk.name, How.TRIM, _words(there))


def _words(there: Filesystem) -> str:
    return f"{there.free >> 20} MiB are free, below the low-water mark of {there.low_water >> 20}"
