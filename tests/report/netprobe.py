"""The latency probe's results as a table: python3 -m tests.report.netprobe build/bench/net/results.jsonl

A row for each case: all its requests together, the range of its runs, and how long the uplink and the probe's own guest
with its QEMU took. The aim: at most one background packet's time, and a tenth, more than alone.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from tests.report import netresults
from tests.report.netresults import ETHERNET_BYTES, MTU, WAYS, Case, Results

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
    other = ", other uplink" if case.about.get("elsewhere") else ""
    return f"{case.about['background'].upper()}, {case.control.removeprefix('interval ')}{other}"


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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, title in enumerate(COLUMNS):
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for way, words in WAYS.items():
        cases = [case for case in data.cases if case.about["foreground"] == "ask" and case.about.get("processors") == way]
        if cases:
            table.add_row(f"[bold]{words}")
        for case in cases:
            table.add_row(*_row(case, data))
    return table


def text(path: Path) -> str:
    """The table with its conditions."""
    data = netresults.load(path)
    console = Console(file=io.StringIO(), width=FILE_COLUMNS, force_terminal=False)
    console.print(build(data))
    console.print(netresults.caption(data), highlight=False, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def main() -> None:
    """Print the table of a results file, whose raw latencies have to be beside it."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.netprobe", description="Table of the latency probe.")
    parser.add_argument("results", type=Path)
    print(text(parser.parse_args().results))


if __name__ == "__main__":
    main()
