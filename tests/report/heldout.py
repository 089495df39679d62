"""Workloads that the learner was not tuned on beside those that it was: python3 -m tests.report.heldout build/bench/heldout/heldout.jsonl"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.bench.simulate import BUDGETS_PERCENT
from tests.framework import paths
from tests.report import grid, kept, simulated
from tests.report.simulated import Point, family_of

TUNED = paths.ROOT / "docs/results/auto-simulated.jsonl"
SETS = {"tuned on": "#999", "held out": "#06c"}
COLUMNS = 120
EXCEEDED = 1.1
"""Of a budget."""
Workloads = dict[str, list[Point]]


def paid(workloads: Workloads, budget: str) -> np.ndarray:
    """What the foreground pays under this budget, of the budget, by workload."""
    return np.array([point.slowdown_percent / float(budget) for points in workloads.values()
                     for point in points if point.scheduler == f"auto {budget}%"])


def share(workloads: Workloads, budget: str) -> np.ndarray:
    """The background, percent of a clairvoyant scheduler's, by workload."""
    return np.array([point.share_percent for points in workloads.values() for point in points if point.scheduler == f"auto {budget}%"])


def ahead(workloads: Workloads) -> np.ndarray:
    """By how many points of that each budget is ahead of the best fixed interval that costs as much or less, chosen after the fact."""
    found = []
    for points in workloads.values():
        fixed = [point for point in points if family_of(point.scheduler) in ("fixed", "off")]
        for point in points:
            if family_of(point.scheduler) == "auto":
                rivals = [each.share_percent for each in fixed if each.slowdown_percent <= max(point.slowdown_percent, 0.05)]
                found.append(point.share_percent - max(rivals, default=0.0))
    return np.array(found)


def text(sets: dict[str, Workloads]) -> str:
    """A row for each set and budget."""
    rows = grid.table(("", "workloads", "budget", "paid of it, median", "90 of 100", "worst", "background, median", "ahead of the best fixed"))
    for name, workloads in sets.items():
        for budget in BUDGETS_PERCENT:
            part = paid(workloads, budget)
            only = {key: [each for each in points if family_of(each.scheduler) != "auto" or each.scheduler == f"auto {budget}%"]
                    for key, points in workloads.items()}
            lead = ahead(only)
            rows.add_row(name if budget == BUDGETS_PERCENT[0] else "", str(len(part)) if budget == BUDGETS_PERCENT[0] else "", f"{budget} %",
                         f"{np.median(part):.2f}", f"{np.quantile(part, 0.9):.2f}", f"{part.max():.2f}", f"{np.median(share(workloads, budget)):.0f} %",
                         f"{np.median(lead):+.0f} points (worst {lead.min():+.0f})")
    return grid.text(rows, [
        "paid: by how much the foreground's mean is longer than alone; background: of a clairvoyant scheduler's; best fixed: of ten intervals, the best for "
        "each workload that costs no more"], COLUMNS)


def draw(sets: dict[str, Workloads], target: Path) -> None:
    """Left what was paid of each budget, right by how much it is ahead, as shares of all workloads."""
    figure, axes = kept.panels(2)
    for name, colour in SETS.items():
        for axis, values in ((axes[0], np.concatenate([paid(sets[name], budget) for budget in BUDGETS_PERCENT])), (axes[1], ahead(sets[name]))):
            axis.plot(np.sort(values), 100 * np.arange(1, len(values) + 1) / len(values), color=colour, label=name, drawstyle="steps-post")
    axes[0].axvline(1, color="#ccc", linewidth=0.8)
    axes[1].axvline(0, color="#ccc", linewidth=0.8)
    kept.label(axes[0], "paid, of the budget", "")
    kept.label(axes[1], "ahead of the best fixed interval", "points of a clairvoyant scheduler's background")
    axes[0].set_ylabel("workloads and budgets, %", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False)
    elsewhere = np.concatenate([paid(sets["held out"], budget) for budget in BUDGETS_PERCENT])
    kept.save(figure, f"Held out: of {len(elsewhere)} budgets {np.sum(elsewhere > EXCEEDED)} were exceeded by more than a tenth",
              "Simulator; budgets of 1, 3, 5 and 10 %.", target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    sets = dict(zip(SETS, (simulated.load(TUNED), simulated.load(path))))
    kept.publish(path, text(sets))
    draw(sets, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("heldout", "Workloads that the learner was not tuned on.", report)
