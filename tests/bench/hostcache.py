"""What a background VM's disk leaves of the page cache of the host that a foreground VM's disk is in (dissertation, 5.3).

    python3 -m tests.bench.hostcache [--repeats 3] [--seconds 20] [--output build/bench/hostcache] [--qemu PATH]

A foreground VM reads 4 KiB at random from a disk of 192 MiB that is in the host's memory (cache=writeback), 200 times a second, past
its own cache. A background VM reads a disk of 1 GiB from one end to the other, again and again, by the host's page cache
(cache=writeback) or past it (cache=none), as it comes or held. Both have a cgroup (v1's controller "memory") that has room for the VMs
and 256 MiB. Alone the background VM is there and does nothing. Hits are what was not read from the host's disk, by the QEMU's
/proc/PID/io. As root. One JSON line a run; what is there is not run again; a table at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Machine
from tests.report import grid, kept
from tests.testbed import attach

MIB = 1 << 20
FOREGROUND_MIB, BACKGROUND_MIB, ROOM_MIB = 192, 1024, 256
ALONE = "alone"
WAYS = {ALONE: ("writeback", False), "through the cache": ("writeback", False), "through the cache, held": ("writeback", True),
        "past the cache": ("none", False), "past the cache, held": ("none", True)}
"""How the background's disk is opened, and whether its requests are held."""
READER = {"pattern": "random", "block_bytes": 4096, "rate": 200, "seed": 1}
SCANNER = {"pattern": "sequential", "block_bytes": 131072}
WARM_UP = "for i in 1 2 3; do dd if=/dev/vda of=/dev/null bs=1M 2>/dev/null; echo 3 >/proc/sys/vm/drop_caches; done"
CGROUPS = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Cell:
    """One run."""

    way: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way}-{self.repeat}".replace(" ", "-")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"the background {self.way}"


class Image:
    """A file of the host as a disk."""

    fds = ()

    def __init__(self, path: Path, cache: str) -> None:
        self._path, self._cache = path, cache

    def options(self, node: str, _client: str) -> list[str]:
        """By libvirt's words: writeback is through the host's page cache, none is not."""
        return ["-drive", f"if=none,id={node},format=raw,file={self._path},cache={self._cache}"]


def run(qemu: str | None, folder: Path, cell: Cell, seconds: float) -> dict[str, Any]:
    """Hits, and what the background read."""
    cache, held = WAYS[cell.way]
    group = CGROUPS / f"idletime-bench-{os.getpid()}"
    with ExitStack() as stack:
        group.mkdir()
        stack.callback(group.rmdir)
        home = next(line.split(":")[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.split(":")[1] == "memory")
        stack.callback((CGROUPS / home[1:] / "cgroup.procs").write_text, str(os.getpid()))
        (group / "cgroup.procs").write_text(str(os.getpid()))  # QEMUs begin in it
        boot, arena = accel.prepare(qemu), folder / f"arena-{cell.repeat}-{list(WAYS).index(cell.way)}"
        machines = [stack.enter_context(Machine(boot, name, attach.attach(
            Image(folder / name, kind), name, arena if held or name == "foreground" else None, name, auto="on")))
            for name, kind in (("foreground", "writeback"), ("background", cache))]
        (CGROUPS / home[1:] / "cgroup.procs").write_text(str(os.getpid()))
        ahead, behind = (one.guest for one in machines)
        ahead.run(WARM_UP, timeout_seconds=120)  # its QEMU has all that it takes then
        for name in ("foreground", "background"):
            _drop(folder / name)
        used = sum(_resident(one.process.pid) for one in machines)
        (group / "memory.limit_in_bytes").write_text(str(used + ROOM_MIB * MIB))
        ahead.run(WARM_UP, timeout_seconds=120)
        scan = behind.load(**SCANNER, seconds=seconds + 2) if cell.way != ALONE else None
        before = _from_disk(machines[0].process.pid)
        report = ahead.load(**READER, seconds=seconds).result()
        missed = _from_disk(machines[0].process.pid) - before
        scanned = scan.result()["bytes"] if scan else 0
        return {"hits": 1 - missed / report["bytes"], "mean_us": report["mean_us"], "p99_us": report["p99_us"],
                "scanned_mib_per_second": scanned / MIB / (seconds + 2)}


def _drop(path: Path) -> None:
    """Out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _from_disk(pid: int) -> int:
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("read_bytes"))


def report(path: Path) -> None:
    """The table."""
    runs, about = kept.lines(path)
    rows = grid.table(("background", "hits %", "mean, us", "p99, us", "it reads, MiB/s"))
    for way in WAYS:
        of = [one for one in runs if one["cell"]["way"] == way]
        if of:
            rows.add_row(way, *(f"{median(one[key] * by for one in of):.{digits}f}" for key, by, digits in
                                (("hits", 100, 1), ("mean_us", 1, 0), ("p99_us", 1, 0), ("scanned_mib_per_second", 1, 1))))
    repeats = 1 + max(one["cell"]["repeat"] for one in runs)
    kept.publish(path, grid.text(rows, [f"Of a foreground VM's reads from a disk in the host's page cache; medians of {repeats} runs of {about['seconds']:.0f} s. "
                                        f"{kept.built(about)}"], 110))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.hostcache", description="A host's page cache beside a background VM.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/hostcache", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of a run")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "hostcache.jsonl")

    def work() -> None:
        cells = results.missing([Cell(way, repeat) for repeat in range(arguments.repeats) for way in WAYS])
        if cells:
            with tempfile.TemporaryDirectory(prefix="idletime-", dir=arguments.output) as name:
                folder = Path(name)
                for image, mib in (("foreground", FOREGROUND_MIB), ("background", BACKGROUND_MIB)):
                    with (folder / image).open("wb") as file:
                        for _ in range(mib):
                            file.write(os.urandom(MIB))
                results.write("conditions", seconds=arguments.seconds, room_mib=ROOM_MIB, foreground_mib=FOREGROUND_MIB,
                              background_mib=BACKGROUND_MIB, **host.facts(accel.prepare(arguments.qemu)))
                work_off(cells, lambda _: arguments.seconds + 12,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **run(arguments.qemu, folder, cell, arguments.seconds)))
        report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
