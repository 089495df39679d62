"""The tail of a foreground's latency as table and plot: python3 -m tests.report.tail build/bench/tail/tail.jsonl"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes

from tests.report import grid, kept

AUTO, BOUND, NONE = "#0072B2", "#D55E00", "#555555"
COLUMNS = 110


@dataclass(frozen=True)
class Point:
    """Means over the seeds; the foreground's figures are multiples of its own alone."""

    question: str
    scheduler: str
    vms: int
    outstanding: int
    slower_percent: float
    p99: float
    p999: float
    background: float
    """Requests/s."""
    share_percent: float
    """Of a clairvoyant scheduler's background."""


def load(path: Path) -> list[Point]:
    """A results file."""
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    alone = {run["seed"]: run for run in runs if run["scheduler"] == "alone"}
    most = {run["seed"]: run for run in runs if run["scheduler"] == "clairvoyant"}
    cases: dict[tuple[str, str, int, int], list[dict[str, Any]]] = {}
    for run in runs:
        if run["scheduler"] != "alone":
            cases.setdefault((run["workload"], run["scheduler"], run["vms"], run["outstanding"]), []).append(run)

    def times(case: list[dict[str, Any]], figure: str) -> float:
        return mean(run[figure] / alone[run["seed"]][figure] for run in case)

    return [Point(*key, 100 * (times(case, "fg_mean_ms") - 1), times(case, "fg_p99_ms"), times(case, "fg_p999_ms"), mean(run["bg_rate"] for run in case),
                  100 * mean(run["bg_rate"] / most[run["seed"]]["bg_rate"] for run in case)) for key, case in cases.items()]


def _text(points: list[Point]) -> str:
    rows = grid.table(("background", "held by", "foreground slower", "p99", "p99.9", "background/s", "of clairvoyant"))
    for each in points:
        rows.add_row(f"{each.vms} x {each.outstanding} requests", "nothing" if each.scheduler == "off" else each.scheduler, f"{each.slower_percent:.1f} %",
                     f"x{each.p99:.2f}", f"x{each.p999:.2f}", f"{each.background:.0f}", f"{each.share_percent:.0f} %")
    return grid.text(rows, ["Simulator: 16 requests of 50 to 150 us at a time, foreground 80,000 requests/s (Poisson), half of the disk. Means of the seeds."], COLUMNS)


def _line(axis: Axes, points: list[Point], across: str, colour: str, style: str, title: str) -> None:
    axis.plot([getattr(each, across) for each in points], [each.p999 for each in points], style, color=colour, label=title, markersize=4, linewidth=1)


def _draw(points: list[Point], target: Path) -> None:
    figure, (bound, tenants) = kept.panels(2)
    one = [each for each in points if each.question == "bound"]
    greedy = max(each.outstanding for each in one)
    autos = [each for each in one if each.scheduler.startswith("auto")]
    bounds = sorted((each for each in one if each.scheduler == "off" and each.outstanding < greedy), key=lambda each: each.outstanding)
    _line(bound, autos, "share_percent", AUTO, "o-", "auto, 1, 3, 5, 10 %")
    _line(bound, bounds, "share_percent", BOUND, "s--", "constant bound")
    for each in bounds:
        bound.annotate(str(each.outstanding), (each.share_percent, each.p999), xytext=(-3, 4), textcoords="offset points", fontsize=6, ha="right")
    _line(bound, [each for each in one if each.scheduler == "off" and each.outstanding == greedy], "share_percent", NONE, "X", f"nothing, {greedy} requests")
    _line(bound, [each for each in one if each.scheduler == "clairvoyant"], "share_percent", "#009E73", "*", "clairvoyant")
    many = [each for each in points if each.question == "tenants"]
    _line(tenants, [each for each in many if each.scheduler != "off"], "vms", AUTO, "o-", "auto, 5 %")
    _line(tenants, [each for each in many if each.scheduler == "off"], "vms", NONE, "X--", "nothing")
    kept.label(bound, "one background VM", "background, % of clairvoyant")
    kept.label(tenants, "many, four requests each", "background VMs")
    bound.set_yscale("log", base=2)
    bound.set_yticks([1, 1.2, 1.5, 2, 3, 4, 6], labels=["1", "1.2", "1.5", "2", "3", "4", "6"])
    bound.minorticks_off()
    bound.set_ylabel("foreground's p99.9, of alone", fontsize=8)
    tenants.set_xscale("log", base=2)
    tenants.set_xticks([each.vms for each in many if each.scheduler == "off"], labels=[str(each.vms) for each in many if each.scheduler == "off"])
    for axis in (bound, tenants):
        axis.legend(fontsize=7, frameon=False)
    kept.save(figure, "A full solid state disk: its tail, and what the background has", "Simulator; 16 requests of 50 to 150 us at a time.", target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    points = load(path)
    kept.publish(path, _text(points))
    _draw(points, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("tail", "The tail of a foreground's latency on a full solid state disk.", report)
