"""The evaluation's results, reduced, as table and plot: python3 -m tests.report.frontier build/bench/eval/results.jsonl

Each point: how much slower the foreground is than alone (mean latency), and
what the background reaches of what a clairvoyant scheduler could give it.
Both are relative to runs alone on the same way to the disk.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
import numpy as np  # noqa: E402

from tests.bench.eval import clairvoyant  # noqa: E402

# Okabe and Ito: told apart with any colour vision; ours stand out.
STYLES = {
    "auto": ("#0072B2", "o-"), "fixed interval": ("#56B4E9", "s-"), "uncontrolled": ("#D55E00", "X"),
    "QEMU throttle": ("#555555", "v--"), "mq-deadline": ("#009E73", "D"), "bfq": ("#CC79A7", "P--"), "kyber": ("#E69F00", "^"),
    "io.cost": ("#000000", "*"),
}
COLUMNS = 3
SLOWDOWN_MAX = 130.0
"""Percent; beyond it the x axis is cut, and points sit on its edge."""


@dataclass(frozen=True)
class Point:
    """Medians over the repeats."""

    workload: str
    title: str
    contender: str
    family: str
    repeats: int
    slowdown_percent: float
    """Of the foreground's mean latency."""
    p99_ratio: float
    kept_percent: float
    """Of the foreground's operations."""
    background_per_second: float
    clairvoyant_percent: float
    """Background, of a clairvoyant scheduler's."""


def _samples(run: dict[str, Any], folder: Path) -> list[list[np.ndarray]]:
    """Raw latencies: by part, then by VM."""
    parts: dict[int, list[np.ndarray]] = defaultdict(list)
    for report in run["foreground"]:
        parts[report["part"]].append(np.load(folder / report["latencies"]))
    return [parts[number] for number in sorted(parts)]


def _latencies(parts: list[list[np.ndarray]]) -> np.ndarray:
    every = [vm["latency_us"] for part in parts for vm in part]
    return np.concatenate(every) if every else np.empty(0)


def _clairvoyant(run: dict[str, Any], parts: list[list[np.ndarray]], service_seconds: float) -> float:
    """Operations a second, from a run of the foreground alone; parts are of equal length."""
    seconds = run["seconds"] / len(parts)
    return float(np.mean([clairvoyant.operations_per_second(part, seconds, service_seconds) for part in parts]))


