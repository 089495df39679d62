"""Buffered foreground of the host beside a greedy background VM on one device: what the page cache makes of it.

    python3 -m tests.bench.buffered [--repeats 3] [--seconds 8] [--output build/bench/buffered]

An ext4 on the loop device of tests.bench.observed (5 ms a request) is used by a process of the host; the observer sees what
the kernel makes of that: read-ahead, journal commits, and write-back by threads of the kernel. The background VM reads the
same device.

    database    SQLite, a durable transaction after each pause of 50 ms: synchronous, by the process and by the journal's thread
    search      all of a tree of files, cold each time, as `grep -r` reads it: read-ahead keeps several requests ahead
    write       1 MiB into the page cache each 100 ms, written back by the kernel, waited for once a second

One JSON line a run; what is there is not run again. Then a table of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from tests.bench import pair
from tests.bench.alternate import UNPATCHED
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths, run_folder
from tests.framework.interrupt import exit_status
from tests.report import grid
from tests.testbed import observer
from tests.testbed.attach import RESOURCE

KINDS = ("database", "search", "write")
UNCONTROLLED = "uncontrolled"
CONTROLS: dict[str, dict[str, object]] = {
    UNCONTROLLED: {"interval-us": 0, "auto": False},
    "20 ms": {"interval-us": 20000, "auto": False},
    "auto 3 %": {"interval-us": 20000, "auto": True, "budget-percent": 3},
}
FILES, FILE_BYTES = 64, 256 << 10
PIECE_BYTES = 1 << 20
COLUMNS = ("foreground", "control", "operations/s", "kept, %", "mean, ms", "background, op/s", "of alone, %")
OVERHEAD_SECONDS = 2.0
FILE_COLUMNS = 110


# ---- the loads, in a process of their own


def _transactions(folder: Path) -> Iterator[float]:
    with sqlite3.connect(folder / "database", isolation_level=None) as database:
        database.execute("pragma synchronous=full")
        database.execute("create table if not exists entry (text)")
        while True:
            time.sleep(0.05)
            begin = time.monotonic()
            database.execute("insert into entry values (?)", ("x" * 400,))
            yield time.monotonic() - begin


def _searches(folder: Path) -> Iterator[float]:
    while True:
        for number in range(FILES):
            with (folder / f"file{number}").open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                begin = time.monotonic()
                assert b"needle" not in file.read()
                yield time.monotonic() - begin


def _writes(folder: Path) -> Iterator[float]:
    piece, number = os.urandom(PIECE_BYTES), 0
    with (folder / "written").open("wb", buffering=0) as file:
        while True:
            time.sleep(0.1)
            begin = time.monotonic()
            file.write(piece)
            number += 1
            if number % 10 == 0:
                os.fsync(file.fileno())
                file.seek(0)
            yield time.monotonic() - begin


def _load(kind: str, folder: Path, seconds: float) -> int:
    """Prints its rate (1/s) and the mean time of an operation (ms)."""
    begin, took = time.monotonic(), []
    for each in {"database": _transactions, "search": _searches, "write": _writes}[kind](folder):
        took.append(each)
        if time.monotonic() - begin > seconds:
            break
    rate = len(took) / (time.monotonic() - begin)
    print(json.dumps({"operations_per_second": rate, "mean_ms": 1000 * mean(took), "operations": len(took)}))
    return 0


# ---- the measurement


@dataclass(frozen=True)
class Cell:
    """One run. `kind` "": the background alone; `control` "": the foreground alone."""

    kind: str
    control: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.kind or 'none'}-{self.control or 'none'}-{self.repeat}"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.kind} {self.control or 'alone'}" if self.kind else "background alone"


def plan(repeats: int) -> list[Cell]:
    """Each kind's runs follow each other, every second time the other way round."""
    cells = []
    for repeat in range(repeats):
        cells.append(Cell("", UNCONTROLLED, repeat))
        for kind in KINDS:
            cells += [Cell(kind, control, repeat) for control in ("", *CONTROLS)][:: -1 if repeat % 2 else 1]
    return cells


