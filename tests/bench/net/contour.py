"""The dissertation's network figures on virtual machines: foreground intensity by interval length.

    python3 -m tests.bench.net.contour [--link lan|delay]... [--pair tcp-udp]... [--quick] [--output build/bench/contour]
                                       [--intensity N]... [--qemu PATH] [--minutes M] [--seconds S] [--repeats N] [--again FOLDER]

Figures 6.9 to 6.16 show foreground and background over intensity and interval,
for TCP and UDP beside TCP and UDP, on the LAN and behind a delay of 10 ms.
Each pair has runs alone of its own. Resumable; afterwards it draws
contour-net-LINK.png.

With --again only those places are run that do not fit in their column of the grid in FOLDER, or where the foreground keeps less than is asked,
and their loads alone, into contour-net-LINK-again.jsonl; where that lies beside the grid, its medians take the single runs' places in the pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from tests.bench.net import plan
from tests.bench.net.pair import SETTLE_SECONDS, Pair
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.report import kept, netcontour, netresults, nettable
from tests.testbed.link import Link, Model
from tests.testbed.namespace import NamespaceError

LINKS = {"lan": plan.LINK, "delay": plan.DELAYED}
PAIRS = {f"{foreground}-{background}": plan.Case(foreground, background)
         for foreground in plan.PROTOCOLS for background in plan.PROTOCOLS}
INTENSITIES = (10, 30, 50, 70, 100)
INTERVALS_US = (0, 1000, 2000, 5000, 10000, 20000)
QUICK_INTENSITIES = (10, 50, 100)
QUICK_INTERVALS_US = (0, 5000, 20000)
OVERHEAD_SECONDS = SETTLE_SECONDS + 0.3
"""Of each run: its loads settle; sinks, loads and counters start and end."""


@dataclass(frozen=True)
class Cell:
    """One run of a pair."""

    pair: str
    case: plan.Case
    repeat: int = 0

    @property
    def key(self) -> str:
        """Unique among the cells of a link."""
        return f"{self.pair} {self.case.name}" + (f" {self.repeat}" if self.repeat else "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return self.case.title


Columns = Mapping[str, Mapping[int, Sequence[int]]]
"""Intervals in us, by pair and intensity."""


def cells(columns: Columns, repeat: int = 0) -> Iterator[Cell]:
    """Each intensity's run alone stands beside its others."""
    for name, intensities in columns.items():
        pair = PAIRS[name]
        yield Cell(name, replace(pair, foreground=""), repeat)
        for intensity, intervals_us in intensities.items():
            yield Cell(name, replace(pair, background="", intensity=intensity), repeat)
            yield from (Cell(name, replace(pair, intensity=intensity, interval_us=interval_us), repeat) for interval_us in intervals_us)


def whole(pairs: Sequence[str], intensities: Sequence[int], intervals_us: Sequence[int]) -> Columns:
    """All of a grid."""
    return {pair: dict.fromkeys(intensities, intervals_us) for pair in pairs}


def line_of(cell: Cell, link: Model, measured: dict[str, Any]) -> dict[str, Any]:
    """What a run leaves in the data, in the form that tests/report/netresults.py reads."""
    return {"key": cell.key, "series": "contour", "repeat": cell.repeat, "case": cell.case.parameters(), "link": link.parameters(), **measured}


class Grid:
    """The runs on one link."""

    def __init__(self, folder: Path, name: str, link: str, seconds: float) -> None:
        self.link, self.seconds = LINKS[link], seconds
        self.results = ResultsFile(folder / f"{name}.jsonl")

    def measure(self, todo: list[Cell], qemu: str | None, deadline: float) -> None:
        """Boot the pair of guests and run what is left until the deadline (CLOCK_MONOTONIC)."""
        with Link():
            pass  # an early error where this machine has no network for us
        boot = accel.prepare(qemu, network=True)
        with Pair(boot, self.link) as pair:
            if not pair.patched:
                raise RuntimeError(f"{boot.qemu}: its virtio-net knows no interval; name a QEMU of `make qemu` with --qemu")
            pair.warm_up()
            self.results.write("conditions", program="net.contour", link=self.link.parameters(), seconds=self.seconds, **host.facts(boot))
            work_off(todo, lambda cell: self.seconds + OVERHEAD_SECONDS, lambda cell: self._run(pair, cell),
                     deadline - time.monotonic())

    def _run(self, pair: Pair, cell: Cell) -> None:
        measured = pair.measure(cell.case, self.seconds)
        self.results.write("run", **line_of(cell, self.link, measured), query_idletime=pair.counters())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.net.contour", description="Intensity by interval, on an uplink.")
    parser.add_argument("--link", action="append", choices=list(LINKS), help="only these")
    parser.add_argument("--pair", action="append", choices=list(PAIRS), help="only these: foreground-background")
    parser.add_argument("--intensity", action="append", type=int, choices=INTENSITIES, help="only these, of the foreground; percent")
    parser.add_argument("--quick", action="store_true", help="a coarse grid, about three minutes a link instead of seven")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "contour", help="folder of the results")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after these; the same command goes on (no limit)")
    parser.add_argument("--seconds", type=float, default=1.5, help="measured in each run (1.5)")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="only the places of the grid there that do not fit in their column, or keep too little")
    parser.add_argument("--repeats", type=int, default=1, help="of each run: with more than one a table of medians is made, no pictures")
    arguments = parser.parse_args()
    if arguments.again and arguments.repeats < 2:
        parser.error("--again is for medians: give --repeats, such as 5")
    if arguments.again and arguments.intensity:
        parser.error("--intensity is for columns, and --again finds its places itself: give one of them")
    return arguments


def main() -> int:
    """Exit status: see `tests.framework.interrupt`; UNAVAILABLE where this machine has no network for us."""
    arguments = _arguments()
    axes = (QUICK_INTENSITIES, QUICK_INTERVALS_US) if arguments.quick else (INTENSITIES, INTERVALS_US)
    pairs = arguments.pair or list(PAIRS)
    deadline = time.monotonic() + 60 * arguments.minutes

    def work() -> None:
        for link in arguments.link or LINKS:
            name, columns = f"contour-net-{link}", whole(pairs, arguments.intensity or axes[0], axes[1])
            if arguments.again:
                columns = netcontour.misfits(netresults.load(arguments.again / f"{name}.jsonl"))
            grid = Grid(arguments.output, f"{name}-again" if arguments.again else name, link, arguments.seconds)
            todo = grid.results.missing([cell for repeat in range(arguments.repeats) for cell in cells(columns, repeat) if cell.pair in pairs])
            if todo and time.monotonic() < deadline:
                grid.measure(todo, arguments.qemu, deadline)
            if not grid.results.path.exists():
                continue
            if arguments.repeats > 1:
                kept.publish(grid.results.path, nettable.text(grid.results.path))
            else:
                netcontour.report(grid.results.path)

    return exit_status(work, lambda: "the same command goes on where this one ended", (NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
