"""The learner on workloads that it was not tuned on, in the simulator.

    python3 -m tests.bench.heldout [--output build/bench/heldout] [--workloads 80] [--seconds 300]

The learner's constants were chosen on the workloads of `tests.bench.simulate` with seeds 1 to 3. Here each workload is drawn: disk,
host and its stalls, an arm or none, bursts or single arrivals, how regular, how many foregrounds, how many requests at a time; and its seed is
another. Draws in which the foreground would want more than the disk has are drawn again. Virtual time; some minutes on two processors.
`python3 -m tests.report.heldout FILE` compares with the workloads that it was tuned on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.progress import Progress
from tests.bench.simulate import BUDGETS_PERCENT, FIXED_MS, SIMULATOR, WARM_UP_SECONDS
from tests.framework import paths
from tests.report import heldout as report

SEED = 20261126
FIRST_SEED = 1001
"""Of the workloads' own random numbers: none of those that the constants were chosen with."""
RUN_SECONDS = 0.012
"""What a second of a workload takes, about, for all schedulers."""


def draw(dice: random.Random) -> list[str]:
    """Options of the simulator."""
    options = {"service-ms": dice.choice((1, 2, 5, 10, 20)), "spread": dice.choice((0, 0, 20, 50)),
               "noise-ms": dice.choice((0, 0.1, 0.3)), "path-ms": dice.choice((0, 0.05, 0.2)),
               "intensity": round(dice.uniform(5, 70)), "outstanding": dice.choice((1, 1, 2, 4))}
    options["stalls"] = dice.choice((0, 0, 0.05)) if options["path-ms"] else 0
    if dice.choice((False, False, True)):
        options |= {"switch-ms": options["service-ms"] / 2, "intensity": min(options["intensity"], 40)}
    shape = dice.choice(("even", "jittered", "exponential", "poisson"))
    if shape == "jittered":
        options["jitter"] = dice.choice((10, 20, 50))
    flags = [f"--{shape}"] if shape in ("exponential", "poisson") else []
    if shape != "poisson":
        options["quantum-ms"] = round(options["service-ms"] * dice.choice((10, 20, 50, 100)))
        options["depth"] = dice.choice((1, 1, 2, 4, 8))
        # Two that are both strictly periodic: alone, too, their bursts meet or not by chance, for minutes.
        options["foregrounds"] = 1 if shape == "even" else dice.choice((1, 1, 2))
        options["intensity"] = max(5, options["intensity"] // options["foregrounds"])
    return [*flags, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]


def simulate(number: int, options: list[str], seconds: float) -> list[str]:
    """Lines of results."""
    schedulers = [*FIXED_MS, *(f"auto:{percent}" for percent in BUDGETS_PERCENT), "clairvoyant"]
    command = [str(SIMULATOR), *options, "--interval-ms", ",".join(schedulers), "--seed", str(FIRST_SEED + number),
               "--duration-s", str(seconds), "--warm-up-s", str(WARM_UP_SECONDS), "--json", f"drawn {number}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.dumps({**json.loads(line), "options": options}) for line in done.stdout.splitlines()]


def main() -> None:
    """Draw, run, reduce."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.heldout", description="The learner on workloads that it was not tuned on.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/heldout")
    parser.add_argument("--workloads", type=int, default=80)
    parser.add_argument("--seconds", type=float, default=300, help="of virtual time, as those that it was tuned on (300)")
    arguments = parser.parse_args()
    subprocess.run(["make", "-s", "-C", str(paths.ROOT / "tests" / "sim")], check=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    dice, results = random.Random(SEED), arguments.output / "heldout.jsonl"
    drawn = [draw(dice) for _ in range(arguments.workloads)]
    share = RUN_SECONDS * arguments.seconds
    with Progress(share * len(drawn) / (os.cpu_count() or 1)) as progress, ThreadPoolExecutor(os.cpu_count()) as pool, results.open("w") as sink:
        for number, lines in enumerate(pool.map(lambda each: simulate(*each, arguments.seconds), enumerate(drawn))):
            progress.step(f"workload {number + 1} of {len(drawn)}")
            sink.write("".join(line + "\n" for line in lines))
            progress.at((number + 1) * share / (os.cpu_count() or 1))
    report.report(results)


if __name__ == "__main__":
    main()
