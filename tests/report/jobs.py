"""Table and plot of tests.bench.jobs: python3 -m tests.report.jobs build/bench/jobs/jobs.jsonl"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.report import grid, kept

TITLES = {"backup": "backup", "mirror": "mirror", "commit": "commit", "reader": "NBD reader"}
STOCK, VM = "stock", "vm"
OURS = {"20 ms": ("#2a7", "o"), "auto 3 %": ("#06c", "D")}
COLUMNS = 120
NOTE = ("kept: by the foreground, of its rate alone; of VM: of what the greedy VM does under the same control; fixed: what a fixed speed does "
        "that costs the foreground as much, on the line through those that were tried")


@dataclass(frozen=True)
class Point:
    """Medians: what the foreground kept of its rate alone (percent), what the job did (MB/s)."""

    kept_percent: float
    mb_per_second: float
    runs: int


Points = dict[str, dict[str, Point]]
"""By job and way."""


def points(path: Path) -> tuple[Points, dict[str, Any]]:
    """And the conditions of the last runs."""
    lines, about = kept.lines(path)
    alone = {(line["cell"]["way"], line["cell"]["repeat"]): line["foreground"]["operations_per_second"]
             for line in lines if not line["cell"]["job"]}
    usual = median(alone.values())
    rates: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for line in lines:
        cell = line["cell"]
        if cell["job"]:
            share = line["foreground"]["operations_per_second"] / alone.get((cell["job"], cell["repeat"]), usual)
            rates[cell["job"], cell["way"]].append((share, line["bytes_per_second"] / 1e6))
    found: Points = defaultdict(dict)
    for (job, way), runs in rates.items():
        found[job][way] = Point(100 * median(share for share, _ in runs), median(done for _, done in runs), len(runs))
    return found, about


def at_equal_foreground(ways: dict[str, Point], kept_percent: float) -> float:
    """What a fixed speed would do (MB/s) that keeps so much, on the line through the speeds that were tried."""
    caps = sorted((point.kept_percent, point.mb_per_second) for way, point in ways.items() if way == STOCK or way.endswith("MB/s"))
    caps = [*caps, (100.0, 0.0)]
    best = 0.0
    for (low, more), (high, less) in zip(caps, caps[1:]):
        if low <= kept_percent <= high and high > low:
            best = max(best, more + (less - more) * (kept_percent - low) / (high - low))
    return max([best, *(done for kept, done in caps if kept >= kept_percent)])


def text(found: Points, about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("job", "way", "kept %", "MB/s", "of VM %", "fixed MB/s", "runs"))
    for job, ways in found.items():
        for way in sorted(ways, key=lambda way: (way in OURS, way != STOCK, float(way.split()[0]) if way.endswith("MB/s") else 0)):
            point, greedy = ways[way], found.get(VM, {}).get(way)
            ours = way in OURS and job != VM
            beside = at_equal_foreground(ways, point.kept_percent) if ours and STOCK in ways else None
            rows.add_row(TITLES.get(job, "greedy VM, 128 KiB"), way, f"{point.kept_percent:.1f}", f"{point.mb_per_second:.1f}",
                         f"{100 * point.mb_per_second / greedy.mb_per_second:.0f}" if ours and greedy and greedy.mb_per_second else "",
                         "" if beside is None else f"{beside:.1f}", str(point.runs))
    return grid.text(rows, [NOTE, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    return (f"Disk: {about['disk'].get('service_us')} us a request and {about['disk'].get('rate')}iB/s; foreground: bursts of 30 ms every "
            f"100 ms, 4 KiB, random. Medians of runs of {about['seconds']:g} s. {kept.built(about)}")


def draw(found: Points, about: dict[str, Any], target: Path) -> None:
    """A panel a job: to the right the foreground keeps more, up the job does more."""
    names = [job for job in TITLES if job in found]
    figure, axes = kept.panels(len(names))
    for axis, job in zip(axes, names):
        ways = found[job]
        caps = sorted((point for way, point in ways.items() if way not in OURS), key=lambda point: point.mb_per_second)
        axis.plot([one.kept_percent for one in caps], [one.mb_per_second for one in caps], "x-", color="#999", linewidth=1,
                  label="fixed speeds, and none")
        for way, (colour, marker) in OURS.items():
            if point := ways.get(way):
                axis.plot(point.kept_percent, point.mb_per_second, marker, color=colour, markersize=8, label=way)
        axis.set_yscale("log")
        kept.label(axis, TITLES[job], "foreground keeps, % of its rate alone")
    axes[0].set_ylabel("job, MB/s", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, loc="lower left")
    kept.save(figure, "Up and to the right is better: what a job does for what the foreground keeps", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    if any(STOCK in ways for ways in found.values()):
        draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("jobs", "Jobs beside a foreground.", report)
