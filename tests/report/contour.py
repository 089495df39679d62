"""The contour runs as pictures: python3 -m tests.report.contour build/bench/contour/contour-random.jsonl

Axes as in the dissertation's figures 6.4 and 6.6: intensity of the foreground
to the right, interval upwards; colour is what is kept or reached. Two pictures,
throughput and latency; a third, of the model's errors, where there is a model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any, Protocol, Sequence

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.colors import LogNorm  # noqa: E402
import numpy as np  # noqa: E402

from tests.bench import prediction  # noqa: E402
from tests.report import grid, kept  # noqa: E402

RATE = "operations_per_second"
QUANTUM_SECONDS = 0.1
TABLE_COLUMNS = 160
FEW = 5
"""Requests of a run: of fewer no latency is told."""
LATENCY_MS = (1, 1000)
"""The scale of the background's latency."""
INTENSITY_LABEL = "foreground intensity: busy for so many % of each 100 ms"
INTERVAL_LABEL = "preemption interval, ms"

MESSAGES = {
    "fixed": ("With an interval of 0 the foreground keeps {none} % at worst, from 1 ms on {worst} %;\n"
              "above the foreground's pauses the background gets nothing",
              "A fixed interval brings the foreground's mean latency down; its p99 is the one collision that each burst still pays for"),
    "seek": ("On a disk with seeks a fixed interval saves long bursts; of short ones the foreground keeps {worst} % at worst",
             "On a disk with seeks the background moves the arm away before each burst: several times the latency of alone"),
    "buffered": ("A foreground that reads ahead keeps {worst} % at worst with any interval, {none} % without",
                 "What a read of a foreground that reads ahead takes, on a disk with seeks"),
}
"""By the disk's model, or that the foreground reads a file through its page cache: what the picture of throughput says, and that
of latency. Figures are the foreground's least share of alone."""


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A run whose figures are medians."""
    def of(role: str) -> dict[str, Any] | None:
        reports = [run[role] for run in runs if run[role]]
        figures = (RATE, "operations", "mean_us", "p50_us", "p99_us")
        return {**reports[0], **{name: median(report[name] for report in reports) for name in figures}} if reports else None

    return {**runs[0], "foreground": of("foreground"), "background": of("background")} if len(runs) > 1 else runs[0]


MISFIT = 5.0
"""Points of percent of alone: a place that is further off the best fit of its column is worth more runs."""


def fit(values: np.ndarray) -> np.ndarray:
    """The nearest values in the least-squares sense that nowhere fall along the first axis (pool adjacent violators, R. E. Barlow 1972)."""
    if values.ndim > 1:
        return np.apply_along_axis(fit, 0, values)
    pools: list[list[float]] = []
    for value in values:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    return np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])


def misfit(foreground: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Which places [interval, intensity] chance has moved: a longer interval brings the foreground no less, and the background no more,
    and nobody has more than alone; where a whole end of a column has, it is the run alone that is wrong, so all of the column is. In percent of alone, as both surfaces."""
    fitted = fit(foreground)
    off = np.maximum(np.abs(foreground - fitted), np.abs(background + fit(-background)))
    alone_was_slow = fitted.max(axis=0) > 100 + MISFIT
    return (np.maximum(off, foreground - 100) > MISFIT) | alone_was_slow


def columns_of(places: np.ndarray, intensities: Sequence[int], intervals_us: Sequence[int]) -> dict[int, list[int]]:
    """Of places [interval, intensity] that are true, the intervals in us by intensity."""
    return {intensity: [interval_us for interval_us, is_so in zip(intervals_us, column) if is_so]
            for intensity, column in zip(intensities, places.T) if column.any()}


