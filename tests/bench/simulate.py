"""The learner in the simulator: every workload against fixed intervals, budgets and a clairvoyant scheduler.

    python3 -m tests.bench.simulate [--output build/simulate] [--seconds 300] [--seeds 3]

Core and learner are the product's own C files; disk, boards and time are
modelled (tests/sim). Leaves results.jsonl, result.txt and result.png in the
output folder. Virtual time: the same on every machine, and it takes a minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from tests.framework import paths

SIMULATOR = paths.BUILD / "sim" / "idletime-sim"

FIXED_MS = ("off", "0", "1", "2", "5", "10", "20", "40", "60", "80")
BUDGETS_PERCENT = ("1", "3", "5", "10")
VARIANTS = tuple(f"v{number}:{ms}" for number in (2, 3, 4) for ms in (1, 5, 10, 20, 40))
"""Of the dissertation's Fig. 5.5; the product's fixed interval is the first."""
AIMD = tuple(f"aimd:{ms}" for ms in (1, 3, 10, 30, 100, 300))
"""Milliseconds that the interval shrinks by each second; the dissertation, 7.2.2."""
WARM_UP_SECONDS = 20
"""Not in the figures: the learner starts with nothing."""

SSD = ["--channels", "16", "--service-ms", "0.1", "--bg-think-ms", "0.005", "--outstanding", "32", "--max-inflight", "64"]

GUESTS = ["--path-ms", "0.075", "--stalls", "0.05", "--fg-think-ms", "0.15", "--fg-noise-ms", "0.25", "--bg-think-ms", "0.48"]
"""What guests under TCG and their host add to the disk's 5 ms, fitted to the disk's log and QEMU's counters."""

SEEK = ["--service-ms", "15", "--spread", "30", "--switch-ms", "9", "--quantum-ms", "400"]
"""A request in one's own half of the disk, and what it takes more to come there from the other one."""

WORKLOADS: dict[str, list[str]] = {
    "bursts of 30 ms every 100 ms": [],
    "the same, gaps jittered by 30 %": ["--jitter", "30"],
    "the same, gaps exponential": ["--exponential"],
    "bursts, busy host": ["--noise-ms", "0.3"],
    "bursts, gaps jittered by 30 %, busy host": ["--jitter", "30", "--noise-ms", "0.3"],
    "bursts, guests": GUESTS,
    "bursts, gaps jittered by 30 %, guests": ["--jitter", "30", *GUESTS],
    "bursts, gaps exponential, guests": ["--exponential", *GUESTS],
    "Poisson arrivals, 10 %": ["--poisson", "--intensity", "10"],
    "Poisson arrivals, 30 %": ["--poisson", "--intensity", "30"],
    "Poisson arrivals, 30 %, guests": ["--poisson", "--intensity", "30", *GUESTS],
    "Poisson arrivals, 60 %": ["--poisson", "--intensity", "60"],
    "exponential gaps of 1.8 s": ["--exponential", "--quantum-ms", "2000", "--intensity", "10"],
    "two foregrounds out of phase": ["--foregrounds", "2", "--quantum-ms", "150", "--intensity", "15"],
    "bursts, disk of 5 to 15 ms": ["--service-ms", "10", "--spread", "50", "--quantum-ms", "400"],
    "bursts, disk of 15 ms with an arm": SEEK,
    "the same, gaps jittered by 30 %, guests": ["--jitter", "30", *SEEK, *GUESTS],
    "no pauses, one at a time (of uncontrolled)": ["--intensity", "100"],
    "no pauses, four at a time (of uncontrolled)": ["--intensity", "100", "--depth", "4"],
    "no pauses, one at a time, guests (of uncontrolled)": ["--intensity", "100", *GUESTS],
    "16 channels of 100 us, Poisson 50 %": [*SSD, "--poisson", "--intensity", "50"],
    "16 channels of 50 to 150 us, Poisson 50 %": [*SSD, "--spread", "50", "--poisson", "--intensity", "50"],
}
SSD_SECONDS = 30
"""Of virtual time: 2.4 million foreground requests."""


def _run(name: str, options: list[str], seconds: float, seed: int) -> str:
    fast = "--channels" in options
    schedulers = [*(("off",) if fast else (*FIXED_MS, *VARIANTS, *AIMD)), *(f"auto:{percent}" for percent in BUDGETS_PERCENT), "clairvoyant"]
    command = [
        str(SIMULATOR), *options, "--interval-ms", ",".join(schedulers), "--seed", str(seed),
        "--duration-s", str(SSD_SECONDS if fast else seconds), "--warm-up-s", str(SSD_SECONDS / 3 if fast else WARM_UP_SECONDS),
        "--json", name,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Run all, then reduce."""
    from tests.report import simulated  # needs matplotlib; the workloads above do not

    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.simulate", description="The learner in the simulator.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "simulate")
    parser.add_argument("--seconds", type=float, default=300, help="of virtual time a run (300)")
    parser.add_argument("--seeds", type=int, default=3, help="runs with different random numbers (3)")
    arguments = parser.parse_args()
    subprocess.run(["make", "-s", "-C", str(paths.ROOT / "tests" / "sim")], check=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "results.jsonl"
    with results.open("w") as sink:
        for number, (name, options) in enumerate(WORKLOADS.items()):
            print(f"workload {number + 1} of {len(WORKLOADS)}: {name}", flush=True)
            for seed in range(1, arguments.seeds + 1):
                for line in _run(name, options, arguments.seconds, seed).splitlines():
                    sink.write(json.dumps({**json.loads(line), "options": options}) + "\n")
    simulated.report(results)


if __name__ == "__main__":
    main()
