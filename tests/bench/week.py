"""A week of a mail server's disk, in the simulator: what the background does and what it costs, hour by hour.

    python3 -m tests.bench.week [--output build/bench/week] [--days 7] [--minutes 60]

The trace is made with a fixed seed, in the format of the MSR Cambridge traces (800 MB, two minutes): office hours with a rush on
Monday, nights, a weekend, and a backup at two o'clock each night that reads without a pause for 40 minutes. Within an hour the rate
changes every few seconds. Core and learner are the product's own C files, one run each over the whole week, so that the learner
keeps what it has learned; the disk takes 5 ms a request. Virtual time: the same on every machine; an hour on two processors.
--minutes shortens each hour to its first minutes.
`python3 -m tests.report.week FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator, TextIO

from tests.bench.eval.trace import TICKS_PER_SECOND, Row, delivery, visit
from tests.bench.progress import Progress
from tests.bench.simulate import SIMULATOR
from tests.framework import paths
from tests.report import week as report

SEED = 20261125
WORKDAY = (.3, .2, .2, .2, .3, .5, 1.5, 3, 6, 8, 8, 7, 5, 8, 9, 8, 7, 5, 3, 2.5, 2, 1.5, 1, .5)
"""Deliveries and visits a second, by hour of the day; one of them is some seven requests."""
WEEKEND = 0.25
MONDAY_RUSH = 1.5
MOODS = (.3, 1, 1, 2.2)
"""By which the rate is multiplied for a few seconds."""
BACKUP_HOUR, BACKUP_SHARE, BACKUP_RATE = 2, 2 / 3, 120
"""Share of that hour; requests a second, more than half of what the disk can do."""
SCHEDULERS = ("auto:3", "auto:10", "off", "20", "clairvoyant")
DEPTH = 8
TRACE_SECONDS, RUN_SECONDS = 1.0 / 3600, (2.0 / 3600, 12.0 / 3600)
"""What a second takes, about; of a run, without the learner and with it."""


def rate(hour: int) -> float:
    """Of an hour of the week, from Monday 0:00 on."""
    day, of_day = divmod(hour, 24)
    usual = WORKDAY[of_day] * (WEEKEND if day % 7 >= 5 else 1)
    return usual * MONDAY_RUSH if day % 7 == 0 and of_day in (8, 9) else usual


def rows(dice: random.Random, hour: int, seconds: int) -> Iterator[Row]:
    """Requests that begin in an hour of so many seconds, not in order of time, and a second longer."""
    at, until, now, number = 0.0, 0.0, 1.0, 0
    while at < seconds:
        if at >= until:
            now, until = rate(hour) * dice.choice(MOODS), at + dice.uniform(2, 6)
        at += dice.expovariate(now)
        number += 1
        yield from delivery(dice, at, number % 256 * 4096) if dice.random() < 0.45 else visit(dice, at)
    if hour % 24 == BACKUP_HOUR:
        for one in range(int(seconds * BACKUP_SHARE) * BACKUP_RATE):
            yield one / BACKUP_RATE, "Read", one * 65536, 65536


def write(target: TextIO, hours: int, seconds: int) -> None:
    """The trace."""
    dice, late = random.Random(SEED), []
    with Progress(hours * seconds * TRACE_SECONDS) as progress:
        for hour in range(hours):
            progress.step(f"trace of hour {hour + 1} of {hours}")
            all_ = sorted(late + list(rows(dice, hour, seconds)))
            late = [(at - seconds, *rest) for at, *rest in all_ if at >= seconds]
            for at, kind, offset, size in all_:
                if at < seconds:
                    target.write(f"{int((hour * seconds + at) * TICKS_PER_SECOND)},mail,0,{kind},{offset},{size},0\n")
            progress.at((hour + 1) * seconds * TRACE_SECONDS)


def simulate(trace: Path, hours: int, seconds: int, progress: Progress) -> list[str]:
    """Lines of results: alone, and all schedulers, as many at a time as there are processors."""
    done: list[str] = []

    def run(scheduler: str) -> list[str]:
        command = [str(SIMULATOR), "--trace", str(trace), "--depth", str(DEPTH), "--interval-ms", scheduler,
                   "--duration-s", str(hours * seconds), "--each-s", str(seconds), "--json", "week"]
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                lines.append(line)
                one = json.loads(line)
                if one["scheduler"] != "alone":
                    done.append(scheduler)
                    progress.at(sum(RUN_SECONDS[each.startswith("auto")] for each in done) * seconds)
                    if one["begin_s"] % (24 * seconds) == 0:
                        progress.step(f"{one['scheduler']}, day {one['begin_s'] / seconds / 24 + 1:.0f}")
        if process.returncode:
            raise SystemExit(f"error: the simulator ended with {process.returncode}")
        return lines

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(run, SCHEDULERS))
    return found[0][:hours] + [line for lines in found for line in lines[hours:]]


def main() -> None:
    """Make the trace, if it is not there; simulate; report."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.week", description="A week of a disk, in the simulator.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "week")
    parser.add_argument("--days", type=int, default=7, help="from Monday on (7)")
    parser.add_argument("--minutes", type=int, default=60, choices=range(1, 61), metavar="MINUTES", help="of each hour (60)")
    arguments = parser.parse_args()
    hours, seconds = arguments.days * 24, arguments.minutes * 60
    arguments.output.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", str(paths.ROOT / "tests" / "sim")], check=True)
    trace = arguments.output / f"trace-{arguments.days}-{arguments.minutes}.csv"
    if not trace.exists():
        partial = trace.with_suffix(".partial")
        with partial.open("w") as target:
            write(target, hours, seconds)
        partial.rename(trace)
    results = arguments.output / "week.jsonl"
    with Progress(sum(RUN_SECONDS[each.startswith("auto")] for each in SCHEDULERS) * hours * seconds) as progress:
        results.write_text("".join(simulate(trace, hours, seconds, progress)))
    report.report(results)


if __name__ == "__main__":
    main()
