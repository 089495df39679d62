"""A foreground VM on one processor beside a greedy VM: equal, by weight, and in the idle class (paper 003, Figure 3 and Table 1).

    python3 -m tests.bench.cpu [--repeats 1] [--seconds 4] [--output build/bench/cpu] [--qemu PATH]

Both VMs have one processor of the host between them, and no other. The foreground computes for 10 to 100 % of each 100 ms, the
background without a pause. By weight: the background's cgroup has the smallest share that libvirt gives, which is the policy's
<cpu class='minimal'/>; idle: that, and SCHED_IDLE for all threads of its QEMU, which is <cpu class='idle'/>. As root, with cgroup
v1's controller "cpu". One JSON line a run; what is there is not run again. `python3 -m tests.report.cpu FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.report import cpu as report

sys.path.insert(0, str(paths.ROOT / "libvirt"))
from idletime.hostd import native  # noqa: E402  (the product's own)

INTENSITIES = tuple(range(10, 101, 10))
ALONE, EQUAL, WEIGHT, IDLE = "alone", "equal", "weight", "idle class"
WAYS = (EQUAL, WEIGHT, IDLE)
CGROUPS = Path("/sys/fs/cgroup/cpu")
USUAL_SHARES = 1024
OVERHEAD_SECONDS = 0.7


@dataclass(frozen=True)
class Cell:
    """One run. `foreground` 0: the background is alone."""

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
        return f"foreground {self.foreground} %, {self.way}" if self.foreground else "background alone"


def plan(repeats: int) -> list[Cell]:
    """All ways of an intensity follow each other."""
    return [cell for repeat in range(repeats) for cell in (
        Cell(ALONE, 0, repeat), *(Cell(way, intensity, repeat) for intensity in INTENSITIES for way in (ALONE, *WAYS)))]


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
        *others, shared = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, others or {shared})
        for role in ("foreground", "background"):
            machine = stack.enter_context(Machine(boot, role))
            for thread in Path(f"/proc/{machine.process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {shared})
            self.machines[role] = machine
            self.groups[role] = stack.enter_context(Group(role, machine.process.pid))

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What both did."""
        self.groups["background"].weigh(USUAL_SHARES if cell.way in (ALONE, EQUAL) else native.MIN_SHARES)
        pid = self.machines["background"].process.pid
        native.set_scheduler(None, pid, "idle" if cell.way == IDLE else "other")
        loads = {}
        if cell.way != ALONE or not cell.foreground:
            loads["background"] = Load(self.machines["background"].guest, "cpuload", {"intensity": 100, "seconds": seconds})
        if cell.foreground:
            loads["foreground"] = Load(self.machines["foreground"].guest, "cpuload",
                                       {"intensity": cell.foreground, "seconds": seconds})
        return {role: load.result() for role, load in loads.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.cpu", description="A foreground VM's processor beside a greedy VM.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "cpu", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=1)
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
