"""All benchmarks, one after the other: python3 -m tests.bench [--quick]

The full run takes hours on two cores and goes on where it was interrupted; --quick takes about ten minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.framework import paths
from tests.framework.interrupt import UNAVAILABLE

BENCH = paths.BUILD / "bench"
FULL = (
    ["tests.bench.iops"],
    ["tests.bench.netcost"],
    ["tests.bench.net", "all"],
    ["tests.bench.demo", "--output", str(BENCH / "demo")],
    ["tests.bench.contour", "--output", str(BENCH / "contour")],
    ["tests.bench.net.contour", "--output", str(BENCH / "contour")],
    ["tests.bench.agent", "--output", str(BENCH / "agent.jsonl")],
    ["tests.bench.eval", "--output", str(BENCH / "eval")],
    ["tests.bench.eval", "--disk", "seek", "--seconds", "16", "--learning-seconds", "24", "--output", str(BENCH / "eval-seek")],
    ["tests.bench.eval", "--disk", "ssd", "--seconds", "26", "--learning-seconds", "50", "--output", str(BENCH / "eval-ssd")],
    ["tests.bench.isolation", "--output", str(BENCH / "isolation")],
)
QUICK = (
    ["tests.bench.eval", "--quick", "--seconds", "5", "--output", str(BENCH / "eval-quick")],
    ["tests.bench.contour", "--quick", "--disk", "random", "--output", str(BENCH / "contour-quick")],
    ["tests.bench.net.contour", "--quick", "--link", "lan", "--pair", "tcp-udp", "--output", str(BENCH / "contour-quick")],
)


def main() -> int:
    """Run each program in a process of its own; the first failure ends it, but not that this machine has no network for us."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench", description="All benchmarks.")
    parser.add_argument("--quick", action="store_true", help="about ten minutes")
    for program in QUICK if parser.parse_args().quick else FULL:
        print(f"== {' '.join(program)}", flush=True)
        status = subprocess.run([sys.executable, "-m", *program], cwd=paths.ROOT).returncode
        if status not in (0, UNAVAILABLE):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
