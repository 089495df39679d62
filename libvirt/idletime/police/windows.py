# SPDX-License-Identifier: GPL-2.0-or-later
"""Rate windows (paper 003, 5.1 and 5.2), for what passes no interval of ours: a stock QEMU behind libvirt's throttling. Pure.

    on or off  the foreground's rate over its window: on above High, off below Low
    on         background gets at most limit = R_t / dilation of its own requests; Off lifts the limit

A window has the last 100 operations, and none older than 5 s. Readings of the paper where it contradicts itself: High, Low
and R_t are 10, 5 and 5 % of what the device can do (1,000, 500 and 500 KB/s of its 10 MB/s: the figures decide, not the
"10 %" that stands beside R_t); in front of equation 1 "if throttled" is read as "unless", as its own figures need.
Rates are bytes a second, times seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

OPERATIONS, SECONDS = 100, 5.0
"""003, 5.1."""

LEAST_RATE = 64 * 1024
"""Bytes a second. A guest below it seems to hang: its own timeouts are tens of seconds, and a request may be 1 MiB."""


@dataclass(frozen=True)
class Operation:
    """Some requests that were looked at together. end_s: when the last ended; seconds: from the first's begin to there.
    wire_bytes: what of it reached the device (5.2); None: all."""

    end_s: float
    seconds: float
    bytes_: int
    count: int = 1
    wire_bytes: int | None = None


Window = tuple[Operation, ...]


def add(window: Window, operation: Operation, now_s: float, operations: int = OPERATIONS, seconds: float = SECONDS) -> Window:
    """The window with one more entry: of the last `operations` requests and the last `seconds` (003, 5.1). An entry of many
    requests stays whole, so that where samples are coarse the window may be longer than 100, never empty."""
    kept: list[Operation] = []
    count = 0
    for one in reversed((*window, operation)):
        if one.end_s <= now_s - seconds or (kept and count + one.count > operations):
            break
        kept.append(one)
        count += one.count
    return tuple(reversed(kept))


def rate(window: Iterable[Operation], now_s: float, seconds: float = SECONDS) -> float:
    """B_w / T_w (003, 5.1): bytes a second from the begin of the oldest operation until now. A burst does not fill a window
    that is younger than a second of it: it is taken over one second at least."""
    recent = [one for one in window if one.end_s > now_s - seconds]
    if not recent:
        return 0.0
    begin = min(one.end_s - one.seconds for one in recent)
    return sum(one.bytes_ for one in recent) / max(now_s - begin, 1.0)


def dilation(window: Iterable[Operation]) -> float:
    """Disk I/O of file I/O (003, 5.2), over the window; from 0.1 to 10, 1 where nothing is known. Below 0.1 a limit that is
    ten times too high at the end of a run of hits would be no limit."""
    known = [one for one in window if one.wire_bytes is not None]
    asked, reached = sum(one.bytes_ for one in known), sum(one.wire_bytes or 0 for one in known)
    return min(max(reached / asked, 0.1), 10.0) if asked else 1.0


# ---- policing

@dataclass(frozen=True)
class Thresholds:
    """Of one device, in bytes a second: high switches on, low off, limit is R_t."""

    high: float
    low: float
    limit: float

    @classmethod
    def of(cls, most: float) -> Thresholds:
        """For a device that moves `most` bytes a second: 10, 5 and 5 % (003, 5.1, note 4 and Fig. 8)."""
        return cls(most * 0.10, most * 0.05, most * 0.05)


@dataclass(frozen=True)
class State:
    """on: policing. limit: bytes a second for all background of this device, None without a limit."""

    on: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class Decision:
    """changed: the limits are to be told to libvirt. why: in words, where policing begins or ends."""

    state: State
    changed: bool = False
    why: str = ""


STEP = 0.2
"""A limit is told anew when it differs by a fifth: each telling is two calls to libvirt for each device."""


def decide(state: State, foreground: Window, background: Window, thresholds: Thresholds, now_s: float) -> Decision:
    """Look at one device (003, 5.1), say every 0.25 s."""
    seen = rate(foreground, now_s)
    on = seen > thresholds.high or (state.on and seen >= thresholds.low)
    if not on:
        why = f"foreground {_kb(seen)}, below {_kb(thresholds.low)}: no limits" if state.on else ""
        return Decision(State(), state.limit is not None, why)
    limit = max(int(thresholds.limit / dilation(background)), LEAST_RATE)
    if state.on and state.limit is not None and abs(limit - state.limit) < state.limit * STEP:
        return Decision(replace(state, on=True))
    why = "" if state.on else f"foreground {_kb(seen)}, above {_kb(thresholds.high)}: background {_kb(limit)}"
    return Decision(State(True, limit), True, why)


def _kb(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1000:.0f} KB/s"


# ---- what the paper's own kernel module did: for the evaluation, and for those that issue requests themselves

SHORTEST_S, LONGEST_S = 0.01, 0.5
"""Sleeps: shorter ones are dropped, longer ones split (003, 5.1, without figures). A timer tick of its kernel was 10 ms."""


def delays(window: Window, bytes_: int, now_s: float, limit: float, service_s: float = 0.0) -> tuple[float, ...]:
    """How long an operation sleeps before it goes (003, equations 1 and 2), in seconds, in parts of at most LONGEST_S: one
    piece of the operation follows each. service_s: how long it is expected to take."""
    begin = min((one.end_s - one.seconds for one in window), default=now_s)
    moved = sum(one.bytes_ for one in window) + bytes_
    wait = moved / limit - (now_s + service_s - begin)
    if wait < SHORTEST_S:
        return ()
    parts = int(wait / LONGEST_S) + 1
    return (wait / parts,) * parts


# ---- for libvirt

def shares(limit: int, demand: dict[str, float]) -> dict[str, int]:
    """The limit of one device among its background VMs, by what each moved in its window; who moved nothing gets a part as
    the smallest did. Sums to the limit at most, but each VM has a byte: 0 is no limit to libvirt."""
    if not demand:
        return {}
    least = min((one for one in demand.values() if one > 0), default=1.0)
    wants = {name: one if one > 0 else least for name, one in demand.items()}
    whole = sum(wants.values())
    return {name: max(1, int(limit * one / whole)) for name, one in wants.items()}


def block_tune(limit: int | None) -> dict[str, int]:
    """For setBlockIoTune, in bytes a second. Bytes only: a limit of requests would not be the paper's. 0 lifts."""
    return {"total_bytes_sec": limit or 0, "total_bytes_sec_max": 0}


def bandwidth(limit: int | None) -> dict[str, int]:
    """For setInterfaceParameters, which counts in KiB a second; outbound is what the guest sends. 0 lifts, so that a limit is
    at least 1."""
    average = max(1, limit // 1024) if limit else 0
    return {"outbound.average": average, "outbound.peak": 0, "outbound.burst": 0}
