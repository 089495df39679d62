# SPDX-License-Identifier: GPL-2.0-or-later
"""Rate windows (paper 003, 5.1): background is limited while the foreground moves more than a rate. Pure; libvirt throttles.

    on or off  the foreground's bytes a second over the last 5 s: on above High, off below Low
    on         all background of the device together gets at most Limit; off lifts it

The paper's window is the last 100 operations or 5 s. Ours is 5 s: a look sees all operations of a quarter of a second, which on
a busy device are more than 100, and over 5 s it hardly matters that two counters are not read at the same time. The paper
contradicts itself; the figures decide (1,000, 500 and 500 KB/s on its disk of 10 MB/s), not the "10 %" beside the limit. Its
dilation (5.2), disk I/O of file I/O, is 1 here: what is limited are requests of the virtual device, not of a file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

SECONDS = 5.0
"""003, 5.1."""

STEP = 0.2
"""A limit is told anew when it differs by a fifth: each telling is a call to libvirt."""


@dataclass(frozen=True)
class Reading:
    """Bytes that a device has moved since it is there, and of these those of each background device."""

    at_s: float
    total: int
    own: Mapping[str, int] = field(default_factory=dict)


Window = tuple[Reading, ...]


def add(window: Window, reading: Reading) -> Window:
    """The window with one more reading, and the last one that is older than SECONDS."""
    found = (*window, reading)
    while len(found) > 2 and found[1].at_s <= reading.at_s - SECONDS:
        found = found[1:]
    return found


def _spans(window: Window) -> list[tuple[Reading, Reading]]:
    """Neighbours between which it is known who moved what: not where a counter began anew, or where others are background:
    what these have moved before would be taken for somebody's now."""
    return [(one, two) for one, two in pairwise(window)
            if one.own.keys() == two.own.keys() and one.total <= two.total
            and all(one.own[name] <= count for name, count in two.own.items())]


def _known_s(window: Window) -> float:
    return sum(two.at_s - one.at_s for one, two in _spans(window))


def foreground(window: Window) -> float:
    """Bytes a second of all who are not background. A burst does not fill what is shorter than a second."""
    rest = sum(two.total - one.total - sum(two.own.values()) + sum(one.own.values()) for one, two in _spans(window))
    return max(0.0, rest / max(_known_s(window), 1.0))


@dataclass(frozen=True)
class Thresholds:
    """In bytes a second: high switches on, low off, limit is R_t of the paper."""

    high: int = 1_000_000
    low: int = 500_000
    limit: int = 500_000


@dataclass(frozen=True)
class Decision:
    """limits: bytes a second of each background device; None: no limits. why: in words, where that begins or ends."""

    limits: Mapping[str, int] | None
    why: str = ""


def decide(now: Mapping[str, int] | None, window: Window, thresholds: Thresholds) -> Decision:
    """What holds for the background of one device. now: its limits so far, which stay where less than half of the window is
    known."""
    seen = foreground(window)
    stay = seen >= thresholds.low or (window and _known_s(window) < SECONDS / 2)
    if not (seen > thresholds.high or (now is not None and stay)):
        why = f"the foreground moves {_kb(seen)}, less than {_kb(thresholds.low)}" if now is not None else ""
        return Decision(None, why)
    want = _shares(thresholds.limit, window)
    why = f"the foreground moves {_kb(seen)}, more than {_kb(thresholds.high)}" if now is None else ""
    if now is not None and now.keys() == want.keys() and all(abs(want[name] - now[name]) < now[name] * STEP for name in want):
        return Decision(now)
    return Decision(want, why)


def _shares(limit: int, window: Window) -> dict[str, int]:
    """Half of the limit alike, half by what each has moved in the window: who has moved nothing may begin. Each has a byte: 0
    is no limit to libvirt."""
    spans = _spans(window)
    moved = {name: sum(two.own[name] - one.own[name] for one, two in spans if name in one.own) for name in window[-1].own}
    whole = sum(moved.values())
    parts = {name: (0.5 / len(moved) + 0.5 * one / whole) if whole else 1 / len(moved) for name, one in moved.items()}
    return {name: max(1, int(limit * part)) for name, part in parts.items()}


def _kb(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1000:.0f} KB/s"