class Results:
    """One disk's grid; `alone` by intensity, `cells` by (intensity, interval in us). Of places that `again` has its medians are told."""

    def __init__(self, path: Path, again: Sequence[Results] = ()) -> None:
        self.again = again
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.conditions: dict[str, Any] = next(line for line in lines if line["kind"] == "conditions")
        repeats: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for line in {line["key"]: line for line in lines if line["kind"] == "run"}.values():
            repeats.setdefault((line["intensity"], line["interval_us"], bool(line.get("auto"))), []).append(line)
        self.repeats = {place: found for place, found in repeats.items() if len(found) > 1}
        runs = [middle(found) for found in repeats.values()]
        self.background_alone = next(run["background"] for run in runs if not run["intensity"])
        self.alone = {run["intensity"]: run["foreground"] for run in runs if run["interval_us"] is None}
        self.auto = {run["intensity"]: run for run in runs if run.get("auto")}
        self.cells = {(run["intensity"], run["interval_us"]): run for run in runs
                      if run["intensity"] and run["interval_us"] is not None and not run.get("auto")}
        self.intensities = sorted({intensity for intensity, _ in self.cells})
        self.intervals_us = sorted({interval_us for _, interval_us in self.cells})

    def surface(self, role: str, figure: str) -> np.ndarray:
        """Percent of alone, [interval, intensity]."""
        rows = []
        for interval_us in self.intervals_us:
            row = []
            for intensity in self.intensities:
                results = self._of(intensity, interval_us)
                base = results.alone[intensity] if role == "foreground" else results.background_alone
                value = results.cells[intensity, interval_us][role][figure]
                row.append(100 * value / base[figure] if value is not None else np.nan)
            rows.append(row)
        return np.array(rows)

    def _of(self, intensity: int, interval_us: int) -> Results:
        """Whose run of this place is told."""
        return next((each for each in self.again if (intensity, interval_us) in each.cells), self)

    def medians(self) -> list[tuple[int, int]]:
        """Indices (intensity, interval) of the places with more than one run."""
        return [(x, y) for x, intensity in enumerate(self.intensities) for y, interval_us in enumerate(self.intervals_us)
                if self._of(intensity, interval_us) is not self]

    def misfits(self) -> dict[int, list[int]]:
        """Intervals in us, by intensity, of the places that do not fit in their column."""
        return columns_of(misfit(self.surface("foreground", RATE), self.surface("background", RATE)), self.intensities, self.intervals_us)

    def milliseconds(self, role: str, figure: str) -> np.ndarray:
        """A latency, [interval, intensity]; NaN where too few requests were done."""
        runs = [[self._of(intensity, interval_us).cells[intensity, interval_us][role] for intensity in self.intensities]
                for interval_us in self.intervals_us]
        return np.array([[run[figure] / 1000 if run["operations"] >= FEW else np.nan for run in row] for row in runs])

    def predicted(self) -> dict[str, np.ndarray]:
        """The same for throughput, by prediction.py, from the service times alone."""
        surfaces: dict[str, list[list[float]]] = {"foreground": [], "background": []}
        for interval_us in self.intervals_us:
            row = [
                prediction.predict(prediction.Situation(
                    QUANTUM_SECONDS, intensity / 100, interval_us / 1e6, self.foreground_service_s,
                    1 / self.background_alone[RATE], self.conditions["disk"]["service_us"] / 1e6,
                )) for intensity in self.intensities
            ]
            surfaces["foreground"].append([100 * each.foreground for each in row])
            surfaces["background"].append([100 * each.background for each in row])
        return {role: np.array(rows) for role, rows in surfaces.items()}

    @property
    def foreground_service_s(self) -> float:
        """Of a request alone, as the guest sees it."""
        return median(report["mean_us"] for report in self.alone.values()) / 1e6

    @property
    def kind(self) -> str:
        """A key of MESSAGES."""
        return "buffered" if self.conditions["foreground_load"].get("buffered") else self.conditions["disk"]["model"]

    def learned(self) -> list[str]:
        """Lines of the runs with the learned interval: what the foreground keeps, and the background gets, in percent of alone."""
        lines = []
        for intensity in sorted(self.auto):
            told = next((each for each in self.again if intensity in each.auto), self)
            run, alone = told.auto[intensity], told.alone[intensity][RATE]
            kept, got = run["foreground"][RATE] / alone, run["background"][RATE] / told.background_alone[RATE]
            seconds = f"{told.conditions['seconds']:g} s"
            lines.append(f"auto, intensity {intensity:3} %: foreground {100 * kept:.0f} %, background {100 * got:.0f} % "
                         f"({'a run' if told is self else 'medians of runs'} of {seconds})")
        return lines


