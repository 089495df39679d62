"""Table and plot of tests.bench.linger: python3 -m tests.report.linger build/bench/linger/linger.jsonl"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.report import grid, kept

FREE, ALONE = "no owners", "owners alone"
COLOURS = {"pause": "#d50", "evict": "#E69F00", "stay": "#5ad", "linger": "#06c"}
COLUMNS = 110
NOTES = ["background: pieces of work of all background VMs, percent of one VM's without owners; owners slower: mean time of an owner's piece of work, "
         "against the same without background, percent; p99: mean of the visits' p99, likewise, times."]


@dataclass(frozen=True)
class Point:
    """One run."""

    background: float
    slower: float
    p99: float
    moves: int


def points(path: Path) -> tuple[dict[int, dict[str, Point]], dict[str, Any]]:
    """By number of background VMs and way, and the conditions."""
    runs, about = kept.lines(path)
    by = {(run["cell"]["way"], run["cell"]["jobs"]): run for run in runs}
    free, visits = by.pop((FREE, 1)), by[ALONE, 0]["owners"]
    alone = _owners(by.pop((ALONE, 0)))
    rate = sum(free["pieces"]) / free["seconds"]
    about["there"] = [sum(one["seconds"] for one in visits if one["host"] == host) / about["seconds"] for host in (0, 1)]
    found: dict[int, dict[str, Point]] = {}
    for (way, jobs), run in by.items():
        mean, p99 = _owners(run)
        moves = len(run["moves"]) + sum(" runs at " in line for line in run["said"])
        found.setdefault(jobs, {})[way] = Point(100 * sum(run["pieces"]) / run["seconds"] / rate, 100 * mean / alone[0] - 100, p99 / alone[1], moves)
    return found, about


def _owners(run: dict[str, Any]) -> tuple[float, float]:
    """Mean and p99 of their pieces of work; of visits, weighed by their pieces."""
    visits = run["owners"]
    count = sum(one["operations"] for one in visits)
    return tuple(sum(one[key] * one["operations"] for one in visits) / count for key in ("mean_us", "p99_us"))  # type: ignore[return-value]


def text(found: dict[int, dict[str, Point]], about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("background VMs", "way", "background %", "owners slower %", "p99", "moves"))
    for jobs, row in found.items():
        for way, one in row.items():
            rows.add_row(str(jobs), way, f"{one.background:.0f}", f"{one.slower:.1f}", f"x{one.p99:.2f}", str(one.moves))
    return grid.text(rows, [*NOTES, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    return (f"Two hosts of one processor each; owners are there for {about['there'][0]:.0%} and {about['there'][1]:.0%} of the time, and take "
            f"{about['intensity']} %; "
            f"single runs of {about['seconds']:.0f} s. {kept.built(about)}")


def draw(found: dict[int, dict[str, Point]], about: dict[str, Any], target: Path) -> None:
    """A panel for each number of background VMs, a bar a way."""
    figure, axes = kept.panels(len(found))
    for axis, (jobs, row) in zip(axes, sorted(found.items()), strict=True):
        for number, (way, one) in enumerate(row.items()):
            axis.bar(number, one.background, 0.7, color=COLOURS[way])
            axis.text(number, one.background, f"{one.background:.0f}\nowners {one.slower:+.1f} %\n{one.moves} moves", fontsize=6, ha="center", va="bottom")
        axis.set_xticks(range(len(row)), list(row))
        axis.set_ylim(0, 1.25 * max(one.background for each in found.values() for one in each.values()))
        kept.label(axis, f"{jobs} background VM{'s' if jobs > 1 else ''} on two hosts", "")
    axes[0].set_ylabel("work of the background, % of one VM without owners", fontsize=8)
    kept.save(figure, "What background VMs do on hosts whose owners come and go", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("linger", "Background VMs on two hosts with owners.", report)
