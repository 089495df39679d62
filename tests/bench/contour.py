"""The dissertation's disk figures on virtual machines: foreground intensity by interval length.

    python3 -m tests.bench.contour [--disk random|sequential|buffered]... [--quick] [--intensity N]... [--repeats N] [--seconds N]
                                   [--again FOLDER] [--output build/bench/contour] [--qemu PATH]

Figures 6.4 (random reads) and 6.6 (sequential reads) show throughput and
latency of foreground and background over intensity and interval. Here the
random disk serves each request in 5 ms; the sequential one has the seek and
rotation model, so that a background request also costs the foreground its
place. "buffered" is the same disk with a foreground that reads a file of ext4
through its guest's page cache, so that read-ahead makes its requests: the
regime of figure 6.6, with runs of the learned interval, too. Resumable; afterwards it draws contour-DISK.png and, where the model of
prediction.py applies, prediction-DISK.png.

With --again only those places are run that do not fit in their column of the grid in FOLDER, and that column's foreground alone (buffered:
and with the learned interval), into contour-DISK-again.jsonl; where that lies beside the grid, its medians take the single runs' places in the pictures.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from tests.bench import pair
from tests.bench.plan import START_US, Phase
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot
from tests.report import contour
from tests.testbed import blankfs
from tests.testbed.disk import Disk, Model

FILE_BYTES = 384 << 20
"""More than a run reads."""

BUDGET_PERCENT = 3


class Buffered(pair.Pair):
    """The foreground reads a file of ext4 on the first half of the disk through its page cache, the background the other half."""

    def __init__(self, boot: Boot, model: Model) -> None:
        super().__init__(accel.with_modules(boot, ["crc32c_generic", "ext4"]), model)

    @contextmanager
    def _shared(self) -> Iterator[Disk]:
        with Disk(self._model) as disk:
            blankfs.make(disk, "ext4", 512 << 20)
            yield disk

    def fill(self) -> None:
        """Make the file that the foreground reads."""
        fill = f"dd if=/dev/zero of=/mnt/file bs=1M count={FILE_BYTES >> 20} conv=fsync 2>&1"
        self.foreground.guest.run(f"mkdir -p /mnt && mount -t ext4 -o noatime /dev/vda /mnt && {fill}", timeout_seconds=300)

    def forget(self) -> None:
        """The next run finds nothing in memory."""
        self.foreground.guest.run("sync; echo 3 >/proc/sys/vm/drop_caches")


@dataclass(frozen=True)
class Setup:
    """A disk, what both read, and what either does besides."""

    model: Model
    load: dict[str, Any]
    foreground: dict[str, Any] = field(default_factory=dict)
    background: dict[str, Any] = field(default_factory=dict)
    buffered: bool = False


SEEKING = Model(model="seek", size="1G", seed=1)
SEQUENTIAL = {"pattern": "sequential", "block_bytes": 65536}
DISKS = {
    "random": Setup(Model(model="fixed", size="1G", service_us=5000), {"pattern": "random"}),
    "sequential": Setup(SEEKING, SEQUENTIAL),
    "buffered": Setup(SEEKING, SEQUENTIAL, {"device": "/mnt/file", "buffered": True}, {"offset_bytes": 600 << 20}, buffered=True),
}
INTENSITIES = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
INTERVALS_US = (0, 1000, 2000, 5000, 10000, 20000, 40000, 60000, 80000, 100000)
QUICK_INTENSITIES = (10, 30, 60, 90)
QUICK_INTERVALS_US = (0, 5000, 20000, 60000)
OVERHEAD_SECONDS = 0.7
LATE_SECONDS = 20.0


@dataclass(frozen=True)
class Cell:
    """One run. `intensity` 0: the background alone; `interval_us` None: the foreground alone. `auto`: learned, from there on."""

    intensity: int
    interval_us: int | None
    auto: bool = False
    repeat: int = 0

    @property
    def key(self) -> str:
        """Unique among the cells of a disk."""
        return f"{self.intensity}-{'auto' if self.auto else self.interval_us}" + (f"-{self.repeat}" if self.repeat else "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        if not self.intensity:
            return "background alone"
        beside = "auto" if self.auto else "alone" if self.interval_us is None else f"interval {self.interval_us / 1000:g} ms"
        return f"foreground {self.intensity} %, {beside}"


def cells(columns: Mapping[int, Sequence[int]], auto: bool = False, repeat: int = 0) -> Iterator[Cell]:
    """`columns`: intervals in us, by intensity. Each intensity's run alone stands beside its others; `auto`: so does one with the learned interval."""
    yield Cell(0, 0, repeat=repeat)
    for intensity, intervals_us in columns.items():
        yield Cell(intensity, None, repeat=repeat)
        yield from (Cell(intensity, interval_us, repeat=repeat) for interval_us in intervals_us)
        if auto:
            yield Cell(intensity, START_US, True, repeat)