class Results:
    """One results file; later lines of the same key replace earlier ones."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.folder = path.parent
        self.conditions: dict[str, Any] = next((line for line in lines if line["kind"] == "conditions"), {})
        self.runs = {line["key"]: line for line in lines if line["kind"] == "run"}
        self.skipped = {
            line["contender"]["name"]: line["reason"] for line in lines if line["kind"] == "skipped" and line["contender"]
        }

    def _service_seconds(self, path: str) -> float:
        rates = [r["background"]["operations_per_second"] for r in self.runs.values() if r["path"] == path and not r["workload"]]
        return 1 / median(rates)

    def _alone(self, path: str, workload: str) -> list[dict[str, Any]]:
        return [
            run for run in self.runs.values()
            if run["path"] == path and run["contender"] is None and run["workload"] and run["workload"]["name"] == workload
        ]

    def _figures(self, run: dict[str, Any]) -> tuple[float, float, float, float, float] | None:
        """Slowdown, p99 ratio, kept, background op/s, share of clairvoyant; None if a base is missing."""
        bases = self._alone(run["path"], run["workload"]["name"])
        if not bases:
            return None
        service = self._service_seconds(run["path"])
        base_parts = [_samples(base, self.folder) for base in bases]
        alone = np.concatenate([_latencies(parts) for parts in base_parts])
        here = _latencies(_samples(run, self.folder))
        best = median(_clairvoyant(base, parts, service) for base, parts in zip(bases, base_parts))
        background = run["background"]["operations_per_second"]
        return (
            100 * (here.mean() / alone.mean() - 1), np.percentile(here, 99) / np.percentile(alone, 99),
            100 * len(here) / (len(alone) / len(bases)), background, 100 * background / best if best else float("nan"),
        )

    def points(self) -> list[Point]:
        """All of them, by workload and contender in the order of the file."""
        groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for run in self.runs.values():
            if run["workload"] and run["contender"]:
                groups[run["workload"]["name"], run["contender"]["name"]].append(run)
        result = []
        for (workload, contender), runs in groups.items():
            figures = [found for found in map(self._figures, runs) if found]
            if figures:
                medians = [float(median(column)) for column in zip(*figures)]
                about = runs[0]
                result.append(Point(workload, about["workload"]["title"], contender, about["contender"]["family"], len(figures), *medians))
        return result


def text(results: Results) -> str:
    """The table."""
    lines = []
    for workload in dict.fromkeys(point.workload for point in results.points()):
        points = [point for point in results.points() if point.workload == workload]
        lines.append(f"{points[0].title}")
        lines.append(f"  {'':<22}{'foreground slower':>18}{'p99':>8}{'kept':>8}{'background':>13}{'of clairvoyant':>16}")
        for point in sorted(points, key=lambda each: each.slowdown_percent):
            lines.append(
                f"  {point.contender:<22}{point.slowdown_percent:>17.1f}%{point.p99_ratio:>7.2f}x{point.kept_percent:>7.1f}%"
                f"{point.background_per_second:>8.1f} op/s{point.clairvoyant_percent:>15.0f}%"
            )
        lines.append("")
    lines += [f"not run: {name}: {reason}" for name, reason in results.skipped.items()]
    return "\n".join(lines)


def _panel(axes: Axes, points: list[Point]) -> None:
    for family, (color, style) in STYLES.items():
        mine = sorted((p for p in points if p.family == family), key=lambda p: p.slowdown_percent)
        if mine:
            x = [min(max(p.slowdown_percent, -2), SLOWDOWN_MAX) for p in mine]
            axes.plot(x, [p.clairvoyant_percent for p in mine], style, color=color, label=family, markersize=5, linewidth=1)
    axes.axhline(100, color="#555555", linewidth=0.8, linestyle=":")
    axes.set_title(points[0].title, fontsize=9, loc="left")
    axes.set_xscale("symlog", linthresh=5)
    axes.set_xlim(-3, SLOWDOWN_MAX * 1.05)
    axes.set_xticks([0, 1, 3, 5, 10, 20, 50, 100], ["0", "1", "3", "5", "10", "20", "50", "100"])
    axes.set_ylim(0, max(130, *(p.clairvoyant_percent + 10 for p in points)))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def draw(results: Results, target: Path) -> None:
    """One panel per workload: up is more background, left is a faster foreground."""
    points = results.points()
    names = list(dict.fromkeys(point.workload for point in points))
    rows = -(-len(names) // COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(11, 2.9 * rows + 1), squeeze=False)
    for axes, name in zip(grid.flat, names):
        _panel(axes, [point for point in points if point.workload == name])
    for axes in list(grid.flat)[len(names):]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("foreground mean latency, % above alone", fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel("background, % of a\nclairvoyant scheduler's", fontsize=8)
    handles = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="upper left", bbox_to_anchor=(0.0, 0.965),
                  ncols=8, fontsize=8, frameon=False)
    figure.suptitle("Up and to the left is better: what the background gets for what the foreground pays",
                    fontsize=11, fontweight="bold", x=0.01, ha="left")
    about = results.conditions
    figure.text(0.01, 0.005, f"Disk: {about.get('disk', {}).get('service_us', 0) / 1000:g} ms a request, one at a time; runs of "
                f"{about.get('seconds')} s, medians; background greedy, {about.get('background_load', {}).get('outstanding')} outstanding. {about.get('qemu')}, "
                f"{str(about.get('accel')).upper()}, commit {about.get('commit')}.", fontsize=6.5, color="#555555")
    figure.tight_layout(rect=(0, 0.02, 1, 0.92))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    results = Results(path)
    if not results.points():
        raise ValueError(f"{path}: no contender has finished yet")
    table = text(results)
    print(table)
    path.with_name("frontier.txt").write_text(table + "\n")
    draw(results, path.with_name("frontier.png"))
    print(f"  {path.with_name('frontier.png')}")


def main() -> None:
    """Reduce a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.frontier", description="The evaluation's table and plot.")
    parser.add_argument("results", type=Path)
    report(parser.parse_args().results)


if __name__ == "__main__":
    main()
