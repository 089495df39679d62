"""Table and plot of tests.bench.programs: python3 -m tests.report.programs build/bench/programs/programs.jsonl"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

from tests.report import grid, kept  # noqa: E402

COLOURS = {"no control": "#999", "priority": "#a5d", "EII": "#E69F00", "IPD": "#d50", "held": "#06c"}
COLUMNS = 110
MOST = 60.0
"""Bars are cut there, and say how high they are."""
NOTES = ["slower: of the foreground's program (desktop: of its response times), beside the same alone right before, percent; background: what it does a second, of "
         "that alone, percent."]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Point:
    """One way of a pair: medians of its runs."""

    alone: float
    slower: float
    background: float
    repeats: int


def points(path: Path) -> tuple[dict[Pair, dict[str, Point]], dict[str, Any]]:
    """By pair and way, and the conditions."""
    runs, about = kept.lines(path)
    found: dict[Pair, dict[str, list[dict[str, Any]]]] = {}
    own = {run["cell"]["background"]: run for run in runs if not run["cell"]["program"]}
    for run in runs:
        cell = run["cell"]
        if cell["program"]:
            found.setdefault((cell["program"], cell["background"]), {}).setdefault(cell["way"], []).append(run)
    return {pair: {way: _point(each, own[pair[1]]) for way, each in row.items()} for pair, row in found.items()}, about


def _point(runs: list[dict[str, Any]], own: dict[str, Any]) -> Point:
    # Who uses the disk is told by that, as a processor that waits for it works little.
    key = "requests_per_second" if own["requests_per_second"] > 1 else "processors"
    return Point(median(run["alone_seconds"] for run in runs),
                 median(100 * run["seconds"] / run["alone_seconds"] - 100 for run in runs),
                 median(100 * run[key] / own[key] for run in runs), len(runs))


def text(found: dict[Pair, dict[str, Point]], about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("foreground, background", "way", "alone, s", "slower %", "background %"))
    for (program, background), row in found.items():
        for way in filter(row.get, COLOURS):
            one = row[way]
            rows.add_row(f"{program}, {background}", way, f"{one.alone:.1f}", f"{one.slower:.1f}", f"{one.background:.0f}")
    return grid.text(rows, [*NOTES, _conditions(found, about)], COLUMNS)


def _conditions(found: dict[Pair, dict[str, Point]], about: dict[str, Any]) -> str:
    repeats = max(one.repeats for row in found.values() for one in row.values())
    return (f"Disk: {about['disk'].get('service_us')} us a request; all processors of the host; "
            f"{'single runs' if repeats == 1 else f'medians of {repeats} runs'}. {kept.built(about)}")


def draw(found: dict[Pair, dict[str, Point]], about: dict[str, Any], target: Path) -> None:
    """Above what the foreground loses, below what the background does; a group of bars a pair."""
    figure, axes = pyplot.subplots(2, 1, figsize=(9.5, 5.6), sharex=True)
    ways = list(COLOURS)
    for number, row in enumerate(found.values()):
        for way in filter(row.get, COLOURS):
            one = row[way]
            x = number + (ways.index(way) - (len(ways) - 1) / 2) * 0.16
            for axis, value, most in ((axes[0], one.slower, MOST), (axes[1], one.background, 120.0)):
                axis.bar(x, min(value, most), 0.15, color=COLOURS[way], label=way if number == 0 else None)
                axis.text(x, max(0.0, min(value, most)), f"{value:.0f}", fontsize=6, ha="center", va="bottom")
    axes[0].set_ylabel("foreground slower, %", fontsize=8)
    axes[1].set_ylabel("background, % of alone", fontsize=8)
    axes[1].set_xticks(range(len(found)), [f"{program}\nbeside {background}" for program, background in found])
    for axis in axes:
        axis.axhline(0, color="#888", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)
    axes[0].legend(fontsize=7, frameon=False, ncols=len(ways), loc="lower left", bbox_to_anchor=(0, 1.02))
    kept.save(figure, "Programs in a foreground VM, and what background VMs take from them", _conditions(found, about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("programs", "Programs beside background VMs.", report)
