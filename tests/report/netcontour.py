"""The network's contour runs as a picture: python3 -m tests.report.netcontour build/bench/contour/contour-net-lan.jsonl

Axes as in the dissertation's figures 6.9 to 6.16, and as in contour.py: intensity
of the foreground to the right, interval upwards; colour is what is kept or reached.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from tests.report import netresults
from tests.report.contour import footer, panel
from tests.report.netresults import Case, Results

ROLES = ("foreground", "background")


@dataclass
class Grid:
    """One pair of protocols; `shares` are percent of alone by role, [interval, intensity], NaN where a run is missing."""

    foreground: str
    background: str
    intensities: list[int]
    intervals_us: list[int]
    shares: dict[str, np.ndarray]

    @property
    def has_area(self) -> bool:
        """Whether there is something that contours can be drawn in."""
        return len(self.intensities) > 1 and len(self.intervals_us) > 1


def _share(data: Results, case: Case, role: str) -> float:
    """Percent of the same load alone."""
    base = data.alone(case, role)
    value, alone = (getattr(each, f"{role}_mbit") if each else None for each in (case, base))
    return 100 * value / alone if value is not None and alone else np.nan


def _grid(data: Results, cases: list[Case]) -> Grid:
    """From all runs in which the two loads of a pair met."""
    intensities = sorted({case.about["intensity"] for case in cases})
    intervals_us = sorted({case.about["interval_us"] for case in cases})
    shares = {role: np.full((len(intervals_us), len(intensities)), np.nan) for role in ROLES}
    for case in cases:
        place = intervals_us.index(case.about["interval_us"]), intensities.index(case.about["intensity"])
        for role in ROLES:
            shares[role][place] = _share(data, case, role)
    return Grid(cases[0].about["foreground"], cases[0].about["background"], intensities, intervals_us, shares)


def grids(data: Results) -> list[Grid]:
    """All pairs that were measured, in the order of their runs."""
    pairs: dict[tuple[str, str], list[Case]] = {}
    for case in data.cases:
        if case.control != "alone":
            pairs.setdefault((case.about["foreground"], case.about["background"]), []).append(case)
    return [_grid(data, cases) for cases in pairs.values()]


def _conditions(about: dict[str, Any]) -> str:
    link = about["link"]
    delay = f"{link['delay_us'] / 1000:g} ms of delay each way" if link["delay_us"] else "no delay"
    return (f"Uplink of {link['rate_mbit']} Mbit/s, {delay}, queue {link['queue_bytes'] // 1000} KB; quantum 100 ms, "
            f"single runs of {about['seconds']} s, background greedy.")


def picture(drawn: list[Grid], about: dict[str, Any]) -> Figure:
    """A row for each pair: the foreground, and beside it the background."""
    height = 3.4 * len(drawn) + 1
    figure, rows = pyplot.subplots(len(drawn), len(ROLES), figsize=(10, height), squeeze=False)
    for grid, row in zip(drawn, rows):
        for axes, role, other in zip(row, ROLES, reversed(ROLES)):
            values = grid.shares[role]
            title = (f"{role.capitalize()} {getattr(grid, role).upper()} beside {getattr(grid, other).upper()}, "
                     f"% of alone ({np.nanmin(values):.0f} to {np.nanmax(values):.0f})")
            panel(figure, axes, grid, values, title, 100, "viridis")
    delay = about["link"]["delay_us"]
    place = f"an uplink with {delay / 1000:g} ms of delay" if delay else "an uplink in the LAN"
    figure.suptitle(f"Throughput on {place}: what the foreground keeps (left) and the background gets (right)",
                    fontsize=11, fontweight="bold", x=0.01, ha="left")
    footer(figure, _conditions(about), about)
    figure.tight_layout(rect=(0, 0.15 / height, 1, 1 - 0.1 / height))
    return figure


def report(path: Path) -> None:
    """Draw the picture of a results file beside it."""
    data = netresults.load(path)
    drawn = [grid for grid in grids(data) if grid.has_area]
    if not drawn:
        print(f"  {path}: too few runs for a picture yet")
        return
    target = path.with_suffix(".png")
    figure = picture(drawn, data.conditions)
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
