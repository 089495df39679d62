# SPDX-License-Identifier: GPL-2.0-or-later
"""What a resource did in the last ten seconds, in bins: foreground, interval, background. Pure; moments in, bins out.

Foreground is exact: each slot's ring on the board has the times at which it became busy and idle. The interval is what
of the rest follows it within the interval that background waits for. Of background the boards say how many requests were
started until a moment, so between two moments they are spread evenly. What was before the first moment is known of the
foreground alone, as far back as the rings go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..arena import Moment, Transitions

BIN_MS = 20
"""One pixel or two of a page's width; an interval is some bins."""
BINS = 500
_BIN = BIN_MS * 1_000_000
_SPAN = BIN_MS * BINS * 1_000_000

_MOST = 65536  # busy spans; a damaged board has any number

Span = tuple[int, int]
"""From and until, in ns."""


@dataclass
class _Slot:
    """One foreground slot. busy: since when; None: it is idle."""

    head: int = 0
    busy: int | None = None


@dataclass(frozen=True)
class _Sample:
    """What was between two moments. interval_ns: in force then."""

    begin: int
    end: int
    started: int
    in_service: int
    waiting: int
    interval_ns: int


@dataclass
class Timeline:
    """One resource. add() what is seen, read() what it comes to."""

    interval_us: int | None = None
    _slots: dict[int, _Slot] = field(default_factory=dict)
    _busy: deque[Span] = field(default_factory=lambda: deque(maxlen=_MOST))
    _samples: deque[_Sample] = field(default_factory=deque)
    _last: Moment | None = None

    @property
    def heads(self) -> dict[int, int]:
        """What has been seen of each slot; for arena.moment()."""
        return {number: slot.head for number, slot in self._slots.items()}

    def add(self, moment: Moment) -> None:
        """One more look."""
        now, last = moment.now_ns, self._last
        for one in moment.foreground:
            self._transitions(one, last.now_ns if last else now)
        for gone in self._slots.keys() - {one.slot for one in moment.foreground}:
            self._end(self._slots.pop(gone), last.now_ns if last else now)
        if last is not None and now > last.now_ns:
            started = sum(max(0, count - last.started.get(slot, count)) for slot, count in moment.started.items())
            self._samples.append(_Sample(last.now_ns, now, started, moment.in_service, moment.waiting,
                                         (moment.interval_us or 0) * 1000))
        self._last, self.interval_us = moment, moment.interval_us
        self._forget(now - _SPAN - _BIN)

    def _transitions(self, one: Transitions, last_ns: int) -> None:
        slot = self._slots.setdefault(one.slot, _Slot())
        if one.head < slot.head:  # it is somebody else's now
            self._end(slot, last_ns)
        elif one.first > slot.head > 0 and slot.busy is None:
            slot.busy = last_ns  # more happened than the ring holds: that time counts as busy
        slot.head = one.head
        for at, busy in one.all:
            if busy and slot.busy is None:
                slot.busy = at
            elif not busy and (slot.busy is None or at >= slot.busy):  # else it was told before
                self._end(slot, at)

    def _end(self, slot: _Slot, at: int) -> None:
        if slot.busy is not None and at > slot.busy:
            self._busy.append((slot.busy, at))
        slot.busy = None

    def _forget(self, before: int) -> None:
        while self._samples and self._samples[0].end < before:
            self._samples.popleft()
        # Nearly in order of their ends: what is kept a little longer is cut off by read().
        while self._busy and self._busy[0][1] < before:
            self._busy.popleft()

    # ---- what it comes to

    def read(self, since: int = 0) -> dict[str, Any]:
        """The bins from number `since` on that are over, of the last BINS. Shares are in thousandths of a bin."""
        now = self._last.now_ns if self._last else 0
        end = now // _BIN
        first = min(max(since, end - BINS, 0), end)
        count = end - first
        busy = _union([*self._busy, *((slot.busy, now) for slot in self._slots.values() if slot.busy is not None)])
        foreground, interval = _Shares(first, count), _Shares(first, count)
        for span in busy:
            foreground.add(*span)
        for span in self._intervals(busy, now):
            interval.add(*span)
        return {"bin_ms": BIN_MS, "first": first, "foreground": foreground.thousandths(),
                "interval": interval.thousandths(), **self._background(first, count), "interval_us": self.interval_us}

    def _intervals(self, busy: list[Span], now: int) -> Iterator[Span]:
        """After each busy span, until the interval is over or the next one begins."""
        nexts = [*(begin for begin, _ in busy), now][1:]
        for (_, end), following in zip(busy, nexts, strict=True):
            if (length := self._interval_at(end)) and following > end:
                yield end, min(end + length, following)

    def _interval_at(self, at: int) -> int:
        """What was not seen yet has the first one."""
        found = self._samples[0].interval_ns if self._samples else (self.interval_us or 0) * 1000
        low, high = 0, len(self._samples)
        while low < high:
            middle = (low + high) // 2
            if self._samples[middle].begin <= at:
                found, low = self._samples[middle].interval_ns, middle + 1
            else:
                high = middle
        return found

    def _background(self, first: int, count: int) -> dict[str, list[Any]]:
        started: list[float | None] = [None] * count
        in_service: list[int | None] = [None] * count
        waiting: list[int | None] = [None] * count
        for one in self._samples:
            for number, overlap in _overlaps(one.begin, one.end, first, count):
                started[number] = round((started[number] or 0) + one.started * overlap / (one.end - one.begin), 2)
                in_service[number] = max(in_service[number] or 0, one.in_service)
                waiting[number] = max(waiting[number] or 0, one.waiting)
        return {"background": started, "in_service": in_service, "waiting": waiting}


class _Shares:
    """How much of each bin spans take."""

    def __init__(self, first: int, count: int) -> None:
        self._first, self._ns = first, [0] * count

    def add(self, begin: int, end: int) -> None:
        for number, overlap in _overlaps(begin, end, self._first, len(self._ns)):
            self._ns[number] += overlap

    def thousandths(self) -> list[int]:
        return [min(1000, ns * 1000 // _BIN) for ns in self._ns]


def _overlaps(begin: int, end: int, first: int, count: int) -> Iterator[tuple[int, int]]:
    """The bins that a span touches, and how many ns of it are in each."""
    for number in range(max(begin // _BIN, first), min((end - 1) // _BIN + 1, first + count)):
        yield number - first, min(end, (number + 1) * _BIN) - max(begin, number * _BIN)


def _union(spans: Iterable[Span]) -> list[Span]:
    """In order, and apart."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
