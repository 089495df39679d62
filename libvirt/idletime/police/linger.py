# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a background VM stays on a host whose processors others need, or moves to another host (paper 003, 2). Pure.

    share      of what a VM wants of the processors, what it gets, over the last WINDOW_S
    episode    begins where its share falls below SHORT, and is over where it is at least LONG again
    stay       as long as a move does not pay: pays_after()
    move       to the host where it would get most; one VM at a time, the one that moves soonest first

It is expected to last as long again as it has lasted. Staying for T then brings (1 - h) T, moving (1 - l) (T - T_m), with h and
l: what it does not get here and there, and T_m: the time of the move. So moving pays once T > T_m (1 - l) / (h - l). A VM of
1,000 MB that writes 20 of the 100 MB/s that the line takes needs 12.5 s; with 20 % here and 90 % there it goes after 16 s.

Shares are from 0 to 1, sizes bytes, times seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHORT, LONG = 0.9, 0.95
WINDOW_S = 10.0

GAIN = 0.1
"""What it would get elsewhere is an estimate: less than this more of what it wants is nothing."""

IDLE_CPUS = 0.02
"""Who wants less of one processor wants nothing."""


@dataclass(frozen=True)
class Counts:
    """Of one VM at a time, since it is known. ran_s, waited_s: its vCPUs, together. stopped_s: it was stopped for the
    processors; off_s: for something else, which says nothing of these."""

    at_s: float
    ran_s: float
    waited_s: float
    stopped_s: float = 0.0
    off_s: float = 0.0


@dataclass(frozen=True)
class Got:
    """share: of what it wants. cpus: processors that it wants."""

    share: float = 1.0
    cpus: float = 0.0


@dataclass(frozen=True)
class Place:
    """Another host. idle_cpus: what of its processors nobody takes. free: memory that a VM may have."""

    uri: str
    idle_cpus: float
    free: int


@dataclass(frozen=True)
class Subject:
    """A background VM in an episode. memory: what is to be sent. writes: bytes a second. rests: it has just come, or a move has
    failed."""

    name: str
    got: Got
    memory: int
    writes: float = 0.0
    rests: bool = False


@dataclass(frozen=True)
class Verdict:
    """What becomes of one VM. to: where it moves; "" stays. kind: what it is about, one of KINDS. why: the model, in words."""

    name: str
    kind: str
    why: str
    to: str = ""
    seconds: float = math.inf


KINDS = ("move", "stay", "rest", "room", "gain", "writes")


def window(seen: Sequence[Counts], one: Counts) -> tuple[Counts, ...]:
    """With one more, and none that is not needed for the last WINDOW_S; anew where counters begin anew."""
    if seen and (one.ran_s < seen[-1].ran_s or one.waited_s < seen[-1].waited_s):
        seen = ()
    old = sum(one.at_s - each.at_s >= WINDOW_S for each in seen)
    return (*seen[max(0, old - 1):], one)


def got(seen: Sequence[Counts], before: Got) -> Got | None:
    """What a VM got in a window; None: it has not been seen for WINDOW_S. before: what it wanted then, where it is stopped all
    the time."""
    if len(seen) < 2 or seen[-1].at_s - seen[0].at_s < WINDOW_S:
        return None
    first, last = seen[0], seen[-1]
    there = last.at_s - first.at_s - (last.off_s - first.off_s)
    ran, waited = last.ran_s - first.ran_s, last.waited_s - first.waited_s
    free = there - (last.stopped_s - first.stopped_s)
    if there < WINDOW_S / 10:
        return None
    if free < there / 100:
        return Got(0.0, before.cpus)
    cpus = (ran + waited) / free
    if cpus < IDLE_CPUS:
        return Got(1.0, 0.0)
    return Got(ran / (ran + waited) * min(1.0, free / there), cpus)


def episodes(since: Mapping[str, float], all_: Mapping[str, Got | None], now_s: float) -> dict[str, float]:
    """Since when each VM gets too little. Of whom nothing is known it goes on."""
    return {name: since.get(name, now_s) for name, one in all_.items()
            if (name in since if one is None else one.share < (LONG if name in since else SHORT))}


def move_seconds(memory: int, writes: float, bandwidth: float) -> float:
    """How long a live migration takes; infinite where the guest writes as much as is sent."""
    return memory / (bandwidth - writes) if writes < bandwidth else math.inf


def pays_after(here: float, there: float, seconds: float) -> float:
    """How long an episode has to have lasted for a move to pay (003, 2). here, there: shares; there > here."""
    return seconds * there / (there - here)


def there(one: Got, place: Place) -> float:
    """The share that a VM would get elsewhere."""
    return min(1.0, place.idle_cpus / one.cpus) if one.cpus > 0 else 1.0


def decide(subjects: Sequence[Subject], since: Mapping[str, float], places: Sequence[Place], bandwidth: float,
           now_s: float) -> list[Verdict]:
    """Of each VM in an episode; at most one of them moves. bandwidth: bytes a second. places: in the operator's order, which
    counts between equals."""
    found = [_judge(one, now_s - since[one.name], places, bandwidth) for one in subjects if one.name in since]
    first = min((one for one in found if one.to), key=lambda one: (one.seconds, one.name), default=None)
    return [one if one is first or not one.to else Verdict(one.name, "stay", f"another one moves first; {one.why}") for one in found]


def _judge(one: Subject, age: float, places: Sequence[Place], bandwidth: float) -> Verdict:
    says = f"it gets {one.got.share:.0%} of the {one.got.cpus:.1f} processors that it wants"
    if one.rests:
        return Verdict(one.name, "rest", f"{says}, and has been moved, or tried to be, not long ago")
    fits = [place for place in places if place.free >= one.memory]
    if not fits:
        return Verdict(one.name, "room", f"{says}, and no other host has {one.memory >> 20} MiB of memory")
    place = max(fits, key=lambda each: there(one.got, each))
    gets = there(one.got, place)
    says = f"{says}, and would get {gets:.0%} at {place.uri}"
    if gets - one.got.share < GAIN:
        return Verdict(one.name, "gain", says)
    seconds = move_seconds(one.memory, one.writes, bandwidth)
    how = f"{one.memory / 1e6:.0f} MB at {bandwidth / 1e6:.0f} MB/s, of which it writes {one.writes / 1e6:.1f}"
    if math.isinf(seconds):
        return Verdict(one.name, "writes", f"{says}; a move does not end: {how}")
    pays = pays_after(one.got.share, gets, seconds)
    model = f"{says}; a move takes {seconds:.0f} s ({how}) and pays after {pays:.0f} s, and this has lasted for {age:.0f} s"
    return Verdict(one.name, "move", model, place.uri, seconds) if age >= pays else Verdict(one.name, "stay", model)
