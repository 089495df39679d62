"""The dissertation's disk figures on virtual machines: foreground intensity by interval length.

    python3 -m tests.bench.contour [--disk random|sequential]... [--quick] [--output build/bench/contour] [--qemu PATH]

Figures 6.4 (random reads) and 6.6 (sequential reads) show throughput and
latency of foreground and background over intensity and interval. Here the
random disk serves each request in 5 ms; the sequential one has the seek and
rotation model, so that a background request also costs the foreground its
place. Resumable; afterwards it draws contour-DISK.png and, where the model of
prediction.py applies, prediction-DISK.png.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

from tests.bench import pair
from tests.bench.plan import Phase
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.report import contour
from tests.testbed.disk import Model

DISKS = {
    "random": (Model(model="fixed", size="1G", service_us=5000), {"pattern": "random"}),
    "sequential": (Model(model="seek", size="1G", seed=1), {"pattern": "sequential", "block_bytes": 65536}),
}
INTENSITIES = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
INTERVALS_US = (0, 1000, 2000, 5000, 10000, 20000, 40000, 60000, 80000, 100000)
QUICK_INTENSITIES = (10, 30, 60, 90)
QUICK_INTERVALS_US = (0, 5000, 20000, 60000)
OVERHEAD_SECONDS = 0.7
LATE_SECONDS = 20.0


@dataclass(frozen=True)
class Cell:
    """One run. `intensity` 0: the background alone; `interval_us` None: the foreground alone."""

    intensity: int
    interval_us: int | None

    @property
    def key(self) -> str:
        """Unique among the cells of a disk."""
        return f"{self.intensity}-{self.interval_us}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        if not self.intensity:
            return "background alone"
        beside = "alone" if self.interval_us is None else f"interval {self.interval_us / 1000:g} ms"
        return f"foreground {self.intensity} %, {beside}"


def cells(intensities: tuple[int, ...], intervals_us: tuple[int, ...]) -> Iterator[Cell]:
    """Each intensity's run alone stands beside its others."""
    yield Cell(0, 0)
    for intensity in intensities:
        yield Cell(intensity, None)
        yield from (Cell(intensity, interval_us) for interval_us in intervals_us)


class Grid:
    """The runs of one disk."""

    def __init__(self, folder: Path, disk: str, seconds: float) -> None:
        self.disk, self.seconds = disk, seconds
        self.results = ResultsFile(folder / f"{disk}.jsonl")

    def measure(self, todo: list[Cell], qemu: str | None) -> None:
        """Boot the pair and run what is left."""
        model, load = DISKS[self.disk]
        boot = accel.prepare(qemu)
        with pair.Pair(boot, model) as machines:
            machines.foreground_load.update(load)
            machines.warm_up()
            about = {"program": "contour", "disk": model.parameters(), "seconds": self.seconds}
            loads = {"foreground_load": machines.foreground_load, "background_load": {**pair.BACKGROUND_LOAD, **load}}
            self.results.write("conditions", **about, **loads, **host.facts(boot))
            work_off(todo, lambda cell: self.seconds + OVERHEAD_SECONDS,
                     lambda cell: self.results.write("run", key=cell.key, **self._run(machines, cell)))

    def _run(self, machines: pair.Pair, cell: Cell) -> dict[str, Any]:
        phase = Phase(cell.intensity > 0, 0 if cell.interval_us is None else 1, cell.interval_us)
        machines.foreground_load["intensity"] = cell.intensity
        loads = machines.begin(phase, self.seconds, DISKS[self.disk][1])
        reports: dict[str, Any] = {"foreground": None, "background": None}
        for role, load in loads.items():
            load.wait(self.seconds + LATE_SECONDS)
            reports[role] = load.result()
            load.samples()
        return {"intensity": cell.intensity, "interval_us": cell.interval_us, **reports, "query_idletime": machines.counters()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.contour", description="Intensity by interval.")
    parser.add_argument("--disk", action="append", choices=list(DISKS), help="only these")
    parser.add_argument("--quick", action="store_true", help="a coarse grid, about two minutes a disk instead of eight")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "contour", help="folder of the results")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (3)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    plan = list(cells(QUICK_INTENSITIES, QUICK_INTERVALS_US) if arguments.quick else cells(INTENSITIES, INTERVALS_US))

    def work() -> None:
        for disk in arguments.disk or DISKS:
            grid = Grid(arguments.output, disk, arguments.seconds)
            todo = grid.results.missing(plan)
            if todo:
                grid.measure(todo, arguments.qemu)
            contour.report(grid.results.path)

    return exit_status(work, lambda: "the same command goes on where this one ended")


if __name__ == "__main__":
    sys.exit(main())
