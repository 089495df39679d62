"""The table of tests.bench.observed: python3 -m tests.report.observed build/bench/observed/results.jsonl"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any

WAYS = {"slot": "VM with a slot", "stock": "stock QEMU", "process": "host process", "container": "in a container",
        "partition": "two partitions"}
RATE = "operations_per_second"

Rates = dict[tuple[str, int, str], dict[str, dict[int, float]]]
"""By (way, outstanding, control): the rates of the foreground and of the background by repeat."""

Shares = dict[int, float]
"""By repeat, percent."""


def rates(runs: list[dict[str, Any]]) -> Rates:
    """Of all runs."""
    found: Rates = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        cell = run["cell"]
        for role in ("foreground", "background"):
            if run[role]:
                found[cell["way"], cell["outstanding"], cell["control"]][role][cell["repeat"]] = run[role][RATE]
    return found


def _shares(part: dict[int, float], whole: dict[int, float]) -> Shares:
    """Of the median of what it has alone."""
    alone = median(whole.values()) if whole else 0
    return {repeat: 100 * rate / alone for repeat, rate in part.items()} if alone else {}


def _median(shares: Shares) -> str:
    return f"{median(shares.values()):8.1f}" if shares else f"{'pending':>8}"


def _against(one: Shares, other: Shares) -> str:
    """The differences within repeats: their median, and half of them are between the two others."""
    differences = [one[repeat] - other[repeat] for repeat in one.keys() & other.keys()]
    if not differences:
        return f"{'pending':>21}"
    low, middle, high = quantiles(differences, n=4, method="inclusive") if len(differences) > 1 else differences * 3
    return f"{middle:+7.1f} ({low:+.1f} {high:+.1f})".rjust(21)


def text(path: Path) -> str:
    """Of medians: the foreground of its own alone, the background of its own alone; then the difference to the slot's, in points."""
    found = rates([line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "run"])
    settings = sorted({(outstanding, control) for way, outstanding, control in found if way and outstanding})
    lines = [f"{'outstanding, control':<20} {'foreground':<14} {'kept %':>8} {'against (quartiles)':>21} {'backgr. %':>9} "
             f"{'against (quartiles)':>21} {'runs':>4}"]
    for outstanding, control in settings:
        slot: tuple[Shares, Shares] = ({}, {})
        for way, title in WAYS.items():
            rate = found[way, outstanding, control]
            kept = _shares(rate["foreground"], found[way, 0, ""]["foreground"])
            got = _shares(rate["background"], found["", outstanding, ""]["background"])
            slot = (kept, got) if way == "slot" else slot
            lines.append(f"{f'{outstanding}, {control}':<20} {title:<14} {_median(kept)} {_against(kept, slot[0])} {_median(got):>9} "
                         f"{_against(got, slot[1])} {len(rate['foreground']):4}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(text(Path(sys.argv[1])))
