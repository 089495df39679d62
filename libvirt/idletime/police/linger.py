# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a background VM stays on a host whose processors others need, or moves to another host (paper 003, 2). Pure.

    share      what a VM does here, of what it would do alone, over the last WINDOW_S: got()
    episode    begins where its share falls below SHORT, and is over where it is at least LONG again
    stay       as long as the episode is younger than a move pays after: pays_after()
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

LOST_CPUS = 0.05
"""Who loses less of one processor is not worth a move."""

SURE_S = 1.0
"""Looks at VMs, and what police.py counts, are some tenths of a second apart: less is no time in which a VM has run."""


@dataclass(frozen=True)
class Counts:
    """Of one VM at a time, since it is known. vcpus: of each, the seconds that it ran, and that it waited for a processor.
    stopped_s: the VM was stopped for the processors; off_s: for something else, which says nothing of these."""

    at_s: float
    vcpus: tuple[tuple[float, float], ...]
    stopped_s: float = 0.0
    off_s: float = 0.0


@dataclass(frozen=True)
class Got:
    """share: of what it would do alone. cpus: processors that it would have alone."""

    share: float = 1.0
    cpus: float = 0.0

    @property
    def lost(self) -> float:
        """Processors."""
        return self.cpus * (1 - self.share)


@dataclass(frozen=True)
class Place:
    """A host. idle_cpus: what of its processors nobody takes. free: memory that one more VM may have."""

    uri: str
    idle_cpus: float
    free: int


@dataclass(frozen=True)
class Subject:
    """A background VM in an episode. memory: what it may have; sent: what of that is to be sent. writes: bytes a second.
    hindered: why it cannot be sent, or not yet."""

    name: str
    got: Got
    memory: int
    sent: int
    writes: float = 0.0
    hindered: str = ""


@dataclass(frozen=True)
class Verdict:
    """What becomes of one VM. to: where it moves; "" stays. kind: what it is about, one of KINDS. why: the model, in words."""

    name: str
    kind: str
    why: str
    to: str = ""
    seconds: float = math.inf


KINDS = ("move", "stay", "next", "hindered", "own", "room", "gain", "writes")


def window(seen: Sequence[Counts], one: Counts) -> tuple[Counts, ...]:
    """With one more, and none that is not needed for the last WINDOW_S; anew where counters begin anew."""
    if seen and not _goes_on(seen[-1], one):
        seen = ()
    old = sum(one.at_s - each.at_s >= WINDOW_S for each in seen)
    return (*seen[max(0, old - 1):], one)


def _goes_on(last: Counts, one: Counts) -> bool:
    """No counter has begun anew."""
    each = zip((*last.vcpus, (last.stopped_s, last.off_s)), (*one.vcpus, (one.stopped_s, one.off_s)), strict=False)
    return len(last.vcpus) == len(one.vcpus) and all(now[0] >= then[0] and now[1] >= then[1] for then, now in each)


def got(seen: Sequence[Counts], before: Got) -> Got | None:
    """What a VM got in a window; None: that is not known. before: what it wanted then, where it is stopped all the time.

    A vCPU that runs for r, waits for w and sleeps for z does as much in r + w + z as in r + z alone: so its share is 1 - w / T.
    Of several the mean, by what each wants."""
    if len(seen) < 2 or seen[-1].at_s - seen[0].at_s < WINDOW_S:
        return None
    first, last = seen[0], seen[-1]
    there = last.at_s - first.at_s - (last.off_s - first.off_s)
    free = there - (last.stopped_s - first.stopped_s)
    if there < SURE_S:
        return None
    if free < SURE_S:
        return Got(0.0, before.cpus) if before.cpus >= LOST_CPUS else Got(1.0, before.cpus)
    each = [(now[0] - then[0], now[1] - then[1]) for now, then in zip(last.vcpus, first.vcpus, strict=True)]
    wanted = sum(ran + waited for ran, waited in each)
    if wanted <= 0:
        return None  # a vCPU's waiting is counted when it is over
    share = sum((ran + waited) * max(0.0, 1 - waited / free) for ran, waited in each) / wanted
    alone = sum(ran for ran, _ in each) / share if share > 0 else wanted
    found = Got(share * min(1.0, free / there), min(float(len(each)), alone / free))
    return found if found.lost >= LOST_CPUS else Got(1.0, found.cpus)


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


def decide(subjects: Sequence[Subject], since: Mapping[str, float], here: Place, places: Sequence[Place], bandwidth: float,
           now_s: float) -> list[Verdict]:
    """Of each VM in an episode; at most one of them moves. bandwidth: bytes a second. places: other hosts, in the operator's
    order, which counts between equals."""
    found = [_judge(one, now_s - since[one.name], here, places, bandwidth) for one in subjects if one.name in since]
    first = min((one for one in found if one.to), key=lambda one: (one.seconds, one.name), default=None)
    return [Verdict(one.name, "next", f"another one moves first; {one.why}") if one.to and one is not first else one
            for one in found]


def _judge(one: Subject, age: float, here: Place, places: Sequence[Place], bandwidth: float) -> Verdict:
    says = f"it does {one.got.share:.0%} of what it would alone, with {one.got.cpus:.1f} processors"
    if one.hindered:
        return Verdict(one.name, "hindered", f"{says}; {one.hindered}")
    if here.idle_cpus >= one.got.lost:
        return Verdict(one.name, "own", f"{says}, but {here.idle_cpus:.1f} processors are idle here: it has a limit of its "
                                        "own, or is pinned")
    fits = [place for place in places if place.free >= one.memory]
    if not fits:
        return Verdict(one.name, "room", f"{says}, and no other host has {one.memory >> 20} MiB of memory to spare")
    place = max(fits, key=lambda each: there(one.got, each))
    gets = there(one.got, place)
    says = f"{says}, and would do {gets:.0%} at {place.uri}"
    if gets - one.got.share < GAIN:
        return Verdict(one.name, "gain", says)
    seconds = move_seconds(one.sent, one.writes, bandwidth)
    how = f"{one.sent / 1e6:.0f} MB at {bandwidth / 1e6:.0f} MB/s, of which it writes {one.writes / 1e6:.1f}"
    if math.isinf(seconds):
        return Verdict(one.name, "writes", f"{says}; a move does not end: {how}")
    pays = pays_after(one.got.share, gets, seconds)
    model = f"{says}; a move takes {seconds:.0f} s ({how}) and pays after {pays:.0f} s, and this has lasted for {age:.0f} s"
    return Verdict(one.name, "move", model, place.uri, seconds) if age >= pays else Verdict(one.name, "stay", model)
