# SPDX-License-Identifier: GPL-2.0-or-later
"""Slices as Chrome's trace event format (JSON): a QEMU is a process, what overlaps in a track has lanes of its own. Pure.

The format: "Trace Event Format", Google; ph M is metadata, X a slice with ts and dur in microseconds, i a moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .slices import COLLISION, Slice

_COLOURS = {COLLISION: "terrible", "held": "thread_state_runnable", "held, promoted": "bad", "in service": "rail_response",
            "read": "good", "write": "good"}
"""Names that Chrome's viewer has; Perfetto chooses by the slice's name."""

_LANES = 1000
"""Numbers of lanes begin at so many for each process: where one is the process's own number, Perfetto calls it the main thread and
puts it first."""


def document(logs: Mapping[str, Sequence[Slice]]) -> dict[str, Any]:
    """All logs on one clock, which begins with the first slice; beginUs says when that was, since 1970."""
    begin = min((one.begin_us for found in logs.values() for one in found), default=0.0)
    events: list[dict[str, Any]] = []
    for process, (name, found) in enumerate(logs.items(), 1):
        events.append(_name("process", process, 0, name))
        for lane, (track, number, kept) in enumerate(_lanes(found), process * _LANES + 1):
            events.append(_name("thread", process, lane, f"{track} {number}" if number > 1 else track))
            events += [_event(one, process, lane, begin) for one in kept]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"beginUs": begin}}


def _name(what: str, process: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": lane, "args": {"name": name}}


def _event(one: Slice, process: int, lane: int, begin: float) -> dict[str, Any]:
    event = {"name": one.name, "cat": one.track, "pid": process, "tid": lane, "ts": round(one.begin_us - begin, 3),
             "args": one.values}
    if one.end_us is None:
        return {**event, "ph": "i", "s": "p"}
    colour = {"cname": _COLOURS[one.name]} if one.name in _COLOURS else {}
    return {**event, "ph": "X", "dur": round(one.end_us - one.begin_us, 3), **colour}


def _lanes(found: Iterable[Slice]) -> list[tuple[str, int, list[Slice]]]:
    """Track, number of the lane in it, what is drawn there: in none does anything overlap."""
    lanes: dict[str, list[list[Slice]]] = {}
    free: dict[str, list[tuple[float, int]]] = {}  # of each lane, when its last slice ends
    for one in sorted(found, key=lambda one: (one.begin_us, one.track)):
        rows, ends = lanes.setdefault(one.track, []), free.setdefault(one.track, [])
        if ends and ends[0][0] <= one.begin_us:
            _, number = heapq.heappop(ends)
        else:
            number = len(rows)
            rows.append([])
        rows[number].append(one)
        heapq.heappush(ends, (one.begin_us if one.end_us is None else one.end_us, number))
    return [(track, number, row) for track, rows in sorted(lanes.items()) for number, row in enumerate(rows, 1)]
