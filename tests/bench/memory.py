"""A foreground job beside a background job where memory does not suffice for both (paper 003, Tables 2 and 3, Figure 5).

    python3 -m tests.bench.memory [--repeats 1] [--output build/bench/memory] [--qemu PATH]

A Debian guest plays the host: cgroup v2, PSI, one processor, and swap on a disk that needs 5 ms a request. Two cgroups stand for
two VMs; each has a job with a working set of 128 of 192 MB. Both scale with what the guest has. The background has the idle class
of the processor in all ways but "equal", and

    nice           nothing else
    Low and High   memory.low of both cgroups, as idletimed sets it: Low 10, High 20 MB (5 and 10 %, the paper's for parallel jobs)
    give-back      that, and idletimed's decision once a second: memory.reclaim of the background while memory is short, and before a
                   foreground starts, for which that waits

What is computed and decided is the product's (libvirt/idletime/police/memory.py), on the guest's own figures; only the writing of
files is the bench's. Figure 5 has a foreground of 150 and a background of 128 of 179 MB, Low 50 and High 70. One JSON line a run;
what is there is not run again. `python3 -m tests.report.memory FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable

from tests.bench.eval import guesthost
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.report import memory as report
from tests.testbed.disk import Disk, Model

sys.path.insert(0, str(paths.ROOT / "libvirt"))
from idletime.police import memory  # noqa: E402  (the product's own)
from idletime.police.memory import MIB, Group, How, State, Vm  # noqa: E402

FOREGROUND, BACKGROUND = "foreground", "background"
ALONE, EQUAL, NICE, LOW_HIGH, GIVE = "alone", "equal", "nice", "Low and High", "give-back"
TOGETHER, FOREGROUND_FIRST, BACKGROUND_FIRST, PLATEAUS = "together", "foreground first", "background first", "Figure 5"
PAPER_MB, JOB_MB, LOW_MB, HIGH_MB = 192, 128, 10, 20
"""Tables 2 and 3."""
FIGURE_MB, FIGURE_JOBS, FIGURE_LOW_MB, FIGURE_HIGH_MB = 179, {FOREGROUND: 150, BACKGROUND: 128}, 50, 70
RESERVE = 0.05
"""What is to be available at least: idletimed's reserve-percent."""
SWAP_MIB = 512
MEMORY_MIB = 320
TOUCHES = 400_000
HEAD_START_SECONDS = 5.0
LIMIT_SECONDS = 120.0
"""Of a run, which ends with the foreground. Who thrashes is not waited for; the paper waited for five hours."""
LOOK_SECONDS = 1.0
FIGURE_STARTS = {BACKGROUND: 5.0, FOREGROUND: 15.0}
FIGURE_REST, FIGURE_SECONDS = 55.0, 120.0
"""From when on the foreground waits for a disk, seconds after its start, and the end of the run."""


@dataclass(frozen=True)
class Cell:
    """One run."""

    order: str
    way: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.order}-{self.way}-{self.repeat}".replace(" ", "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.order}, {self.way}"

    @property
    def seconds(self) -> float:
        """How long it takes, about."""
        if self.order in (TOGETHER, PLATEAUS) or (self.order, self.way) == (BACKGROUND_FIRST, NICE):
            return LIMIT_SECONDS
        return 40.0


def plan(repeats: int) -> list[Cell]:
    """Figure 5 once."""
    pairs = [("alone", ALONE), (TOGETHER, EQUAL)]
    pairs += [(order, way) for order in (FOREGROUND_FIRST, BACKGROUND_FIRST) for way in (NICE, LOW_HIGH, GIVE)]
    return [Cell(*pair, repeat) for repeat in range(repeats) for pair in pairs] + [
        Cell(PLATEAUS, way, 0) for way in (NICE, LOW_HIGH)]


@dataclass(frozen=True)
class Facts:
    """What a look at the guest found: bytes, and PSI some avg10 of the foreground, in percent."""

    available: int
    swap: int
    resident: dict[str, int]
    pressure: float


