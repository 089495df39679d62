# SPDX-License-Identifier: GPL-2.0-or-later
"""The rows of the model as cells, in the units that people read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .model import STATES, DeviceRow, ResourceRow

RESOURCES = ("resource", "state", "interval ms", "fg/s", "bg/s", "fg MB/s", "bg MB/s", "held", "coll/s", "fg waits %")
STRIP = "last minute"
DEVICES = ("vm", "device", "resource", "class", "req/s", "MB/s", "held", "in service", "prom/s", "in force")
LEGEND = "each second: " + ", ".join(f"{letter} {state}" for state, letter in STATES.items())

LESS = (("fg MB/s", "bg MB/s", "in service"), ("prom/s",), ("coll/s",))
"""Columns that go, in this order, where a terminal is too narrow: what is left says who has the disk, and what that costs."""

Aligned = Callable[[Sequence[str], Sequence[Sequence[Any]]], list[str]]


def fitting(aligned: Aligned, head: Sequence[str], rows: Sequence[Sequence[Any]], columns: int) -> list[str]:
    """The lines of a table that is as wide as there is room for, its head first."""
    gone: set[str] = set()
    for names in ((), *LESS):
        gone |= set(names)
        kept = [at for at, one in enumerate(head) if one not in gone]
        lines = aligned([head[at] for at in kept], [[row[at] for at in kept] for row in rows])
        if len(lines[0]) <= columns:
            break
    return lines


def resource(row: ResourceRow) -> tuple[Any, ...]:
    return (row.name, row.state, None if row.interval_us is None else row.interval_us / 1000, _whole(row.foreground_per_s),
            _whole(row.background_per_s), _mega(row.foreground_bytes_per_s), _mega(row.background_bytes_per_s), row.held,
            _tenth(row.collisions_per_s), _percent(row.collision_cost))


def device(row: DeviceRow) -> tuple[Any, ...]:
    class_ = f"{row.class_} ({row.wanted})" if row.wanted and row.class_ != row.wanted else row.class_
    return (row.vm, row.target, row.resource or None, class_, _whole(row.requests_per_s), _mega(row.bytes_per_s), row.held,
            row.in_service, _tenth(row.promotions_per_s), row.in_force)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _mega(value: float | None) -> float | None:
    return None if value is None else round(value / 1e6, 1)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)
