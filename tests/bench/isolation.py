"""The four criteria of isol-bench, and resctl-bench's two, for every contender of the evaluation, on one disk.

    python3 -m tests.bench.isolation [--output build/bench/isolation] [--contender NAME]... [--repeats N] [--fresh] [--qemu PATH]

isol-bench (Ren and others, IISWC 2023) asks of a knob: what does it cost who has the disk for himself, are equals treated alike, is
the disk used, and how soon has a burst what it needs?  resctl-bench asks how much of the protected one's work is kept, and how much
work is done in all.  Machines, disk (5 ms a request, one at a time) and contenders are those of tests.bench.eval.

    overhead    the foreground, greedy, with nobody else
    spare       the background, greedy, with nobody else
    alone       the foreground's bursts with nobody else, on each way to the disk
    bursts      the same beside the greedy background
    fair        two backgrounds, with one and with four requests at a time, and nobody else

Resumable as tests.bench.eval is; afterwards it prints the table and draws isolation.png (python3 -m tests.report.isolation FILE).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

from tests.bench.eval import contenders, disks
from tests.bench.eval.contenders import Contender
from tests.bench.eval.rig import BACKGROUND, BACKGROUND_LOAD, FOREGROUND_LOAD, FOREGROUNDS, Rig
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.report import isolation
from tests.testbed.attach import DEVICE

NAMES = ("uncontrolled", "interval 20 ms", "auto 3 %", "auto 10 %", "throttle 60/s", "uncontrolled, loop", "mq-deadline, idle", "bfq, idle", "bfq, weight 10",
         "kyber, idle", "uncontrolled, guest", "io.cost, weight 1")
SECONDS = {"overhead": 6.0, "spare": 6.0, "alone": 20.0, "bursts": 20.0, "fair": 8.0}
LEARNING_SECONDS = 10.0
"""Before "bursts" and "fair", for who learns."""
BURSTS: dict[str, Any] = {"intensity": 25, "quantum_ms": 2000, "pauses": "jittered"}
GREEDY: dict[str, Any] = {"intensity": 100}
MANY = 4
"""Requests of the second background."""
LATE_SECONDS = 30.0


@dataclass(frozen=True)
class Step:
    """One run. The contender of "alone" says which way to the disk."""

    repeat: int
    kind: str
    contender: Contender

    @property
    def key(self) -> str:
        """Unique among the steps."""
        return f"{self.kind}-{self.contender.name}-{self.repeat}".replace(" ", "_").replace("/", "_").replace(",", "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.kind}: {self.contender.name}"

    @property
    def learning(self) -> float:
        """Seconds before it."""
        return LEARNING_SECONDS if self.contender.budget_percent and self.kind in ("bursts", "fair") else 0.0


def _steps(chosen: list[Contender], repeats: int) -> Iterator[Step]:
    """Every other repeat runs backwards, so that a drift of the host hits all alike."""
    for repeat in range(repeats):
        order = [Step(repeat, "alone", contenders.UNCONTROLLED_ON[way]) for way in dict.fromkeys(one.path for one in chosen)]
        for one in chosen:
            kinds = ["overhead", "spare", "bursts"]
            order += [Step(repeat, kind, one) for kind in kinds + ["fair"] * (one.path != "guest" and not one.throttle_iops)]
        yield from order if repeat % 2 == 0 else reversed(order)


class _Run:
    """One step on a rig."""

    def __init__(self, rig: Rig, step: Step) -> None:
        self._rig, self._step, self._way = rig, step, step.contender.path

    def measure(self, seconds: float) -> dict[str, Any]:
        """What each load reports; the foreground's requests."""
        kind = self._step.kind
        loads: dict[str, Load] = {}
        if kind in ("spare", "bursts", "fair"):
            loads["background"] = self._rig.background(self._way, seconds)
        if kind == "fair":
            loads["second"] = self._load(FOREGROUNDS[1], {**BACKGROUND_LOAD, "outstanding": MANY, "seed": 3}, seconds)
        if kind in ("overhead", "alone", "bursts"):
            loads["foreground"] = self._load(FOREGROUNDS[0], {**FOREGROUND_LOAD, **(GREEDY if kind == "overhead" else BURSTS)}, seconds)
        for load in loads.values():
            load.wait(seconds + LATE_SECONDS)
        result: dict[str, Any] = {name: load.result() for name, load in loads.items()}
        samples = {name: load.samples() for name, load in loads.items()}
        if "foreground" in samples:
            result["requests"] = [samples["foreground"][field].tolist() for field in ("start_us", "latency_us")]
        return result

    def _load(self, name: str, options: dict[str, Any], seconds: float) -> Load:
        program = self._rig.program(self._way, "foreground", "idleload")
        return Load(self._rig.machines[self._way, name].guest, program, {"device": "/dev/vda", **options, "seconds": seconds})

    def second_is_background(self, it_is: bool) -> None:
        """The second foreground machine plays the second background, or not any more."""
        contender, machine = self._step.contender, self._rig.machines[self._way, FOREGROUNDS[1]]
        if self._way == "nbd":
            held = it_is and contender.interval_us is not None
            machine.qmp.execute("idletime-set", device=DEVICE, **{"class": "background" if held else "foreground"})
        else:
            self._rig.place(BACKGROUND if it_is else FOREGROUNDS[1], machine.process.pid, contender)


