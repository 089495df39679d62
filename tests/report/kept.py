"""The frame of plots of what work does for what the foreground keeps: one panel each, to the right the foreground keeps more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402


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
