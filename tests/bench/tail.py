"""The tail of a foreground's latency on a full solid state disk at its own speed: 16 requests of 50 to 150 us at a time, in the simulator.

    python3 -m tests.bench.tail [--output build/bench/tail] [--seconds 30] [--seeds 3]

The foreground reads at random times (Poisson), 80,000 requests/s, half of what the disk can do. Two questions of the field:

    bound      (K2, RTSS 2019) p99.9 against the background's throughput: budgets of `auto` beside a constant bound on the
               background's requests at the disk, which one would have to choose by hand
    tenants    (Daredevil, EuroSys 2025) p99.9 against the number of background VMs, four requests at a time each

Core and learner are the product's own C files; virtual time, so the figures are the same on every machine. Three minutes on two processors.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bench.progress import Progress
from tests.bench.simulate import BUDGETS_PERCENT, SIMULATOR, SSD, SSD_SECONDS
from tests.framework import paths
from tests.report import tail as report

DISK = [*SSD, "--spread", "50", "--poisson", "--intensity", "50"]
GREEDY = 32
"""Requests that a background keeps, if nothing bounds it."""
BOUNDS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
TENANTS = (1, 2, 4, 8, 16)
OUTSTANDING = 4
"""Of each tenant."""
WARM_UP = 1 / 3
"""Of the time, not in the figures: the learner starts with nothing."""
RUN_SECONDS = 0.25
"""What a second of the disk takes, about, with all schedulers of a case."""


@dataclass(frozen=True)
class Case:
    """One call of the simulator."""

    question: str
    schedulers: tuple[str, ...]
    vms: int
    outstanding: int

    def lines(self, seconds: float, seed: int) -> list[str]:
        """Of results: one for each scheduler, and one for the foreground alone."""
        command = [str(SIMULATOR), *DISK, "--participants", str(self.vms), "--outstanding", str(self.outstanding), "--interval-ms", ",".join(self.schedulers),
                   "--seed", str(seed), "--duration-s", str(seconds), "--warm-up-s", str(seconds * WARM_UP), "--json", self.question]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return [json.dumps({**json.loads(line), "vms": self.vms}) for line in done.stdout.splitlines()]


CASES = (
    Case("bound", ("off", *(f"auto:{percent}" for percent in BUDGETS_PERCENT), "clairvoyant"), 1, GREEDY),
    *(Case("bound", ("off",), 1, bound) for bound in BOUNDS),
    *(Case("tenants", ("off", "auto:5"), vms, OUTSTANDING) for vms in TENANTS),
)


def main() -> None:
    """Run, reduce."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.tail", description="The tail of a foreground's latency on a full solid state disk.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/tail")
    parser.add_argument("--seconds", type=float, default=SSD_SECONDS, help="of virtual time, a third of it to learn (30)")
    parser.add_argument("--seeds", type=int, default=3, help="runs with different random numbers (3)")
    arguments = parser.parse_args()
    subprocess.run(["make", "-s", "-C", str(paths.ROOT / "tests" / "sim")], check=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "tail.jsonl"
    plan = [(case, seed) for seed in range(1, arguments.seeds + 1) for case in CASES]
    share = RUN_SECONDS * arguments.seconds / (os.cpu_count() or 1)
    with Progress(share * len(plan)) as progress, ThreadPoolExecutor(os.cpu_count()) as pool, results.open("w") as sink:
        for number, lines in enumerate(pool.map(lambda each: each[0].lines(arguments.seconds, each[1]), plan)):
            sink.write("".join(line + "\n" for line in lines))
            progress.at((number + 1) * share)
            progress.step(f"{number + 1} of {len(plan)} runs are done")
    report.report(results)


if __name__ == "__main__":
    main()