class Isolation:
    """One results file."""

    def __init__(self, folder: Path) -> None:
        self.results = ResultsFile(folder / "isolation.jsonl")

    def run(self, rig: Rig, step: Step) -> None:
        """Run one step and write its line."""
        line = {"key": step.key, "step": step.kind, "repeat": step.repeat, "path": step.contender.path, "contender": step.contender.parameters()}
        try:
            rig.apply(step.contender)
        except ValueError as reason:
            self.results.write("skipped", **line, reason=str(reason))
            return
        run = _Run(rig, step)
        if step.kind == "fair":
            run.second_is_background(True)
        try:
            if step.learning:
                run.measure(step.learning)
            self.results.write("run", **line, seconds=SECONDS[step.kind], **run.measure(SECONDS[step.kind]))
        finally:
            if step.kind == "fair":
                run.second_is_background(False)


def measure(bench: Isolation, todo: list[Step], qemu: str | None) -> None:
    """Boot the machines and run what is left."""
    print("Preparing: guest kernel, load generator, accelerator ...", flush=True)
    boot = accel.prepare(qemu)
    setting = disks.ARM
    with Rig(boot, setting, 1, {step.contender.path for step in todo}, 2) as rig:
        bench.results.write("conditions", program="isolation", disk=setting.model.parameters(), bursts=BURSTS, started=time.time(), **host.facts(boot))
        work_off(todo, lambda step: step.learning + SECONDS[step.kind] + 1, lambda step: bench.run(rig, step))


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    known = {one.name: one for one in contenders.CONTENDERS if one.name in NAMES}
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.isolation", description="Overhead, fairness, use and bursts, for every contender.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "isolation", help="folder of the results")
    parser.add_argument("--contender", action="append", choices=list(known), help="only these")
    parser.add_argument("--repeats", type=int, default=2, help="of each run (2)")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    arguments = parser.parse_args()

    def work() -> None:
        if arguments.fresh:
            shutil.rmtree(arguments.output, ignore_errors=True)
        bench = Isolation(arguments.output)
        plan = list(_steps([known[name] for name in arguments.contender or NAMES], arguments.repeats))
        todo = bench.results.missing(plan)
        print(f"{len(plan) - len(todo)} of {len(plan)} runs are there already.")
        if todo:
            measure(bench, todo, arguments.qemu)
        isolation.report(bench.results.path)

    return exit_status(work, lambda: "the same command goes on where this one ended")


if __name__ == "__main__":
    sys.exit(main())
