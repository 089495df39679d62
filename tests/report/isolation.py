"""Table and plot of tests.bench.isolation: python3 -m tests.report.isolation build/bench/isolation/isolation.jsonl"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from tests.report import grid, kept

WAYS = {"nbd": "QEMU", "loop": "kernel", "guest": "guest"}
PAUSE_US = 100_000
"""At least so long after the last one a request is the first of a burst."""
PARTS = {"1st": slice(0, 1), "2nd to 8th": slice(1, 8), "later": slice(8, None)}
COLUMNS = 150
NOTES = (
    "All by what the guests see, medians over the repeats, against no control on the same way to the disk.",
    "overhead: of a greedy foreground that has the disk for itself, mean and p99. spare: of a greedy background that has it for itself, throughput kept.",
    "isolation: the foreground's requests/s beside the background, of those alone; conservation: requests/s of both, of those without control.",
    "burst: mean latency of the 1st, the 2nd to 8th, and the later requests of each burst, against the same alone.",
    "fair: Jain's index of two backgrounds' requests/s, one with one request at a time and one with four; 1 is equal, 0.5 is all for one.",
)


@dataclass(frozen=True)
class Point:
    """Of one contender. Percent, multiples of alone, and Jain's index; None: not measured."""

    way: str
    overhead_mean: float
    overhead_p99: float
    spare: float
    isolation: float
    conservation: float
    burst: dict[str, float]
    fair: float | None


def _latencies(run: dict[str, Any]) -> np.ndarray:
    return np.array(run["requests"][1], float)


def _burst(run: dict[str, Any]) -> dict[str, float]:
    """Mean latency by place in the burst, us. What was under way when it began is no first one."""
    start, latency = (np.array(each, float) for each in run["requests"])
    first = np.flatnonzero(np.diff(start, prepend=-np.inf) > PAUSE_US)
    bursts = np.split(latency, first[1:])
    return {name: float(np.mean(np.concatenate([burst[part] for burst in bursts]))) for name, part in PARTS.items()}


def _rate(run: dict[str, Any], *names: str) -> float:
    return sum(run[name]["operations_per_second"] for name in names)


def _jain(run: dict[str, Any]) -> float:
    rates = [_rate(run, name) for name in ("background", "second")]
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def points(path: Path) -> tuple[dict[str, Point], dict[str, Any]]:
    """By contender, in order of the file, and the conditions of the last runs."""
    lines, about = kept.lines(path)
    runs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        runs[line["step"], line["contender"]["name"]].append(line)
    plain = {line["path"]: line["contender"]["name"] for line in lines if line["step"] == "alone"}

    def of(figure: Any, step: str, name: str) -> float:
        return median(figure(run) for run in runs[step, name])

    found = {}
    for name in dict.fromkeys(name for step, name in runs if step == "bursts"):
        way = runs["bursts", name][0]["path"]
        none = plain[way]
        found[name] = Point(
            way,
            *(100 * (of(figure, "overhead", name) / of(figure, "overhead", none) - 1)
              for figure in (lambda run: mean(_latencies(run)), lambda run: np.percentile(_latencies(run), 99))),
            100 * of(lambda run: _rate(run, "background"), "spare", name) / of(lambda run: _rate(run, "background"), "spare", none),
            100 * of(lambda run: _rate(run, "foreground"), "bursts", name) / of(lambda run: _rate(run, "foreground"), "alone", none),
            100 * of(lambda run: _rate(run, "foreground", "background"), "bursts", name)
            / of(lambda run: _rate(run, "foreground", "background"), "bursts", none),
            {part: of(lambda run, part=part: _burst(run)[part], "bursts", name) / of(lambda run, part=part: _burst(run)[part], "alone", none)
             for part in PARTS},
            of(_jain, "fair", name) if runs["fair", name] else None,
        )
    return found, about


def text(found: dict[str, Point], about: dict[str, Any]) -> str:
    """The table."""
    rows = grid.table(("", "overhead mean", "p99", "spare", "isolation", "conservation", *(f"burst, {part}" for part in PARTS), "fair"))
    for name, one in found.items():
        rows.add_row(name, f"{one.overhead_mean:+.1f} %", f"{one.overhead_p99:+.1f} %", f"{one.spare:.0f} %", f"{one.isolation:.1f} %",
                     f"{one.conservation:.0f} %", *(f"x{one.burst[part]:.2f}" for part in PARTS), "-" if one.fair is None else f"{one.fair:.2f}")
    return grid.text(rows, [*NOTES, _conditions(about)], COLUMNS)


def _conditions(about: dict[str, Any]) -> str:
    bursts = about["bursts"]
    return (f"Disk of {about['disk']['service_us'] / 1000:g} ms a request, one at a time; bursts of {bursts['intensity']} % of {bursts['quantum_ms']} ms, "
            f"pauses varied. {kept.built(about)}")


def _bars(axis: Axes, bars: dict[str, list[float]]) -> None:
    """Side by side for each contender, the first one on top."""
    high = 0.8 / len(bars)
    for number, (label, values) in enumerate(bars.items()):
        axis.barh(np.arange(len(values)) + 0.4 - high * (number + 0.5), values, 0.95 * high, label=label)
    axis.legend(fontsize=7, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=len(bars))


def draw(found: dict[str, Point], about: dict[str, Any], target: Path) -> None:
    """Left resctl-bench's two figures, in the middle how a burst begins, right who is alike."""
    names = list(found)[::-1]
    figure, axes = kept.pyplot.subplots(1, 3, figsize=(11, 5.2), sharey=True, gridspec_kw={"width_ratios": (3, 3, 2)})
    _bars(axes[0], {"foreground, of alone (isolation)": [found[name].isolation for name in names],
                    "both, of no control (conservation)": [found[name].conservation for name in names]})
    _bars(axes[1], {part: [found[name].burst[part] for name in names] for part in PARTS})
    _bars(axes[2], {"two backgrounds": [found[name].fair or 0 for name in names]})
    axes[0].set_yticks(range(len(names)), [f"{name} ({WAYS[found[name].way]})" for name in names])
    for axis, label, one in zip(axes, ("requests/s, %", "mean latency in a burst, multiple of alone", "Jain's index, 1 is equal"), (100, 1, 1)):
        axis.axvline(one, color="#555", linewidth=0.8, linestyle=":")
        kept.label(axis, "", label)
    kept.save(figure, "What protects the foreground, keeps the disk busy, spares the first request of a burst, and treats equals alike", _conditions(about), target)


def report(path: Path) -> None:
    """Table on the terminal and beside the results, and the plot."""
    found, about = points(path)
    kept.publish(path, text(found, about))
    draw(found, about, path.with_suffix(".png"))


if __name__ == "__main__":
    kept.command("isolation", "Overhead, fairness, use and bursts, for every contender.", report)