def load(path: Path) -> Results:
    """A grid, and what lies beside it of its places that were run again."""
    return Results(path, [Results(each) for each in sorted(path.parent.glob(f"{path.stem}-again*.jsonl"))])


def text(results: Results) -> str:
    """A grid with repeats: medians, and of the foreground the lowest and the highest."""
    rows = grid.table(("interval", *(f"{intensity} %" for intensity in results.intensities)))
    ways = [(f"{interval_us / 1000:g} ms", {intensity: results.repeats.get((intensity, interval_us, False)) for intensity in results.intensities})
            for interval_us in results.intervals_us]
    if results.auto:
        ways.append(("auto", {intensity: results.repeats.get((intensity, run["interval_us"], True)) for intensity, run in results.auto.items()}))
    base = results.background_alone[RATE]
    for name, found in ways:
        row = []
        for intensity in results.intensities:
            runs = found.get(intensity)
            if not runs:
                row.append("")
                continue
            alone = results.alone[intensity][RATE]
            shares = sorted(100 * run["foreground"][RATE] / alone for run in runs)
            other = median(100 * run["background"][RATE] / base for run in runs)
            row.append(f"{median(shares):.0f} ({shares[0]:.0f} to {shares[-1]:.0f}) / {other:.0f}")
        rows.add_row(name, *row)
    about, number = results.conditions, max(map(len, results.repeats.values()))
    return grid.text(rows, ["foreground kept (lowest to highest) / background, percent of alone; above: the foreground's intensity",
                            f"{_disk(about['disk'])}; medians of {number} runs of {about['seconds']:g} s. {kept.built(about)}"], TABLE_COLUMNS)


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
    label_axes(axes, title)
    bar = figure.colorbar(filled, ax=axes)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("% of alone", fontsize=8)


def dots(axes: Any, places: Sequence[tuple[float, float]]) -> None:
    """Mark what has more than a single run."""
    if places:
        axes.scatter(*zip(*places), s=6, color="white", edgecolors="black", linewidths=0.4, clip_on=False, zorder=3)


def label_axes(axes: Any, title: str) -> None:
    """The axes that all these pictures have."""
    axes.set_xlabel(INTENSITY_LABEL, fontsize=8)
    axes.set_ylabel(INTERVAL_LABEL, fontsize=8)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=7)


def footer(figure: Any, measured: str, about: dict[str, Any]) -> None:
    """What was measured, then where: QEMU and commit of the conditions."""
    figure.text(0.01, 0.005, f"{measured}{about['qemu']}, {about['accel'].upper()}, commit {about['commit']}.",
                fontsize=6, color="#555555")


def _footer(figure: Any, results: Results) -> None:
    about, load = results.conditions, results.conditions["foreground_load"]
    again = f"; dots: medians of runs of {results.again[0].conditions['seconds']:g} s" if results.again else ""
    footer(figure, f"Disk: {_disk(about['disk'])}. Foreground and background: {load['pattern']} {load['block_bytes'] // 1024} KiB reads, "
                   f"one outstanding; the background never pauses. Single runs of {about['seconds']:g} s{again}.\n", about)


def _disk(model: dict[str, Any]) -> str:
    return f"{model['service_us'] / 1000:g} ms a request" if model["model"] == "fixed" else "an arm that seeks, and a platter that turns"


Panel = tuple[str, str, str, float]
"""Role, figure, title and the top of the scale."""

THROUGHPUT: tuple[Panel, ...] = (("foreground", RATE, "Foreground throughput", 100), ("background", RATE, "Background throughput", 100))
LATENCY: tuple[Panel, ...] = (("foreground", "mean_us", "Foreground mean latency", 250), ("foreground", "p99_us", "Foreground p99 latency", 300))


