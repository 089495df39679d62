"""Two senders in one guest: nothing, priorities of the processor, or our mark (dissertation, Figures 3.4, 3.5 and 3.7, 3.9).

    python3 -m tests.bench.nice [--kernel 6.1] [--way mark] [--repeats 3] [--seconds 4] [--output build/bench/nice]

Foreground and background are two processes of one guest, TCP or UDP each, on an uplink of 20 Mbit/s, which an emulated guest fills with
time to spare. The foreground sends without a pause, or for 10 % of each 100 ms; the background always without. It runs as it comes (no),
at nice 19, in the idle class (SCHED_IDLE, in the place of POSIX idle), or under `idletime run`, whose packets the NIC holds by
a learned interval. What arrives at the sink: the foreground's of what it has alone, the background's of what is left. As root. One JSON line a run; what is there is not run
again. `python3 -m tests.report.nice FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Sequence

from tests.bench.agent_net import MARGIN_SECONDS, SETTLE_SECONDS, Uplink
from tests.bench.resume import ResultsFile, work_off
from tests.framework import paths, series
from tests.framework.guest import Load
from tests.framework.interrupt import exit_status
from tests.report import nice as report
from tests.testbed.link import SINK_ADDRESS, Model
from tests.testbed.nic import NIC, RESOURCE
from tests.testbed.sink import Sink, Window, goodput_mbit

LINK = Model(rate_mbit=20)
ALONE, NO, NICE, IDLE, OURS = "alone", "no", "nice", "idle class", "mark"
PRIORITY = {NO: "normal", NICE: "nice", IDLE: "idle", OURS: "normal"}
PROTOCOLS, INTENSITIES = ("tcp", "udp"), (100, 10)
PORTS = (5001, 5002)


@dataclass(frozen=True)
class Cell:
    """One run. background: "" is none."""

    foreground: str
    intensity: int
    background: str
    way: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.foreground}-{self.intensity}-{self.background}-{self.way}-{self.repeat}".replace(" ", "-")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.foreground} at {self.intensity} % beside {self.background or 'nobody'}, {self.way}"


def plan(repeats: int, ways: Sequence[str] = tuple(PRIORITY)) -> list[Cell]:
    """All ways of a pair follow each other."""
    return [cell for repeat in range(repeats) for intensity in INTENSITIES for foreground in PROTOCOLS for cell in (
        Cell(foreground, intensity, "", ALONE, repeat),
        *(Cell(foreground, intensity, background, way, repeat) for background in PROTOCOLS for way in ways))]


class Rig(Uplink):
    """The guest with the agent; the other one does nothing."""

    def __enter__(self) -> Rig:
        super().__enter__()
        # As the paper's kernel, this one is to compare processes, not sessions.
        self.marking.run("cd /proc/sys/kernel; [ ! -e sched_autogroup_enabled ] || echo 0 >sched_autogroup_enabled")
        return self

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """Mbit/s of both at the sink."""
        ours = cell.way == OURS
        machine = self.machines["same"]
        machine.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property="auto", value=ours)
        machine.qmp.execute("idletime-set", device=NIC, **{"class": "guest" if ours else "foreground"})
        total = seconds + SETTLE_SECONDS
        names = ["foreground", *(["background"] if cell.background else [])]
        with ExitStack() as stack:
            sinks = {name: stack.enter_context(Sink(self.link, "sink", protocol=protocol, port=port, seconds=total + MARGIN_SECONDS))
                     for name, protocol, port in zip(names, (cell.foreground, cell.background), PORTS, strict=False)}
            behind = self._send(cell.background, 100, PORTS[1], total + 1, cell.way) if cell.background else None
            ahead = self._send(cell.foreground, cell.intensity, PORTS[0], total, NO)
            begin = time.monotonic() + SETTLE_SECONDS
            ahead.result()
            if behind:
                behind.result()
            window = Window(round(begin * 1e9), round((begin + seconds) * 1e9))
            return {f"{name}_mbit": goodput_mbit(sink.report(), window) for name, sink in sinks.items()}

    def _send(self, protocol: str, intensity: int, port: int, seconds: float, way: str) -> Load:
        return Load(self.marking, "idletime run -- netload send" if way == OURS else "netload send", {
            "host": SINK_ADDRESS, "port": port, "protocol": protocol, "seconds": seconds, "intensity": intensity,
            "priority": PRIORITY[way]}, latencies=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.nice", description="Two senders in one guest, by priority or by our mark.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/nice", help="folder of the results")
    parser.add_argument("--kernel", choices=list(series.SUITES), default="6.1", help="series of the guest's kernel (6.1)")
    parser.add_argument("--way", choices=list(PRIORITY), action="append", dest="ways", help="what holds the background; may be repeated (all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of a run")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "nice.jsonl")

    def work() -> None:
        if cells := results.missing(plan(arguments.repeats, arguments.ways or tuple(PRIORITY))):
            with Rig(LINK, arguments.kernel) as rig:
                results.write("conditions", seconds=arguments.seconds, link=LINK.parameters(), **rig.conditions)
                work_off(cells, lambda _: arguments.seconds + SETTLE_SECONDS + 2,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    sys.exit(main())
