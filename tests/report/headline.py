"""The demo's result in one picture for who sees it first: python3 -m tests.report.headline build/demo/results.jsonl headline.png

What each VM keeps of what it has alone, by what holds the background back: two bars each, one background request at a time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)

from tests.report import results  # noqa: E402
from tests.report.plot import BACKGROUND, FOREGROUND, NEUTRAL, RATE  # noqa: E402

WIDTH = 0.38


def _name(phase: results.Phase) -> str:
    """What held the background back."""
    if phase.budget_percent is not None:
        return f"interval sets itself\n(budget {phase.budget_percent} %)"
    return "no Idletime" if phase.interval_us is None else f"interval {phase.interval_us / 1000:g} ms"


def picture(data: results.Results) -> pyplot.Figure:
    """A pair of bars for each control."""
    load, alone = data.headline, data.alone()
    phases = data.contended(load)
    shares = {
        "foreground": [100 * (results.ratio(each.foreground, alone, "foreground", RATE) or 0) for each in phases],
        "background": [100 * (results.ratio(each.background, data.background_alone(load), "background", RATE) or 0) for each in phases],
    }
    figure, axes = pyplot.subplots(figsize=(9, 3.8))
    for role, colour, side, label in (("foreground", FOREGROUND, -0.5, "foreground VM"), ("background", BACKGROUND, 0.5, "background VM, greedy")):
        bars = axes.bar([place + side * WIDTH for place in range(len(phases))], shares[role], WIDTH * 0.94, color=colour, label=label)
        axes.bar_label(bars, fmt="%.0f %%", fontsize=8, padding=1, color=NEUTRAL)
    axes.set_xticks(range(len(phases)), [_name(each) for each in phases], fontsize=8)
    axes.set_ylim(0, 119)
    axes.set_yticks(range(0, 101, 25))
    axes.set_ylabel("throughput,\n% of what it has alone", fontsize=9)
    axes.axhline(100, color=NEUTRAL, linewidth=0.8, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1, 1.12))
    _words(figure, data, shares)
    return figure


def _words(figure: pyplot.Figure, data: results.Results, shares: dict[str, list[float]]) -> None:
    """The message above, and below it what was measured."""
    first, last = shares["foreground"][0], shares["foreground"][-1]
    kept = f"{last:.0f} %" if last < 99.5 else "all of it"
    figure.suptitle(f"Beside a greedy VM on the same disk a VM keeps {first:.0f} % of its throughput; with Idletime {kept}",
                    fontsize=10.5, fontweight="bold", x=0.01, ha="left")
    figure.text(0.01, 0.01, results.caption(data.conditions), fontsize=6, color=NEUTRAL, va="bottom", ha="left")
    figure.tight_layout(rect=(0, 0.09, 1, 0.98))


def main() -> None:
    """Draw the picture of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.headline", description="The demo in one picture.")
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    picture(results.load(arguments.results)).savefig(arguments.picture, dpi=150)


if __name__ == "__main__":
    main()
