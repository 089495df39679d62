# SPDX-License-Identifier: GPL-2.0-or-later
"""When a block job that has a deadline is background, and when it runs as in stock QEMU so that it is done in time. Pure.

    background  while its pace of late would do, or while there is time enough to do the rest at full speed later
    urgent      else; and for a while, once, to learn what full speed is
    late        the deadline is over: urgent to the end

What reads an NBD export may read as much as it likes: without a size it is background until its deadline.

This is the idle-time cron of Eggert's dissertation (2.2.4) for jobs whose size is known: with two speeds the foreground pays
least where all that idle time does is done as background, and full speed begins as late as is safe. Both are measured, as
they change from hour to hour; full speed only where it matters, so that a job that idle time is enough for costs nothing.

Times are seconds since 1970, sizes bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

PERIOD_SECONDS = 5.0
"""How often a job with a deadline is looked at."""

MEASURE_SECONDS = 10.0
"""Before a pace is believed, and the least time in which a job is urgent."""

IDLE_SECONDS, FULL_SECONDS = 120.0, 20.0
"""What paces are averaged over, once they have been seen so long: idle time comes and goes, and a job begins with a burst."""

SAFE, RELAXED, MARGIN_SECONDS = 1.25, 1.5, 15.0
"""Full speed begins when the rest needs 4/5 of the time left, but for a margin, and ends when it needs 2/3 of it."""


@dataclass(frozen=True)
class Track:
    """A job that has a deadline, as of its last look at `at`. began: when it was seen first; by: the time of day that its
    deadline was made of. since: it is urgent, or background, since then. idle, full: bytes a second as background, and urgent;
    None: not known yet. idle_seconds, full_seconds: for how long it was. let_go: it cannot end as background, and is urgent."""

    deadline: float
    at: float
    done: int
    since: float
    began: float
    by: str
    urgent: bool = False
    idle: float | None = None
    full: float | None = None
    idle_seconds: float = 0.0
    full_seconds: float = 0.0
    let_go: bool = False


def deadline_after(begun: float, by: str) -> float:
    """The first time of day `by` ("06:00", of the host's time zone) after a job began."""
    hour, minute = (int(part) for part in by.split(":"))
    day = time.localtime(begun)
    for later in (0, 1):
        found = time.mktime((day.tm_year, day.tm_mon, day.tm_mday + later, hour, minute, 0, 0, 0, -1))
        if found > begun:
            return found
    raise ValueError(by)


def begun(now: float, done: int, by: str) -> Track:
    """A job that is seen for the first time. by: "" where it has to be done at once."""
    return Track(deadline_after(now, by) if by else now, now, done, now, now, by)


def due(track: Track, by: str) -> Track:
    """The same by another time of day, if the policy says another now."""
    return track if by == track.by else replace(track, by=by, deadline=deadline_after(track.began, by) if by else track.began)


def decide(track: Track, now: float, done: int, total: int) -> Track:
    """The next look at a job; `urgent` of the result is the decision. total: 0 is not known."""
    seen = _measured(track, now, done)
    urgent = track.let_go or _urgent(seen, now, total - done if total else None)
    return seen if urgent == seen.urgent else replace(seen, urgent=urgent, since=now)


def expected_end(track: Track, total: int) -> float:
    """When it will be done: at its pace as background, or at its deadline if that lets it be done in time."""
    left = total - track.done
    pace = track.full if track.urgent else track.idle
    end = track.at + left / pace if pace else float("inf")
    if track.urgent or end <= track.deadline or track.full is None:
        return end
    return max(track.deadline, track.at + left / track.full)


def _measured(track: Track, now: float, done: int) -> Track:
    """What has been done since the last look was done at one pace."""
    seconds = now - track.at
    if seconds <= 0:  # the clock was set back
        return replace(track, at=now, done=done, since=min(track.since, now))
    pace = (done - track.done) / seconds
    if track.urgent:
        age = track.full_seconds + seconds
        return replace(track, at=now, done=done, full_seconds=age,
                       full=_averaged(track.full, pace, seconds / min(age, FULL_SECONDS)))
    age = track.idle_seconds + seconds
    return replace(track, at=now, done=done, idle_seconds=age,
                   idle=_averaged(track.idle, pace, seconds / min(age, IDLE_SECONDS)))


def _averaged(before: float | None, pace: float, weight: float) -> float:
    return pace if before is None else before + min(1.0, weight) * (pace - before)


def _urgent(track: Track, now: float, rest: int | None) -> bool:
    left = track.deadline - now
    if left <= MARGIN_SECONDS:
        return True
    if rest is None:
        return False
    if track.urgent:
        if now - track.since < MEASURE_SECONDS or not track.full:
            return True
        return rest / track.full * RELAXED + 2 * MARGIN_SECONDS > left
    if now - track.since < MEASURE_SECONDS and left > 4 * MARGIN_SECONDS:
        return False  # its pace is not known yet
    if track.idle and rest / track.idle + MARGIN_SECONDS <= left:
        return False
    return not track.full or rest / track.full * SAFE + MARGIN_SECONDS >= left


def record(tracks: Mapping[str, Track]) -> dict[str, dict[str, object]]:
    """As tables, by job."""
    return {name: asdict(track) for name, track in tracks.items()}


def of_record(said: Mapping[str, Mapping[str, object]]) -> dict[str, Track]:
    """Tracks that were written as tables, by job; what is none is left out."""
    found = {}
    for name, table in said.items() if isinstance(said, Mapping) else ():
        try:
            track = Track(**table)  # type: ignore[arg-type]
            numbers = (track.deadline, track.at, track.since, track.began, track.done, track.idle or 0, track.full or 0)
            if type(track.by) is str and all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers):
                found[name] = track
        except TypeError:
            continue
    return found
