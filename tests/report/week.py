"""A week, hour by hour, as table and plot: python3 -m tests.report.week build/bench/week/week.jsonl"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from matplotlib import pyplot

from tests.report import grid, kept

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
NAMES = {"off": ("uncontrolled", "#999"), "20 ms": ("interval 20 ms", "#2a7"), "auto 3%": ("auto 3 %", "#06c"),
         "auto 10%": ("auto 10 %", "#024"), "clairvoyant": ("clairvoyant", "#E69F00")}
DRAWN = ("off", "20 ms", "auto 3%", "auto 10%", "clairvoyant")
COLUMNS = 120

Series = dict[str, np.ndarray]
"""By scheduler, a figure an hour."""


def series(path: Path) -> tuple[dict[str, Series], list[dict[str, Any]]]:
    """Figures by name, and all lines."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for name in ("fg_rate", "fg_mean_ms", "bg_rate"):
            found[name][line["scheduler"]].append(line[name])
    return {name: {way: np.array(row) for way, row in each.items()} for name, each in found.items()}, lines


def waited(data: dict[str, Series], way: str, hours: slice = slice(None)) -> float:
    """By how much the mean foreground request takes longer than alone, percent; each request counts the same."""
    rate = data["fg_rate"]["alone"][hours]
    sums = [float((data["fg_mean_ms"][each][hours] * rate).sum()) for each in (way, "alone")]
    return 100 * (sums[0] / sums[1] - 1)


def text(data: dict[str, Series], lines: Sequence[dict[str, Any]]) -> str:
    """By day, and the whole week."""
    hours = len(data["fg_rate"]["alone"])
    spans = [(DAYS[day % 7], slice(24 * day, 24 * day + 24)) for day in range(hours // 24)] + [("all", slice(None))]
    ways = [way for way in NAMES if way in data["fg_rate"]]
    rows = grid.table(("", "disk busy %", *(NAMES[way][0] for way in ways)))
    service_s = lines[0]["service_ms"] / 1000
    for name, span in spans:
        busy = 100 * float(data["fg_rate"]["alone"][span].mean()) * service_s
        rows.add_row(name, f"{busy:.0f}", *(f"{waited(data, way, span):.1f} / {data['bg_rate'][way][span].mean() * service_s * 100:.0f}" for way in ways))
    worst = [f"{max(waited(data, way, slice(hour, hour + 1)) for hour in range(hours)):.1f}" for way in ways]
    rows.add_row("worst hour", "", *worst)
    return grid.text(rows, ["foreground waits longer than alone, % of a mean request / background has, % of the disk", _about(lines)], COLUMNS)


def _about(lines: Sequence[dict[str, Any]]) -> str:
    one = lines[0]
    minutes = lines[1]["begin_s"] / 60
    short = "" if minutes == 60 else f"of each hour its first {minutes:g} minutes; "
    return f"Simulator; {short}disk of {one['service_ms']:g} ms a request, {one['outstanding']} background request at a time; seed {one['seed']}."


def draw(data: dict[str, Series], lines: Sequence[dict[str, Any]], target: Path) -> None:
    """Over the hours: how busy the disk is, what the background has, what that costs."""
    figure, axes = pyplot.subplots(3, 1, figsize=(10, 6.4), sharex=True)
    service_s = lines[0]["service_ms"] / 1000
    hours = np.arange(len(data["fg_rate"]["alone"])) / 24
    axes[0].fill_between(hours, 100 * data["fg_rate"]["alone"] * service_s, step="post", color="#bbb")
    for way in (each for each in DRAWN if each in data["bg_rate"]):
        name, colour = NAMES[way]
        axes[1].step(hours, 100 * data["bg_rate"][way] * service_s, where="post", color=colour, linewidth=1, label=name)
        cost = 100 * (data["fg_mean_ms"][way] / data["fg_mean_ms"]["alone"] - 1)
        axes[2].step(hours, np.maximum(cost, 0.1), where="post", color=colour, linewidth=1, label=name)
    axes[2].set_yscale("log")
    for axis, title in zip(axes, ("foreground, % of the disk", "background, % of the disk", "foreground waits longer, %")):
        axis.set_ylabel(title, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)
    days = len(hours) // 24
    axes[2].set_xticks(range(days + 1), [*(DAYS[day % 7] for day in range(days)), ""])
    axes[1].legend(fontsize=7, frameon=False, ncol=5)
    kept.save(figure, "A week: the learned interval keeps near its budget by day and night; a fixed one of 20 ms does more for as much by day", _about(lines), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    data, lines = series(path)
    kept.publish(path, text(data, lines))
    draw(data, lines, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("week", "A week of a disk, hour by hour.", report)
