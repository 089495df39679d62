"""Small multiples: one panel a workload, foreground slowdown to the right, background upwards."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, Mapping, Protocol, Sequence

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

COLUMNS = 3
PANEL_INCHES, LEAST_INCHES = 11 / 3, 8.0
FOOTER_PER_INCH = 19
"""Characters."""
SLOWDOWN_MAX = 130.0
"""Percent; beyond it the x axis is cut, and points sit on its edge."""
SLOWDOWN_MIN = -2.0
SHARE_MAX = 130.0
TICKS = (0, 1, 3, 5, 10, 20, 50, 100)
X_LABEL = "foreground mean latency, % above alone"
Y_LABEL = "background, % of a\nclairvoyant scheduler's"


class Mark(Protocol):
    """A point: what the foreground pays, what the background gets."""

    @property
    def slowdown_percent(self) -> float:
        """Of the foreground's mean latency."""

    @property
    def share_percent(self) -> float:
        """Background, of a clairvoyant scheduler's."""


Family = tuple[str, str, str]
"""Colour, line and marker, label."""


def panel(axes: Axes, title: str, families: Sequence[tuple[Family, Sequence[Mark]]]) -> None:
    """One workload; each family's marks are joined in order of slowdown."""
    for (color, style, label), marks in families:
        mine = sorted(marks, key=lambda mark: mark.slowdown_percent)
        if mine:
            x = [min(max(mark.slowdown_percent, SLOWDOWN_MIN), SLOWDOWN_MAX) for mark in mine]
            axes.plot(x, [mark.share_percent for mark in mine], style, color=color, label=label, markersize=5, linewidth=1)
    axes.axhline(100, color="#555555", linewidth=0.8, linestyle=":")
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xscale("symlog", linthresh=5)
    axes.set_xlim(SLOWDOWN_MIN - 1, SLOWDOWN_MAX * 1.05)
    axes.set_xticks(TICKS, map(str, TICKS))
    axes.set_ylim(0, max(SHARE_MAX, *(mark.share_percent + 10 for _, marks in families for mark in marks)))
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def draw(
    target: Path, headline: str, panels: Mapping[str, Sequence[tuple[Family, Sequence[Mark]]]], footer: str = "",
    x_label: str = X_LABEL,
) -> None:
    """All panels, labels on the outer ones, one legend."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (max(PANEL_INCHES * columns, LEAST_INCHES), 2.9 * rows + 1)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    for axes, (title, families) in zip(grid.flat, panels.items()):
        panel(axes, title, families)
    for axes in list(grid.flat)[len(panels):]:
        axes.set_axis_off()
    for axes in list(grid.flat)[max(0, len(panels) - columns):len(panels)]:
        axes.set_xlabel(x_label, fontsize=8)
    for axes in grid[:, 0]:
        axes.set_ylabel(Y_LABEL, fontsize=8)
    _finish(figure, grid, headline, footer)
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def _finish(figure: Figure, grid: Any, headline: str, footer: str) -> None:
    handles = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels())}
    height = figure.get_figheight()
    figure.text(0.01, 1 - 0.22 / height, headline, fontsize=11, fontweight="bold")
    figure.legend(handles.values(), handles.keys(), loc="upper left", bbox_to_anchor=(0.0, 1 - 0.3 / height), ncols=8, fontsize=8, frameon=False)
    lines = textwrap.wrap(footer, int(FOOTER_PER_INCH * figure.get_figwidth()))
    figure.text(0.01, 0.005, "\n".join(lines), fontsize=6.5, color="#555555")
    figure.tight_layout(rect=(0, 0.02 + 0.12 * max(0, len(lines) - 1) / height, 1, 1 - 0.55 / height))