class Rig:
    """The guest that plays the host."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        program = paths.find_tool("memload", "loadgen")
        boot = replace(accel.prepare(qemu), initramfs=initramfs.get_initramfs(kernel.get_kernel(), programs=[program]))
        self.facts = host.facts(boot)
        self.disk = stack.enter_context(Disk(Model(service_us=5000)))
        options = [*self.disk.options("swap", "swap"), "-device", "virtio-blk-pci,drive=swap"]
        self.guest = stack.enter_context(Machine(boot, "host", options, memory_mib=MEMORY_MIB)).guest
        guesthost.prepare(self.guest, "+memory +cpu")
        self.guest.run(f"dd if=/dev/zero of=/dev/vda bs=1M count=1; mkswap /dev/vda {SWAP_MIB * 1024}; swapon /dev/vda", 60)
        self.memory = self._look().available
        self._begin = time.monotonic()
        self.series: list[tuple[float, int, int]] = []

    # ---- facts and acts

    def _look(self) -> Facts:
        files = " ".join(f"{guesthost.CGROUPS}/{name}/memory.current" for name in (FOREGROUND, BACKGROUND))
        text = self.guest.run(f"cat /proc/meminfo {files} {guesthost.CGROUPS}/{FOREGROUND}/memory.pressure", 60).text
        available, swap = (int(re.search(rf"{name}: +(\d+)", text).group(1)) * 1024  # type: ignore[union-attr]
                           for name in ("MemAvailable", "SwapFree"))
        resident = [int(one) for one in re.findall(r"^(\d+)$", text, re.MULTILINE)]
        pressure = float(re.search(r"^some avg10=([\d.]+)", text, re.MULTILINE).group(1))  # type: ignore[union-attr]
        return Facts(available, swap, dict(zip((FOREGROUND, BACKGROUND), resident)), pressure)

    def _write(self, name: str, file: str, value: object) -> None:
        self.guest.run(f"echo {value} >{guesthost.CGROUPS}/{name}/{file}", 60, check=file != "memory.reclaim")

    def _set(self, way: str, low: int, high: int, size: int) -> None:
        """The policy of a way in force; sizes in bytes."""
        self._write(BACKGROUND, "cpu.idle", 0 if way in (ALONE, EQUAL) else 1)
        groups = [Group(FOREGROUND, size), Group(BACKGROUND, size, low, high)] if way in (LOW_HIGH, GIVE) else []
        protected = memory.protections(int(self.memory * (1 - RESERVE)), groups)
        for name in (FOREGROUND, BACKGROUND):
            self._write(name, "memory.low", protected.get(name, 0))

    def _clean(self) -> None:
        """Nothing of the last run in memory or swap."""
        self.guest.run("swapoff /dev/vda; echo 3 >/proc/sys/vm/drop_caches; swapon /dev/vda", 120)

    def _start(self, name: str, megabytes: float, **options: object) -> Load:
        return Load(self.guest, f"{guesthost.ENTER} {name} memload",
                    {"megabytes": round(megabytes * self._scale), "seconds": LIMIT_SECONDS, **options}, latencies=False)

    # ---- the give-back, once a second

    def _give(self, state: State, starting: int) -> tuple[State, bool]:
        """idletimed's look, decision and act; whether nothing is missing any more."""
        seen = self._look()
        about = memory.Host(seen.available, int(self.memory * RESERVE), starting, seen.pressure, protected=True, swap=seen.swap)
        has = seen.resident[BACKGROUND]
        vm = Vm(BACKGROUND, has, has, self._low, self._high, balloon=False, reclaim=True, can_save=False)
        decision = memory.decide(state, about, [vm], time.monotonic(), memory.Settings(look_s=LOOK_SECONDS))
        for act in decision.acts:
            assert act.how is How.RECLAIM
            self._write(BACKGROUND, "memory.reclaim", act.bytes_)
        self._note(seen)
        return decision.state, about.free >= 0

    def _note(self, seen: Facts) -> None:
        self.series.append((round(time.monotonic() - self._begin, 2), *seen.resident.values()))

    def _before(self, size: int) -> float:
        """A foreground of this size is about to start: how long it waited for the background's memory, in seconds."""
        begin, state, there = time.monotonic(), State(), False
        while not there and time.monotonic() - begin < memory.WITHIN_S:
            state, there = self._give(state, size)
        return time.monotonic() - begin

    # ---- a run

    def run(self, cell: Cell) -> dict[str, Any]:
        """What became of the jobs: their reports, and what both had, second by second."""
        mb, low, high = (FIGURE_MB, FIGURE_LOW_MB, FIGURE_HIGH_MB) if cell.order == PLATEAUS else (PAPER_MB, LOW_MB, HIGH_MB)
        self._scale = self.memory / (mb * MIB)
        self._low, self._high = int(low * MIB * self._scale), int(high * MIB * self._scale)
        self._clean()
        self._set(cell.way, self._low, self._high, int(JOB_MB * MIB * self._scale))
        self._begin, self.series = time.monotonic(), []
        jobs = self._plateaus() if cell.order == PLATEAUS else self._race(cell)
        return {"jobs": jobs, "series": self.series, "bounds": [self._low, self._high]}

    def _watch(self, way: str, until: Callable[[], bool]) -> None:
        state = State()
        while not until():
            if way == GIVE:
                state, _ = self._give(state, 0)
            else:
                self._note(self._look())
            time.sleep(LOOK_SECONDS)

    def _race(self, cell: Cell) -> dict[str, Any]:
        order = [FOREGROUND] if cell.way == ALONE else [FOREGROUND, BACKGROUND]
        if cell.order == BACKGROUND_FIRST:
            order.reverse()
        loads: dict[str, Load] = {}
        waited = 0.0
        for name in order:
            if loads and cell.order != TOGETHER:
                begun = time.monotonic()
                self._watch(LOW_HIGH, lambda: time.monotonic() - begun > HEAD_START_SECONDS)
            if cell.way == GIVE and loads and name == FOREGROUND:
                waited = self._before(int(JOB_MB * MIB * self._scale))
            loads[name] = self._start(name, JOB_MB, touches=TOUCHES)
        self._watch(cell.way, lambda: loads[FOREGROUND].wait(0))
        if BACKGROUND in loads:
            loads[BACKGROUND].stop()
        return {**{name: load.result(120) for name, load in loads.items()}, "waited_seconds": waited}

    def _plateaus(self) -> dict[str, Any]:
        loads: dict[str, Load] = {}
        for name, at in FIGURE_STARTS.items():
            self._watch(LOW_HIGH, lambda: time.monotonic() - self._begin > at)
            rest = {"rest_after": FIGURE_REST - at} if name == FOREGROUND else {}
            loads[name] = self._start(name, FIGURE_JOBS[name], **rest)
        self._watch(LOW_HIGH, lambda: time.monotonic() - self._begin > FIGURE_SECONDS)
        for load in loads.values():
            load.stop()
        return {name: load.result(120) for name, load in loads.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.memory", description="Two jobs, and memory for one and a half.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "memory", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU of the guest (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "memory.jsonl")

    def work() -> None:
        if cells := results.missing(plan(arguments.repeats)):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", memory_mib=rig.memory // MIB, touches=TOUCHES, disk=rig.disk.parameters(),
                              limit_seconds=LIMIT_SECONDS, **rig.facts)
                work_off(cells, lambda cell: cell.seconds,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
