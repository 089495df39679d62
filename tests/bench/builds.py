"""Several builds of QEMU under the demo's two guests, in turn: is a change of the scheduler felt?

    python3 -m tests.bench.builds before=PATH after=PATH ... [--rounds 3] [--only auto foreground-alone]
    python3 -m tests.bench.builds blk=PATH scsi=PATH --scsi scsi        # the same build, one pair with its disks on virtio-scsi

Each round boots a pair of guests on each build, with a disk of its own. Each of the demo's phases runs on one pair after the
other, every second time backwards, so that what the host does meanwhile hits all builds nearly alike. One JSON line a run,
then the medians side by side.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Iterator

from rich.table import Table

from tests.bench import pair, plan
from tests.bench.demo import DISK
from tests.bench.progress import Progress
from tests.framework import accel, host, paths
from tests.framework.qemu import Boot
from tests.report import grid

OVERHEAD_SECONDS = 0.5
"""Of a run, between the loads."""
FILE_COLUMNS = 160
BOOT_SECONDS = 8.0
"""Of a pair, with its warm-up."""


def named_build(text: str) -> tuple[str, Path]:
    """Of a command line: NAME=PATH of an emulator."""
    name, equals, path = text.partition("=")
    if not (name and equals and shutil.which(path)):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=PATH of an emulator, such as after=build/stage/bin/qemu-system-x86_64")
    return name, Path(path)


def _arguments() -> argparse.Namespace:
    description = "Compare builds of QEMU by the demo's phases, in turn."
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.builds", description=description)
    parser.add_argument("builds", nargs="+", type=named_build, metavar="NAME=PATH")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "builds.jsonl")
    parser.add_argument("--scsi", nargs="*", default=[], metavar="NAME", help="builds whose guests have their disks on virtio-scsi")
    parser.add_argument("--rounds", type=int, default=3, help="in each, all phases on each build")
    parser.add_argument("--seconds", type=float, default=4, help="of a run")
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="phases whose name has one of these in it")
    arguments = parser.parse_args()
    if unknown := set(arguments.scsi) - {name for name, _ in arguments.builds}:
        parser.error(f"--scsi {' '.join(sorted(unknown))}: no build is called so")
    if not _phases(arguments.only):
        known = " ".join(phase.name for phase in _phases([]))
        parser.error(f"--only {' '.join(arguments.only)}: no phase is called so; there are: {known}")
    return arguments


def _phases(only: list[str]) -> list[plan.Phase]:
    return [phase for phase in plan.phases(patched=True) if not only or any(text in phase.name for text in only)]


def _runs(boots: dict[str, Boot], phases: list[plan.Phase], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    each = arguments.seconds + OVERHEAD_SECONDS
    per_round = len(boots) * (BOOT_SECONDS + each * len(phases))
    with Progress(per_round * arguments.rounds) as progress:
        for number in range(arguments.rounds):
            with ExitStack() as stack:
                pairs = {name: stack.enter_context(pair.Pair(boot, DISK, on_scsi=name in arguments.scsi)) for name, boot in boots.items()}
                for machines in pairs.values():
                    machines.warm_up()
                for at, phase in enumerate(phases):
                    progress.at(number * per_round + len(boots) * (BOOT_SECONDS + at * each))
                    for name in list(pairs)[:: -1 if (number + at) % 2 else 1]:
                        progress.step(f"round {number + 1}, {name}: {phase.title}")
                        yield {"kind": "run", "round": number, "build": name, "phase": phase.parameters(),
                               **_run(pairs[name], phase, arguments.seconds)}


def _run(machines: pair.Pair, phase: plan.Phase, seconds: float) -> dict[str, Any]:
    loads = machines.begin(phase, seconds)
    reports = {role: load.result() for role, load in loads.items()}
    return {"disk_log": machines.at_disk(), **reports}


FIGURES = (("foreground, op/s", "foreground", "operations_per_second", 1), ("mean, ms", "foreground", "mean_us", 1000),
           ("background, op/s", "background", "operations_per_second", 1))


def table(lines: list[dict[str, Any]]) -> Table:
    """Medians over the rounds: a row for each phase, for each figure a column for each build."""
    runs = [line for line in lines if line["kind"] == "run"]
    builds = list(dict.fromkeys(run["build"] for run in runs))
    result = grid.table(("", *(f"{title}\n{build}" for title, *_ in FIGURES for build in builds)), space=0)
    for phase in dict.fromkeys(run["phase"]["name"] for run in runs):
        of_phase = [run for run in runs if run["phase"]["name"] == phase]
        cells = []
        for _, role, key, scale in FIGURES:
            for build in builds:
                values = [run[role][key] / scale for run in of_phase if run["build"] == build and role in run]
                cells.append(f"{median(values):.1f}" if values else "")
        result.add_row(phase, *cells)
    return result


def main() -> int:
    """Exit status: 0."""
    arguments = _arguments()
    boots = {name: accel.prepare(str(path)) for name, path in arguments.builds}
    phases = _phases(arguments.only)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    facts = {name: host.facts(boot) for name, boot in boots.items()}
    lines: list[dict[str, Any]] = [
        {"kind": "conditions", "program": "builds", "seconds": arguments.seconds, "rounds": arguments.rounds, "scsi": arguments.scsi,
         "builds": facts}
    ]
    with arguments.output.open("w") as file:
        print(json.dumps(lines[0]), file=file)
        for line in _runs(boots, phases, arguments):
            lines.append(line)
            print(json.dumps(line), file=file, flush=True)
    text = grid.text(table(lines), [f"Medians of {arguments.rounds} rounds, runs of {arguments.seconds:g} s."], FILE_COLUMNS)
    arguments.output.with_suffix(".txt").write_text(text)
    print(text, arguments.output, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
