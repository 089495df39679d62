"""All benchmarks, one after the other: python3 -m tests.bench [--quick]

The full run takes hours on two cores and goes on where it was interrupted; --quick takes about ten minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.framework import paths

BENCH = paths.BUILD / "bench"
FULL = (
    ["tests.bench.iops"],
    ["tests.bench.netcost"],
    ["tests.bench.net", "all"],
    ["tests.bench.demo", "--output", str(BENCH / "demo")],
    ["tests.bench.contour", "--output", str(BENCH / "contour")],
    ["tests.bench.agent", "--output", str(BENCH / "agent.jsonl")],
    ["tests.bench.eval", "--output", str(BENCH / "eval")],
)
QUICK = (
    ["tests.bench.eval", "--quick", "--seconds", "5", "--output", str(BENCH / "eval-quick")],
    ["tests.bench.contour", "--quick", "--disk", "random", "--output", str(BENCH / "contour-quick")],
)


def main() -> int:
    """Run each program in a process of its own; the first failure ends it."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench", description="All benchmarks.")
    parser.add_argument("--quick", action="store_true", help="about ten minutes")
    for program in QUICK if parser.parse_args().quick else FULL:
        print(f"== {' '.join(program)}", flush=True)
        status = subprocess.run([sys.executable, "-m", *program], cwd=paths.ROOT).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
