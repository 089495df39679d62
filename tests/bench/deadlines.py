"""Backups that have a deadline, from impossible to generous, beside a foreground VM on one disk.

    python3 -m tests.bench.deadlines [--deadlines 10 20 ...] [--output build/bench/deadlines] [--qemu PATH]

idletimed's own look (idletime.hostd.act) is called every five seconds, as idletimed calls it, and attaches the job while it may
wait and detaches it where it has to be done. The foreground has the demo's bursts; the disk needs 5 ms and a transfer for each
request. A first run has the foreground alone, a second one the job at full speed beside it. One JSON line a run; what is there is
not run again. `python3 -m tests.report.deadlines FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench import pair
from tests.bench.jobs import JOB, MODEL, NODE, NOWHERE, TARGET
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths, run_folder
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.report import deadlines as report
from tests.testbed.attach import DEVICE, attach
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

sys.path.insert(0, str(paths.ROOT / "libvirt"))
from idletime.errors import MonitorError  # noqa: E402  (the product's own)
from idletime.facts import DiskJobs, Plan, ResourcePlan  # noqa: E402
from idletime.hostd import act  # noqa: E402
from idletime.police import deadline  # noqa: E402

DEADLINES = (10, 15, 18, 20, 22, 25, 28, 32, 36, 40, 45, 50, 55, 60, 68, 76, 85, 95, 110, 130)
ALONE, FULL = "alone", "full speed"
ALONE_SECONDS = 20.0
RESOURCE = "idletime-disk0"
POLL_SECONDS = 0.05
MOST_SECONDS = 600.0


@dataclass(frozen=True)
class Cell:
    """One run: of ALONE, FULL, or a deadline in seconds."""

    way: str

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return self.way.replace(" ", "")

    @property
    def seconds(self) -> float:
        """That the job has."""
        return float(self.way)

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return {ALONE: "foreground alone", FULL: "a backup at full speed"}.get(self.way, f"a backup that has {self.way} s")


class _Monitor:
    """A machine's QMP as idletimed has it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Raises MonitorError."""
        try:
            return self._machine.qmp.execute(name, **(arguments or {}))
        except Exception as error:
            raise MonitorError(str(error)) from error


class Rig:
    """The foreground's VM, and a stock one whose disk is backed up."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        boot = accel.prepare(qemu)
        self.facts = host.facts(boot)
        arena = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-"))) / "arena"
        self.disk = stack.enter_context(Disk(MODEL))
        self.foreground = stack.enter_context(Machine(boot, "foreground", attach(self.disk, "foreground", arena, "foreground")))
        self.copied = stack.enter_context(Machine(boot, "copied", [*NOWHERE, *attach(self.disk, "copied", None)]))
        self.plan = Plan((ResourcePlan(RESOURCE, "disk0", str(arena), {"auto": True, "budget-percent": 3}),),
                         jobs=(DiskJobs("vda", RESOURCE, DEVICE, "06:00"),))
        self.foreground.guest.load(seconds=pair.WARM_UP_SECONDS).result()

    def run(self, cell: Cell) -> dict[str, Any]:
        """How long the job took, and what the foreground did while it was background and while it was urgent."""
        load = self.foreground.guest.load(**pair.FOREGROUND_LOAD, quantum_ms=pair.QUANTUM_MS, outstanding=1, seconds=MOST_SECONDS)
        try:
            load.wait(2.0)
            mark, began = self.disk.mark(), time.monotonic_ns()
            if cell.way == ALONE:
                load.wait(ALONE_SECONDS)
                phases = [(began, False)]
            else:
                phases = self._job(cell, began)
            ended = time.monotonic_ns()
            return {"seconds": (ended - began) / 1e9, **self._by_phase(mark, phases, ended)}
        finally:
            load.stop()
            load.result()

    def _job(self, cell: Cell, began: int) -> list[tuple[int, bool]]:
        """When the job became urgent, and background again."""
        self.copied.qmp.execute("blockdev-backup", job_id=JOB, device=NODE, target=TARGET, sync="full")
        if cell.way == FULL:
            phases = [(began, True)]
            while self.copied.qmp.execute("query-jobs"):
                time.sleep(POLL_SECONDS)
            return phases
        now = time.time()
        tracks = {JOB: replace(deadline.begun(now, 0, "06:00"), deadline=now + cell.seconds)}
        phases, look = [], 0.0
        while self.copied.qmp.execute("query-jobs"):
            if time.monotonic() >= look:
                look = time.monotonic() + deadline.PERIOD_SECONDS
                brought = act.bring(_Monitor(self.copied), self.plan, tracks, time.time())
                assert not brought.problems, brought.problems
                tracks = brought.tracks or tracks
                urgent = tracks[JOB].urgent
                if not phases or phases[-1][1] != urgent:
                    phases.append((time.monotonic_ns(), urgent))
            time.sleep(POLL_SECONDS)
        return phases

    def _by_phase(self, mark: int, phases: list[tuple[int, bool]], ended: int) -> dict[str, Any]:
        served = self.disk.read(mark)
        arrivals = of_client(served, "foreground")["arrival_ns"]
        copied = of_client(served, "copied")
        found: dict[str, Any] = {"phases": []}
        for (begin, urgent), end in zip(phases, [*(begin for begin, _ in phases[1:]), ended]):
            found["phases"].append({
                "urgent": urgent, "seconds": (end - begin) / 1e9,
                "foreground": int(np.count_nonzero((arrivals >= begin) & (arrivals < end))),
                "bytes": int(copied["bytes"][(copied["arrival_ns"] >= begin) & (copied["arrival_ns"] < end)].sum())})
        return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.deadlines", description="Backups that have a deadline.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "deadlines", help="folder of the results")
    parser.add_argument("--deadlines", type=int, nargs="+", default=list(DEADLINES), metavar="SECONDS")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="begin no run that would end later")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "deadlines.jsonl")

    def work() -> None:
        run_folder.guard()
        cells = [Cell(ALONE), Cell(FULL), *(Cell(str(seconds)) for seconds in arguments.deadlines)]
        if missing := results.missing(cells):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", disk=rig.disk.parameters(), **rig.facts)
                work_off(missing, lambda cell: 3 + (min(cell.seconds, 70) if cell.way.isdecimal() else ALONE_SECONDS),
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell)),
                         arguments.limit_seconds)
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
