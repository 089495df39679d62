# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws benchmark.png: for each host, what each tenant had of what it has alone.

    plot.py FOLDER HOST...

Reads HOST.json of the folder, and writes the picture beside them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)

COLOURS = {"foreground": "#1f77b4", "background": "#ff7f0e"}
WIDTH = 0.38
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""Percentages stay readable where the line at 100 % passes."""


def alone(phases: list[dict[str, Any]], role: str) -> float:
    """Operations per second of a tenant alone."""
    return next(p for p in phases if p["name"] == f"{role} alone")[role]["operations_per_second"]


def draw(axes: Any, result: dict[str, Any]) -> None:
    """One host."""
    phases = result["phases"]
    shared = [p for p in phases if not p["name"].endswith(" alone")]
    for number, role in enumerate(COLOURS):
        kept = [100 * (p[role] or {"operations_per_second": 0})["operations_per_second"] / alone(phases, role)
                for p in shared]
        places = [place + (number - 0.5) * WIDTH for place in range(len(shared))]
        bars = axes.bar(places, kept, WIDTH, color=COLOURS[role],
                        label=f"{role} ({alone(phases, role):.0f} op/s alone)")
        axes.bar_label(bars, fmt="%.0f %%", fontsize=9, padding=1.5, bbox=LABEL)
    axes.axhline(100, color="#888888", linewidth=0.8, zorder=0)
    axes.set_xticks(range(len(shared)), [p["name"] for p in shared])
    axes.set_ylim(0, 140)
    axes.set_ylabel("of what it has alone, %")
    axes.set_title(f"{result['host']}: QEMU {result['qemu']}, {result['accelerator'].upper()}", fontsize=11)
    axes.legend(loc="upper center", ncols=2, fontsize=9, frameon=False)


def main() -> int:
    """Exit status 0, or an error that names the file."""
    folder, hosts = Path(sys.argv[1]), sys.argv[2:]
    results = [json.loads((folder / f"{host}.json").read_text()) for host in hosts]
    figure, axes = pyplot.subplots(len(results), 1, figsize=(8, 3.6 * len(results)), squeeze=False)
    for each, result in zip(axes[:, 0], results):
        draw(each, result)
    figure.tight_layout()
    figure.savefig(folder / "benchmark.png", dpi=120)
    return 0


if __name__ == "__main__":
    sys.exit(main())
