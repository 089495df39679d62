"""The evaluation: foreground slowdown against background throughput, for every contender on every workload.

    python3 -m tests.bench.eval [--disk arm|rules|seek|ssd] [--quick] [--output build/bench/eval] [--qemu PATH] [--minutes M] [--seconds S] [--learning-seconds S]
                                [--workload NAME]... [--contender NAME]... [--repeats N] [--outstanding N]

Who learns sees the workload for a while before its run, with other random
numbers; what that cost and brought is in the results, too. The runs that are
compared all have the same random numbers.

Resumable: results.jsonl holds one line per run, with all parameters; runs that
it has are not run again. --fresh begins anew. Afterwards it draws frontier.png
and prints the table (python3 -m tests.report.frontier does that alone).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from tests.bench.eval import contenders, disks, rules
from tests.bench.eval.contenders import Contender
from tests.bench.eval.disks import Setting
from tests.bench.eval.rig import BACKGROUND_LOAD, Rig
from tests.bench.eval.workloads import Workload
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.framework.initramfs import get_initramfs
from tests.framework.kernel import get_kernel
from tests.framework.qemu import Boot
from tests.report import frontier

OVERHEAD_SECONDS = 1.0
"""Settings, commands and fetching of latencies, per run."""
BOOT_SECONDS = 45.0
"""Seven machines, one after the other."""
LATE_SECONDS = 30.0
SEED, LEARNING_SEED = 1, 7


@dataclass(frozen=True)
class Step:
    """One run. `contender` None: the foreground alone; `workload` None: the background alone."""

    repeat: int
    path: str
    workload: Workload | None
    contender: Contender | None

    @property
    def key(self) -> str:
        """Unique among the steps; also the stem of its files."""
        workload = self.workload.name if self.workload else "none"
        contender = self.contender.name if self.contender else "alone"
        return f"{workload}-{self.path}-{contender}-{self.repeat}".replace(" ", "_").replace("/", "_").replace(",", "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        if self.workload is None:
            return f"background alone, by {self.path}"
        return f"{self.workload.title}: {self.contender.name if self.contender else f'alone, by {self.path}'}"


def steps(chosen: list[Workload], against: list[Contender], repeats: int) -> Iterator[Step]:
    """All runs; every other repeat runs backwards, so that a drift of the host hits all alike."""
    ways = list(dict.fromkeys(contender.path for contender in against))
    for repeat in range(repeats):
        order = [Step(repeat, way, None, None) for way in ways]
        for workload in chosen:
            order += [Step(repeat, way, workload, None) for way in ways]
            order += [Step(repeat, contender.path, workload, contender) for contender in against]
        yield from order if repeat % 2 == 0 else reversed(order)


class Evaluation:
    """One results folder, and the runs that it still lacks."""

    def __init__(self, folder: Path, seconds: float, learning_seconds: float, outstanding: int) -> None:
        self.folder, self.seconds, self.learning_seconds, self.outstanding = folder, seconds, learning_seconds, outstanding
        self.results = ResultsFile(folder / "results.jsonl")
        (folder / "latencies").mkdir(exist_ok=True)

    def learning(self, step: Step) -> float:
        """How long this step's contender learns before its run."""
        return self.learning_seconds if step.contender and step.contender.learns else 0

    def run(self, rig: Rig, step: Step) -> None:
        """Run one step and write its line."""
        line = {
            "key": step.key, "repeat": step.repeat, "path": step.path, "seconds": self.seconds,
            "workload": step.workload.parameters() if step.workload else None,
            "contender": step.contender.parameters() if step.contender else None,
        }
        try:
            rig.apply(step.contender or contenders.UNCONTROLLED_ON[step.path])
        except ValueError as reason:
            self.results.write("skipped", **line, reason=str(reason))
            return
        learning = None
        if seconds := self.learning(step):
            learning = {"seconds": seconds, **self._measure(rig, step, seconds, LEARNING_SEED, f"{step.key}-learning")}
        result = self._measure(rig, step, self.seconds, SEED, step.key)
        counters = rig.counters() if step.path == "nbd" else None
        self.results.write("run", **line, **result, learning=learning, query_idletime=counters)

    def _measure(self, rig: Rig, step: Step, seconds: float, seed: int, stem: str) -> dict[str, Any]:
        """What the guests and the disk saw of a run of these loads."""
        mark = rig.disk.mark()
        background, parts = self._loads(rig, step, seconds, seed)
        sums, requests = rig.at_disk(mark)
        np.save(self.folder / "latencies" / f"{stem}-disk.npy", requests)
        return {**self._collect(background, parts, stem), "at_disk": sums}

    def _loads(self, rig: Rig, step: Step, seconds: float, seed: int) -> tuple[Load | None, list[list[Load]]]:
        """Run the loads to their end: the background's, and the foregrounds' by part."""
        background = None
        if step.workload is None or step.contender is not None:
            background = rig.background(step.path, seconds)
        parts: list[list[Load]] = []
        count = len(step.workload.loads[0]) if step.workload else 0
        for part in range(count):
            assert step.workload is not None
            with rig.mounted(step.path, step.workload):
                parts.append(rig.foreground(step.path, step.workload, part, seconds / count, seed))
                for load in parts[-1]:
                    load.wait(seconds / count + LATE_SECONDS)
        if background:
            background.wait(seconds + LATE_SECONDS)
        return background, parts

    def _collect(self, background: Load | None, parts: list[list[Load]], stem: str) -> dict[str, Any]:
        foreground = []
        for part, loads in enumerate(parts):
            for vm, load in enumerate(loads):
                name = f"latencies/{stem}-{part}-{vm}.npy"
                foreground.append({**load.result(), "part": part, "vm": vm, "latencies": name})
                np.save(self.folder / name, load.samples())
        report = background.result() if background else None
        if background:
            background.samples()
        return {"foreground": foreground, "background": report}


