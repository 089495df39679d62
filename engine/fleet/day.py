# SPDX-License-Identifier: GPL-2.0-or-later
"""A day of hosts: the share of each minute for which the foreground keeps a host's disk busy."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

MINUTES = 1440
Day = tuple[tuple[float, ...], ...]
"""By minute, by host."""

_KINDS = (
    # name, share of hosts, base, height of the day's wave, its peak (hour), bursts a day, their height, mean length (min)
    ("office", 0.35, 0.08, 0.45, 13.0, 6, 0.35, 12),
    ("web", 0.35, 0.15, 0.35, 20.0, 10, 0.25, 8),
    ("batch at night", 0.15, 0.05, 0.75, 2.5, 2, 0.20, 30),
    ("quiet", 0.15, 0.04, 0.05, 12.0, 2, 0.60, 20),
)
"""Assumed, not measured: tenants of a cloud for general use, a fifth to a third busy in the mean."""


def made(hosts: int, seed: int) -> Day:
    """Hosts of four kinds: a wave of the day, bursts of an exponential length, noise."""
    chance = random.Random(seed)
    columns = [_host(chance, index / hosts) for index in range(hosts)]
    chance.shuffle(columns)
    return tuple(tuple(column[minute] for column in columns) for minute in range(MINUTES))


def _host(chance: random.Random, place: float) -> list[float]:
    for kind in _KINDS:
        if place < kind[1]:
            break
        place -= kind[1]
    base, height, peak, bursts, burst, length = kind[2:]
    scale, shift = chance.uniform(0.6, 1.4), chance.gauss(0, 1.0)
    column = []
    for minute in range(MINUTES):
        wave = max(0.0, math.cos((minute / 60 - peak - shift) / 24 * 2 * math.pi)) ** 2
        column.append(scale * (base + height * wave) + chance.gauss(0, 0.03))
    for _ in range(bursts):
        begin = chance.randrange(MINUTES)
        for minute in range(begin, min(MINUTES, begin + 1 + int(chance.expovariate(1 / length)))):
            column[minute] += burst * scale
    return [min(max(share, 0.0), 1.0) for share in column]


def recorded(file: Path) -> Day:
    """CSV: a line a minute, a column a host, shares 0 to 1; a first line of names is left out. Raises ValueError."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row]
    if rows and not _is_number(rows[0][0]):
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]) or not all(_is_number(cell) and 0 <= float(cell) <= 1 for cell in row):
            raise ValueError(f"{file}: line {number} of figures is {','.join(row)[:60]!r}; remedy: as many shares from 0 to 1 "
                             "as the first line has")
    if not rows:
        raise ValueError(f"{file}: there are no figures; remedy: a line a minute, a column a host")
    return tuple(tuple(float(cell) for cell in row) for row in rows)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
