"""A foreground that passes by our QEMU, seen by the observer, against one that is patched: what it keeps, what the background gets.

    python3 -m tests.bench.observed [--repeats 3] [--seconds 10] [--ways slot stock] [--controls 'auto 3 %'] [--learn-seconds 20]
                                    [--output build/bench/observed] [--qemu PATH] [--unpatched PATH]

All are on one loop device over the disk of 5 ms, with the demo's loads. The foreground is a VM of ours with a slot, a VM on stock
QEMU, or a process of the host; the background is a VM of ours. The observer runs all the time and leaves out who has a slot.
With --learn-seconds the loads run for so long before, with the same settings, and that is not counted.
One JSON line a run, raw latencies beside it; what is there is not run again. `python3 -m tests.report.observed FILE` is the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Sequence

import numpy as np

from tests.bench import pair
from tests.bench.alternate import UNPATCHED
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths, run_folder
from tests.framework.interrupt import exit_status
from tests.framework.process import Process
from tests.framework.qemu import Machine
from tests.report import observed as report
from tests.testbed import observer
from tests.testbed.attach import RESOURCE
from tests.testbed.hostload import HostLoad

WAYS = ("slot", "stock", "process", "container", "partition")
"""Of the foreground: both VMs patched; with the observer stock QEMU, a process of the host, one in a cgroup of its own, stock QEMU
on one partition of the device and the background on another."""
CONTROLS: dict[str, dict[str, object]] = {
    "5 ms": {"interval-us": 5000, "auto": False},
    "20 ms": {"interval-us": 20000, "auto": False},
    "auto 3 %": {"interval-us": 20000, "auto": True, "budget-percent": 3},
}
OUTSTANDING = (1, 4)
OVERHEAD_SECONDS = 2.0
PAUSE_SECONDS = 0.5
"""After settings changed."""


@dataclass(frozen=True)
class Cell:
    """One run. `way` "": the background alone; `outstanding` 0: the foreground alone."""

    way: str
    outstanding: int
    control: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way or 'none'}-{self.outstanding}-{self.control or 'none'}-{self.repeat}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        if not self.outstanding:
            return f"foreground ({self.way}) alone"
        beside = f"foreground ({self.way}), {self.control}" if self.way else "alone"
        return f"background ({self.outstanding} outstanding), {beside}"


def plan(repeats: int, wanted: Sequence[str] = WAYS, controls: Sequence[str] = tuple(CONTROLS)) -> list[Cell]:
    """The ways follow each other directly, in turn the other way round, so that what the host does meanwhile hits all alike."""
    cells = []
    for repeat in range(repeats):
        ways = wanted if repeat % 2 == 0 else wanted[::-1]
        cells += [Cell(way, 0, "", repeat) for way in ways]
        for outstanding in OUTSTANDING:
            cells.append(Cell("", outstanding, "", repeat))
            cells += [Cell(way, outstanding, control, repeat) for control in controls for way in ways]
    return cells


class Rig:
    """The VMs and the observer."""

    def __init__(self, stack: ExitStack, arguments: argparse.Namespace) -> None:
        boot = accel.prepare(arguments.qemu)
        self.facts = host.facts(boot)
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        self.host = observer.Host(stack, boot, Path(arguments.unpatched), self.folder / "arena")
        first, second = self.host.halves(self.folder)
        self._whole, self._part = self.host.background(), self.host.background(second)
        self.foreground = {"slot": self.host.patched(), "stock": self.host.stock(), "partition": self.host.stock(first)}
        self._container = stack.enter_context(observer.cgroup("container"))
        self.host.observer()
        for background in (self._whole, self._part):
            observer.await_seen(background)
        for machine in (self._whole, self._part, *self.foreground.values()):
            machine.guest.load(seconds=pair.WARM_UP_SECONDS).result()

    def background(self, cell: Cell) -> Machine:
        """Of this run; the other one does nothing."""
        return self._part if cell.way == "partition" else self._whole

    def control(self, background: Machine, name: str) -> None:
        """What holds the background back; alone, nothing does."""
        for key, value in CONTROLS.get(name, {"interval-us": 0, "auto": False}).items():
            background.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property=key, value=value)
        time.sleep(PAUSE_SECONDS)

    def run(self, cell: Cell, seconds: float, learn_seconds: float) -> dict[str, Any]:
        """The loads by role, as they ended."""
        background = self.background(cell)
        self.control(background, cell.control)
        if learn_seconds and cell.way and cell.outstanding:
            self._loads(background, cell, learn_seconds)
        return self._loads(background, cell, seconds)

    def _loads(self, background: Machine, cell: Cell, seconds: float) -> dict[str, Any]:
        loads: dict[str, Any] = {}
        if cell.outstanding:
            loads["background"] = background.guest.load(**pair.BACKGROUND_LOAD, outstanding=cell.outstanding, seconds=seconds)
        if cell.way:
            load = {**pair.FOREGROUND_LOAD, "quantum_ms": pair.QUANTUM_MS, "outstanding": 1, "seconds": seconds}
            loads["foreground"] = self._foreground(cell.way, load)
        return {role: (load.result(), load.samples()) for role, load in loads.items()}

    def _foreground(self, way: str, load: dict[str, Any]) -> Any:
        machine: Machine | None = self.foreground.get(way)
        if machine:
            return machine.guest.load(**load)
        start = self._contained if way == "container" else Process
        return HostLoad(self.folder, "idleload", start=start, device=self.host.loop.device, **load)

    def _contained(self, argv: list[str], folder: Path) -> Process:
        return Process(["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self._container / "cgroup.procs"), *argv], folder)


def _measure(rig: Rig, results: ResultsFile, cell: Cell, seconds: float, learn_seconds: float) -> None:
    line: dict[str, Any] = {"foreground": None, "background": None}
    for role, (result, samples) in rig.run(cell, seconds, learn_seconds).items():
        name = f"latencies/{cell.key.replace(' ', '')}-{role}.npy"
        np.save(results.path.parent / name, samples)
        line[role] = {**result, "latencies": name}
    results.write("run", key=cell.key, cell=asdict(cell), query_idletime=rig.background(cell).qmp.execute("query-idletime"), **line)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.observed", description="What a foreground keeps that an observer sees.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "observed", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of a run")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="of the foreground (all)")
    parser.add_argument("--controls", nargs="+", choices=CONTROLS, default=list(CONTROLS), help="of the background (all)")
    parser.add_argument("--learn-seconds", type=float, default=0, help="of the same loads before a run, not counted (0)")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="begin no run that would end later")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    parser.add_argument("--unpatched", default=str(UNPATCHED), help="QEMU of `make qemu-unpatched`, or Debian's")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    lacking = observer.missing()
    if lacking:
        print(f"error: {lacking}", file=sys.stderr)
        return 1
    results, stock = ResultsFile(arguments.output / "results.jsonl"), host.version(arguments.unpatched)
    if other := results.conditions("stock") - {stock}:
        print(f"error: {results.path} has runs of another stock QEMU ({', '.join(map(str, other))}), this is {stock}: choose another "
              "--output", file=sys.stderr)
        return 1
    (arguments.output / "latencies").mkdir(parents=True, exist_ok=True)

    def work() -> None:
        run_folder.guard()
        cells = results.missing(plan(arguments.repeats, arguments.ways, arguments.controls))
        if cells:
            with ExitStack() as stack:
                rig = Rig(stack, arguments)
                results.write("conditions", seconds=arguments.seconds, learn_seconds=arguments.learn_seconds,
                              disk=rig.host.disk.parameters(), stock=stock, **rig.facts)
                work_off(cells, lambda _: arguments.seconds + arguments.learn_seconds + OVERHEAD_SECONDS,
                         lambda cell: _measure(rig, results, cell, arguments.seconds, arguments.learn_seconds),
                         arguments.limit_seconds)
        print(report.text(results.path))

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
