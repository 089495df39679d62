"""A job of two VMs that wait for each other after each piece, one of them beside an owner (paper 003, Figure 12).

    python3 -m tests.bench.parallel [--repeats 3] [--seconds 8] [--output build/bench/parallel] [--qemu PATH]

Two background VMs, each on a processor of its own, do a piece of work each, and the next when both are done: pieces of some 50 ms or
250 ms. On one of the processors is a foreground VM, the owner, that computes for 7 to 50 % of each 100 ms. Equal, or the background in
the idle class with the smallest share (<cpu class='idle'/>). The job alone is measured right before each run, the owner alone for each
intensity. As root, with cgroup v1's controller "cpu", two processors. One JSON line a run; what is there is not run again.
`python3 -m tests.report.parallel FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.cpu import EQUAL, IDLE, USUAL_SHARES, Group, native
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.report import parallel as report

INTENSITIES = (7, 13, 25, 50)
PIECES_MS = (50, 250)
ALONE = "owner alone"
CALIBRATE_BYTES, ROUNDS = 4_000_000, 5
COMMAND_SECONDS = 60.0


@dataclass(frozen=True)
class Cell:
    """One run."""

    way: str
    owner: int
    piece_ms: int
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way}-{self.owner}-{self.piece_ms}-{self.repeat}".replace(" ", "-")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"owner {self.owner} %, pieces of {self.piece_ms} ms, {self.way}"


def plan(repeats: int) -> list[Cell]:
    """An owner alone, then all that is beside one like it."""
    return [cell for repeat in range(repeats) for owner in INTENSITIES for cell in (
        Cell(ALONE, owner, 0, repeat), *(Cell(way, owner, piece, repeat) for piece in PIECES_MS for way in (EQUAL, IDLE)))]


class Rig:
    """Two parts and an owner; the second part and the owner share a processor."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        load = paths.find_tool("cpuload", "loadgen")
        boot = replace(accel.prepare(qemu), initramfs=initramfs.get_initramfs(kernel.get_kernel(), programs=[load]))
        self.facts = host.facts(boot)
        first, second = sorted(os.sched_getaffinity(0))[:2]
        os.sched_setaffinity(0, {first})
        self.machines, self.groups = {}, {}
        for name, cpu in (("first", first), ("second", second), ("owner", second)):
            machine = self.machines[name] = stack.enter_context(Machine(boot, name))
            for thread in Path(f"/proc/{machine.process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {cpu})
            self.groups[name] = stack.enter_context(Group(name, machine.process.pid))
        self._piece_bytes = self._calibrated()

    def _calibrated(self) -> float:
        """Bytes that a part works off in a millisecond."""
        began = time.monotonic()
        for _ in range(ROUNDS):
            self._round(CALIBRATE_BYTES, ("first",))
        return ROUNDS * CALIBRATE_BYTES / (time.monotonic() - began) / 1000

    def _round(self, size: int, parts: tuple[str, ...] = ("first", "second")) -> None:
        command = f"head -c {size} /dev/zero | md5sum >/dev/null"
        began = [(name, self.machines[name].guest.start(command)) for name in parts]
        for name, future in began:
            self.machines[name].guest.finish(future, command, COMMAND_SECONDS)

    def _job(self, cell: Cell, seconds: float) -> float:
        """Rounds in a second."""
        size, began, rounds = int(self._piece_bytes * cell.piece_ms), time.monotonic(), 0
        while time.monotonic() < began + seconds:
            self._round(size)
            rounds += 1
        return rounds / (time.monotonic() - began)

    def _owner(self, cell: Cell, seconds: float) -> Load:
        return Load(self.machines["owner"].guest, "cpuload", {"intensity": cell.owner, "seconds": seconds}, latencies=False)

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """Rounds of the job a second, alone and beside the owner, and what the owner did."""
        for name in ("first", "second"):
            idle = cell.way == IDLE
            self.groups[name].weigh(native.MIN_SHARES if idle else USUAL_SHARES)
            native.set_scheduler(None, self.machines[name].process.pid, "idle" if idle else "other")
        if cell.way == ALONE:
            return {"owner": self._owner(cell, seconds).result()}
        alone = self._job(cell, seconds / 2)
        load = self._owner(cell, seconds)
        rounds = self._job(cell, seconds)
        return {"alone": alone, "rounds": rounds, "owner": load.result()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.parallel", description="A job of two VMs, one of them beside an owner.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/parallel", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of a run")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "parallel.jsonl")

    def work() -> None:
        if cells := results.missing(plan(arguments.repeats)):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", seconds=arguments.seconds, **rig.facts)
                work_off(cells, lambda cell: arguments.seconds * (1 if cell.way == ALONE else 1.5) + 0.5,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
