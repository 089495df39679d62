"""The network: a foreground VM keeps its uplink while a greedy background VM uses the rest.

    python3 -m tests.bench.net [SERIES] [--output build/bench/net] [--repeats N] [--seconds N] [--rate-mbit N] [--qemu PATH]
                               [--foreground slot|stock|host] [--resource NAME=VALUE ...] [--background NAME=VALUE ...]

Runs a series of cases (plan.py), each several times in alternating order, and
leaves in the output folder: results.jsonl (one line a run, all parameters),
latencies/ (raw, one file a run of the probe), result.txt, result.png.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.bench.net import observed, plan
from tests.bench.net.pair import SETTLE_SECONDS, Pair
from tests.bench.progress import Progress
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot
from tests.report import nettable
from tests.testbed import observer
from tests.testbed.link import Link
from tests.testbed.namespace import NamespaceError

OVERHEAD_SECONDS = 1.3
"""Start of sinks and loads, counters, and the end of both, per run under TCG."""

BOOT_SECONDS = 12.0
"""Two guests and the warm-up, per series."""


class Bench:
    """One run of the program: where its results go, and how long it measures."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder: Path = arguments.output
        self.seconds, self.repeats = arguments.seconds, arguments.repeats
        self.series = [replace(each, link=plan.at_rate(each.link, arguments.rate_mbit))
                       for each in plan.SERIES[arguments.series]]
        self.resource, self.options = dict(arguments.resource), dict(arguments.background)
        self.way: str = arguments.foreground
        self.results = self.folder / "results.jsonl"
        self.append, self.first = arguments.append, 0
        self.finished = 0

    def prepare(self) -> None:
        """An empty output folder, and an early error where this machine has no network for us."""
        lacking = observer.missing_beside_stock() if self.way != "slot" else None
        if lacking:
            raise NamespaceError(lacking)
        with Link():
            pass
        if self.append and self.results.exists():
            lines = map(json.loads, self.results.read_text().splitlines())
            self.first = 1 + max((line["repeat"] for line in lines if line["kind"] == "run"), default=-1)
            return
        shutil.rmtree(self.folder / "latencies", ignore_errors=True)
        for name in ("results.jsonl", "result.png", "result.txt"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "latencies").mkdir(parents=True)

    def measure(self, boot: Boot) -> None:
        """All series, one pair of guests each."""
        patched = Pair(boot, plan.LINK).patched
        if not patched:
            print(f"{boot.qemu}: its virtio-net is not patched; only cases that need no patch will run", flush=True)
        runs = sum(len(plan.possible(each.cases, patched)) for each in self.series) * self.repeats
        total = runs * self._each() + BOOT_SECONDS * len(self.series)
        with self.results.open("a") as results, Progress(total) as progress:
            self._write(results, {"kind": "conditions", "program": "net", **self._conditions(), **host.facts(boot)})
            for number, series in enumerate(self.series):
                progress.step(f"{series.name}: booting two guests under {boot.accel.upper()}")
                with observed.WAYS[self.way](boot, series.link, self.resource, self.options) as pair:
                    pair.warm_up()
                    self._run(series, pair, runs, BOOT_SECONDS * (number + 1), results, progress)

    def _each(self) -> float:
        return self.seconds + SETTLE_SECONDS + OVERHEAD_SECONDS

    def _conditions(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "repeats": self.repeats, "foreground": self.way, "background": self.options,
                "resource": self.resource}

    def _run(self, series: plan.Series, pair: Pair, runs: int, boots: float, results: TextIO, progress: Progress) -> None:
        for repeat, case in plan.schedule(series, pair.patched, self.repeats):
            progress.step(f"run {self.finished + 1} of {runs}: {case.title}")
            repeat += self.first
            line = {"kind": "run", "series": series.name, "repeat": repeat, "case": case.parameters(),
                    "link": series.link.parameters(), **pair.measure(case, self.seconds)}
            if pair.samples is not None:
                line["latencies"] = f"latencies/{series.name}-{case.name}-{repeat}.npy"
                np.save(self.folder / line["latencies"], pair.samples)
            self._write(results, {**line, "query_idletime": pair.counters()})
            self.finished += 1
            progress.at(boots + self.finished * self._each())

    @staticmethod
    def _write(results: TextIO, line: dict[str, Any]) -> None:
        results.write(json.dumps(line) + "\n")
        results.flush()

    def report(self) -> None:
        """Table on the terminal and in a file, and the plot."""
        (self.folder / "result.txt").write_text(nettable.text(self.results))
        print(nettable.text(self.results, terminal=True))
        from tests.report import netplot  # matplotlib takes a second to load

        drawn = netplot.draw(self.results, self.folder / "result.png")
        for name in ("result.txt", "results.jsonl", "latencies/", *(["result.png"] if drawn else [])):
            print(f"  {self.folder / name}")


def _setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: use NAME=VALUE, e.g. max-inflight=2")
    return name, value


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.net", description="A foreground VM keeps its uplink.")
    parser.add_argument("series", nargs="?", default="demo", choices=plan.SERIES, help="what to run (demo)")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "net", help="folder of the results")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    parser.add_argument("--seconds", type=float, default=3, help="measured in each run (3)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each case (1)")
    parser.add_argument("--append", action="store_true", help="add repeats to the results that are there")
    parser.add_argument("--rate-mbit", type=int, default=plan.LINK.rate_mbit, metavar="N",
                        help="rate of the uplink: 10, 100, 1000 (100); its queue holds the same time")
    parser.add_argument("--foreground", choices=observed.WAYS, default="slot",
                        help="a VM of ours (slot), a VM on stock QEMU or the host itself, which the observer sees")
    parser.add_argument("--resource", action="append", type=_setting, default=[], metavar="NAME=VALUE",
                        help="property of the resource objects")
    parser.add_argument("--background", action="append", type=_setting, default=[], metavar="NAME=VALUE",
                        help="property of the background's NIC")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`; UNAVAILABLE where this machine has no network for us."""
    arguments = _arguments()
    bench = Bench(arguments)

    def work() -> None:
        bench.prepare()
        bench.measure(accel.prepare(arguments.qemu, network=True))
        bench.report()

    return exit_status(work, lambda: f"{bench.finished} finished runs are in {bench.results}", (NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
