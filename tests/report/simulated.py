"""The simulator's results as table and plot: python3 -m tests.report.simulated build/simulate/results.jsonl"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from tests.report import multiples

STYLES = {
    "auto": ("#0072B2", "o-", "auto, budget 1, 3, 5, 10 %"), "fixed": ("#D55E00", "s--", "fixed interval"),
    "v2": ("#E69F00", ">:", "variant 2"), "v3": ("#009E73", "<:", "variant 3"), "v4": ("#CC79A7", "v:", "variant 4"),
    "aimd": ("#56B4E9", "d:", "interval by AIMD"), "off": ("#555555", "X", "uncontrolled"),
}
LEAST_PER_SECOND = 1
"""Of a clairvoyant scheduler's requests, to be compared with."""


@dataclass(frozen=True)
class Point:
    """Means over the seeds."""

    scheduler: str
    slowdown_percent: float
    kept_percent: float
    p99: float
    p999: float
    background: float
    share_percent: float
    """Of a clairvoyant scheduler's background; where there is no idle time for one, of the uncontrolled."""
    seen_percent: float
    """Slowdown as the learner measured it."""


def family_of(scheduler: str) -> str:
    word = scheduler.split()[0]
    return word if word in STYLES else "fixed"


def points_of(runs: list[dict[str, Any]]) -> list[Point]:
    by_key = {(run["scheduler"], run["seed"]): run for run in runs}
    seeds = sorted({run["seed"] for run in runs})
    whole = "clairvoyant" if by_key["clairvoyant", seeds[0]]["bg_rate"] >= LEAST_PER_SECOND else "off"
    result = []
    for scheduler in dict.fromkeys(run["scheduler"] for run in runs):
        if scheduler in ("alone", "clairvoyant"):
            continue
        rows = [(by_key[scheduler, s], by_key["alone", s], by_key[whole, s]) for s in seeds]

        def average(figure: Any) -> float:
            return mean(figure(*row) for row in rows)

        result.append(Point(
            scheduler,
            average(lambda r, a, w: 100 * (r["fg_mean_ms"] / a["fg_mean_ms"] - 1)),
            average(lambda r, a, w: 100 * r["fg_rate"] / a["fg_rate"]),
            average(lambda r, a, w: r["fg_p99_ms"] / a["fg_p99_ms"]),
            average(lambda r, a, w: r["fg_p999_ms"] / a["fg_p999_ms"]),
            average(lambda r, a, w: r["bg_rate"]),
            average(lambda r, a, w: 100 * r["bg_rate"] / w["bg_rate"]),
            average(lambda r, a, w: 100 * r["slowdown_seen"]),
        ))
    return result


def _table(workloads: dict[str, list[Point]]) -> str:
    lines = []
    for name, points in workloads.items():
        lines.append(name)
        lines.append(f"  {'scheduler':<12}{'slower':>9}{'seen':>8}{'kept':>9}{'p99':>8}{'p99.9':>8}{'background/s':>14}{'of clairvoyant':>16}")
        for p in points:
            seen = f"{p.seen_percent:.2f}%" if family_of(p.scheduler) == "auto" else ""
            lines.append(
                f"  {p.scheduler:<12}{p.slowdown_percent:>8.2f}%{seen:>8}{p.kept_percent:>8.1f}%{p.p99:>7.2f}x{p.p999:>7.2f}x"
                f"{p.background:>14.1f}{p.share_percent:>15.1f}%"
            )
        lines.append("")
    return "\n".join(lines)


def _draw(workloads: dict[str, list[Point]], target: Path) -> None:
    panels = {
        name: [(style, [point for point in points if family_of(point.scheduler) == family]) for family, style in STYLES.items()]
        for name, points in workloads.items()
    }
    multiples.draw(target, "Simulated: what the background gets (upwards) for what the foreground pays (to the right); up and to the left is better", panels)


def load(path: Path) -> dict[str, list[Point]]:
    """A results file, by workload."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        run = json.loads(line)
        runs[run["workload"]].append(run)
    return {name: points_of(each) for name, each in runs.items()}


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    workloads = load(path)
    table = _table(workloads)
    print(table)
    path.with_name("result.txt").write_text(table)
    _draw(workloads, path.with_name("result.png"))
    print(f"  {path.with_name('result.png')}")


if __name__ == "__main__":
    report(Path(sys.argv[1]))
