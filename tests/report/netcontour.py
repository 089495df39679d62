"""The network's contour runs as a picture: python3 -m tests.report.netcontour build/bench/contour/contour-net-lan.jsonl

Axes as in the dissertation's figures 6.9 to 6.16, and as in contour.py: intensity
of the foreground to the right, interval upwards; colour is what the background reaches.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from tests.report import netresults
from tests.report.contour import cells, columns_of, dots, footer, misfit, panel
from tests.report.netresults import Case, Results

ROLES = ("foreground", "background")
COLUMNS = 2
RTT_MS = (1, 300)
"""The scale of round trips."""


@dataclass
class Grid:
    """One pair of protocols, by role, [interval, intensity], NaN where a run is missing: percent of alone, and round trips of TCP."""

    foreground: str
    background: str
    intensities: list[int]
    intervals_us: list[int]
    shares: dict[str, np.ndarray]
    rtt_ms: dict[str, np.ndarray]
    medians: list[tuple[int, int]] = field(default_factory=list)
    """Indices (intensity, interval) of the places that were run again."""

    @property
    def has_area(self) -> bool:
        """Whether there is something that contours can be drawn in."""
        return len(self.intensities) > 1 and len(self.intervals_us) > 1


def _share(data: Results, case: Case, role: str) -> float:
    """Percent of the same load alone."""
    base = data.alone(case, role)
    value, alone = (getattr(each, f"{role}_mbit") if each else None for each in (case, base))
    return 100 * value / alone if value is not None and alone else np.nan


def _grid(data: Results, cases: list[Case], again: Sequence[Results]) -> Grid:
    """From all runs in which the two loads of a pair met."""
    intensities = sorted({case.about["intensity"] for case in cases})
    intervals_us = sorted({case.about["interval_us"] for case in cases})
    shares, rtt_ms = ({role: np.full((len(intervals_us), len(intensities)), np.nan) for role in ROLES} for _ in range(2))
    medians = []
    for single in cases:
        place = intervals_us.index(single.about["interval_us"]), intensities.index(single.about["intensity"])
        told, case = next(((each, found) for each in again if (found := each.find(single.series, name=single.about["name"]))), (data, single))
        if told is not data:
            medians.append((place[1], place[0]))
        for role in ROLES:
            shares[role][place] = _share(told, case, role)
            if case.about[role] == "tcp":
                rtt_ms[role][place] = (getattr(case, f"{role}_rtt_us") or np.nan) / 1000
    return Grid(cases[0].about["foreground"], cases[0].about["background"], intensities, intervals_us, shares, rtt_ms, medians)


def grids(data: Results, again: Sequence[Results] = ()) -> list[Grid]:
    """All pairs that were measured, in the order of their runs; of places that `again` has its medians are told."""
    pairs: dict[tuple[str, str], list[Case]] = {}
    for case in data.cases:
        if case.control != "alone":
            pairs.setdefault((case.about["foreground"], case.about["background"]), []).append(case)
    return [_grid(data, cases, again) for cases in pairs.values()]


def repeated(path: Path) -> list[Results]:
    """What lies beside a grid of its places that were run again."""
    return [netresults.load(each) for each in sorted(path.parent.glob(f"{path.stem}-again*.jsonl"))]


def misfits(data: Results) -> dict[str, dict[int, list[int]]]:
    """Intervals in us, by pair and intensity, of the places that do not fit in their column, or where the foreground keeps less than KEPT."""
    found: dict[str, dict[int, list[int]]] = {}
    for each in grids(data):
        off = misfit(each.shares["foreground"], each.shares["background"]) | (each.shares["foreground"] < KEPT)
        if columns := columns_of(off, each.intensities, each.intervals_us):
            found[f"{each.foreground}-{each.background}"] = columns
    return found


def _conditions(about: dict[str, Any], again: Sequence[Results]) -> str:
    link = about["link"]
    delay = f"{link['delay_us'] / 1000:g} ms of delay each way" if link["delay_us"] else "no delay"
    repeats = f"; dots: medians of {again[0].cases[0].runs} runs of {again[0].conditions['seconds']:g} s" if again else ""
    return (f"Uplink of {link['rate_mbit']} Mbit/s, {delay}, queue {link['queue_bytes'] // 1000} KB; quantum 100 ms, "
            f"single runs of {about['seconds']} s{repeats}; background greedy.\n")


KEPT = 97.0
"""Percent: what the aims ask of the foreground."""


def _title(grid: Grid) -> str:
    """The loads, and the foreground's share in words: a picture of it would be one colour."""
    kept = grid.shares["foreground"]
    known = kept[~np.isnan(kept)]
    return (f"Background {grid.background.upper()} beside foreground {grid.foreground.upper()}, which keeps\n{known.min():.0f} to {known.max():.0f} % "
            f"of alone, {KEPT:g} % or more in {np.sum(known >= KEPT)} of {len(known)} places")


