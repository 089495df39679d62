"""Mutation testing of the scheduler's C code: make mutants [FILES='idletime/arena/slot.c ...'] [SAMPLE=60] [SEED=7].

FILES     files below qemu-patches/overlay, or the words pure and device (default: pure)
SAMPLE    how many mutants to judge, or all (default: 60)
SEED      which ones (default: 1)
JOBS      how many at once (default: all processors)
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any

from tests.framework import paths
from tests.mutants import accepted, report
from tests.mutants.campaign import Campaign
from tests.mutants.device import Device
from tests.mutants.pure import Pure
from tests.mutants.trial import Bench, SetupError, alone

REPORT = paths.BUILD / "mutants" / "report.txt"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=["pure"], metavar="FILE", help="below qemu-patches/overlay; or: pure, device")
    parser.add_argument("--sample", default="60", help="how many mutants, or all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _bench(words: list[str]) -> tuple[Bench, list[str]]:
    """The bench of the files, and the files; all must be of one."""
    benches: dict[str, Bench] = {"pure": Pure(), "device": Device()}
    for name, bench in benches.items():
        files = bench.files()
        if words == [name]:
            return bench, files
        if set(words) <= set(files):
            return bench, words
    known = "\n".join(f"  {name}: {' '.join(bench.files())}" for name, bench in benches.items())
    raise SetupError(f"FILES='{' '.join(words)}': name pure, device, or files of one of both:\n{known}")


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        known = accepted.read()
        bench, files = _bench(options.files)
        sample = None if options.sample == "all" else int(options.sample)
        campaign = Campaign(bench, files, sample, options.seed, options.jobs)
        with alone(bench.folder):
            bench.prepare()
            campaign.run()
    except (SetupError, accepted.AcceptedError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report.write(REPORT, campaign, known), end="")
    print(f"(in {REPORT.relative_to(paths.ROOT)})")
    return 130 if campaign.ended_early else 0


if __name__ == "__main__":
    sys.exit(main())
