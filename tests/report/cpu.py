"""Table and plot of tests.bench.cpu: python3 -m tests.report.cpu build/bench/cpu/cpu.jsonl"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

from tests.report import grid, kept  # noqa: E402

ALONE = "alone"
COLORS = {"equal": "#999", "weight": "#E69F00", "idle class": "#06c"}
COLUMNS = 110
NOTE = ("kept: by the foreground, of its work alone; p99: of the time that a piece of the foreground's "
        "work takes, of that alone")


@dataclass(frozen=True)
class Point:
    """Medians. kept: percent of alone; background: percent of the processor; p99 as a multiple of alone."""

    kept: float
    background: float
    p99: float


def points(path: Path) -> tuple[dict[str, dict[int, Point]], dict[str, Any]]:
    """By way and the foreground's intensity, and the conditions of the last runs."""
    lines, about = kept.lines(path)
    runs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        runs[line["cell"]["way"], line["cell"]["foreground"]].append(line)

    def of(way: str, intensity: int, figure: str) -> float:
        return median(run["foreground"][figure] for run in runs[way, intensity])

    found: dict[str, dict[int, Point]] = defaultdict(dict)
    for way, intensity in runs:
        if way != ALONE:
            kept_, p99 = (of(way, intensity, figure) / of(ALONE, intensity, figure) for figure in ("operations_per_second", "p99_us"))
            found[way][intensity] = Point(100 * kept_, 100 * median(run["background"] for run in runs[way, intensity]), p99)
    return found, about


def text(found: dict[str, dict[int, Point]], about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("background", "foreground busy", "kept %", "processor of background %", "p99"))
    for way, row in found.items():
        for intensity, one in sorted(row.items()):
            rows.add_row(way, f"{intensity} %", f"{one.kept:.1f}", f"{one.background:.1f}", f"x{one.p99:.1f}")
    return grid.text(rows, [NOTE, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    return (f"Two VMs on one processor ({about['cpu']}); weight: {about['shares']} of 1,024 shares. Runs of {about['seconds']:g} s. "
            f"{kept.built(about)}")


def draw(found: dict[str, dict[int, Point]], about: dict[str, Any], target: Path) -> None:
    """Left what the foreground keeps, right what the background has."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8))
    for way, row in found.items():
        intensities = sorted(row)
        left.plot(intensities, [row[each].kept for each in intensities], "o-", color=COLORS[way], markersize=4, label=way)
        right.plot(intensities, [row[each].background for each in intensities], "o-", color=COLORS[way], markersize=4, label=way)
    kept.label(left, "foreground keeps, % of its work alone", "foreground busy, % of each 100 ms")
    kept.label(right, "background, % of the processor", "foreground busy, % of each 100 ms")
    left.set_ylim(0, 115)
    right.set_ylim(0, 115)
    left.legend(fontsize=8, frameon=False, loc="lower left")
    kept.save(figure, "On a processor of two VMs the foreground keeps what its class says", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("cpu", "A foreground VM's processor beside a greedy VM.", report)