@contextmanager
def _mounted(device: str, folder: Path) -> Iterator[None]:
    at_once = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", at_once, device, "200M"], check=True)
    folder.mkdir()
    subprocess.run(["mount", device, str(folder)], check=True)
    try:
        for number in range(FILES):
            (folder / f"file{number}").write_bytes(os.urandom(FILE_BYTES))
        os.sync()
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Rig:
    """The background VM, the observer, and a file system on their device."""

    def __init__(self, stack: ExitStack) -> None:
        boot = accel.prepare()
        self.facts = host.facts(boot)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        self.host = observer.Host(stack, boot, UNPATCHED, folder / "arena")
        self.files = folder / "files"
        stack.enter_context(_mounted(self.host.loop.device, self.files))
        self.background = self.host.background()
        self.host.observer()
        observer.await_seen(self.background)
        self.background.guest.load(seconds=pair.WARM_UP_SECONDS).result()

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """The reports by role."""
        for key, value in CONTROLS.get(cell.control, {}).items():
            self.background.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property=key, value=value)
        load = self.background.guest.load(**pair.BACKGROUND_LOAD, outstanding=1, seconds=seconds) if cell.control else None
        reports: dict[str, Any] = {}
        if cell.kind:
            words = [sys.executable, "-m", "tests.bench.buffered", "--load", cell.kind, "--folder", str(self.files)]
            words += ["--seconds", str(seconds)]
            done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=seconds + 60)
            reports["foreground"] = json.loads(done.stdout)
        if load:
            reports["background"] = load.result()
        return reports


def _median(runs: list[dict[str, Any]], cell: tuple[str, str], role: str, key: str) -> float | None:
    values = [run[role][key] for run in runs if (run["cell"]["kind"], run["cell"]["control"]) == cell and role in run]
    return median(values) if values else None


def text(path: Path) -> str:
    """Medians; percent of the same load alone."""
    runs = [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == "run"]
    table = grid.table(COLUMNS)
    rate = "operations_per_second"
    idle = _median(runs, ("", UNCONTROLLED), "background", rate)
    for kind in KINDS:
        alone = _median(runs, (kind, ""), "foreground", rate)
        for control in ("", *CONTROLS):
            own, took = (_median(runs, (kind, control), "foreground", key) for key in (rate, "mean_ms"))
            other = _median(runs, (kind, control), "background", rate)
            if own is None or took is None or not alone or not idle:
                continue
            table.add_row(kind, control or "alone", f"{own:.1f}", f"{100 * own / alone:.0f}", f"{took:.1f}",
                          *((f"{other:.1f}", f"{100 * other / idle:.0f}") if other is not None else ("", "")))
    repeats = max(run["cell"]["repeat"] for run in runs) + 1
    return grid.text(table, [f"Background alone: {idle or 0:.1f} op/s. Medians of {repeats} runs."], FILE_COLUMNS)


def _arguments() -> argparse.Namespace:
    description = "A buffered foreground that an observer sees."
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.buffered", description=description)
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "buffered", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of a run")
    parser.add_argument("--load", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    if arguments.load:
        return _load(arguments.load, arguments.folder, arguments.seconds)
    lacking = observer.missing()
    if lacking:
        print(f"error: {lacking}", file=sys.stderr)
        return 1
    results = ResultsFile(arguments.output / "results.jsonl")

    def work() -> None:
        run_folder.guard()
        cells = results.missing(plan(arguments.repeats))
        if cells:
            with ExitStack() as stack:
                rig = Rig(stack)
                results.write("conditions", seconds=arguments.seconds, disk=rig.host.disk.parameters(), **rig.facts)
                work_off(cells, lambda _: arguments.seconds + OVERHEAD_SECONDS,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        print(text(results.path))

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
