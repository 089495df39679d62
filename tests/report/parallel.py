"""Table and plot of tests.bench.parallel: python3 -m tests.report.parallel build/bench/parallel/parallel.jsonl"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.report import grid, kept

ALONE = "owner alone"
COLORS, LINES = {"equal": "#999", "idle class": "#06c"}, {50: "--", 250: "-"}
COLUMNS = 110
NOTE = ("job slower: time of a round of two VMs that wait for each other, against the same without the owner, percent; owner slower: mean time of its pieces of "
        "work, against the same alone, percent")
Row = tuple[str, int]


@dataclass(frozen=True)
class Point:
    """Medians, percent."""

    job: float
    owner: float
    p99: float


def points(path: Path) -> tuple[dict[Row, dict[int, Point]], dict[str, Any], int]:
    """By way and size of a piece (ms), by the owner's intensity; the conditions; repeats."""
    runs, about = kept.lines(path)
    cells: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for run in runs:
        cells.setdefault((run["cell"]["way"], run["cell"]["piece_ms"], run["cell"]["owner"]), []).append(run)

    def owner(all_: list[dict[str, Any]], key: str) -> float:
        return median(run["owner"][key] for run in all_)

    found: dict[Row, dict[int, Point]] = {}
    for (way, piece, intensity), all_ in cells.items():
        if way != ALONE:
            alone = cells[ALONE, 0, intensity]
            found.setdefault((way, piece), {})[intensity] = Point(
                median(100 * run["alone"] / run["rounds"] - 100 for run in all_), 100 * owner(all_, "mean_us") / owner(alone, "mean_us") - 100,
                owner(all_, "p99_us") / owner(alone, "p99_us"))
    return found, about, 1 + max(run["cell"]["repeat"] for run in runs)


def text(found: dict[Row, dict[int, Point]], conditions: str) -> str:
    """The table."""
    rows = grid.table(("background", "pieces", "owner busy", "job slower %", "owner slower %", "owner's p99"))
    for (way, piece), row in found.items():
        for intensity, one in sorted(row.items()):
            rows.add_row(way, f"{piece} ms", f"{intensity} %", f"{one.job:.1f}", f"{one.owner:.1f}", f"x{one.p99:.1f}")
    return grid.text(rows, [NOTE, conditions], COLUMNS)


def draw(found: dict[Row, dict[int, Point]], conditions: str, target: Path) -> None:
    """Left the job, right the owner."""
    figure, (left, right) = kept.panels(2)
    for (way, piece), row in found.items():
        intensities = sorted(row)
        for axis, values in ((left, [row[each].job for each in intensities]), (right, [row[each].owner for each in intensities])):
            axis.plot(intensities, values, "o" + LINES[piece], color=COLORS[way], markersize=4, label=f"{way}, pieces of {piece} ms")
    for axis, title in ((left, "the job is slower, %"), (right, "the owner is slower, %")):
        kept.label(axis, title, "owner busy, % of each 100 ms")
        axis.axhline(0, color="#888", linewidth=0.8)
    left.legend(fontsize=7, frameon=False)
    kept.save(figure, "A parallel job of two VMs, one beside an owner", conditions, target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about, repeats = points(path)
    conditions = f"Two processors ({about['cpu']}); {'single runs' if repeats == 1 else f'medians of {repeats} runs'} of {about['seconds']:g} s. {kept.built(about)}"
    kept.publish(path, text(found, conditions))
    draw(found, conditions, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("parallel", "A parallel job, one part of it beside an owner.", report)
