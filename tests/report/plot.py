"""The demo's results as a picture: python3 -m tests.report.plot build/demo/results.jsonl result.png"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
import numpy as np  # noqa: E402

from tests.report import results  # noqa: E402

# Colours that people with any colour vision tell apart (Okabe and Ito).
FOREGROUND, BACKGROUND, WARNING, NEUTRAL, SECOND = "#0072B2", "#E69F00", "#D55E00", "#555555", "#56B4E9"
RATE = "operations_per_second"
SHOWN = 0.99
"""Of the latencies: the few longest would make the axis so long that nothing else is seen. Table and data have them."""
HEADLINE_US = 20000
"""The fixed interval that title and distribution show: the default of the product."""


def _label(phase: results.Phase) -> str:
    if phase.budget_percent is not None:
        return "auto"
    return "uncontrolled" if phase.interval_us is None else f"{phase.interval_us / 1000:g} ms"


def _bars(
    axes: Axes, data: results.Results, role: str, base: dict[int, results.Phase | None], colors: list[str]
) -> None:
    """One group per interval, one bar per background load: a role's op/s in percent of alone."""
    loads, top = data.outstanding(), 100.0
    width = 0.8 / len(loads)
    for number, outstanding in enumerate(loads):
        phases = data.contended(outstanding)
        shares = [100 * (results.ratio(getattr(p, role), base[outstanding], role, RATE) or 0) for p in phases]
        top = max(top, *shares)
        places = np.arange(len(phases)) + (number - (len(loads) - 1) / 2) * width
        bars = axes.bar(places, shares, width * 0.92, color=colors[number], label=f"{outstanding} outstanding")
        axes.bar_label(bars, fmt="%.0f", fontsize=8, padding=1, color=NEUTRAL)
        axes.set_xticks(range(len(phases)), [_label(phase) for phase in phases])
    axes.set_ylim(0, 1.35 * top)
    axes.set_ylabel("percent of alone")
    axes.axhline(100, color=NEUTRAL, linewidth=0.8, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("preemption interval")


def _latency(axes: Axes, data: results.Results) -> None:
    """Mean and p99 latency of the foreground over the intervals."""
    alone, first = data.alone(), data.outstanding()[0]
    for outstanding, color in zip(data.outstanding(), (FOREGROUND, SECOND)):
        phases = data.contended(outstanding)
        for figure, style, name in (("mean_us", "o-", "mean"), ("p99_us", "s--", "p99")):
            values = [phase.foreground[figure] / 1000 for phase in phases if phase.foreground]
            axes.plot(range(len(values)), values, style, color=color, markersize=4, linewidth=1.3,
                      label=f"{name}, {outstanding} outstanding")
    if alone and alone.foreground:
        mean_ms = alone.foreground["mean_us"] / 1000
        axes.axhline(mean_ms, color=NEUTRAL, linewidth=0.8, linestyle=":", label="mean, alone")
    axes.set_xticks(range(len(data.contended(first))), [_label(phase) for phase in data.contended(first)])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("milliseconds")
    axes.set_xlabel("preemption interval")
    axes.set_title("Foreground latency", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)


def _distribution(axes: Axes, data: results.Results) -> None:
    """Distribution of the foreground's latencies: alone, uncontrolled, with the headline interval."""
    outstanding = data.headline
    chosen = [(data.alone(), "alone", NEUTRAL)]
    for phase in data.contended(outstanding):
        if phase.interval_us is None:
            chosen.append((phase, "uncontrolled", WARNING))
        elif phase.budget_percent is not None:
            chosen.append((phase, phase.control, BACKGROUND))
        elif phase.interval_us == HEADLINE_US:
            chosen.append((phase, f"interval {_label(phase)}", FOREGROUND))
    right = 0.0
    for phase, name, color in chosen:
        values = phase.latencies_ms() if phase else np.empty(0)
        if len(values):
            right = max(right, 1.4 * float(np.quantile(values, SHOWN)))
            percent = np.arange(1, len(values) + 1) / len(values) * 100
            axes.step(values, percent, color=color, label=name, linewidth=1.4)
    axes.set_ylim(0, 101)
    axes.set_xlim(0, right or None)
    axes.set_xlabel("latency of a foreground request, milliseconds")
    axes.set_ylabel("percent of requests")
    axes.set_title(f"Foreground latency distribution ({outstanding} outstanding)", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="lower right")


def _headline(phases: list[results.Phase]) -> results.Phase | None:
    """The phase that the title tells of: the interval that sets itself, else the default one."""
    learned = [phase for phase in phases if phase.budget_percent is not None]
    fixed = [phase for phase in phases if phase.interval_us == HEADLINE_US]
    return next(iter(learned + fixed), None)


def _title(data: results.Results) -> str:
    """The result in one sentence."""
    outstanding, alone = data.headline, data.alone()
    phases = data.contended(outstanding)
    best, free = _headline(phases), next((phase for phase in phases if phase.interval_us is None), None)
    if best is None or free is None or not alone or not data.background_alone(outstanding):
        return "A foreground VM beside a greedy background VM on one disk"
    if (data.others_percent or 0) >= results.MANY_PERCENT:
        return (f"A foreground VM beside a greedy background VM on one disk,\n"
                f"and beside others, who had {data.others_percent:.0f} % of its requests: no figure of these VMs alone")
    before, after = (results.ratio(phase.foreground, alone, "foreground", RATE) or 0 for phase in (free, best))
    used = results.ratio(best.background, data.background_alone(outstanding), "background", RATE) or 0
    how = "that sets itself" if best.budget_percent is not None else f"of {HEADLINE_US / 1000:g} ms"
    return (
        f"A preemption interval {how} keeps {after:.0%} of the foreground VM's throughput "
        f"(without: {before:.0%})\nwhile a greedy background VM on the same disk still gets {used:.0%} of its own"
    )


def draw(source: Path, target: Path) -> None:
    """Draw the four panels of a results file into a PNG."""
    data = results.load(source)
    if not data.outstanding() or not data.alone():
        raise ValueError(f"{source}: too few phases for a plot; let the demo finish")
    figure, axes = pyplot.subplots(2, 2, figsize=(10.5, 7.6))
    alone = {outstanding: data.alone() for outstanding in data.outstanding()}
    _bars(axes[0, 0], data, "foreground", alone, [FOREGROUND, SECOND])
    axes[0, 0].set_title("Foreground throughput kept, percent of alone", fontsize=10, loc="left")
    background = {outstanding: data.background_alone(outstanding) for outstanding in data.outstanding()}
    _bars(axes[0, 1], data, "background", background, [BACKGROUND, "#F5CE7A"])
    axes[0, 1].set_title("Background throughput reached, percent of alone", fontsize=10, loc="left")
    for each in axes[0]:
        each.legend(
            fontsize=7, frameon=False, ncols=2, loc="upper right", title="background requests", title_fontsize=7
        )
    _latency(axes[1, 0], data)
    _distribution(axes[1, 1], data)
    figure.suptitle(_title(data), fontsize=12, fontweight="bold", x=0.02, ha="left")
    figure.text(0.02, 0.01, results.caption(data.conditions), fontsize=6.5, color=NEUTRAL, va="bottom", ha="left")
    figure.tight_layout(rect=(0, 0.06, 1, 0.97))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def main() -> None:
    """Draw the plot of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.plot", description="Plot of a results file.")
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    draw(arguments.results, arguments.picture)


if __name__ == "__main__":
    main()
