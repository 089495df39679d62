"""The network benchmark's results as a picture: python3 -m tests.report.netplot build/bench/net/results.jsonl result.png"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend has to be chosen first)
from matplotlib.axes import Axes  # noqa: E402
import numpy as np  # noqa: E402

from tests.report import netresults  # noqa: E402
from tests.report.netresults import AUTO, Case, Interval, Results, interval_text  # noqa: E402
from tests.report.plot import BACKGROUND, FOREGROUND, NEUTRAL, SECOND, WARNING  # noqa: E402

# None is "uncontrolled"; the intervals get darker as they get longer.
SHADES: dict[Interval | None, str] = {None: WARNING, AUTO: FOREGROUND, 0: "#F5CE7A", 1000: "#D3EAF7", 5000: "#A6D3EE", 20000: SECOND}
PAIRS = [(foreground, background) for foreground in ("tcp", "udp") for background in ("tcp", "udp")]
HEADLINE = AUTO

Figure = Callable[[Case], "float | None"]


def _control(interval: Interval | None) -> str:
    return "uncontrolled" if interval is None else interval_text(interval)


def _tidy(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _intervals(data: Results, intensity: int) -> list[Interval | None]:
    """The controls that were measured for this intensity, in the order in which they are drawn."""
    cases = data.select("pairs", intensity=intensity, br_netfilter=False)
    found = {case.interval for case in cases if case.control != "alone"}
    return [interval for interval in SHADES if interval in found]


def _bars(axes: Axes, data: Results, intensity: int, figure: Figure) -> None:
    """A group for each pair of protocols, a bar for each control; percent."""
    intervals = _intervals(data, intensity)
    width = 0.84 / max(1, len(intervals))
    for number, interval in enumerate(intervals):
        found = [data.find("pairs", foreground=f, background=b, intensity=intensity, interval=interval,
                           br_netfilter=False) for f, b in PAIRS]
        values = [100 * (figure(case) or 0) if case else 0 for case in found]
        places = np.arange(len(PAIRS)) + (number - (len(intervals) - 1) / 2) * width
        bars = axes.bar(places, values, width * 0.94, color=SHADES[interval], label=_control(interval))
        axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=2, color=NEUTRAL,
                       bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3})
    axes.set_xticks(range(len(PAIRS)), [f"{f.upper()}\nbackground {b.upper()}" for f, b in PAIRS], fontsize=8)
    axes.axhline(100, color=NEUTRAL, linewidth=0.8, linestyle=":")
    axes.set_ylim(0, 185)
    axes.set_yticks(range(0, 160, 25))
    if intervals:
        axes.legend(fontsize=7, frameon=False, ncols=4, loc="upper right", title="preemption interval", title_fontsize=7)


def _latency(axes: Axes, data: Results) -> None:
    """Distribution of the request latency."""
    chosen = [(data.find(series, foreground="ask", background=""), "alone", NEUTRAL, "-") for series in ("pairs", "probe")]
    for background, style in (("udp", "-"), ("tcp", "--")):
        for interval, color in ((None, WARNING), (HEADLINE, FOREGROUND)):
            for series in ("pairs", "probe"):
                case = data.find(series, foreground="ask", background=background, interval=interval)
                chosen.append((case, f"{background.upper()}, {_control(interval)}", color, style))
    for case, label, color, style in chosen:
        values = case.latencies_ms() if case else np.empty(0)
        if len(values):
            axes.step(values, np.arange(1, len(values) + 1) / len(values) * 100, style, color=color, label=label, linewidth=1.3)
    axes.set_xscale("log")
    axes.set_ylim(0, 101)
    axes.set_xlabel("time of a request and its response, milliseconds")
    axes.set_ylabel("percent of requests")
    axes.legend(fontsize=7, frameon=False, loc="center", bbox_to_anchor=(0.62, 0.5), title="background", title_fontsize=7)
    _tidy(axes, "Request latency of a foreground guest")


def _delay(axes: Axes, data: Results) -> None:
    """Kept and reached over the interval, with a delay on the link."""
    intensity = min((case.about["intensity"] for case in data.select("delay") if case.about["foreground"]), default=100)
    longest: list[str] = []
    for background, marker in (("tcp", "o"), ("udp", "s")):
        cases = [case for case in data.select("delay", foreground="tcp", background=background, intensity=intensity)
                 if case.control != "alone"]
        if not cases:
            continue
        # The learned one has a place beside the line.
        labels = [_control(case.interval) for case in cases]
        learned = sum(case.interval == AUTO for case in cases)
        for figure, color, name in ((data.kept, FOREGROUND, "foreground kept"),
                                    (data.reached, BACKGROUND, "background of left")):
            values = [100 * (figure(case) or 0) for case in cases]
            style = "-" if background == "tcp" else "--"
            axes.plot(range(learned), values[:learned], marker, markersize=6, color=color)
            axes.plot(range(learned, len(values)), values[learned:], style, marker=marker, markersize=4, color=color,
                      linewidth=1.3, label=f"{name}; background {background.upper()}")
        longest = max(longest, labels, key=len)
    axes.set_xticks(range(len(longest)), longest, fontsize=8)
    axes.set_ylim(0, 185)
    axes.set_yticks(range(0, 160, 25))
    axes.axhline(100, color=NEUTRAL, linewidth=0.8, linestyle=":")
    axes.set_ylabel("percent")
    axes.set_xlabel("preemption interval")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right")
    _tidy(axes, f"10 ms of delay each way; foreground: TCP, {intensity} %")


def _title(data: Results) -> str:
    """The result in a sentence."""
    pair = {"foreground": "tcp", "background": "udp", "intensity": 100, "br_netfilter": False}
    kept = {interval: data.find("pairs", interval=interval, **pair) for interval in (None, HEADLINE)}
    before, after = (data.kept(case) if case else None for case in kept.values())
    if before is None or after is None:
        return "A foreground VM beside a greedy background VM on one uplink"
    return (f"A preemption interval that sets itself keeps {min(after, 1):.0%} of a foreground VM's TCP throughput\n"
            f"beside a background VM that floods the same uplink with UDP (without: {before:.0%})")


def draw(source: Path, target: Path) -> bool:
    """Draw the four panels of a results file into a PNG; False: too few cases for a picture."""
    data = netresults.load(source)
    if len(_intervals(data, 100)) < 2:
        return False
    figure, axes = pyplot.subplots(2, 2, figsize=(11.5, 8))
    _bars(axes[0, 0], data, 100, data.kept)
    _tidy(axes[0, 0], "Foreground kept, percent of alone; foreground: 100 %")
    _bars(axes[0, 1], data, 30, data.reached)
    _tidy(axes[0, 1], "Background, percent of what is left; foreground: 30 %")
    _latency(axes[1, 0], data)
    _delay(axes[1, 1], data)
    figure.suptitle(_title(data), fontsize=12, fontweight="bold", x=0.02, ha="left")
    figure.text(0.02, 0.01, netresults.caption(data), fontsize=6.5, color=NEUTRAL, va="bottom", ha="left")
    figure.tight_layout(rect=(0, 0.06, 1, 0.98))
    figure.savefig(target, dpi=150)
    pyplot.close(figure)
    return True


def main() -> None:
    """Draw the plot of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.netplot", description="Plot of a results file.")
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    if not draw(arguments.results, arguments.picture):
        raise SystemExit(f"{arguments.results}: too few cases for a picture; run the series demo or pairs")


if __name__ == "__main__":
    main()
