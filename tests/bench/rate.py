"""What a request costs at the rate of an SSD, and what a background does to the tail of a foreground there: no guest in the way.

    python3 -m tests.bench.rate [--rounds 5] [--seconds 2] [--output build/bench/rate] [--unpatched PATH] [--qemu PATH]

The machine test "rate" (qemu-patches/overlay/tests/qtest/idletime-rate-test.c) plays the driver in the memory of a machine whose
processor is halted; the disk is null-co. All is served by one I/O thread, which polls.

    greedy    32 requests at a time on a disk that answers at once: the I/O thread never rests, so 1 / rate is the processor
              time of a request. Property unset, foreground, background (every request is asked for, gets a token and gives it
              back), and background with the learner
    paced     a disk of 100 us a request and any number at a time; a foreground of 50,000 requests/s (Poisson), beside a
              background of 32 at a time: not controlled, held for an interval, or by the learner with a budget of 5 %

All cases take turns; after each round the unpatched QEMU has its turn, if it is built (make qemu-unpatched). One JSON line a round;
what is there is not run again. Then the table of medians. The time of a paced request begins when it is submitted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.alternate import UNPATCHED
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.report import grid, kept

PROGRAM = paths.BUILD / "qemu/obj/tests/qtest/idletime-rate-test"
PATCHED, STOCK = "patched", "unpatched"
PACED = "alone"
COLUMNS = 110
PATH = "/x86_64/idletime/rate"


@dataclass(frozen=True)
class Round:
    """All cases on one QEMU; on a stock one that without our properties."""

    qemu: str
    number: int

    @property
    def path(self) -> str:
        """Of the tests."""
        return f"{PATH}/unset" if self.qemu == STOCK else PATH

    @property
    def cases(self) -> int:
        """How many these are."""
        return 1 if self.qemu == STOCK else 8

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.qemu}-{self.number}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.qemu} QEMU, round {self.number + 1}"


def measure(qemu: Path, seconds: float, path: str) -> list[dict[str, Any]]:
    """One line a case."""
    done = subprocess.run([str(PROGRAM), "-p", path], capture_output=True, text=True, timeout=60 + 30 * seconds, check=True, env={
        **os.environ, "QTEST_QEMU_BINARY": str(qemu), "IDLETIME_RATE_SECONDS": str(seconds)})
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def text(path: Path) -> str:
    """Medians over the rounds."""
    runs, about = kept.lines(path)
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        for case in run["cases"]:
            found.setdefault(STOCK if run["key"].startswith(STOCK) else case["case"], []).append(case)
    rows = grid.table(("case", "foreground/s", "background/s", "ns a request", "p50, us", "p99, us", "p99.9, us", "p99.9, of alone"))
    alone = median(case["p999_us"] for case in found[PACED])
    for name, cases in found.items():
        own, other, *us = (median(case[key] for case in cases) for key in (
            "foreground_per_second", "background_per_second", "p50_us", "p99_us", "p999_us"))
        if "beside" in name or name == PACED:
            rows.add_row(name, f"{own:.0f}", f"{other:.0f}", "", *(f"{each:.0f}" for each in us), f"x{us[2] / alone:.2f}")
        else:
            rows.add_row(name, *(f"{each:.0f}" if each else "" for each in (own, other)), f"{1e9 / (own + other):.0f}", *[""] * 4)
    return grid.text(rows, [f"Medians of {len(found[PACED])} rounds of {about['seconds']:g} s. {kept.built(about)}"], COLUMNS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.rate", description="Requests at the rate of an SSD, without a guest.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/rate", help="folder of the results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of a case, after as long to warm up")
    parser.add_argument("--unpatched", type=Path, default=UNPATCHED, metavar="PATH", help="a QEMU of the same version without our changes")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "rate.jsonl")

    def work() -> None:
        boot = accel.prepare(arguments.qemu)
        kinds = (PATCHED, STOCK) if arguments.unpatched.exists() else (PATCHED,)
        rounds = [Round(qemu, number) for number in range(arguments.rounds) for qemu in kinds]
        if missing := results.missing(rounds):
            subprocess.run([paths.ROOT / "tests/machine/run", "--build", "rate"], check=True)
            results.write("conditions", seconds=arguments.seconds, **host.facts(boot))
            qemus = {PATCHED: boot.qemu, STOCK: arguments.unpatched}
            work_off(missing, lambda one: one.cases * 2.2 * arguments.seconds, lambda one: results.write(
                "run", key=one.key, cases=measure(qemus[one.qemu], arguments.seconds, one.path)))
        kept.publish(results.path, text(results.path))

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
