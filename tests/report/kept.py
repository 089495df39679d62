"""The frame of reports of what work does for what the foreground keeps: lines in, a table and a plot out.

A plot has panels; to the right the foreground keeps more, if nothing else is said.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Callable

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402


Line = dict[str, Any]


def lines(path: Path) -> tuple[list[Line], Line]:
    """The runs of a results file, and the conditions of the last ones."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if line["kind"] == "run"], [line for line in found if line["kind"] == "conditions"][-1]


def built(about: Line) -> str:
    """What was measured: the end of a report's conditions."""
    return f"{about['qemu']}, {about['accel'].upper()}, commit {about['commit']}."


def publish(path: Path, table: str) -> None:
    """The table, on the terminal and beside the results."""
    print(table)
    path.with_suffix(".txt").write_text(table + "\n")


def command(name: str, description: str, report: Callable[[Path], None]) -> None:
    """python3 -m tests.report.NAME FILE: reduce a results file."""
    parser = argparse.ArgumentParser(prog=f"python3 -m tests.report.{name}", description=description)
    parser.add_argument("results", type=Path)
    report(parser.parse_args().results)


def panels(number: int) -> tuple[Figure, Any]:
    """A figure with that many side by side, which share what is upwards; an array of axes."""
    figure, axes = pyplot.subplots(1, number, figsize=(3.4 * number, 3.6), squeeze=False, sharey=True)
    return figure, axes[0]


def label(axis: Axes, title: str, x_label: str) -> None:
    """Of one panel."""
    axis.set_title(title, fontsize=9, loc="left")
    axis.set_xlabel(x_label, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)


def save(figure: Figure, message: str, conditions: str, target: Path) -> None:
    """With the message above, and under what it was measured below."""
    figure.suptitle(message, fontsize=10, x=0.01, ha="left", fontweight="bold")
    figure.text(0.01, 0.005, conditions, fontsize=6, color="#555")
    figure.tight_layout(rect=(0, 0.03, 1, 0.98))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)
