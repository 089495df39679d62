"""The simulator's results as table and plot: python3 -m tests.report.simulated build/simulate/results.jsonl"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402

COLUMNS = 3
SLOWDOWN_MAX = 130.0
"""Percent; beyond it the x axis is cut, and points sit on its edge."""

STYLES = {"auto": ("#0072B2", "o-", "auto, budget 1, 3, 5, 10 %"), "fixed": ("#D55E00", "s--", "fixed interval"), "off": ("#555555", "X", "uncontrolled")}


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
    """Of a clairvoyant scheduler's background."""
    seen_percent: float
    """Slowdown as the learner measured it."""


def _family(scheduler: str) -> str:
    return "auto" if scheduler.startswith("auto") else "off" if scheduler == "off" else "fixed"


def _points(runs: list[dict[str, Any]]) -> list[Point]:
    by_key = {(run["scheduler"], run["seed"]): run for run in runs}
    seeds = sorted({run["seed"] for run in runs})
    result = []
    for scheduler in dict.fromkeys(run["scheduler"] for run in runs):
        if scheduler in ("alone", "clairvoyant"):
            continue
        rows = [(by_key[scheduler, s], by_key["alone", s], by_key["clairvoyant", s]) for s in seeds]

        def average(figure: Any) -> float:
            return mean(figure(*row) for row in rows)

        result.append(Point(
            scheduler,
            average(lambda r, a, c: 100 * (r["fg_mean_ms"] / a["fg_mean_ms"] - 1)),
            average(lambda r, a, c: 100 * r["fg_rate"] / a["fg_rate"]),
            average(lambda r, a, c: r["fg_p99_ms"] / a["fg_p99_ms"]),
            average(lambda r, a, c: r["fg_p999_ms"] / a["fg_p999_ms"]),
            average(lambda r, a, c: r["bg_rate"]),
            average(lambda r, a, c: 100 * r["bg_rate"] / c["bg_rate"]),
            average(lambda r, a, c: 100 * r["slowdown_seen"]),
        ))
    return result


def _table(workloads: dict[str, list[Point]]) -> str:
    lines = []
    for name, points in workloads.items():
        lines.append(name)
        lines.append(f"  {'scheduler':<12}{'slower':>9}{'seen':>8}{'kept':>9}{'p99':>8}{'p99.9':>8}{'background/s':>14}{'of clairvoyant':>16}")
        for p in points:
            seen = f"{p.seen_percent:.2f}%" if _family(p.scheduler) == "auto" else ""
            lines.append(
                f"  {p.scheduler:<12}{p.slowdown_percent:>8.2f}%{seen:>8}{p.kept_percent:>8.1f}%{p.p99:>7.2f}x{p.p999:>7.2f}x"
                f"{p.background:>14.1f}{p.share_percent:>15.1f}%"
            )
        lines.append("")
    return "\n".join(lines)


def _panel(axes: Axes, name: str, points: list[Point]) -> None:
    for family, (color, style, label) in STYLES.items():
        mine = sorted((p for p in points if _family(p.scheduler) == family), key=lambda p: p.slowdown_percent)
        if mine:
            axes.plot([min(p.slowdown_percent, SLOWDOWN_MAX) for p in mine], [p.share_percent for p in mine], style,
                      color=color, label=label, markersize=5, linewidth=1)
    axes.axhline(100, color="#555555", linewidth=0.8, linestyle=":")
    axes.set_title(name, fontsize=9, loc="left")
    axes.set_xscale("symlog", linthresh=5)
    axes.set_xlim(-0.4, SLOWDOWN_MAX * 1.05)
    axes.set_xticks([0, 1, 3, 5, 10, 20, 50, 100], ["0", "1", "3", "5", "10", "20", "50", "100"])
    axes.set_ylim(0, 135)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _draw(workloads: dict[str, list[Point]], target: Path) -> None:
    rows = -(-len(workloads) // COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(11, 2.7 * rows + 1), squeeze=False)
    for axes, (name, points) in zip(grid.flat, workloads.items()):
        _panel(axes, name, points)
    for axes in list(grid.flat)[len(workloads):]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("foreground mean latency, % above alone", fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel("background, % of a\nclairvoyant scheduler's", fontsize=8)
    handles = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="upper right", ncols=3, fontsize=8, frameon=False)
    figure.suptitle("Simulation: up and to the left is better", fontsize=11, fontweight="bold", x=0.01, ha="left")
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(target, dpi=130)
    pyplot.close(figure)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        run = json.loads(line)
        runs[run["workload"]].append(run)
    workloads = {name: _points(each) for name, each in runs.items()}
    table = _table(workloads)
    print(table)
    path.with_name("result.txt").write_text(table)
    _draw(workloads, path.with_name("result.png"))
    print(f"  {path.with_name('result.png')}")


if __name__ == "__main__":
    report(Path(sys.argv[1]))
