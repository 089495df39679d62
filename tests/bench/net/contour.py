"""The dissertation's network figures on virtual machines: foreground intensity by interval length.

    python3 -m tests.bench.net.contour [--link lan|delay]... [--pair tcp-udp]... [--quick] [--output build/bench/contour]
                                       [--qemu PATH] [--minutes M] [--seconds S]

Figures 6.9 to 6.16 show foreground and background over intensity and interval,
for TCP and UDP beside TCP and UDP, on the LAN and behind a delay of 10 ms.
Each pair has runs alone of its own. Resumable; afterwards it draws
contour-net-LINK.png.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator, Sequence

from tests.bench.net import plan
from tests.bench.net.pair import SETTLE_SECONDS, Pair
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.report import netcontour
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

    @property
    def key(self) -> str:
        """Unique among the cells of a link."""
        return f"{self.pair} {self.case.name}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return self.case.title


def cells(pairs: Sequence[str], intensities: Sequence[int], intervals_us: Sequence[int]) -> Iterator[Cell]:
    """Each intensity's run alone stands beside its others."""
    for name in pairs:
        pair = PAIRS[name]
        yield Cell(name, replace(pair, foreground=""))
        for intensity in intensities:
            yield Cell(name, replace(pair, background="", intensity=intensity))
            yield from (Cell(name, replace(pair, intensity=intensity, interval_us=interval_us)) for interval_us in intervals_us)


def line_of(cell: Cell, link: Model, measured: dict[str, Any]) -> dict[str, Any]:
    """What a run leaves in the data, in the form that tests/report/netresults.py reads."""
    return {"key": cell.key, "series": "contour", "repeat": 0, "case": cell.case.parameters(), "link": link.parameters(), **measured}


class Grid:
    """The runs on one link."""

    def __init__(self, folder: Path, link: str, seconds: float) -> None:
        self.link, self.seconds = LINKS[link], seconds
        self.results = ResultsFile(folder / f"contour-net-{link}.jsonl")

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
    parser.add_argument("--quick", action="store_true", help="a coarse grid, about three minutes a link instead of seven")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "contour", help="folder of the results")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after these; the same command goes on (no limit)")
    parser.add_argument("--seconds", type=float, default=1.5, help="measured in each run (1.5)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`; UNAVAILABLE where this machine has no network for us."""
    arguments = _arguments()
    axes = (QUICK_INTENSITIES, QUICK_INTERVALS_US) if arguments.quick else (INTENSITIES, INTERVALS_US)
    plan_of_link = list(cells(arguments.pair or list(PAIRS), *axes))
    deadline = time.monotonic() + 60 * arguments.minutes

    def work() -> None:
        for link in arguments.link or LINKS:
            grid = Grid(arguments.output, link, arguments.seconds)
            todo = grid.results.missing(plan_of_link)
            if todo and time.monotonic() < deadline:
                grid.measure(todo, arguments.qemu, deadline)
            if grid.results.path.exists():
                netcontour.report(grid.results.path)

    return exit_status(work, lambda: "the same command goes on where this one ended", (NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
