"""Migration of a VM beside a foreground VM on one uplink: as background, at a fixed rate, and as it comes.

    python3 -m tests.bench.migration [--repeats 3] [--output build/bench/migration] [--qemu PATH] [--observed] [--rate-mbit 100] [--loads tcp-30 ...]

A VM with 1 GiB, of which it writes 1 MiB anew each second, migrates over the uplink of 100 Mbit/s by which the foreground VM
sends. What the foreground keeps is measured against the seconds before the migration begins, in the same run. `--observed`: the
foreground VM runs on stock QEMU, and the observer in the kernel sees it. `--loads` without a load: nobody sends but the migration. A control
experiment is beside TCP in bursts: the migration asks as it always does, and sends over another link, so that it shares the machine with
the foreground and nothing else. One JSON line a run; what is there is not run again.
`python3 -m tests.report.migration FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.net.observed import WAYS
from tests.bench.net.pair import PORTS, QUANTUM_MS, SETTLE_SECONDS, Pair
from tests.bench.net.plan import LINK, at_rate
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.report import migration as report
from tests.testbed.link import SINK_ADDRESS
from tests.testbed.mover import Mover
from tests.testbed.namespace import NamespaceError
from tests.testbed.sink import Sink, Window, goodput_mbit

MB = 1_000_000
STOCK, AUTO, ELSEWHERE = "stock", "auto", "auto, other link"
RATES = (6, 9)
"""That operators set, MB/s; beside the loads of LOADS that leave the migration most of the uplink."""

LOADS = (("tcp", 30), ("udp", 30), ("udp", 60), ("tcp", 100))
RATED_PERCENT = 30
ALONE_SECONDS = 8.0
LIMIT_SECONDS = 60.0
"""A migration that has not ended by then is given up: beside a foreground that never pauses it need not end."""

RUN_SECONDS = 45.0
"""A run and its start, on average."""


@dataclass(frozen=True)
class Cell:
    """One run. `way`: STOCK, AUTO, ELSEWHERE, or a rate in MB/s."""

    load: str
    intensity: int
    way: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.load}-{self.intensity}-{self.way}-{self.repeat}".replace(" ", "").replace(",", "-")

    @property
    def rate(self) -> int:
        """Bytes a second, at most; 0: none is set."""
        return 0 if self.way in (STOCK, AUTO, ELSEWHERE) else int(self.way.split()[0]) * MB

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"beside {self.load.upper()} {self.intensity} %, {self.way}" if self.load else f"alone, {self.way}"


def plan(repeats: int, loads: list[str]) -> list[Cell]:
    """The ways of a load follow each other, every second time the other way round."""
    cells = []
    for repeat in range(repeats):
        cells += [Cell("", 0, way, repeat) for way in ((STOCK, AUTO) if repeat % 2 == 0 else (AUTO, STOCK))]
        for load, intensity in LOADS:
            if f"{load}-{intensity}" not in loads:
                continue
            ways = [STOCK, *(f"{rate} MB/s" for rate in RATES if intensity <= RATED_PERCENT), AUTO]
            ways += [ELSEWHERE] if (load, intensity) == ("tcp", RATED_PERCENT) else []
            cells += [Cell(load, intensity, way, repeat) for way in (ways if repeat % 2 == 0 else ways[::-1])]
    return cells


class Rig:
    """The foreground VM with its uplink, and for each run a VM that migrates."""

    def __init__(self, pair: Pair, boot: Any, rate_mbit: int) -> None:
        self.pair, self._boot, self._rate_mbit = pair, boot, rate_mbit

    def run(self, cell: Cell) -> dict[str, Any]:
        """What foreground and migration did."""
        assert self.pair.arena
        link = self.pair.other_link if cell.way == ELSEWHERE else self.pair.link
        with Mover(self._boot, link, self.pair.arena, auto="on") as mover:
            if not cell.load:
                return self._migrated(mover, cell)
            with Sink(self.pair.link, "sink", protocol=cell.load, port=PORTS["foreground"],
                      seconds=ALONE_SECONDS + LIMIT_SECONDS + 30) as sink:
                load = self.pair.machines["foreground"].guest.netload(
                    "send", host=SINK_ADDRESS, port=PORTS["foreground"], protocol=cell.load, intensity=cell.intensity,
                    quantum_ms=QUANTUM_MS, quantum_bytes=self.pair.quantum_bytes(cell.intensity),
                    pace_mbit=self._rate_mbit if cell.load == "udp" and cell.intensity < 100 else 0,
                    seconds=ALONE_SECONDS + LIMIT_SECONDS + SETTLE_SECONDS)
                load.wait(SETTLE_SECONDS + ALONE_SECONDS)
                now = time.monotonic_ns()
                alone = Window(now - int(ALONE_SECONDS * 1e9), now)
                result = self._migrated(mover, cell)
                beside = Window(now, now + int(result["seconds"] * 1e9))
                load.stop()
                load.result()
                counted = sink.report()
        return {**result, "alone_mbit_s": goodput_mbit(counted, alone), "beside_mbit_s": goodput_mbit(counted, beside)}

    @staticmethod
    def _migrated(mover: Mover, cell: Cell) -> dict[str, Any]:
        begin = time.monotonic()
        attached = cell.way in (AUTO, ELSEWHERE)
        mover.begin(attached, cell.rate)
        status = mover.wait(LIMIT_SECONDS)
        return {"seconds": time.monotonic() - begin, "status": status["status"], "downtime_ms": status.get("downtime"),
                "bytes": status["ram"]["transferred"], "passes": status["ram"]["dirty-sync-count"],
                "idletime": mover.held() if attached else None}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.migration", description="Migration beside a foreground on the uplink.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "migration", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate-mbit", type=int, default=LINK.rate_mbit, metavar="N", help="rate of the uplink (100)")
    known = [f"{load}-{intensity}" for load, intensity in LOADS]
    parser.add_argument("--loads", nargs="*", choices=known, default=known, help="of the foreground; none: nobody is beside it")
    parser.add_argument("--observed", action="store_true", help="the foreground VM runs on stock QEMU, beside the observer")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="begin no run that would end later")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    way = "stock" if arguments.observed else "slot"
    link = at_rate(LINK, arguments.rate_mbit)
    of = ("" if link == LINK else f"-{link.rate_mbit}mbit") + ("-observed" if arguments.observed else "")
    results = ResultsFile(arguments.output / f"migration{of}.jsonl")

    def work() -> None:
        if cells := results.missing(plan(arguments.repeats, arguments.loads)):
            boot = accel.prepare(arguments.qemu, network=True)
            with WAYS[way](boot, link, {}, {}) as pair:
                pair.warm_up()
                rig = Rig(pair, boot, link.rate_mbit)
                results.write("conditions", foreground=way, link=link.parameters(), **host.facts(boot))
                work_off(cells, lambda _: RUN_SECONDS,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell)), arguments.limit_seconds)
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on", (NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
