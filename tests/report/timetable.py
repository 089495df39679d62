"""Table and plot of tests.bench.timetable: python3 -m tests.report.timetable build/bench/timetable/timetable.jsonl"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from tests.report import grid, kept
from tests.report.netresults import AUTO, control_text

COLUMNS = 120
FOREGROUND, BACKGROUND, IDEAL = "#06c", "#999", "#9cf"
COLOURS = {"alone": "#2a7", "uncontrolled": "#999", "interval 5 ms": "#E69F00", "interval auto": "#06c"}
DRAWN = (30, "udp")
"""Intensity, and the background's protocol, of the plot."""
Group = tuple[int, str, str]


def way_of(case: dict[str, Any]) -> str:
    """What holds the background back; "alone" without one."""
    return control_text(AUTO if case["auto"] else case["interval_us"]) if case["background"] else "alone"


def groups(runs: list[dict[str, Any]]) -> dict[Group, list[dict[str, Any]]]:
    """Repeats by intensity, background and way."""
    found: dict[Group, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        found[run["case"]["intensity"], run["case"]["background"], way_of(run["case"])].append(run)
    return found


def late_us(repeats: list[dict[str, Any]], level: float) -> float:
    """Median over repeats of a quantile of the lateness."""
    known = levels(len(repeats[0]["late_us"]))
    return median(float(np.interp(level, known, run["late_us"])) for run in repeats)


def levels(number: int) -> np.ndarray:
    """So many quantiles, to 99.9 %, closer together upwards."""
    return 1 - np.logspace(0, -3, number)


def text(found: dict[Group, list[dict[str, Any]]], about: dict[str, Any]) -> str:
    """A row for each situation."""
    rows = grid.table(("foreground beside", "way", "late ms, median", "p90", "p99", "p99.9", "lost %", "idle used %", "of it beside %"))
    for (intensity, background, way), repeats in found.items():
        late = (f"{late_us(repeats, level) / 1000:.2f}" for level in (0.5, 0.9, 0.99, 0.999))
        lost = median(100 * run["lost"] / run["packets"] for run in repeats)
        used = median(100 * run["background_s"] / run["idle_s"] for run in repeats)
        beside = median(100 * run["beside_s"] / run["background_s"] if run["background_s"] else 0 for run in repeats)
        other = (f"{used:.0f}", f"{beside:.1f}") if background else ("", "")
        rows.add_row(f"UDP {intensity} % / {background.upper() or 'nobody'}", way, *late, f"{lost:.1f}", *other)
    number = max(map(len, found.values()))
    return grid.text(rows, [
        "late: a packet leaves the uplink so much later than in the ideal schedule; idle used: the background's time on the uplink, of what the ideal schedule "
        "leaves; beside: part of it while the ideal schedule has foreground to send",
        f"Uplink of {about['link']['rate_mbit']} Mbit/s; medians of {number} runs of {about['seconds']:g} s. {kept.built(about)}"], COLUMNS)


def lanes(axis: Axes, run: dict[str, Any], rate_mbit: int) -> None:
    """The ideal schedule above, what the uplink did below."""
    for row, name, colour in ((1, "ideal", IDEAL), (0, "foreground", FOREGROUND), (0, "background", BACKGROUND)):
        bars = [((at - size * 8 / rate_mbit) / 1000, size * 8 / rate_mbit / 1000) for at, size in run["excerpt"][name]]
        axis.broken_barh(bars, (row + 0.1, 0.8), color=colour, linewidth=0)
    axis.set_yticks([0.5, 1.5], ["uplink", "ideal"], fontsize=8)
    axis.set_xlim(0, 220)


def draw(found: dict[Group, list[dict[str, Any]]], about: dict[str, Any], target: Path) -> None:
    """Left how late packets are; right a piece of the schedule without control, and with."""
    intensity, background = DRAWN
    ways = ("uncontrolled", "interval auto")
    figure, axes = pyplot.subplot_mosaic([["late", ways[0]], ["late", ways[1]]], figsize=(11, 4.4), width_ratios=(1, 1.7))
    left = axes["late"]
    for way, colour in COLOURS.items():
        repeats = found[intensity, "" if way == "alone" else background, way]
        known = levels(len(repeats[0]["late_us"]))
        left.plot([max(late_us(repeats, level) / 1000, 0.01) for level in known], 100 * (1 - known), color=colour, label=way)
    left.set_xscale("log")
    left.set_yscale("log")
    left.legend(fontsize=7, frameon=False)
    kept.label(left, "packets that are later than ..., %", "ms later than in the ideal schedule")
    for way in ways:
        lanes(axes[way], found[intensity, background, way][0], about["link"]["rate_mbit"])
        kept.label(axes[way], way, "ms")
    note = f"Foreground: UDP, {intensity} % of each 100 ms (blue); background: UDP without a pause (grey). {kept.built(about)}"
    kept.save(figure, "The uplink's schedule is the ideal one but for the last packets of the background: 0.4 ms at most, where it was 6 to 10", note, target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    runs, about = kept.lines(path)
    found = groups(runs)
    kept.publish(path, text(found, about))
    draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("timetable", "The uplink's schedule against the ideal one.", report)
