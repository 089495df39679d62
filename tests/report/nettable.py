"""The network benchmark's results as a table: python3 -m tests.report.nettable build/bench/net/results.jsonl"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from tests.report import grid, netresults
from tests.report.netresults import Case, Results

FILE_COLUMNS = 112
"""Width of the table in a file: all columns without a line break."""

COLUMNS = ("foreground\n/ background", "foregr.\nMbit/s", "\nkept", "\nretr.", "request\np50 ms", "\np99 ms", "backgr.\nMbit/s", "of\nleft",
           "\nretr.", "queue\nKB")
HEADING_COLUMNS = 26
"""Room for the longest heading."""


def _within(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"{bounds[0]:.0%} to {bounds[1]:.0%}"


def _number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value / 1000:.2f}"


def _row(case: Case, data: Results, certain: bool) -> list[str]:
    contended = case.about["foreground"] and case.about["background"]
    return [
        case.control, _number(case.foreground_mbit), _percent(data.kept(case)) if contended else "",
        *([_within(data.kept_within(case) if contended else None)] if certain else []), _number(case.foreground_retransmitted, 0), _ms(case.p50_us), _ms(case.p99_us),
        _number(case.background_mbit), _percent(data.reached(case)),
        _number(case.background_retransmitted, 0),
        "" if case.queue_bytes is None else f"{case.queue_bytes / 1000:.1f}",
    ]


def _heading(case: Case) -> str:
    """What a group of rows has in common."""
    foreground, background = case.about["foreground"], case.about["background"]
    share = f" {case.about['intensity']} %" if foreground in netresults.WIRE and case.about["intensity"] < 100 else ""
    parts = [f"{foreground.upper()}{share}" if foreground else "-", background.upper() or "-"]
    delay = f"{case.link['delay_us'] / 1000:g} ms" if case.link["delay_us"] else ""
    return ", ".join([" / ".join(parts), *filter(None, [delay]), *netresults.circumstances(case.about)])


def _is_certain(data: Results) -> bool:
    return any(data.kept_within(case) for case in data.cases)


def build(data: Results) -> Table:
    """A group of rows for each pair of loads: uncontrolled, then by interval."""
    certain = _is_certain(data)
    table = grid.table((*COLUMNS[:3], *(["with\n95 %"] if certain else []), *COLUMNS[3:]), first_width=HEADING_COLUMNS)
    groups: dict[str, list[Case]] = {}
    for case in data.cases:
        groups.setdefault(_heading(case), []).append(case)
    for heading, cases in groups.items():
        table.add_row(f"[bold]{heading}")
        for case in sorted(cases, key=lambda each: each.order):
            row = _row(case, data, certain)
            table.add_row("  " + row[0], *row[1:], end_section=False)
    return table


def text(path: Path, terminal: bool = False) -> str:
    """The table with its conditions, as text; for a terminal as wide as that."""
    data = netresults.load(path)
    notes = ["of left: of what the foreground alone leaves of the uplink", netresults.caption(data)]
    if _is_certain(data):
        notes.insert(1, "with 95 %: what is kept, by the bootstrap of the medians")
    return grid.text(build(data), notes, FILE_COLUMNS, terminal)


def main() -> None:
    """Print the table of a results file."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.report.nettable", description="Table of a results file.")
    parser.add_argument("results", type=Path)
    print(text(parser.parse_args().results, terminal=True))


if __name__ == "__main__":
    main()
