"""The dissertation's formulas (4.4, 7.1) and our model against the contours that were measured.

    python3 -m tests.report.models [docs/results] [--output models]

A table of errors, in points of percent of alone, and a plot of the same; figures 7.1 and 7.2 are the random disk and UDP beside UDP.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import numpy as np
from matplotlib import pyplot

from tests.bench import prediction
from tests.bench.prediction import Prediction
from tests.report import contour, grid, kept, netcontour, netresults

DISKS = {"random": "disk, random reads", "sequential": "disk with an arm, sequential", "buffered": "the same, read ahead"}
LINKS = {"lan": "uplink", "delay": "uplink, 10 ms away"}
PAYLOAD_BITS = 1400 * 8
ROLES = ("foreground", "background")
MODELS = {"4.4": "#E69F00", "4.4, 1 / r(i)": "#a5d", "ours": "#06c"}
COLUMNS = 120


@dataclass(frozen=True)
class Surface:
    """What was measured: percent of alone by role, [interval, intensity]; `rates` are the foreground's requests/s alone, by intensity."""

    title: str
    intensities: list[int]
    intervals_us: list[int]
    shares: dict[str, np.ndarray]
    rates: dict[int, float]
    foreground_s: float
    background_s: float
    disk_s: float
    """Service times: as the guests see them, and of the resource itself."""
    by_bytes: bool
    """What the foreground sends in a quantum is bounded by bytes, not by time: it is busy for as long as these take."""


def disks(folder: Path) -> Iterator[Surface]:
    """The disk's contours that are there."""
    for name, title in DISKS.items():
        path = folder / f"contour-{name}.jsonl"
        if path.exists():
            results = contour.load(path)
            mine, other = results.foreground_service_s, 1 / results.background_alone[contour.RATE]
            own = results.conditions["disk"].get("service_us", 0) / 1e6 or min(mine, other)
            yield Surface(title, results.intensities, results.intervals_us, {role: results.surface(role, contour.RATE) for role in ROLES},
                          {each: report[contour.RATE] for each, report in results.alone.items()}, mine, other, own, False)


def links(folder: Path) -> Iterator[Surface]:
    """The uplink's, a pair of protocols each."""
    for name, title in LINKS.items():
        path = folder / f"contour-net-{name}.jsonl"
        if path.exists():
            data = netresults.load(path)
            for each in netcontour.grids(data, netcontour.repeated(path)):
                packet_s = PAYLOAD_BITS / (data.conditions["link"]["rate_mbit"] * 1e6 / netresults.WIRE[each.foreground])
                alone = {case.about["intensity"]: case.foreground_mbit for case in data.cases
                         if case.control == "alone" and case.about["foreground"] == each.foreground}
                rates = {intensity: mbit * 1e6 / PAYLOAD_BITS for intensity, mbit in alone.items() if mbit}
                yield Surface(f"{title}, {each.foreground.upper()} / {each.background.upper()}", each.intensities, each.intervals_us,
                              each.shares, rates, packet_s, packet_s, packet_s, True)


def _dissertation(surface: Surface, intensity: int, interval_us: int, literal: bool) -> Prediction:
    rates = surface.rates
    most = max(rates.values())
    return prediction.dissertation(rates[intensity], most, intensity / 100, interval_us / 1e6, literal)


def _ours(surface: Surface, intensity: int, interval_us: int) -> Prediction:
    busy = min(1.0, surface.rates[intensity] * surface.foreground_s) if surface.by_bytes else intensity / 100
    return prediction.predict(prediction.Situation(
        contour.QUANTUM_SECONDS, 1.0 if intensity == 100 else busy, interval_us / 1e6, surface.foreground_s, surface.background_s, surface.disk_s))


PREDICT: dict[str, Callable[[Surface, int, int], Prediction]] = {
    "4.4": lambda *place: _dissertation(*place, literal=False),
    "4.4, 1 / r(i)": lambda *place: _dissertation(*place, literal=True),
    "ours": _ours,
}


def errors(surface: Surface, model: str) -> dict[str, np.ndarray]:
    """Predicted less measured by role, points of percent of alone; NaN where nothing was measured."""
    found = {role: np.full((len(surface.intervals_us), len(surface.intensities)), np.nan) for role in ROLES}
    for row, interval_us in enumerate(surface.intervals_us):
        for column, intensity in enumerate(surface.intensities):
            if intensity in surface.rates:
                predicted = PREDICT[model](surface, intensity, interval_us)
                for role in ROLES:
                    found[role][row, column] = 100 * getattr(predicted, role) - surface.shares[role][row, column]
    return found


def text(surfaces: list[Surface]) -> str:
    """A row for each contour."""
    rows = grid.table(("contour", *(f"{role}\n{model}" for role in ROLES for model in MODELS)), first_width=32)
    for surface in surfaces:
        cells = []
        for role in ROLES:
            for model in MODELS:
                values = np.abs(errors(surface, model)[role])
                cells.append(f"{np.nanmean(values):.1f} ({np.nanmax(values):.0f})")
        rows.add_row(surface.title, *cells)
    return grid.text(rows, ["mean and greatest absolute error, points of percent of alone"], COLUMNS)


def draw(surfaces: list[Surface], target: Path) -> None:
    """Mean errors by contour and model."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 0.34 * len(surfaces) + 1.4), sharey=True)
    places = np.arange(len(surfaces))[::-1]
    for axis, role in zip(axes, ROLES):
        for number, (model, colour) in enumerate(MODELS.items()):
            axis.barh(places + 0.25 - 0.25 * number, [np.nanmean(np.abs(errors(each, model)[role])) for each in surfaces], 0.25, color=colour, label=model)
        axis.set_yticks(places, [each.title for each in surfaces], fontsize=7)
        kept.label(axis, role, "mean absolute error, points of percent of alone")
    axes[1].legend(fontsize=7, frameon=False)
    kept.save(figure, "Both models hold where all requests cost the same; an arm, and TCP a round trip away, are in neither", "The dissertation's section 4.4, as its text means it and as it is written; ours: tests/bench/prediction.py.", target)


def main() -> None:
    """Reduce the contours of a folder."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.models", description="Models against the contours.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/results"))
    parser.add_argument("--output", type=Path, help="folder of table and plot (the same)")
    arguments = parser.parse_args()
    surfaces = [*disks(arguments.folder), *links(arguments.folder)]
    target = (arguments.output or arguments.folder) / "models.png"
    kept.publish(target, text(surfaces))
    draw(surfaces, target)


if __name__ == "__main__":
    main()
