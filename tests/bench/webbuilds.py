"""Builds of QEMU under the web servers of tests.bench.web, in turn: is a change of the network's path felt by who asks?

    python3 -m tests.bench.webbuilds before=PATH after=PATH [--rate 10] [--repeats 3] [--seconds 8] [--ways "20 ms" "auto 3 %"]
        [--output build/bench/webbuilds]

Made for section 7.2.4 of the dissertation, whether received packets should open an interval: one of the builds has no event where a
packet comes in (the call of post_foreground() in idletime_net_received_slow() taken away). A pair of VMs for each build and repeat,
builds in turn. As root. What is there is not run again.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.bench.builds import named_build
from tests.bench.net.plan import LINK, at_rate
from tests.bench.resume import ResultsFile, work_off
from tests.bench.web import ALONE, AUTO, CLIENTS, FASTEST, FIXED, RATES, WAYS, Cell, answers, prepared, rig_on
from tests.framework import host, paths
from tests.framework.interrupt import exit_status
from tests.report import grid, kept
from tests.report.web import fastest, multiples
from tests.testbed.namespace import NamespaceError

COLUMNS = 110
OVERHEAD_SECONDS = 6.0
NOTE = "response times of the foreground as multiples of the fastest of a page of that size with any build; background: MB/s that its clients got"


@dataclass(frozen=True)
class Run:
    """A cell of tests.bench.web on one of the builds."""

    build: str
    repeat: int
    cell: Cell

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.build}-{self.repeat}-{self.cell.key}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.build}, round {self.repeat + 1}: {self.cell.title}"


def plan(rate: int, build: str, repeat: int, ways: list[str]) -> list[Run]:
    """Of one pair of VMs."""
    return [Run(build, repeat, cell) for cell in answers(rate, ways)]


def _figures(runs: list[dict[str, Any]]) -> dict[tuple[str, str, str], list[tuple[float, float, float | None]]]:
    """Median, p99 and the background's MB/s of each run, by kind, way and build."""
    shortest = fastest(runs)
    found = defaultdict(list)
    for run in runs:
        if run["cell"]["kind"] != FASTEST:
            points = np.percentile(multiples(run, shortest), (50, 99))
            found[run["cell"]["kind"], run["cell"]["way"], run["build"]].append((*points, run["background_mb_s"]))
    return found


def report(path: Path) -> None:
    """Medians of the repeats, lowest and highest behind them; on the terminal and beside the results."""
    runs, about = kept.lines(path)
    rows = grid.table(("clients, way, build", "runs", "median", "lowest, highest", "p99", "lowest, highest", "background MB/s"))
    for (kind, way, build), points in sorted(_figures(runs).items(), key=lambda one: (one[0][0] == "heavy", *one[0][1:])):
        middles, tails, behind = zip(*points)
        figures = [text for some in (middles, tails) for text in (f"{median(some):.2f}", f"{min(some):.2f}, {max(some):.2f}")]
        rows.add_row(f"{kind}, {way}, {build}", str(len(points)), *figures, "" if way == ALONE else f"{median(behind):.2f}")
    conditions = f"Uplink of {about['rate_mbit']} Mbit/s; runs of {about['seconds']:g} s. {kept.built(about)}"
    kept.publish(path, grid.text(rows, [NOTE, conditions], COLUMNS))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.webbuilds", description="Builds of QEMU under two web servers, in turn.")
    parser.add_argument("builds", nargs="+", type=named_build, metavar="NAME=PATH")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "webbuilds", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=8, help="of a run")
    parser.add_argument("--rate", type=int, choices=RATES, default=min(RATES), help="of the uplink, Mbit/s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[FIXED, AUTO], help="what keeps the background back")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / f"webbuilds-{arguments.rate}.jsonl")

    def work() -> None:
        link = at_rate(LINK, arguments.rate)
        for repeat in range(arguments.repeats):
            for build, path in arguments.builds[:: -1 if repeat % 2 else 1]:
                if runs := results.missing(plan(arguments.rate, build, repeat, arguments.ways)):
                    plain, boot = prepared(str(path))
                    results.write("conditions", seconds=arguments.seconds, rate_mbit=arguments.rate, build=build,
                                  clients={kind: CLIENTS[arguments.rate, kind] for kind in ("light", "heavy")}, **host.facts(plain))
                    with rig_on(plain, boot, link) as rig:
                        work_off(runs, lambda _: arguments.seconds + OVERHEAD_SECONDS, lambda run: results.write(
                            "run", key=run.key, build=run.build, repeat=run.repeat, cell=asdict(run.cell), **rig.run(run.cell, arguments.seconds)))
        report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on", (NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
