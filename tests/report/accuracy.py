"""Accuracy of judging contention by the background's share: python3 -m tests.report.accuracy results.jsonl [accuracy.png]"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
import numpy as np  # noqa: E402

from tests.framework import paths  # noqa: E402
from tests.report import grid  # noqa: E402

sys.path.insert(0, str(paths.ROOT / "libvirt"))
from idletime.police import suspend  # noqa: E402  (the product's own)

STEP_MS, LOOK_MS = 50, 250
INTERVALS_S = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
PAPER_INTERVAL_S = suspend.Settings().aggregation_s
SHOWN = (0.5, 0.67, 0.8, 0.9, 0.95, suspend.Thresholds().device)
COLORS = {1: "#0072B2", 2: "#E69F00", 4: "#009E73"}
COLUMNS = 130


def shares(run: dict[str, Any], interval_s: float) -> list[float]:
    """The background's share of the requests in each interval of a run, a look every 0.25 s; without requests: 0, none."""
    steps = round(interval_s * 1000 / STEP_MS)
    ahead, behind = (np.concatenate([[0], np.cumsum(run[role])]) for role in ("foreground", "background"))
    ends = np.arange(steps, len(ahead), LOOK_MS // STEP_MS)
    ours = behind[ends] - behind[ends - steps]
    all_of_it = ours + ahead[ends] - ahead[ends - steps]
    return np.divide(ours, all_of_it, out=np.zeros(len(ends)), where=all_of_it > 0).tolist()


def measured(runs: list[dict[str, Any]], number: int, interval_s: float) -> tuple[list[float], list[float]]:
    """Shares with contention and without, of so many background VMs."""
    found: tuple[list[float], list[float]] = [], []
    for run in runs:
        if run["cell"]["number"] == number:
            found[not run["cell"]["foreground"]].extend(shares(run, interval_s))
    return found


def best(contended: list[float], clear: list[float]) -> float:
    """The accuracy of the best threshold."""
    return max(suspend.accuracy(contended, clear, percent / 100) for percent in range(1, 101))


def text(runs: list[dict[str, Any]]) -> str:
    """Accuracy at some thresholds, what calibration chooses, and the best accuracy over intervals."""
    numbers = sorted({run["cell"]["number"] for run in runs})
    table = grid.table(["background VMs", *(f"below {100 * each:.0f} %" for each in SHOWN), "calibrated"], space=2)
    for number in numbers:
        contended, clear = measured(runs, number, PAPER_INTERVAL_S)
        chosen = suspend.calibrated(contended, clear, suspend.Thresholds().device)
        table.add_row(str(number), *(f"{100 * suspend.accuracy(contended, clear, each):.1f}" for each in SHOWN), f"{100 * chosen:.0f} %")
    other = grid.table(["background VMs", *(f"{each:g} s" for each in INTERVALS_S)], space=2)
    for number in numbers:
        other.add_row(str(number), *(f"{100 * best(*measured(runs, number, each)):.1f}" for each in INTERVALS_S))
    return (grid.text(table, [f"Accuracy, %, of a threshold over the share of the disk's requests; interval {PAPER_INTERVAL_S:g} s."], COLUMNS)
            + "\n" + grid.text(other, ["Accuracy, %, of the best threshold, by the interval over which requests are counted."], COLUMNS))


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Figures 2 (one resource of it) and 3 of the paper."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for number in sorted({run["cell"]["number"] for run in runs}):
        label = f"{number} background VM{'s' if number > 1 else ''}"
        contended, clear = measured(runs, number, PAPER_INTERVAL_S)
        left.plot(range(1, 101), [100 * suspend.accuracy(contended, clear, percent / 100) for percent in range(1, 101)],
                  color=COLORS[number], label=label)
        right.plot(INTERVALS_S, [100 * best(*measured(runs, number, each)) for each in INTERVALS_S], "o-", color=COLORS[number], label=label)
    left.set_xlabel("threshold: background's share of requests, %")
    right.set_xlabel("requests are counted over, seconds")
    left.set_title(f"by the threshold ({PAPER_INTERVAL_S:g} s)", fontsize=10)
    right.set_title("by the interval (best threshold)", fontsize=10)
    for axes in (left, right):
        axes.set_ylim(0, 103)
        axes.set_ylabel("accuracy, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def show(path: Path, plot: Path | None) -> None:
    """Print the tables, and draw."""
    runs = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "run"]
    print(text(runs))
    if plot:
        draw(runs, plot)
        print(plot)


if __name__ == "__main__":
    show(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
