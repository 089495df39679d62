# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what idletimed says of this host's spare time: idletime-gauge(5). Facts; nothing that is wrong raises."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path("/run/idletime/.state/gauge.json")
VERSION = 1
STALE_SECONDS = 10.0


@dataclass(frozen=True)
class Resource:
    """steady: share of time that is spare, 0 to 1; None is unknown."""

    name: str
    kind: str
    whole: bool
    steady: float | None
    rate_bps: int | None = None


@dataclass(frozen=True)
class Gauge:
    """problem: why nothing is known, with the remedy; "" where it is."""

    resources: tuple[Resource, ...] = ()
    problem: str = ""


def read(file: Path = FILE, now: float | None = None) -> Gauge:
    """now: of CLOCK_MONOTONIC."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            return Gauge(problem=f"{file} has version {data['version']}, this program reads {VERSION}; remedy: install "
                         "idletime-host and idletime-openstack of one version")
        age = (time.monotonic() if now is None else now) - float(data["monotonic"])
        found = tuple(_resource(one) for one in data["resources"])
    except OSError as error:
        return Gauge(problem=f"{file}: {error.strerror}; remedy: is idletimed running?")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Gauge(problem=f"{file} cannot be read: {type(error).__name__}: {error}; remedy: is it idletimed's?")
    if not 0 <= age <= STALE_SECONDS:
        return Gauge(problem=f"{file} is {age:.0f} s old; remedy: is idletimed running?")
    return Gauge(found)


def _resource(one: dict[str, Any]) -> Resource:
    steady, rate = one["spare"]["steady"], one["rate_bps"]
    return Resource(str(one["resource"]), str(one["kind"]), bool(one["whole"]),
                    None if steady is None else min(max(float(steady), 0.0), 1.0), None if rate is None else int(rate))