def _boot(qemu: str | None) -> Boot:
    """A guest with a file system and the database."""
    programs = [paths.find_tool("dbload", "loadgen")]
    initramfs = get_initramfs(get_kernel(), ["crc32c_generic", "ext4"], programs=programs)
    return replace(accel.prepare(qemu), initramfs=initramfs)


def measure(evaluation: Evaluation, setting: Setting, todo: list[Step], qemu: str | None, limit_seconds: float) -> None:
    """Boot the machines and run what is left, as far as the time goes."""
    print("Preparing: guest kernel, load generator, accelerator ...", flush=True)
    boot = _boot(qemu)
    foregrounds = max((len(step.workload.loads) for step in todo if step.workload), default=1)
    with Rig(boot, setting, evaluation.outstanding, {step.path for step in todo}, foregrounds) as rig:
        evaluation.results.write(
            "conditions", program="eval", disk=setting.model.parameters(), disk_title=setting.title, seconds=evaluation.seconds, learning_seconds=evaluation.learning_seconds,
            background_load={**BACKGROUND_LOAD, "outstanding": evaluation.outstanding}, started=time.time(), **host.facts(boot),
        )
        work_off(todo, lambda step: evaluation.learning(step) + evaluation.seconds + OVERHEAD_SECONDS,
                 lambda step: evaluation.run(rig, step), limit_seconds - BOOT_SECONDS)


def _chosen(names: list[str] | None, known: dict[str, Any], what: str) -> list[Any]:
    for name in names or []:
        if name not in known:
            raise ValueError(f"--{what} {name}: unknown; there are: {', '.join(known)}")
    return [known[name] for name in names or known]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.eval", description="Everyone on one disk.")
    parser.add_argument("--disk", choices=disks.BY_NAME, default="arm", help="which disk (arm); rules: arm, with a QEMU compiled for it that has the dissertation's other rules, too")
    parser.add_argument("--quick", action="store_true", help="about ten minutes: fewer contenders and workloads, one repeat")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "eval", help="folder of the results")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--workload", action="append", metavar="NAME", help="only these")
    parser.add_argument("--contender", action="append", metavar="NAME", help="only these")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each run (12)")
    parser.add_argument("--learning-seconds", type=float, default=10.0, help="before the run of one that learns (10)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after these; the same command goes on (no limit)")
    parser.add_argument("--outstanding", type=int, help="requests that the greedy background keeps (1; ssd: 32)")
    parser.add_argument("--repeats", type=int, default=3, help="of each run (3)")
    return parser.parse_args()


QUICK_WORKLOADS = ("periodic", "jittered", "exponential", "poisson-30", "change", "trace")


def _plan(arguments: argparse.Namespace, setting: Setting) -> list[Step]:
    known = {contender.name: contender for contender in setting.contenders}
    names = {workload.name: workload for workload in setting.workloads}
    if arguments.quick:
        arguments.contender = arguments.contender or [name for name in known if name in contenders.QUICK]
        arguments.workload = arguments.workload or [name for name in names if setting is not disks.ARM or name in QUICK_WORKLOADS]
        arguments.repeats = 1
    chosen = _chosen(arguments.workload, names, "workload")
    return list(steps(chosen, _chosen(arguments.contender, known, "contender"), arguments.repeats))


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()

    def work() -> None:
        setting = disks.BY_NAME[arguments.disk]
        if setting.other_rules and arguments.qemu:
            raise ValueError("--disk rules compiles a QEMU of its own: leave --qemu out")
        plan = _plan(arguments, setting)
        if arguments.fresh:
            shutil.rmtree(arguments.output, ignore_errors=True)
        evaluation = Evaluation(arguments.output, arguments.seconds, arguments.learning_seconds,
                                arguments.outstanding or setting.outstanding)
        todo = evaluation.results.missing(plan)
        print(f"{len(plan) - len(todo)} of {len(plan)} runs are there already.")
        if todo:
            qemu = str(rules.build()) if setting.other_rules else arguments.qemu
            measure(evaluation, setting, todo, qemu, 60 * arguments.minutes)
        frontier.report(evaluation.results.path)

    return exit_status(work, lambda: "the same command goes on where this one ended")


if __name__ == "__main__":
    sys.exit(main())
