"""Run QEMU's own tests of block devices, drains, throttling, I/O threads and migration on the patched and the unpatched
tree, and compare: python3 -m tests.upstream [unpatched] [patched] [again] [report].

`unpatched` and `patched` run every job once on that tree. Some tests depend on the order of two events, on either
tree: `again` repeats each job that failed or differed, alone, equally often on both trees. `report` prints the table.
Default: all. Results are kept in build/tests/upstream/ledger.jsonl, logs beside it. Exit status 1 if the trees differ.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

from tests.framework import paths
from tests.upstream import jobs, results

FOLDER = paths.BUILD / "tests" / "upstream"
LEDGER = FOLDER / "ledger.jsonl"
LIMIT_SECONDS = 300
"""For one job. Twice what the longest takes on two processors without KVM."""
REPETITIONS = 5


def build(tree: jobs.Tree) -> None:
    """QEMU's test programs; QEMU itself is built by make."""
    if not (tree.obj / "build.ninja").exists():
        raise SystemExit(f"error: the {tree.name} QEMU is not built: run 'make qemu qemu-unpatched' first")
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    environment |= {"CCACHE_BASEDIR": str(paths.ROOT), "CCACHE_NOHASHDIR": "1"}
    log = FOLDER / "build.log"
    with log.open("w") as output:
        done = subprocess.run(["ninja", "-C", tree.obj, "-j", os.environ.get("JOBS", "2"), *jobs.programs()],
                              env=environment, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"error: building QEMU's own tests failed: the whole story is in {log}")


def run_job(tree: jobs.Tree, job: jobs.Job, number: int) -> None:
    """Run it once and note the result; `number` tells its logs apart."""
    log = FOLDER / tree.name / f"{job.name}.{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # What a run that was ended left behind (a FIFO, say) fails the next one.
    shutil.rmtree(tree.obj / "tests" / "qemu-iotests" / "scratch", ignore_errors=True)
    with log.open("w") as output:
        done = subprocess.run(["timeout", "--kill-after=10", str(LIMIT_SECONDS), *job.command],
                              cwd=tree.obj / job.folder, env=tree.environment(), stdin=subprocess.DEVNULL,
                              stdout=output, stderr=subprocess.STDOUT)
    found = results.of_tap(log.read_text(errors="replace"), done.returncode)
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps({"tree": tree.name, "job": job.name, "results": found}) + "\n")


def run(tree: jobs.Tree) -> None:
    """Every job once, from a clean ledger of this tree."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = LEDGER.read_text().splitlines(keepends=True) if LEDGER.exists() else []
    LEDGER.write_text("".join(line for line in lines if json.loads(line)["tree"] != tree.name))
    build(tree)
    for job in jobs.jobs(tree):
        run_job(tree, job, 1)


def again() -> None:
    """What failed or differed, alone, in turns on both trees, until each has REPETITIONS more runs."""
    names = {name for name, trees in results.load(LEDGER).items() if results.unsettled(trees)}
    todo = [(tree, job) for tree in jobs.TREES.values() for job in jobs.jobs(tree) if job.name in names]
    for number in range(2, REPETITIONS + 2):
        for tree, job in todo:
            if len(results.load(LEDGER)[job.name][tree.name]) < number:
                run_job(tree, job, number)


def report() -> int:
    """Print the table; exit status."""
    text, equal = results.report(results.load(LEDGER))
    print(text)
    if not equal:
        print("error: the trees differ", file=sys.stderr)
    return 0 if equal else 1


def main(words: list[str]) -> int:
    steps = {"unpatched": lambda: run(jobs.TREES["unpatched"]), "patched": lambda: run(jobs.TREES["patched"]),
             "again": again, "report": report}
    for word in words or steps:
        if word not in steps:
            raise SystemExit(f"error: {word!r} is none of {', '.join(steps)}")
        if status := steps[word]():
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
