"""The demo's results as a table: python3 -m tests.report.table build/demo/results.jsonl"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from tests.report import grid, results

FILE_COLUMNS = 98
"""Width of the table in a file: all columns without a line break."""

COLUMNS = ("", "foreground\nop/s", "\nkept", "\nmean", "latency, ms\np50", "\np99", "background\nop/s", "\nof alone")


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _latency(phase: results.Phase, alone: results.Phase | None, figure: str) -> str:
    """Milliseconds, then how many times those of alone, e.g. "9.47 x1.62"."""
    if not phase.foreground:
        return ""
    times = results.ratio(phase.foreground, alone, "foreground", figure)
    return f"{phase.foreground[figure] / 1000:.2f}" + (f" x{times:.2f}" if times else "")


def _row(name: str, phase: results.Phase, data: results.Results) -> list[str]:
    rate, alone = "operations_per_second", data.alone(phase.pauses, phase.stock)
    background = data.background_alone(phase.outstanding, phase.stock)
    return [
        name,
        f"{phase.foreground[rate]:.1f}" if phase.foreground else "",
        _percent(results.ratio(phase.foreground, alone, "foreground", rate)),
        *(_latency(phase, alone, figure) for figure in ("mean_us", "p50_us", "p99_us")),
        f"{phase.background[rate]:.1f}" if phase.background else "",
        _percent(results.ratio(phase.background, background, "background", rate)),
    ]


def build(data: results.Results) -> Table:
    """The table: the foreground alone, then a section per background load."""
    table = grid.table(COLUMNS, space=0)
    alone = data.alone()
    if alone:
        table.add_row(*_row("foreground alone", alone, data), end_section=True)
    for outstanding in data.outstanding():
        background = data.background_alone(outstanding)
        if background:
            table.add_row(*_row(f"background alone ({outstanding})", background, data))
        contended = data.contended(outstanding)
        for phase in contended:
            table.add_row(*_row(f"{phase.control} ({outstanding})", phase, data), end_section=phase is contended[-1])
    _add_irregular(table, data)
    _add_stock(table, data)
    return table


def _add_irregular(table: Table, data: results.Results) -> None:
    """The same foreground with exponentially distributed pauses."""
    alone = data.alone("exponential")
    if alone:
        table.add_row(*_row("irregular, alone", alone, data))
    contended = data.contended(1, "exponential")
    for phase in contended:
        table.add_row(*_row(f"{phase.control} (1)", phase, data), end_section=phase is contended[-1])


def _add_stock(table: Table, data: results.Results) -> None:
    """A foreground on stock QEMU, seen by the observer, on a loop device over the same disk."""
    alone, background = data.alone(stock=True), data.background_alone(1, stock=True)
    if alone:
        table.add_row(*_row("stock QEMU, alone", alone, data))
    if background:
        table.add_row(*_row("background alone (1)", background, data))
    for phase in data.contended(1, stock=True):
        table.add_row(*_row(f"{phase.control} (1)", phase, data))


def text(path: Path, terminal: bool = False) -> str:
    """The table with its conditions, as text; for a terminal as wide as that, with its colours."""
    data = results.load(path)
    return grid.text(build(data), ("(n): background requests outstanding", results.caption(data.conditions), *results.remarks(data)), FILE_COLUMNS, terminal)


def main() -> None:
    """Print the table of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.table", description="Table of a results file.")
    parser.add_argument("results", type=Path)
    print(text(parser.parse_args().results, terminal=True))


if __name__ == "__main__":
    main()
