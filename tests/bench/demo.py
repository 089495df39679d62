"""The demo: a foreground VM keeps its disk while a greedy background VM of another process uses the rest.

    python3 -m tests.bench.demo [--quick] [--output build/demo] [--qemu PATH] [--quantum-ms N]

Boots one foreground and one background guest on a disk that serves one request
at a time in 5 ms, measures each phase of plan.py several times, and leaves in
the output folder: results.jsonl (one line per run, all parameters),
latencies/ (raw, one file per run and guest), result.png, result.txt.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, TextIO

import numpy as np

from tests.bench import pair, plan, stockpair
from tests.bench.progress import Progress
from tests.framework import accel, host, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot
from tests.report import plot, table
from tests.testbed import observer
from tests.testbed.disk import Model

DISK = Model(model="fixed", size="1G", service_us=5000)

TICK_SECONDS = 0.5
"""How often the progress moves."""

OVERHEAD_SECONDS = 0.6
"""Commands, fetching of latencies and start of the load, per phase under TCG."""


@dataclass(frozen=True)
class Length:
    """How long the demo measures."""

    seconds: float
    repeats: int


# Twenty-five phases of 4 s, three times: 6 minutes, with at least 700 foreground requests per phase.
FULL = Length(seconds=4, repeats=3)
QUICK = Length(seconds=4, repeats=1)


def _write(results: TextIO, line: dict[str, Any]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def _await(loads: dict[str, Load], progress: Progress, done_seconds: float) -> None:
    """Wait for all loads of a phase, moving the progress."""
    begin = time.monotonic()
    for load in loads.values():
        while not load.wait(TICK_SECONDS):
            progress.at(done_seconds + time.monotonic() - begin)
            if time.monotonic() - begin > load.seconds + pair.LATE_SECONDS:
                break  # result() tells what is wrong


def _collect(loads: dict[str, Load], folder: Path, stem: str) -> dict[str, Any]:
    """Reports of the loads; the raw latencies go into files beside the results."""
    reports: dict[str, Any] = {"foreground": None, "background": None}
    for role, load in loads.items():
        name = f"latencies/{stem}-{role}.npy"
        reports[role] = {**load.result(), "latencies": name}
        np.save(folder / name, load.samples())
    return reports


class Demo:
    """One demo: where its results go, and how long it measures."""

    loads = plan.OUTSTANDING
    """Requests that the background keeps outstanding."""

    def __init__(self, folder: Path, length: Length, quantum_ms: int, make_pair: Callable[..., pair.Pair] = pair.Pair) -> None:
        self.folder, self.length, self.quantum_ms, self.make_pair = folder, length, quantum_ms, make_pair
        self.with_stock = make_pair is pair.Pair
        self.results = folder / "results.jsonl"
        self.finished = 0

    def prepare(self) -> None:
        """An empty output folder: results of two demos never mix."""
        shutil.rmtree(self.folder / "latencies", ignore_errors=True)
        for name in ("results.jsonl", "result.png", "result.txt"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "latencies").mkdir(parents=True)

    def measure(self, wanted_qemu: str | None) -> None:
        """Boot the guests and run all phases."""
        print("Preparing: guest kernel, load generator, accelerator ...", flush=True)
        boot = accel.prepare(wanted_qemu)
        print(f"Booting two guests under {boot.accel.upper()} ...", flush=True)
        with self.make_pair(boot, DISK, self.quantum_ms) as machines, self.results.open("w") as results:
            if not machines.patched:
                print(f"{boot.qemu} is an unpatched QEMU: only the phases that need no patch will run", flush=True)
            machines.warm_up()
            _write(results, {"kind": "conditions", "program": self.folder.name, "seconds": self.length.seconds,
                             "repeats": self.length.repeats, **machines.conditions(), **host.facts(boot)})
            self._run_phases(machines, results, plan.phases(machines.patched, self.loads))
        if self.with_stock and machines.patched:
            self._measure_stock(boot)

    def _measure_stock(self, boot: Boot) -> None:
        """The same with a foreground on stock QEMU, where this machine lets us look into its kernel."""
        lacking = observer.missing_beside_stock()
        if lacking:
            print(f"Left out, foreground on stock QEMU: {lacking}", flush=True)
            return
        print("Booting two guests, the foreground's on stock QEMU, and the observer ...", flush=True)
        with stockpair.StockPair(boot, DISK, self.quantum_ms) as machines, self.results.open("a") as results:
            machines.warm_up()
            self._run_phases(machines, results, plan.stock_phases())

    def _run_phases(self, machines: pair.Pair, results: TextIO, phases: list[plan.Phase]) -> None:
        schedule = list(plan.schedule(phases, self.length.repeats))
        each = self.length.seconds + OVERHEAD_SECONDS
        with Progress(each * len(schedule)) as progress:
            for number, (repeat, phase) in enumerate(schedule):
                progress.step(f"run {number + 1} of {len(schedule)}: {phase.title}")
                loads = machines.begin(phase, self.length.seconds)
                _await(loads, progress, number * each)
                stem = f"{phase.name}-{repeat}"
                line = {"kind": "run", "repeat": repeat, "phase": phase.parameters()}
                line |= {"disk_log": machines.at_disk(), "query_idletime": machines.counters()}
                _write(results, {**line, **_collect(loads, self.folder, stem)})
                self.finished += 1
                progress.at((number + 1) * each)

    def report(self) -> None:
        """Table on the terminal and in a file, and the plot."""
        (self.folder / "result.txt").write_text(table.text(self.results))
        print(table.text(self.results, terminal=True))
        plot.draw(self.results, self.folder / "result.png")
        for name in ("result.png", "result.txt", "results.jsonl", "latencies/"):
            print(f"  {self.folder / name}")


def _arguments(name: str) -> argparse.Namespace:
    program = f"python3 -m tests.bench.{name.replace('-', '_')}"
    parser = argparse.ArgumentParser(prog=program, description="A foreground VM keeps its disk.")
    parser.add_argument("--quick", action="store_true", help="about a minute instead of five, and noisier")
    parser.add_argument("--output", type=Path, default=paths.BUILD / name, help=f"folder of the results (build/{name})")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--quantum-ms", type=int, default=pair.QUANTUM_MS, metavar="N",
                        help="the foreground is busy for 30 %% of each N ms (100)")
    return parser.parse_args()


def main(name: str = "demo", make_pair: Callable[..., pair.Pair] = pair.Pair) -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments(name)
    demo = Demo(arguments.output, QUICK if arguments.quick else FULL, arguments.quantum_ms, make_pair)

    def work() -> None:
        demo.prepare()
        demo.measure(arguments.qemu)
        demo.report()

    return exit_status(work, lambda: f"{demo.finished} finished runs are in {demo.results}")


if __name__ == "__main__":
    sys.exit(main())
