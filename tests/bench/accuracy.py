"""How well a background VM's share of the disk tells contention (paper 004, section 4.4, Figures 2 and 3).

    python3 -m tests.bench.accuracy [--seconds 8] [--output build/bench/accuracy]

One foreground VM and one, two or four background VMs, stock devices, on a disk that serves one request at a time in 5 ms,
each at intensities from 12 to 100 %; then the background VMs alone. The disk's own log says who was served when, so that
one run gives the shares over every interval. A threshold is right about a stretch of time with contention if the share of
the background is below it, and about one without if it is not (a share of zero is none); accuracy is the product of both
parts, `idletime.police.suspend.accuracy`. Looks are 0.25 s apart, as the product's.

Resumable; one JSON line a run, with the requests of each role in steps of 50 ms. Then table and accuracy.png.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.pair import COMMON_LOAD
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot, Machine
from tests.report import accuracy as report
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import of_client

DISK = Model(model="fixed", size="1G", service_us=5000)
INTENSITIES = (12, 25, 38, 50, 62, 75, 88, 100)
BACKGROUND_INTENSITIES = (25, 100)
NUMBERS = (1, 2, 4)
STEP_MS = report.STEP_MS
WARM_UP_SECONDS = 0.5
OVERHEAD_SECONDS = 1.0


@dataclass(frozen=True)
class Cell:
    """One run. `foreground` 0: the background VMs are alone."""

    number: int
    foreground: int
    background: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.number}-{self.foreground}-{self.background}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        ahead = f"foreground {self.foreground} %" if self.foreground else "no foreground"
        return f"{ahead}, {self.number} x background {self.background} %"


def plan() -> list[Cell]:
    """All runs; those without contention have all intensities, too."""
    contended = [Cell(number, ahead, behind) for number in NUMBERS for ahead in INTENSITIES for behind in BACKGROUND_INTENSITIES]
    return contended + [Cell(number, 0, behind) for number in NUMBERS for behind in INTENSITIES]


class Rig:
    """A foreground and as many background VMs as are needed at most; all end with the stack."""

    def __init__(self, boot: Boot, stack: ExitStack) -> None:
        self.disk = stack.enter_context(Disk(DISK))
        self.foreground, *self.background = (
            stack.enter_context(Machine(boot, name, attach(self.disk, name, None)))
            for name in ("foreground", *(f"background{number}" for number in range(max(NUMBERS)))))

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """Requests served in each step of time, of the foreground and of all background VMs."""
        mark = self.disk.mark()
        whole = seconds + 2 * WARM_UP_SECONDS
        loads = [machine.guest.load(**COMMON_LOAD, seconds=whole, intensity=cell.background, seed=number)
                 for number, machine in enumerate(self.background[:cell.number], 2)]
        if cell.foreground:
            loads.append(self.foreground.guest.load(**COMMON_LOAD, seconds=whole, intensity=cell.foreground, seed=1))
        for load in loads:
            load.result()
        requests = self.disk.read(mark)
        served = {role: of_client(requests, f"{role}*") for role in ("foreground", "background")}
        begin_ns = max(of_role["arrival_ns"].min() for of_role in served.values() if len(of_role))
        edges = begin_ns + int(WARM_UP_SECONDS * 1e9) + np.arange(int(seconds * 1000) // STEP_MS + 1) * STEP_MS * 1_000_000
        return {role: np.histogram(of_role["finish_ns"], edges)[0].tolist() for role, of_role in served.items()}


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.accuracy", description="Accuracy of judging contention.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "accuracy", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=8, help="of a run")
    arguments = parser.parse_args()
    results = ResultsFile(arguments.output / "results.jsonl")

    def work() -> None:
        cells = results.missing(plan())
        if cells:
            boot = accel.prepare()
            with ExitStack() as stack:
                rig = Rig(boot, stack)
                results.write("conditions", seconds=arguments.seconds, disk=DISK.parameters(), step_ms=STEP_MS, **host.facts(boot))
                work_off(cells, lambda _: arguments.seconds + 2 * WARM_UP_SECONDS + OVERHEAD_SECONDS,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        report.show(results.path, arguments.output / "accuracy.png")

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