class Grid:
    """The runs of one disk."""

    def __init__(self, folder: Path, name: str, disk: str, seconds: float) -> None:
        self.setup, self.seconds = DISKS[disk], seconds
        self.results = ResultsFile(folder / f"{name}.jsonl")

    def measure(self, todo: list[Cell], qemu: str | None) -> None:
        """Boot the pair and run what is left."""
        setup, boot = self.setup, accel.prepare(qemu)
        with Buffered(boot, setup.model) if setup.buffered else pair.Pair(boot, setup.model) as machines:
            if isinstance(machines, Buffered):
                machines.fill()
            machines.foreground_load.update(setup.load | setup.foreground)
            machines.background_load.update(setup.load | setup.background)
            machines.warm_up()
            self.results.write("conditions", program="contour", seconds=self.seconds, **machines.conditions(), **host.facts(boot))
            work_off(todo, lambda cell: self.seconds + OVERHEAD_SECONDS,
                     lambda cell: self.results.write("run", key=cell.key, **self._run(machines, cell)))

    def _run(self, machines: pair.Pair, cell: Cell) -> dict[str, Any]:
        budget = BUDGET_PERCENT if cell.auto else None
        phase = Phase(cell.intensity > 0, 0 if cell.interval_us is None else 1, cell.interval_us, budget)
        machines.foreground_load["intensity"] = cell.intensity
        if isinstance(machines, Buffered):
            machines.forget()
        loads = machines.begin(phase, self.seconds)
        reports: dict[str, Any] = {"foreground": None, "background": None}
        for role, load in loads.items():
            load.wait(self.seconds + LATE_SECONDS)
            reports[role] = load.result()
            load.samples()
        return {"intensity": cell.intensity, "interval_us": cell.interval_us, "auto": cell.auto, **reports,
                "disk": machines.at_disk(), "query_idletime": machines.counters()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.contour", description="Intensity by interval.")
    parser.add_argument("--disk", action="append", choices=list(DISKS), help="only these")
    parser.add_argument("--quick", action="store_true", help="a coarse grid, about two minutes a disk instead of eight")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="only the places of the grid there that do not fit in their column")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "contour", help="folder of the results")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--intensity", type=int, action="append", choices=INTENSITIES, help="only these columns")
    parser.add_argument("--repeats", type=int, default=1, help="of each run: with more than one a table of medians is made, no pictures")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (3)")
    arguments = parser.parse_args()
    if arguments.again and arguments.repeats < 2:
        parser.error("--again is for medians: give --repeats, such as 5")
    return arguments


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    intensities, intervals_us = (QUICK_INTENSITIES, QUICK_INTERVALS_US) if arguments.quick else (INTENSITIES, INTERVALS_US)
    whole = dict.fromkeys(arguments.intensity or intensities, intervals_us)

    def work() -> None:
        for disk in arguments.disk or DISKS:
            name = f"contour-{disk}"
            columns = contour.Results(arguments.again / f"{name}.jsonl").misfits() if arguments.again else whole
            grid = Grid(arguments.output, f"{name}-again" if arguments.again else name, disk, arguments.seconds)
            todo = grid.results.missing([cell for repeat in range(arguments.repeats)
                                         for cell in cells(columns, DISKS[disk].buffered, repeat)])
            if todo:
                grid.measure(todo, arguments.qemu)
            contour.report(grid.results.path)

    return exit_status(work, lambda: "the same command goes on where this one ended")


if __name__ == "__main__":
    sys.exit(main())
