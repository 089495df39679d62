"""Table and plot of tests.bench.migration: python3 -m tests.report.migration build/bench/migration/migration.jsonl"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.report import grid, kept

STOCK, AUTO, ELSEWHERE = "stock", "auto", "auto, other link"
OURS = "#06c"
COLUMNS = 110
NOTE = ("kept: by the foreground while the VM migrates, of its rate in the seconds before; downtime: in which the migrated VM stands still; "
        "sent: of the migration, in MB/s while it lasts; done: of how many runs; other link: it shares the machine with the foreground and "
        "nothing else")


@dataclass(frozen=True)
class Point:
    """Medians. kept_percent None: nobody was beside it."""

    kept_percent: float | None
    seconds: float
    mb_per_second: float
    downtime_ms: float | None
    done: int
    runs: int


Points = dict[str, dict[str, Point]]
"""By the foreground's load ("" none) and way."""


def points(path: Path) -> tuple[Points, dict[str, Any]]:
    """And the conditions of the last runs."""
    lines, about = kept.lines(path)
    runs: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        cell = line["cell"]
        runs[f"{cell['load'].upper()} {cell['intensity']} %" if cell["load"] else ""][cell["way"]].append(line)
    found = {load: {way: _point(some) for way, some in ways.items()} for load, ways in runs.items()}
    return found, about


def _point(runs: list[dict[str, Any]]) -> Point:
    shares = [100 * run["beside_mbit_s"] / run["alone_mbit_s"] for run in runs if "alone_mbit_s" in run]
    down = [run["downtime_ms"] for run in runs if run["status"] == "completed"]
    return Point(median(shares) if shares else None, median(run["seconds"] for run in runs),
                 median(run["bytes"] / run["seconds"] / 1e6 for run in runs), median(down) if down else None, len(down), len(runs))


def _order(way: str) -> tuple[bool, bool, int]:
    return way in (AUTO, ELSEWHERE), way != STOCK, -int(way.split()[0]) if way.endswith("MB/s") else 0


def text(found: Points, about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("foreground", "migration", "kept %", "seconds", "sent MB/s", "downtime ms", "done"))
    for load, ways in found.items():
        for way in sorted(ways, key=_order):
            one = ways[way]
            rows.add_row(load or "none", way, "" if one.kept_percent is None else f"{one.kept_percent:.1f}", f"{one.seconds:.1f}",
                         f"{one.mb_per_second:.1f}", "" if one.downtime_ms is None else f"{one.downtime_ms:.0f}",
                         f"{one.done} of {one.runs}")
    return grid.text(rows, [NOTE, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    seen = "on stock QEMU, seen by the observer" if about["foreground"] == "stock" else "ours"
    return (f"A VM of 1 GiB, 128 MiB of it random, 1 MiB written anew each second; uplink {about['link']['rate_mbit']} Mbit/s; the foreground "
            f"VM is {seen}. Medians. {kept.built(about)}")


def draw(found: Points, about: dict[str, Any], target: Path) -> None:
    """A panel a load: to the right the foreground keeps more, down the migration is done sooner."""
    loads = [load for load in found if load]
    figure, axes = kept.panels(len(loads))
    for axis, load in zip(axes, loads):
        fixed = sorted((way for way in found[load] if way not in (AUTO, ELSEWHERE)), key=_order)
        axis.plot([found[load][way].kept_percent for way in fixed], [found[load][way].seconds for way in fixed], "x-", color="#999",
                  linewidth=1)
        for way, point in found[load].items():
            colour = OURS if way == AUTO else "#555"
            if way == AUTO:
                axis.plot(point.kept_percent, point.seconds, "D", color=OURS, markersize=8)
            axis.annotate(way if point.done == point.runs else f"{way} (not done)", (point.kept_percent, point.seconds), xytext=(4, 4),
                          textcoords="offset points", fontsize=7, color=colour)
        kept.label(axis, f"foreground: {load}", "foreground keeps, % of its rate before")
        axis.axvline(100, color="#ddd", linewidth=1, zorder=0)
        axis.set_xlim(min(65.0, min(one.kept_percent or 0.0 for one in found[load].values()) - 5), 110)
    axes[0].set_ylim(0, 1.15 * max(one.seconds for load in loads for one in found[load].values()))
    axes[0].set_ylabel("migration, seconds", fontsize=8)
    kept.save(figure, "Down and to the right is better: how long a migration takes for what the foreground keeps", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    if any(found):
        draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("migration", "Migration beside a foreground.", report)
