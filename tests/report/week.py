"""A week, hour by hour, as table and plot: python3 -m tests.report.week build/bench/week/week.jsonl

Of the simulator (`tests.bench.week`) or of real guests (`tests.bench.weekguests`), where waiting is what the disk's log says and
steps are of some hours: a few seconds of each are few requests.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

from tests.report import grid, kept

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
NAMES = {"off": ("uncontrolled", "#999"), "20 ms": ("interval 20 ms", "#2a7"), "auto 3%": ("auto 3 %", "#06c"),
         "auto 10%": ("auto 10 %", "#024"), "clairvoyant": ("clairvoyant", "#E69F00")}
COLUMNS = 120
OFFICE = (8, 18)
"""Hours of a working day."""
GUEST_HOURS = 6
"""A step of the plot of real guests."""

Series = dict[str, np.ndarray]
"""By scheduler, a figure an hour."""


@dataclass(frozen=True)
class Week:
    """Figures by name: fg_rate and bg_rate (a second), fg_mean_ms, and of guests fg_waited_ms, at the disk."""

    data: dict[str, Series]
    service_ms: float
    about: str
    title: str
    step: int
    """Hours of one step of the plot."""

    @property
    def hours(self) -> int:
        """Of the whole."""
        return len(self.data["fg_rate"]["alone"])

    @property
    def ways(self) -> list[str]:
        """Schedulers, in order."""
        return [way for way in NAMES if way in self.data["fg_rate"]]

    def longer(self, way: str, hours: Any = slice(None)) -> float:
        """By how much the mean foreground request takes longer than alone, percent, as it is told; each request counts the same."""
        rate = self.data["fg_rate"]
        sums = [float((self.data["fg_mean_ms"][each][hours] * rate["alone"][hours]).sum()) for each in (way, "alone")]
        return 100 * (sums[0] / sums[1] - 1) if sums[1] else 0.0

    def waited(self, way: str, hours: Any = slice(None)) -> float:
        """The same, of waiting for the background alone, where that is known."""
        if "fg_waited_ms" not in self.data:
            return self.longer(way, hours)
        alone = float((self.data["fg_mean_ms"]["alone"][hours] * self.data["fg_rate"]["alone"][hours]).sum())
        return 100 * float((self.data["fg_waited_ms"][way][hours] * self.data["fg_rate"][way][hours]).sum()) / alone if alone else 0.0

    def share(self, name: str, way: str, hours: Any = slice(None)) -> float:
        """A rate as percent of the disk."""
        return float(self.data[name][way][hours].mean()) * self.service_ms / 10


def read(path: Path) -> Week:
    """A results file of either bench."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    of_guests = lines[0].get("kind") == "conditions"
    hours = [{"scheduler": line["key"], **hour} for line in lines if line["kind"] == "run" for hour in line["hours"]] if of_guests else lines
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for hour in hours:
        for name in ("fg_rate", "fg_mean_ms", "fg_waited_ms", "bg_rate"):
            if name in hour:
                found[name][hour["scheduler"]].append(hour[name])
    data = {name: {way: np.array(row) for way, row in each.items()} for name, each in found.items()}
    return _of_guests(data, lines[0]) if of_guests else _of_simulator(data, lines)


def _of_simulator(data: dict[str, Series], lines: list[dict[str, Any]]) -> Week:
    one, minutes = lines[0], lines[1]["begin_s"] / 60
    short = "" if minutes == 60 else f"of each hour its first {minutes:g} minutes; "
    about = f"Simulator; {short}disk of {one['service_ms']:g} ms a request, {one['outstanding']} background request at a time; seed {one['seed']}."
    title = "A week: the learned interval keeps near its budget by day and night; a fixed one of 20 ms does more for as much by day"
    return Week(data, one["service_ms"], about, title, 1)


def _of_guests(data: dict[str, Series], one: dict[str, Any]) -> Week:
    service_ms = one["disk"]["service_us"] / 1000
    about = (f"Real guests; of each hour its first {one['seconds']} seconds, waiting at the disk; disk of {service_ms:g} ms a request, "
             f"{one['outstanding']} background request at a time; steps of {GUEST_HOURS} hours. {kept.built(one)}")
    return Week(data, service_ms, about, "The week in real guests, an hour in two seconds: both budgets are kept over the week", GUEST_HOURS)


def text(week: Week) -> str:
    """By day and kind of hour, and the whole week."""
    every = np.arange(week.hours)
    office = (every // 24 % 7 < 5) & (every % 24 >= OFFICE[0]) & (every % 24 < OFFICE[1])
    spans: list[tuple[str, Any]] = [(DAYS[day % 7], slice(24 * day, 24 * day + 24)) for day in range(week.hours // 24)]
    spans += [("office hours", office), ("other hours", ~office), ("all", slice(None))]
    rows = grid.table(("", "disk busy %", *(NAMES[way][0] for way in week.ways)))
    for name, span in spans:
        cells = (f"{week.waited(way, span):.1f} / {week.share('bg_rate', way, span):.0f}" for way in week.ways)
        rows.add_row(name, f"{week.share('fg_rate', 'alone', span):.0f}", *cells)
    if "fg_waited_ms" in week.data:
        rows.add_row("all, as the guest sees it", "", *(f"{week.longer(way):.1f}" for way in week.ways))
    steps = _steps(week)
    worst = [f"{max(week.waited(way, step) for step in steps):.1f}" for way in week.ways]
    rows.add_row("worst hour" if week.step == 1 else f"worst {week.step} hours", "", *worst)
    return grid.text(rows, ["foreground waits longer than alone, % of a mean request / background has, % of the disk", week.about], COLUMNS)


def _steps(week: Week) -> list[slice]:
    return [slice(hour, hour + week.step) for hour in range(0, week.hours, week.step)]


def draw(week: Week, target: Path) -> None:
    """Over the hours: how busy the disk is, what the background has, what that costs."""
    figure, axes = pyplot.subplots(3, 1, figsize=(10, 6.4), sharex=True)
    steps = _steps(week)
    edges = np.array([*(step.start for step in steps), week.hours]) / 24
    axes[0].stairs([week.share("fg_rate", "alone", step) for step in steps], edges, color="#bbb", fill=True)
    for way in week.ways:
        name, colour = NAMES[way]
        axes[1].stairs([week.share("bg_rate", way, step) for step in steps], edges, color=colour, linewidth=1, label=name, baseline=None)
        axes[2].stairs([max(week.waited(way, step), 0.1) for step in steps], edges, color=colour, linewidth=1, baseline=None)
    axes[2].set_yscale("log")
    for axis, title in zip(axes, ("foreground, % of the disk", "background, % of the disk", "foreground waits longer, %")):
        axis.set_ylabel(title, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)
    days = week.hours // 24
    axes[2].set_xticks(range(days + 1), [*(DAYS[day % 7] for day in range(days)), ""])
    axes[1].legend(fontsize=7, frameon=False, ncol=5)
    kept.save(figure, week.title, week.about, target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    week = read(path)
    kept.publish(path, text(week))
    draw(week, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("week", "A week of a disk, hour by hour.", report)
