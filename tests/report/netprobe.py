"""The latency probe's results: python3 -m tests.report.netprobe build/bench/net/results.jsonl [--picture probe.png]

A row for each case: all its requests together, the range of its runs, and how long the uplink and the probe's own guest
with its QEMU took. The aim: at most one background packet's time, and a tenth, more than alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from tests.report import grid, netresults
from tests.report.netresults import ETHERNET_BYTES, MTU, WAYS, Case, Results
from tests.report.plot import BACKGROUND, FOREGROUND, NEUTRAL, WARNING

COLUMNS = ("processors,\nbackground", "\nrequests", "\np50 ms", "\np99 ms", "\nallowed", "single runs\np99 ms", "uplink\np99 ms",
           "guest\np99 ms", "backgr.\nMbit/s", "of\nleft")
FILE_COLUMNS = 118
TOLERANCE = 1.1


def _p99_ms(case: Case) -> float:
    """Of all requests of all runs."""
    return float(np.quantile(case.latencies_ms(), 0.99))


def allowed_ms(alone: Case) -> float:
    """What the aim allows beside a background."""
    packet_ms = (MTU + ETHERNET_BYTES) * 8 / (alone.link["rate_mbit"] * 1000)
    return TOLERANCE * _p99_ms(alone) + packet_ms


def _name(case: Case) -> str:
    if not case.about["background"]:
        return "none"
    other = ", other uplink" if case.about["elsewhere"] else ""
    return f"{case.about['background'].upper()}, {case.control.removeprefix('interval ')}{other}"


def _of_way(data: Results, way: str) -> list[Case]:
    return [case for case in data.cases if case.about["foreground"] == "ask" and case.about["processors"] == way]


def _row(case: Case, data: Results) -> list[str]:
    latencies, single = case.latencies_ms(), [each / 1000 for each in case.p99_of_runs_us]
    alone, left = data.alone(case, "foreground"), data.reached(case)
    return [
        f"  {_name(case)}", str(len(latencies)), f"{np.median(latencies):.2f}", f"{_p99_ms(case):.2f}",
        f"{allowed_ms(alone):.2f}" if alone and case.about["background"] else "", f"{min(single):.1f} to {max(single):.1f}",
        *(f"{case.stages_p99_us[stage] / 1000:.2f}" for stage in ("uplink", "guest")),
        "" if case.background_mbit is None else f"{case.background_mbit:.1f}", "" if left is None else f"{left:.0%}",
    ]


def build(data: Results) -> Table:
    """A group of rows for each way to share the processors."""
    table = grid.table(COLUMNS)
    for way, words in WAYS.items():
        cases = _of_way(data, way)
        if cases:
            table.add_row(f"[bold]{words}")
        for case in cases:
            table.add_row(*_row(case, data))
    return table


def text(path: Path) -> str:
    """The table with its conditions."""
    data = netresults.load(path)
    return grid.text(build(data), [netresults.caption(data)], FILE_COLUMNS)


def _bars(axes: Axes, data: Results, group: int, cases: list[Case]) -> None:
    """The p99 of each case; the lowest part of a bar is the uplink's own, the line over it what the aim allows."""
    width = 0.9 / len(cases)
    places = [group + (number - (len(cases) - 1) / 2) * width for number in range(len(cases))]
    for place, case in zip(places, cases):
        background, alone = case.about["background"], data.alone(case, "foreground")
        colour = FOREGROUND if not background else NEUTRAL if case.about["elsewhere"] else BACKGROUND
        bar = axes.bar(place, _p99_ms(case), 0.9 * width, color=colour)
        axes.bar_label(bar, fmt="%.1f", fontsize=9, label_type="center", color="white")
        axes.bar(place, case.stages_p99_us["uplink"] / 1000, 0.9 * width, color="black")
        if background and alone:
            axes.hlines(allowed_ms(alone), place - width / 2, place + width / 2, color=WARNING, linewidth=2)
        name = (background.upper() or "none") + ("*" if case.about["elsewhere"] else "")
        axes.annotate(name, (place, 0), (0, -12), textcoords="offset points", ha="center", fontsize=8)


def picture(data: Results) -> Figure:
    """A group of bars for each way to share the processors."""
    figure, axes = pyplot.subplots(figsize=(9, 4))
    ways = [way for way in WAYS if _of_way(data, way)]
    for group, way in enumerate(ways):
        _bars(axes, data, group, [case for case in _of_way(data, way) if case.control != "uncontrolled"])
    axes.set_xticks(range(len(ways)), [WAYS[way] for way in ways])
    axes.tick_params("x", length=0, pad=18)
    axes.set_ylabel("p99, ms")
    axes.set_title("Requests beside a background that fills the uplink, by whose the two processors are", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.01, 0.01, "Below: background (none, TCP, UDP; *: on an uplink of its own, so that the guests share processors only). "
                "Black: p99 of the time on the uplink.\nRed line: what the aim allows, a tenth and one packet's time above none "
                "in its group.", fontsize=8, color=NEUTRAL)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return figure


def main() -> None:
    """Print the table of a results file, whose raw latencies have to be beside it, and draw the picture."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.netprobe", description="Table of the latency probe.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw it, too")
    arguments = parser.parse_args()
    print(text(arguments.results))
    if arguments.picture:
        picture(netresults.load(arguments.results)).savefig(arguments.picture, dpi=150)


if __name__ == "__main__":
    main()
