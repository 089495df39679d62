"""Block jobs and a reader of an NBD export beside a foreground VM on one disk: held by us, at a fixed speed, and as they come.

    python3 -m tests.bench.jobs [--repeats 3] [--seconds 12] [--jobs backup mirror] [--held] [--output build/bench/jobs] [--qemu PATH]

The foreground has the demo's bursts. The disk needs 5 ms and a transfer for each request, so that a large one takes longer. What
a job did is what the disk served of it. A greedy background VM, which reads 128 KiB at a time, is measured beside it.
--held: what the learned interval costs, to the percent: nothing else is run, each time right after the foreground alone, and what
the foreground keeps is of that. One JSON line a run; what is there is not run again. `python3 -m tests.report.jobs FILE` makes table
and plot.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Iterator

from tests.bench import pair
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths, run_folder
from tests.framework.idletimed import wait_until
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.report import jobs as report
from tests.testbed.attach import RESOURCE, attach
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import of_client

JOBS = ("backup", "mirror", "commit", "reader")
VM = "vm"
"""In place of a job: a greedy background VM."""

MB = 1_000_000
SPEEDS = (1, 2, 4, 8, 16, 32)
"""Caps that operators set, MB/s."""

STOCK, FIXED, AUTO = "stock", "20 ms", "auto 3 %"
CONTROLS: dict[str, dict[str, object]] = {
    FIXED: {"interval-us": 20000, "auto": False},
    AUTO: {"interval-us": 20000, "auto": True, "budget-percent": 3},
}
DISK_BYTES = 1 << 30
MODEL = Model(service_us=5000, rate="100M", size=str(DISK_BYTES))
"""1 MiB takes 15 ms: no job reads all of it within a run."""

NOWHERE = ("-blockdev", f"driver=null-co,node-name=target,size={DISK_BYTES},read-zeroes=on")
"""TARGET: a disk that keeps nothing."""

GREEDY = {"pattern": "sequential", "operation": "read", "block_bytes": 128 << 10, "intensity": 100, "outstanding": 16}
READERS = 16
JOB, NODE, TARGET, EXPORT = "job", "disk", "target", "export"
OVERHEAD_SECONDS = 1.5
END_SECONDS = 60.0


@dataclass(frozen=True)
class Cell:
    """One run. `job` "": the foreground alone, before the job that `way` names, if it does; `way`: STOCK, of CONTROLS, or a speed in MB/s."""

    job: str
    way: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.job or 'none'}-{self.way or 'none'}-{self.repeat}".replace(" ", "")

    @property
    def speed(self) -> int:
        """The cap, bytes/s; 0: none."""
        return 0 if self.way in (STOCK, *CONTROLS) else int(self.way.split()[0]) * MB

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.job}, {self.way}" if self.job else "foreground alone"


def plan(names: list[str], repeats: int) -> list[Cell]:
    """The ways of a job follow each other, in turn the other way round, so that what the host does meanwhile hits all alike."""
    cells = []
    for repeat in range(repeats):
        cells.append(Cell("", "", repeat))
        for name in names:
            ways = [STOCK, *(f"{speed} MB/s" for speed in SPEEDS), *CONTROLS]
            cells += [Cell(name, way, repeat) for way in (ways if repeat % 2 == 0 else ways[::-1])]
        cells += [Cell(VM, way, repeat) for way in CONTROLS]
    return cells


def held(names: list[str], repeats: int) -> list[Cell]:
    """The learned interval, and the foreground alone before each run."""
    return [cell for repeat in range(repeats) for name in (*names, VM) for cell in (Cell("", name, repeat), Cell(name, AUTO, repeat))]


class Rig:
    """Four VMs on the disk: of the foreground, of the jobs, of a commit (with an overlay), and the greedy one."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        boot = accel.prepare(qemu)
        self.facts = host.facts(boot)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        self.disk = stack.enter_context(Disk(MODEL))

        def machine(name: str, class_: str, *more: str) -> Machine:
            arguments = attach(self.disk, name, self.folder / "arena", class_)
            started: Machine = stack.enter_context(Machine(boot, name, [*more, *arguments]))
            return started

        self.foreground = machine("foreground", "foreground")
        self.greedy = machine(VM, "background")
        self.copied = machine("copied", "foreground", *NOWHERE)
        self.committed = stack.enter_context(Machine(boot, "committed", self._over("committed")))
        address = {"type": "unix", "data": {"path": str(self.folder / "nbd")}}
        self.copied.qmp.execute("nbd-server-start", addr=address)
        self.copied.qmp.execute("block-export-add", type="nbd", id=EXPORT, node_name=NODE, name=EXPORT)
        for each in (self.foreground, self.greedy):
            each.guest.load(seconds=pair.WARM_UP_SECONDS).result()

    def _over(self, name: str) -> list[str]:
        """An overlay above the disk, all of whose data is its own, so that a commit writes all of the disk."""
        image = self.folder / "overlay"
        subprocess.run([str(paths.STAGED_IMG), "create", "-q", "-f", "qcow2", "-o", "preallocation=full", str(image), str(DISK_BYTES)],
                       check=True)
        options = attach(self.disk, name, self.folder / "arena", "foreground")
        at = options.index("-device")
        over = f"driver=qcow2,node-name=top,file.driver=file,file.filename={image},backing={NODE}"
        return [*options[:at], "-blockdev", over, "-device", options[at + 1].replace(f"drive={NODE}", "drive=top")]

    # ---- jobs

    @contextmanager
    def job(self, cell: Cell, seconds: float) -> Iterator[None]:
        """It runs meanwhile, under what the cell says."""
        machine = self.greedy if cell.job == VM else self.committed if cell.job == "commit" else self.copied
        for key, value in CONTROLS.get(cell.way, CONTROLS[FIXED]).items():
            machine.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property=key, value=value)
        if cell.job == VM:
            load = machine.guest.load(**GREEDY, seconds=seconds)
            yield
            load.result()
        elif cell.job == "reader":
            yield from self._reader(machine, cell)
        else:
            yield from self._block_job(machine, cell)

    def _block_job(self, machine: Machine, cell: Cell) -> Iterator[None]:
        command, where = {
            "backup": ("blockdev-backup", {"device": NODE, "target": TARGET, "sync": "full"}),
            "mirror": ("blockdev-mirror", {"device": NODE, "target": TARGET, "sync": "full"}),
            "commit": ("block-commit", {"device": "top"}),
        }[cell.job]
        machine.qmp.execute(command, job_id=JOB, **where, speed=cell.speed)
        if cell.way in CONTROLS:
            machine.qmp.execute("idletime-attach", job=JOB, resource=RESOURCE)
        yield
        assert machine.qmp.execute("query-block-jobs"), f"{cell.title} had ended before the run"
        machine.qmp.execute("block-job-cancel", device=JOB, force=True)
        wait_until(lambda: not machine.qmp.execute("query-jobs"), f"{cell.title} has ended", END_SECONDS)

    def _reader(self, machine: Machine, cell: Cell) -> Iterator[None]:
        if cell.way in CONTROLS:
            machine.qmp.execute("idletime-attach", export=EXPORT, resource=RESOURCE)
        speed = ["-r", str(cell.speed)] if cell.speed else []
        target = f"driver=null-co,size={DISK_BYTES}"
        reader = subprocess.Popen([
            str(paths.STAGED_IMG), "convert", "-n", "-W", "-m", str(READERS), *speed, "-f", "raw", "--target-image-opts",
            f"nbd+unix:///{EXPORT}?socket={self.folder}/nbd", target])
        try:
            yield
            assert reader.poll() is None, f"{cell.title} had ended before the run: status {reader.poll()}"
        finally:
            reader.terminate()
            reader.wait(END_SECONDS)
        if cell.way in CONTROLS:
            machine.qmp.execute("idletime-detach", export=EXPORT)
            wait_until(lambda: not machine.qmp.execute("query-idletime")[0]["exports"], "the export is detached", END_SECONDS)

    # ---- runs

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What foreground and job did."""
        load = {**pair.FOREGROUND_LOAD, "quantum_ms": pair.QUANTUM_MS, "outstanding": 1, "seconds": seconds}
        mark = self.disk.mark()
        if not cell.job:
            return {"foreground": self.foreground.guest.load(**load).result()}
        with self.job(cell, seconds):
            result = self.foreground.guest.load(**load).result()
            served = self.disk.read(mark)
        name = {VM: VM, "commit": "committed"}.get(cell.job, "copied")
        of_job = of_client(served, name)
        return {"foreground": result, "requests": len(of_job), "bytes_per_second": int(of_job["bytes"].sum()) / seconds}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.jobs", description="Jobs beside a foreground: ours and fixed speeds.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "jobs", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12, help="of a run")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--held", action="store_true", help="only the learned interval, each time after the foreground alone")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="begin no run that would end later")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / ("jobs-held.jsonl" if arguments.held else "jobs.jsonl"))

    def work() -> None:
        run_folder.guard()
        if cells := results.missing((held if arguments.held else plan)(arguments.jobs, arguments.repeats)):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", seconds=arguments.seconds, disk=rig.disk.parameters(), **rig.facts)
                work_off(cells, lambda _: arguments.seconds + OVERHEAD_SECONDS,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)),
                         arguments.limit_seconds)
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
