"""A foreground VM beside a greedy background VM that is stopped as a whole (paper 004, Figure 6), limited to a rate (paper 003,
5.1), or held request by request.

    python3 -m tests.bench.police [--seconds 40] [--output build/bench/police] [--qemu PATH]

Two domains of a libvirtd of our own, with idletimed, on a disk that serves one request at a time in 5 ms: the foreground reads for
25, 50 and 100 % of each 100 ms, the background without a pause. EII and IPD are `enforce='suspend'` with each rule; interval is
20 ms, and the learned one with a budget of 3 %. Rate windows have paper 003's shares of this disk: on above 10 %, off below 5 %,
limit 5 %. Processors count for nothing, since guests under TCG use them for everything. As
root. One JSON line a run; what is there is not run again. `python3 -m tests.report.police FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any
from pathlib import Path

import libvirt

from tests.bench import pair
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, paths, run_folder
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.interrupt import exit_status
from tests.framework.libvirtd import CONFIG, Libvirtd, quiet_libvirt
from tests.report import police as report
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import of_client

INTENSITIES = (25, 50, 100)
ALONE, NONE = "alone", "no control"
EII, IPD, RATE, FIXED, AUTO = "EII", "IPD", "rate windows", "interval 20 ms", "interval, auto 3 %"
SERVICE_US = 5000
MODEL = Model(service_us=SERVICE_US)
DISK_KBYTES = 4096 * 1000 // SERVICE_US
"""A second, of requests of 4096 bytes."""
DAEMON = f"""
[suspend]
cpu-percent = 0
rule = "{{rule}}"
[rate]
high-kbytes = {DISK_KBYTES // 10}
low-kbytes = {DISK_KBYTES // 20}
limit-kbytes = {DISK_KBYTES // 20}
"""
INNER = "<idletime:disk target='vda' resource='slow'/>"
POLICIES = {
    NONE: policy("foreground", INNER),
    EII: policy("background", INNER).replace("class=", "enforce='suspend' class=", 1),
    RATE: policy("background", INNER).replace("class=", "enforce='rate' class=", 1),
    FIXED: policy("background", "<idletime:interval us='20000'/>" + INNER),
    AUTO: policy("background", "<idletime:interval auto='yes' budget='3%'/>" + INNER),
}
POLICIES[IPD], POLICIES[ALONE] = POLICIES[EII], POLICIES[NONE]
WAYS = (NONE, EII, IPD, RATE, FIXED, AUTO)
ALONE_SECONDS, WARM_UP_SECONDS, MOST_SECONDS, IDLE_SECONDS = 10.0, 4.0, 600.0, 60.0


@dataclass(frozen=True)
class Cell:
    """One run."""

    way: str
    foreground: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way}-{self.foreground}".replace(" ", "").replace(",", "-")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"foreground {self.foreground} %, {self.way}"


class Rig:
    """A host with both domains."""

    def __init__(self, stack: ExitStack, qemu: str | None) -> None:
        boot = accel.prepare(qemu)
        self.facts = host.facts(boot)
        self.disk = stack.enter_context(Disk(MODEL))
        self.host = stack.enter_context(Libvirtd(boot, "police", hook=True))
        self._stack, self._rule, self._daemon = stack, "", ExitStack()
        stack.push(self._daemon)
        self.foreground, self.background = (self._domain(name, its) for name, its in (
            ("fg", policy("foreground", INNER)), ("bg", POLICIES[NONE])))

    def _domain(self, name: str, its_policy: str) -> Domain:
        domain = Domain(self.host, name, its_policy, [disk_xml(self.disk, name)])
        domain.define()
        domain.start().booted()
        self._stack.callback(domain.detach)
        return domain

    def _control(self, way: str) -> None:
        rule = IPD.lower() if way == IPD else EII.lower()
        if rule != self._rule:
            self._rule = rule
            self._daemon.close()
            (self.host.run / CONFIG).write_text(DAEMON.format(rule=rule))
            self._daemon.enter_context(Idletimed(self.host))
        file = self.host.run / "policy.xml"
        file.write_text(POLICIES[way])
        virt_idletime(self.host, "mark", "bg", "--policy", "/run/policy.xml")

    def _runs(self) -> bool:
        return bool(self.background.dom.state()[0] == libvirt.VIR_DOMAIN_RUNNING)

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What both did while the foreground worked."""
        assert self.foreground.guest and self.background.guest
        self._control(cell.way)
        wait_until(self._runs, "the background VM runs", IDLE_SECONDS)
        load = None
        if cell.way != ALONE:
            load = self.background.guest.load(**pair.COMMON_LOAD, intensity=100, outstanding=1, seconds=MOST_SECONDS)
            time.sleep(WARM_UP_SECONDS)  # it is seen to be alone
        mark = self.disk.mark()
        result = self.foreground.guest.load(
            **{**pair.FOREGROUND_LOAD, "intensity": cell.foreground}, quantum_ms=pair.QUANTUM_MS, outstanding=1,
            seconds=ALONE_SECONDS if cell.way == ALONE else seconds).result()
        served = of_client(self.disk.read(mark), "bg")
        if load is not None:
            wait_until(self._runs, "the background VM runs", IDLE_SECONDS)
            load.stop()
            load.result()
        return {"foreground": result, "background": len(served) / result["seconds"]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.police", description="A background VM that is stopped, or held.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "police", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=40, help="of a run")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "police.jsonl")

    def work() -> None:
        run_folder.guard()
        cells = [Cell(way, intensity) for way in (ALONE, *WAYS) for intensity in INTENSITIES]
        if missing := results.missing(cells):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", seconds=arguments.seconds, disk=rig.disk.parameters(), **rig.facts)
                work_off(missing, lambda cell: 12 if cell.way == ALONE else arguments.seconds + 8,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    quiet_libvirt()
    sys.exit(main())
