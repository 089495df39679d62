"""The week of `tests.bench.week`, compressed, in real guests: what the background does and what it costs, by day.

    python3 -m tests.bench.weekguests [--output build/bench/weekguests] [--days 7] [--seconds 2]

Of each hour its first seconds, one after the other: a foreground VM replays that trace, a background VM reads without a pause, on the
model of a disk that takes 5 ms a request. One run of the whole week for each scheduler, so that the learner keeps what it has
learned, though its days pass in less than a minute. One JSON line a run, with all hours; what is there is not run again.
`python3 -m tests.report.week FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.bench import week
from tests.bench.eval import contenders, trace
from tests.bench.eval.contenders import Contender
from tests.bench.eval.disks import ARM
from tests.bench.eval.rig import FOREGROUND_LOAD, FOREGROUNDS, HALF_BYTES, Rig, put
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.report import week as report

WEEK = "/run/week.trace"
"""In the foreground's guest."""
SECONDS = 2
"""Of each hour."""
LATE_SECONDS = 10
OVERHEAD_SECONDS = 5
WAYS = {"off": "uncontrolled", "20 ms": "interval 20 ms", "auto 3%": "auto 3 %", "auto 10%": "auto 10 %"}
"""Schedulers by the simulator's name, and the evaluation's contenders."""
ALONE = "alone"


@dataclass(frozen=True)
class Run:
    """The week under one scheduler."""

    key: str

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"the week, {WAYS.get(self.key, self.key)}"

    @property
    def contender(self) -> Contender | None:
        """None: the foreground is alone."""
        return next((each for each in contenders.CONTENDERS if each.name == WAYS.get(self.key)), None)


def make_trace(folder: Path, hours: int, seconds: int) -> bytes:
    """As idleload reads it; the file itself stays in the folder."""
    text = io.StringIO()
    week.write(text, hours, seconds)
    file = folder / f"trace-{hours}-{seconds}s.csv"
    file.write_text(text.getvalue())
    return trace.for_idleload(0, file)


def by_hour(values: np.ndarray, at_ns: np.ndarray, hours: int, seconds: int) -> np.ndarray:
    """The sum of values in each hour; times are from the beginning of the week on."""
    hour = np.clip(at_ns // (seconds * 1_000_000_000), 0, hours - 1)
    return np.bincount(hour.astype(int), weights=values, minlength=hours)


def means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """0 where nothing was."""
    return np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)


def measure(rig: Rig, run: Run, first_us: int, hours: int, seconds: int) -> list[dict[str, float]]:
    """What the guest and the disk saw, hour by hour."""
    rig.apply(run.contender or contenders.UNCONTROLLED)
    mark, total = rig.disk.mark(), hours * seconds
    background = rig.background("nbd", total) if run.contender else None
    foreground = Load(rig.machines["nbd", FOREGROUNDS[0]].guest, "idleload", {
        "device": "/dev/vda", **FOREGROUND_LOAD, "trace": WEEK, "outstanding": week.DEPTH, "seconds": total})
    foreground.wait(total + LATE_SECONDS)
    foreground.result()
    samples = foreground.samples()
    if background:
        background.result()
        background.samples()
    _, seen = rig.at_disk(mark)
    begin_ns = seen.arrival_ns.min() - first_us * 1000
    log = rig.disk.read(mark)
    others = log[log["offset"] >= HALF_BYTES]
    asked_ns, arrived_ns = samples["start_us"].astype(np.int64) * 1000, seen.arrival_ns.astype(np.int64) - begin_ns
    ones = by_hour(np.ones(len(samples)), asked_ns, hours, seconds)
    took_us = by_hour(samples["latency_us"], asked_ns, hours, seconds)
    waited_ns = by_hour(seen.waited_ns, arrived_ns, hours, seconds)
    at_disk = by_hour(np.ones(len(seen)), arrived_ns, hours, seconds)
    done = by_hour(np.ones(len(others)), others["finish_ns"].astype(np.int64) - begin_ns, hours, seconds)
    columns = {"fg_rate": ones / seconds, "fg_mean_ms": means(took_us, ones) / 1e3, "fg_waited_ms": means(waited_ns, at_disk) / 1e6,
               "bg_rate": done / seconds}
    return [{name: round(float(column[hour]), 4) for name, column in columns.items()} for hour in range(hours)]


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.weekguests", description="A week of a disk, compressed, in real guests.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "weekguests")
    parser.add_argument("--days", type=int, default=7, help="from Monday on (7)")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each hour (2)")
    arguments = parser.parse_args()
    results = ResultsFile(arguments.output / "week.jsonl")
    hours, seconds = arguments.days * 24, arguments.seconds

    def work() -> None:
        if runs := results.missing([Run(key) for key in (ALONE, *WAYS)]):
            requests = make_trace(arguments.output, hours, seconds)
            # No file system: the trace is of the raw disk.
            setting, boot = replace(ARM, workloads=()), accel.prepare()
            with Rig(boot, setting, setting.outstanding, {"nbd"}, 1) as rig:
                put(rig.machines["nbd", FOREGROUNDS[0]].guest, WEEK, requests)
                results.write("conditions", seconds=seconds, hours=hours, seed=week.SEED, disk=setting.model.parameters(),
                              outstanding=setting.outstanding, **host.facts(boot))
                first_us = int(requests.split(maxsplit=1)[0])
                work_off(runs, lambda _: hours * seconds + OVERHEAD_SECONDS,
                         lambda run: results.write("run", key=run.key, hours=measure(rig, run, first_us, hours, seconds)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
