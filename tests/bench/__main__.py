"""All benchmarks, one after the other: python3 -m tests.bench"""

from __future__ import annotations

import subprocess
import sys

from tests.framework import paths

PROGRAMS = (
    ["tests.bench.iops"],
    ["tests.bench.demo", "--output", str(paths.BUILD / "bench" / "demo")],
)


def main() -> int:
    """Run each program in a process of its own; the first failure ends it."""
    for program in PROGRAMS:
        print(f"== {program[0]}", flush=True)
        status = subprocess.run([sys.executable, "-m", *program], cwd=paths.ROOT).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
