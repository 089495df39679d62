# SPDX-License-Identifier: GPL-2.0-or-later
"""Two looks at a resource: how busy its foreground was between them, and who says so. Pure.

A disk is busy while any source has requests in service: the union of their busy times. A ring keeps 128 bursts of each. For the
time before, when there were more, it is the sum of the requests' times in service that is left, and all of that time at most:
what overlaps counts twice there, so the disk may be idler than is said, and not busier. An uplink is as busy as the bytes sent
have of its rate.

Foreground is never more than all that the kernel counts of the device: that bounds what any other source says. So an end of a
request that a kernel does not tell the observer (ARCHITECTURE.md) does not make a disk busy for seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..facts import DISK
from .boards import Boards, Source
from .kernel import Counted

OBSERVER, KERNEL, SLOTS = "observer", "kernel", "slots"


@dataclass(frozen=True)
class Look:
    """Facts of one time, in ns of CLOCK_MONOTONIC. boards: None where there is no arena."""

    at_ns: int
    boards: Boards | None = None
    observer: Source | None = None
    kernel: Counted | None = None


@dataclass(frozen=True)
class Measured:
    """spare: share of the time, None is unknown (problem says why). source: who says so. whole: all foreground is in it."""

    spare: float | None
    source: str = ""
    whole: bool = False
    problem: str = ""


def between(kind: str, rate_bps: int | None, before: Look, after: Look) -> Measured:
    """From the best source that there is."""
    source = _source(before, after)
    if not source:
        return Measured(None, problem="nobody sees its foreground: it is no disk and no interface of this host, and no "
                        "foreground VM is attached; remedy: default = \"foreground\" in /etc/idletime/rules.d")
    if kind != DISK and not rate_bps:
        return Measured(None, source, source != SLOTS, "its rate is not known; remedy: say rate in /etc/idletime/resources.d")
    elapsed_ns = after.at_ns - before.at_ns
    if elapsed_ns <= 0:
        return Measured(None, source, source != SLOTS, "the clock stands still")
    busy = _busy(kind, source, rate_bps, before, after)
    if source != KERNEL and before.kernel is not None and after.kernel is not None:
        busy = min(busy, _busy(kind, KERNEL, rate_bps, before, after))
    return Measured(min(max(1 - busy, 0.0), 1.0), source, source != SLOTS)


def _busy(kind: str, source: str, rate_bps: int | None, before: Look, after: Look) -> float:
    if kind == DISK:
        return _disk(source, before, after)
    return _sent(source, before, after) * 8e9 / ((rate_bps or 1) * (after.at_ns - before.at_ns))


def _source(before: Look, after: Look) -> str:
    if before.observer is not None and after.observer is not None and before.observer.key == after.observer.key:
        return OBSERVER
    if before.kernel is not None and after.kernel is not None and not _background(before, after):
        return KERNEL
    return SLOTS if before.boards is not None and after.boards is not None and _any(after.boards) else ""


def _any(boards: Boards) -> bool:
    return bool(boards.foreground)


def _background(before: Look, after: Look) -> bool:
    """Whether background may have used the resource between the looks."""
    old, new = before.boards or Boards(), after.boards or Boards()
    return (old.background_started, old.background) != (new.background_started, new.background)


def _disk(source: str, before: Look, after: Look) -> float:
    if source == KERNEL and before.kernel is not None and after.kernel is not None:
        ms = min(after.kernel.busy_ms - before.kernel.busy_ms, after.kernel.service_ms - before.kernel.service_ms)
        return ms * 1e6 / (after.at_ns - before.at_ns)  # two upper bounds: the lesser one
    sources = [*(after.boards or Boards()).foreground, *_seen(source, after)]
    old = {one.key: one.service_ns for one in [*(before.boards or Boards()).foreground, *_seen(source, before)]}
    return busy_share(sources, before.at_ns, after.at_ns, sum(max(0, one.service_ns - old.get(one.key, 0)) for one in sources))


def _sent(source: str, before: Look, after: Look) -> int:
    """Bytes of foreground."""
    if source == KERNEL and before.kernel is not None and after.kernel is not None:
        return after.kernel.sent_bytes - before.kernel.sent_bytes
    old = {one.key: one.bytes for one in [*(before.boards or Boards()).foreground, *_seen(source, before)]}
    return sum(max(0, one.bytes - old[one.key]) for one in [*(after.boards or Boards()).foreground, *_seen(source, after)]
               if one.key in old)


def _seen(source: str, look: Look) -> Iterable[Source]:
    return (look.observer,) if source == OBSERVER and look.observer is not None else ()


# ---- busy times

def busy_share(sources: Sequence[Source], begin_ns: int, end_ns: int, service_ns: int) -> float:
    """Share of the time in which any of them was busy. service_ns: sum of their requests' times in service."""
    covered_ns = max([begin_ns, *(min(one.moves[0][0], end_ns) for one in sources if one.moves and not one.whole)])
    busy_ns = _busy_ns(sources, covered_ns, end_ns)
    busy_ns += min(covered_ns - begin_ns, max(0, service_ns - busy_ns))
    return busy_ns / (end_ns - begin_ns)


def _busy_ns(sources: Sequence[Source], begin_ns: int, end_ns: int) -> int:
    """The union of their busy times, of a time that all rings cover."""
    busy_ns, depth, last_ns = 0, 0, begin_ns
    for at_ns, change in sorted(change for one in sources for change in _changes(one, begin_ns, end_ns)):
        busy_ns += (at_ns - last_ns) * (depth > 0)
        depth, last_ns = depth + change, at_ns
    return busy_ns + (end_ns - last_ns) * (depth > 0)


def _changes(one: Source, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """When it became busy (1) and idle (-1) within the time; one that is busy when it begins becomes so then."""
    state = one.busy if not one.moves else not one.moves[0][1]
    found: list[tuple[int, int]] = []
    began = False
    for at_ns, busy in one.moves:
        if at_ns > end_ns:
            break
        if at_ns > begin_ns and not began:
            began = True
            found += [(begin_ns, 1)] if state else []
        if at_ns > begin_ns and busy != state:
            found.append((at_ns, 1 if busy else -1))
        state = busy
    if not began and state:
        found.append((begin_ns, 1))
    return found