def _save(figure: Any, results: Results, message: str, target: Path) -> None:
    """Under its sentence, and over what was measured."""
    figure.suptitle(message, fontsize=10, fontweight="bold", x=0.01, ha="left")
    _footer(figure, results)
    figure.tight_layout(rect=(0, 0.05, 1, 0.98))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def _draw(results: Results, panels: tuple[Panel, ...], message: str, colours: str, target: Path) -> None:
    """A row of panels under one sentence."""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(10, 4.5))
    for place, (role, value, title, top) in zip(axes, panels):
        panel(figure, place, results, results.surface(role, value), f"{title}, % of alone{' (darkest: that and more)' if top > 100 else ''}", top, colours)
        dots(place, [(results.intensities[x], y) for x, y in results.medians()])
    _save(figure, results, message, target)
    print(f"  {target}")


def cells(figure: Any, axes: Any, grid: Plane, values: np.ndarray, title: str, unit: str, **colours: Any) -> None:
    """Coloured cells of values [interval, intensity], with a scale in this unit."""
    mesh = axes.pcolormesh(np.ma.masked_invalid(values), **colours)
    axes.set_xticks(np.arange(len(grid.intensities)) + 0.5, grid.intensities, fontsize=7)
    axes.set_yticks(np.arange(len(grid.intervals_us)) + 0.5, [f"{us / 1000:g}" for us in grid.intervals_us], fontsize=7)
    label_axes(axes, title)
    bar = figure.colorbar(mesh, ax=axes)
    bar.ax.tick_params(labelsize=7)
    bar.set_label(unit, fontsize=8)


def _centres(results: Results) -> list[tuple[float, float]]:
    """Of the cells with medians."""
    return [(x + 0.5, y + 0.5) for x, y in results.medians()]


def draw_background_latency(results: Results, target: Path) -> None:
    """What a background request takes from the guest's wish to its end, held or not, in milliseconds."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.5))
    for place, (value, title) in zip(axes, (("mean_us", "mean"), ("p99_us", "p99"))):
        place.set_facecolor("#ddd")
        cells(figure, place, results, results.milliseconds("background", value), f"Background {title} latency (grey: fewer than {FEW} requests)", "ms",
              cmap="magma_r", norm=LogNorm(*LATENCY_MS))
        dots(place, _centres(results))
    _save(figure, results, "What a background request waits: the interval, as often as a burst comes between, and longer than the pauses for ever", target)
    print(f"  {target}")


def errors(results: Results) -> dict[str, np.ndarray]:
    """Predicted minus measured, percentage points of alone."""
    return {role: values - results.surface(role, RATE) for role, values in results.predicted().items()}


def draw_errors(results: Results, target: Path) -> None:
    """Where the prediction is wrong, as the dissertation's figures 7.1 and 7.2."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.5))
    for place, (role, values) in zip(axes, errors(results).items()):
        mean, worst = np.mean(np.abs(values)), np.max(np.abs(values))
        cells(figure, place, results, values, f"{role.capitalize()}: mean error {mean:.1f}, worst {worst:.1f}",
              "predicted less measured, points of % of alone", cmap="RdBu_r", vmin=-25, vmax=25)
        dots(place, _centres(results))
    _save(figure, results, "A model from first principles predicts the throughput; it is worst where the foreground makes few requests", target)


def report(path: Path) -> None:
    """Draw the pictures of a results file beside it, and say how well the model predicts."""
    results = load(path)
    if results.repeats:
        kept.publish(path, text(results))
        return
    name = path.stem.removeprefix("contour-")
    shares = results.surface("foreground", RATE)
    throughput, latency = (words.format(none=f"{shares[0].min():.0f}", worst=f"{shares[1:].min():.0f}")
                           for words in MESSAGES[results.kind])
    _draw(results, THROUGHPUT, throughput, "viridis", path.with_name(f"contour-{name}.png"))
    _draw(results, LATENCY, latency, "magma_r", path.with_name(f"contour-{name}-latency.png"))
    draw_background_latency(results, path.with_name(f"contour-{name}-background.png"))
    for line in results.learned():
        print(f"  {line}")
    if results.kind == "fixed":
        target = path.with_name(f"prediction-{name}.png")
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