def picture(drawn: list[Grid], about: dict[str, Any], again: Sequence[Results] = ()) -> Figure:
    """A panel for each pair of protocols: what the background gets; above it what the foreground keeps."""
    rows = -(-len(drawn) // COLUMNS)
    height = 3.9 * rows + 0.8
    figure, places = pyplot.subplots(rows, COLUMNS, figsize=(10, height), squeeze=False)
    for axes in list(places.flat)[len(drawn):]:
        axes.set_axis_off()
    for grid, axes in zip(drawn, places.flat):
        panel(figure, axes, grid, grid.shares["background"], _title(grid), 100, "viridis")
        dots(axes, [(grid.intensities[x], y) for x, y in grid.medians])
    delay = about["link"]["delay_us"]
    where = f"behind a delay of {delay / 1000:g} ms" if delay else "in the LAN"
    figure.suptitle(f"Throughput that an interval leaves to the background on an uplink {where}",
                    fontsize=11, fontweight="bold", x=0.01, ha="left")
    footer(figure, _conditions(about, again), about)
    figure.tight_layout(rect=(0, 0.25 / height, 1, 1 - 0.1 / height))
    return figure


def trips(drawn: list[Grid], about: dict[str, Any], again: Sequence[Results] = ()) -> Figure:
    """A panel for each TCP that met somebody: its round trip, at the end of the run."""
    found = [(role, each) for role in ROLES for each in drawn if not np.isnan(each.rtt_ms[role]).all()]
    figure, places = pyplot.subplots(2, -(-len(found) // 2), figsize=(10, 7.6), squeeze=False)
    for (role, each), axes in zip(found, places.flat):
        cells(figure, axes, each, each.rtt_ms[role], f"{role.capitalize()} TCP, {each.foreground.upper()} / {each.background.upper()}",
              "round trip, ms", cmap="magma_r", norm=LogNorm(*RTT_MS))
        dots(axes, [(x + 0.5, y + 0.5) for x, y in each.medians])
    figure.suptitle("Round trips of TCP: the foreground's do not depend on the interval; the background's grow where it is mostly held",
                    fontsize=11, fontweight="bold", x=0.01, ha="left")
    footer(figure, _conditions(about, again), about)
    figure.tight_layout(rect=(0, 0.03, 1, 0.98))
    return figure


def report(path: Path) -> None:
    """Draw the picture of a results file beside it."""
    data, again = netresults.load(path), repeated(path)
    drawn = [grid for grid in grids(data, again) if grid.has_area]
    if not drawn:
        print(f"  {path}: too few runs for a picture yet")
        return
    pictures = {"": picture(drawn, data.conditions, again)}
    if any(not np.isnan(each.rtt_ms[role]).all() for each in drawn for role in ROLES):
        pictures["-rtt"] = trips(drawn, data.conditions, again)
    for name, figure in pictures.items():
        target = path.with_name(f"{path.stem}{name}.png")
        figure.savefig(target, dpi=150)
        pyplot.close(figure)
        print(f"  {target}")


def main() -> None:
    """Draw the picture of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.netcontour", description="Picture of the network's contour runs.")
    parser.add_argument("results", type=Path)
    report(parser.parse_args().results)


if __name__ == "__main__":
    main()
