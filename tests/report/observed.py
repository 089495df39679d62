"""The table of tests.bench.observed: python3 -m tests.report.observed build/bench/observed/results.jsonl"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

WAYS = {"slot": "VM with a slot", "stock": "stock QEMU", "process": "host process", "container": "in a container",
        "partition": "two partitions"}
RATE = "operations_per_second"

Rates = dict[tuple[str, int, str], dict[str, list[float]]]
"""By (way, outstanding, control): the rates of the foreground and of the background in each repeat."""


def rates(runs: list[dict[str, Any]]) -> Rates:
    """Of all runs."""
    found: Rates = defaultdict(lambda: defaultdict(list))
    for run in runs:
        cell = run["cell"]
        for role in ("foreground", "background"):
            if run[role]:
                found[cell["way"], cell["outstanding"], cell["control"]][role].append(run[role][RATE])
    return found


def _percent(part: list[float], whole: list[float]) -> float | None:
    return 100 * median(part) / median(whole) if part and whole else None


def _cell(value: float | None) -> str:
    return f"{value:10.1f}" if value is not None else f"{'pending':>10}"


def text(path: Path) -> str:
    """Of medians: the foreground of its own alone, the background of its own alone; then the difference to the slot's, in points."""
    found = rates([line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "run"])
    settings = sorted({(outstanding, control) for way, outstanding, control in found if way and outstanding})
    lines = [f"{'outstanding, control':<22} {'foreground':<15} {'kept %':>10} {'against':>10} {'background %':>13} {'against':>10} {'runs':>5}"]
    for outstanding, control in settings:
        slot: tuple[float | None, float | None] = (None, None)
        for way, title in WAYS.items():
            rate = found[way, outstanding, control]
            kept = _percent(rate["foreground"], found[way, 0, ""]["foreground"])
            got = _percent(rate["background"], found["", outstanding, ""]["background"])
            slot = (kept, got) if way == "slot" else slot
            against = [None if one is None or other is None else one - other for one, other in zip((kept, got), slot)]
            lines.append(f"{f'{outstanding}, {control}':<22} {title:<15} {_cell(kept)} {_cell(against[0])}    {_cell(got)} "
                         f"{_cell(against[1])} {len(rate['foreground']):5}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(text(Path(sys.argv[1])))
