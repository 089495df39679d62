"""The contour runs as pictures: python3 -m tests.report.contour build/bench/contour/random.jsonl

Axes as in the dissertation's figures 6.4 and 6.6: intensity of the foreground
to the right, interval upwards; colour is what is kept or reached.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
import numpy as np  # noqa: E402

from tests.bench import prediction  # noqa: E402

RATE = "operations_per_second"
QUANTUM_SECONDS = 0.1


class Results:
    """One disk's grid; `alone` by intensity, `cells` by (intensity, interval in us)."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.conditions: dict[str, Any] = next(line for line in lines if line["kind"] == "conditions")
        runs = {line["key"]: line for line in lines if line["kind"] == "run"}.values()
        self.background_alone = next(run["background"] for run in runs if not run["intensity"])
        self.alone = {run["intensity"]: run["foreground"] for run in runs if run["interval_us"] is None}
        self.cells = {(run["intensity"], run["interval_us"]): run for run in runs if run["intensity"] and run["interval_us"] is not None}
        self.intensities = sorted({intensity for intensity, _ in self.cells})
        self.intervals_us = sorted({interval_us for _, interval_us in self.cells})

    def surface(self, role: str, figure: str) -> np.ndarray:
        """Percent of alone, [interval, intensity]."""
        rows = []
        for interval_us in self.intervals_us:
            row = []
            for intensity in self.intensities:
                base = self.alone[intensity] if role == "foreground" else self.background_alone
                value = self.cells[intensity, interval_us][role][figure]
                row.append(100 * value / base[figure] if value is not None else np.nan)
            rows.append(row)
        return np.array(rows)

    def predicted(self) -> dict[str, np.ndarray]:
        """The same for throughput, by prediction.py, from the service times alone."""
        foreground_service = median(report["mean_us"] for report in self.alone.values()) / 1e6
        surfaces: dict[str, list[list[float]]] = {"foreground": [], "background": []}
        for interval_us in self.intervals_us:
            row = [
                prediction.predict(prediction.Situation(
                    QUANTUM_SECONDS, intensity / 100, interval_us / 1e6, foreground_service,
                    1 / self.background_alone[RATE], self.conditions["disk"]["service_us"] / 1e6,
                )) for intensity in self.intensities
            ]
            surfaces["foreground"].append([100 * each.foreground for each in row])
            surfaces["background"].append([100 * each.background for each in row])
        return {role: np.array(rows) for role, rows in surfaces.items()}


class Plane(Protocol):
    """What a panel's axes show."""

    intensities: list[int]
    intervals_us: list[int]


def panel(figure: Any, axes: Any, grid: Plane, values: np.ndarray, title: str, top: float, colours: str) -> None:
    """Contours of values [interval, intensity] between 0 and `top`; NaN leaves a hole."""
    levels, shown = np.linspace(0, top, 11), np.clip(values, 0, top)
    places = np.arange(len(grid.intervals_us))
    filled = axes.contourf(grid.intensities, places, shown, levels=levels, cmap=colours)
    if np.any((levels > np.nanmin(shown)) & (levels < np.nanmax(shown))):  # else matplotlib warns that it finds no line
        axes.contour(grid.intensities, places, shown, levels=levels, colors="white", linewidths=0.4)
    axes.set_yticks(places, [f"{us / 1000:g}" for us in grid.intervals_us], fontsize=7)
    axes.set_xlabel("foreground intensity, %", fontsize=8)
    axes.set_ylabel("preemption interval, ms", fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    figure.colorbar(filled, ax=axes).ax.tick_params(labelsize=7)


def footer(figure: Any, measured: str, about: dict[str, Any]) -> None:
    """What was measured, then where: QEMU and commit of the conditions."""
    figure.text(0.01, 0.005, f"{measured} {about['qemu']}, {about['accel'].upper()}, commit {about['commit']}.",
                fontsize=6, color="#555555")


def _footer(figure: Any, results: Results) -> None:
    about = results.conditions
    footer(figure, f"Disk {about['disk']}, quantum 100 ms, runs of {about['seconds']} s, background: 1 outstanding.", about)


def draw(results: Results, target: Path) -> None:
    """Throughput and latency of both classes."""
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7.5))
    panel(figure, axes[0, 0], results, results.surface("foreground", RATE), "Foreground throughput, % of alone", 100, "viridis")
    panel(figure, axes[0, 1], results, results.surface("background", RATE), "Background throughput, % of alone", 100, "viridis")
    panel(figure, axes[1, 0], results, results.surface("foreground", "mean_us"), "Foreground mean latency, % of alone", 250, "magma_r")
    panel(figure, axes[1, 1], results, results.surface("foreground", "p99_us"), "Foreground p99 latency, % of alone", 300, "magma_r")
    figure.suptitle("A longer interval protects the foreground; above its pauses it leaves the background nothing",
                    fontsize=11, fontweight="bold", x=0.01, ha="left")
    _footer(figure, results)
    figure.tight_layout(rect=(0, 0.02, 1, 0.97))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def errors(results: Results) -> dict[str, np.ndarray]:
    """Predicted minus measured, percentage points of alone."""
    return {role: values - results.surface(role, RATE) for role, values in results.predicted().items()}


def draw_errors(results: Results, target: Path) -> None:
    """Where the prediction is wrong, as the dissertation's figures 7.1 and 7.2."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4))
    for place, (role, values) in zip(axes, errors(results).items()):
        mesh = place.pcolormesh(values, cmap="RdBu_r", vmin=-25, vmax=25)
        place.set_xticks(np.arange(len(results.intensities)) + 0.5, results.intensities, fontsize=7)
        place.set_yticks(np.arange(len(results.intervals_us)) + 0.5, [f"{us / 1000:g}" for us in results.intervals_us], fontsize=7)
        place.set_xlabel("foreground intensity, %", fontsize=8)
        place.set_ylabel("preemption interval, ms", fontsize=8)
        mean, worst = np.mean(np.abs(values)), np.max(np.abs(values))
        place.set_title(f"{role.capitalize()}: predicted less measured, points\n(mean error {mean:.1f}, worst {worst:.1f})", fontsize=9, loc="left")
        figure.colorbar(mesh, ax=place).ax.tick_params(labelsize=7)
    _footer(figure, results)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def report(path: Path) -> None:
    """Draw the pictures of a results file beside it, and say how well the model predicts."""
    results = Results(path)
    target = path.with_name(f"contour-{path.stem}.png")
    draw(results, target)
    print(f"  {target}")
    if results.conditions["disk"]["model"] == "fixed":
        target = path.with_name(f"prediction-{path.stem}.png")
        draw_errors(results, target)
        for role, values in errors(results).items():
            print(f"  {role}: mean error {np.mean(np.abs(values)):.1f} points, worst {np.max(np.abs(values)):.1f}")
        print(f"  {target}")


def main() -> None:
    """Draw the plots of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.contour", description="Plots of the contour runs.")
    parser.add_argument("results", type=Path)
    report(parser.parse_args().results)


if __name__ == "__main__":
    main()
