"""A foreground VM on one processor beside a greedy VM: equal, by weight, and in the idle class (paper 003, Figure 3 and Table 1).

    python3 -m tests.bench.cpu [--repeats 3] [--seconds 4] [--output build/bench/cpu] [--qemu PATH]

Both VMs have one processor of the host between them, and no other. The foreground computes for 10 to 100 % of each 100 ms, the
background without a pause. What the background has is its QEMU's processor time meanwhile. The foreground alone runs beside a
program of the idle class, so that a processor that sleeps, and wakes late, does not make it slower than with company. By weight: the background's cgroup has the smallest share that libvirt gives, which is the policy's
<cpu class='minimal'/>; idle: that, and SCHED_IDLE for all threads of its QEMU, which is <cpu class='idle'/>. As root, with cgroup
v1's controller "cpu". One JSON line a run; what is there is not run again. `python3 -m tests.report.cpu FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Iterator

from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.framework.process import Process
from tests.framework.qemu import Machine
from tests.report import cpu as report

sys.path.insert(0, str(paths.ROOT / "libvirt"))
from idletime.hostd import native  # noqa: E402  (the product's own)

INTENSITIES = (10, 30, 50, 70, 90, 100)
ALONE, EQUAL, WEIGHT, IDLE = "alone", "equal", "weight", "idle class"
WAYS = (EQUAL, WEIGHT, IDLE)
CGROUPS = Path("/sys/fs/cgroup/cpu")
USUAL_SHARES = 1024
OVERHEAD_SECONDS, WARM_UP_SECONDS, MOST_SECONDS = 1.2, 0.5, 300.0
TICKS = os.sysconf("SC_CLK_TCK")
SPIN = ["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]


@dataclass(frozen=True)
class Cell:
    """One run."""

    way: str
    foreground: int
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way}-{self.foreground}-{self.repeat}".replace(" ", "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"foreground {self.foreground} %, {self.way}"


def plan(repeats: int) -> list[Cell]:
    """All ways of an intensity follow each other."""
    return [Cell(way, intensity, repeat) for repeat in range(repeats) for intensity in INTENSITIES for way in (ALONE, *WAYS)]


class Group:
    """A context manager: a cgroup of one VM."""

    def __init__(self, name: str, pid: int) -> None:
        self._folder, self._pid = CGROUPS / f"idletime-bench-{os.getpid()}-{name}", pid

    def __enter__(self) -> Group:
        self._folder.mkdir()
        (self._folder / "cgroup.procs").write_text(str(self._pid))
        return self

    def __exit__(self, *_: object) -> None:
        (CGROUPS / "cgroup.procs").write_text(str(self._pid))
        self._folder.rmdir()

    def weigh(self, shares: int) -> None:
        """Its share, of USUAL_SHARES for everybody else."""
        (self._folder / "cpu.shares").write_text(str(shares))


class Rig:
    """Two VMs on the last processor of those that we may use; all else of ours is on the others."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        boot = accel.prepare(qemu)
        program = paths.find_tool("cpuload", "loadgen")
        boot = replace(boot, initramfs=initramfs.get_initramfs(kernel.get_kernel(), programs=[program]))
        self.facts = host.facts(boot)
        self.machines, self.groups = {}, {}
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        *others, self.shared = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, others or {self.shared})
        for role in ("foreground", "background"):
            machine = stack.enter_context(Machine(boot, role))
            for thread in Path(f"/proc/{machine.process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {self.shared})
            self.machines[role] = machine
            self.groups[role] = stack.enter_context(Group(role, machine.process.pid))

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What the foreground did, and what part of the processor the background had meanwhile."""
        self.groups["background"].weigh(USUAL_SHARES if cell.way in (ALONE, EQUAL) else native.MIN_SHARES)
        pids = [self.machines[role].process.pid for role in ("foreground", "background")]
        native.set_scheduler(None, pids[1], "idle" if cell.way == IDLE else "other")
        with self._company(cell):
            time.sleep(WARM_UP_SECONDS)
            began, used = time.monotonic(), [_cpu_seconds(pid) for pid in pids]
            foreground = self._load("foreground", cell.foreground, seconds).result()
            passed = time.monotonic() - began
            ahead, behind = ((_cpu_seconds(pid) - before) / passed for pid, before in zip(pids, used, strict=True))
            return {"foreground": foreground, "foreground_processor": ahead, "background": behind}

    def _load(self, role: str, intensity: int, seconds: float) -> Load:
        return Load(self.machines[role].guest, "cpuload", {"intensity": intensity, "seconds": seconds})

    @contextmanager
    def _company(self, cell: Cell) -> Iterator[None]:
        """Who else is on the processor."""
        if cell.way == ALONE:
            spin = Process(SPIN, self.folder / "spin.log")
            os.sched_setaffinity(spin.pid, {self.shared})
            try:
                with Group("spin", spin.pid) as group:  # a session of its own has as much as everybody, whatever its class
                    group.weigh(native.MIN_SHARES)
                    yield
            finally:
                spin.stop()
            return
        load = self._load("background", 100, MOST_SECONDS)
        yield
        self.groups["background"].weigh(USUAL_SHARES)
        load.stop()
        load.result()


def _cpu_seconds(pid: int) -> float:
    """Of a process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.cpu", description="A foreground VM's processor beside a greedy VM.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "cpu", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of a run")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "cpu.jsonl")

    def work() -> None:
        if cells := results.missing(plan(arguments.repeats)):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", seconds=arguments.seconds, shares=native.MIN_SHARES, **rig.facts)
                work_off(cells, lambda _: arguments.seconds + OVERHEAD_SECONDS,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
