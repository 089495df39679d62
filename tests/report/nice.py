"""Table and plot of tests.bench.nice: python3 -m tests.report.nice build/bench/nice/nice.jsonl"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

from tests.report import grid, kept  # noqa: E402

ALONE = "alone"
COLOURS = {"no": "#999", "nice": "#E69F00", "idle class": "#a5d", "mark": "#06c"}
COLUMNS = 110
NOTE = "kept: Mbit/s of the foreground at the sink, of what it has alone, percent; background: of what the foreground alone leaves of the uplink, percent"
Pair = tuple[int, str, str]


@dataclass(frozen=True)
class Point:
    """Medians, percent; spread: of what is kept, lowest to highest."""

    kept: float
    background: float
    spread: tuple[float, float]


def points(path: Path) -> tuple[dict[Pair, dict[str, Point]], dict[str, Any], int]:
    """By intensity and both protocols, by way; the conditions; repeats."""
    runs, about = kept.lines(path)
    alone: dict[tuple[int, str], list[float]] = {}
    cells: dict[tuple[Pair, str], list[dict[str, Any]]] = {}
    for run in runs:
        cell = run["cell"]
        if cell["way"] == ALONE:
            alone.setdefault((cell["intensity"], cell["foreground"]), []).append(run["foreground_mbit"])
        else:
            cells.setdefault(((cell["intensity"], cell["foreground"], cell["background"]), cell["way"]), []).append(run)
    most = max(median(alone[100, name]) for name in ("tcp", "udp"))
    found: dict[Pair, dict[str, Point]] = {}
    for (pair, way), all_ in cells.items():
        own = median(alone[pair[0], pair[1]])
        shares = [100 * run["foreground_mbit"] / own for run in all_]
        left = max(most - own, 0.05 * most)
        found.setdefault(pair, {})[way] = Point(median(shares), median(100 * run["background_mbit"] / left for run in all_), (min(shares), max(shares)))
    return found, about, 1 + max(run["cell"]["repeat"] for run in runs)


def text(found: dict[Pair, dict[str, Point]], conditions: str) -> str:
    """The table."""
    rows = grid.table(("foreground / background", "way", "kept %", "lowest, highest", "background %"))
    for (intensity, foreground, background), row in found.items():
        for way, one in row.items():
            behind = f"{one.background:.0f}" if intensity < 100 else "-"
            rows.add_row(f"{foreground.upper()} {intensity} % / {background.upper()}", way, f"{one.kept:.1f}", "{:.0f}, {:.0f}".format(*one.spread), behind)
    return grid.text(rows, [NOTE, conditions], COLUMNS)


def draw(found: dict[Pair, dict[str, Point]], conditions: str, target: Path) -> None:
    """Above a foreground without pauses, below one in bursts; a group of bars a pair of protocols."""
    figure, axes = pyplot.subplots(2, 1, figsize=(7.5, 5.6), sharex=True)
    ways = list(COLOURS)
    for axis, intensity in zip(axes, (100, 10), strict=True):
        rows = {pair: row for pair, row in found.items() if pair[0] == intensity}
        for number, row in enumerate(rows.values()):
            for way, one in row.items():
                x = number + (ways.index(way) - (len(ways) - 1) / 2) * 0.2
                axis.bar(x, one.kept, 0.18, color=COLOURS[way], label=way if number == 0 else None)
                axis.plot([x, x], one.spread, color="#000", linewidth=0.8)
                axis.text(x, max(one.kept, one.spread[1]) + 1, f"{one.kept:.0f}", fontsize=6, ha="center", va="bottom")
        axis.set_xticks(range(len(rows)), [f"{foreground.upper()}\nbeside {background.upper()}" for _, foreground, background in rows])
        axis.set_ylim(0, max(125, *(1.08 * one.spread[1] for row in rows.values() for one in row.values())))
        kept.label(axis, f"foreground sends {'without a pause' if intensity == 100 else 'for 10 % of each 100 ms'}", "")
        axis.set_ylabel("kept, % of alone", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, ncols=len(ways), loc="lower left", bbox_to_anchor=(0, 1.08))
    kept.save(figure, "Two senders in one guest: what the foreground keeps", conditions, target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about, repeats = points(path)
    conditions = (f"Uplink of {about['link']['rate_mbit']} Mbit/s; {'single runs' if repeats == 1 else f'medians of {repeats} runs, lines: lowest to highest'} of "
                  f"{about['seconds']:g} s. {kept.built(about)}")
    kept.publish(path, text(found, conditions))
    draw(found, conditions, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("nice", "Two senders in one guest.", report)
