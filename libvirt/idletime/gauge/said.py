# SPDX-License-Identifier: GPL-2.0-or-later
"""What the gauge says, for all to read: RUN_DIR/.state/gauge.json, described in idletime-gauge(5)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..state import FOLDER, replace_file
from .spare import Spare

NAME = "gauge"
VERSION = 1
STALE_SECONDS = 10.0
"""Five looks: who reads an older one reads of a host that may have changed."""


@dataclass(frozen=True)
class Gauged:
    """A resource. device: /dev/sda or eth0, "" where it is none. source, whole, problem: as in measure.Measured."""

    resource: str
    kind: str
    device: str
    source: str
    whole: bool
    spare: Spare
    rate_bps: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Gauge:
    """All of them. at: seconds since 1970; monotonic: of CLOCK_MONOTONIC, by which the age is told."""

    at: float
    monotonic: float
    resources: tuple[Gauged, ...] = ()

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.monotonic


def write(run_dir: str, found: Gauge) -> None:
    """Replace what is said. Raises OSError."""
    replace_file(f"{run_dir}/{FOLDER}", NAME, {"version": VERSION, "at": round(found.at, 3), "monotonic": found.monotonic,
                                               "resources": [_plain(one) for one in found.resources]})


def _plain(one: Gauged) -> dict[str, Any]:
    spare = {span: None if share is None else round(share, 4) for span, share in asdict(one.spare).items()}
    return {**asdict(one), "spare": spare}


def read(run_dir: str) -> Gauge | None:
    """None where nothing is said, or nothing that this version understands."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        data = json.loads(Path(run_dir, FOLDER, f"{NAME}.json").read_text(encoding="utf-8"))
        if data["version"] == VERSION:
            return Gauge(float(data["at"]), float(data["monotonic"]), tuple(_one(one) for one in data["resources"]))
    return None


def _one(data: dict[str, Any]) -> Gauged:
    return Gauged(str(data["resource"]), str(data["kind"]), str(data["device"]), str(data["source"]), bool(data["whole"]),
                  Spare(**data["spare"]), data["rate_bps"], str(data["problem"]))


def lines(found: Gauge | None, age_seconds: float | None = None) -> Sequence[str]:
    """For people. Pure but for the age, where none is given."""
    if found is None:
        return ["the gauge says nothing; remedy: is idletimed running?"]
    age = found.age_seconds if age_seconds is None else age_seconds
    old = [f"figures are {age:.0f} s old; remedy: is idletimed running?"] if age > STALE_SECONDS else []
    return [*old, *(str(_line(one)) for one in found.resources)] if found.resources else \
        [*old, "no resource: no VM is attached; remedy: name disks and uplinks in /etc/idletime/resources.d, such as [sda]"]


def _line(one: Gauged) -> str:
    if one.problem and one.spare.minute is None:
        return f"{one.resource}: unknown: {one.problem}"
    shares = ", ".join(f"{span} {100 * share:.0f}%" for span, share in asdict(one.spare).items() if share is not None)
    part = "" if one.whole else ", of what passes Idletime's QEMUs only"
    return f"{one.resource}: spare {shares} (by {one.source or 'nobody now'}{part})"
