"""Two hosts with owners, and background VMs that pause, are evicted, stay, or linger (paper 003, sections 2 and 6, Figures 12, 13).

    python3 -m tests.bench.linger [--seconds 200] [--intensity 30] [--jobs 1 2] [--ways evict linger] [--output build/bench/linger] [--qemu PATH]

Each host is a libvirtd with an idletimed and one processor of this machine. Its owner is a foreground VM that is there now and then
(at random, 30 s on average, as long away) and then computes for 30 % of each 100 ms, or more. One background VM that computes without a
pause, or one on each host, which writes down each piece of work on the disk that both hosts share.

    pause    stopped while the owner of its host is there
    evict    sent to the other host at once if that has neither owner nor background, else stopped
    stay     in the idle class, on its host
    linger   the same, and sent to the other host once that pays ([migrate] of idletimed.toml)

The first two are done by this program, without delay; the others are the product's. Each host's /proc/stat has its own processor
alone. The owners' times are the same in all runs. As root, two processors. What its
figures are of: pieces of work, percent of what one background VM does without owners; the owners' pieces, against the same alone.
One JSON line a run; what is there is not run again. `python3 -m tests.report.linger FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable

import libvirt

from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths, run_folder
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.guest import Load
from tests.framework.idletimed import Idletimed, wait_until
from tests.framework.interrupt import exit_status
from tests.framework.libvirtd import CONFIG, Libvirtd, quiet_libvirt
from tests.report import linger as report
from tests.testbed import processors
from tests.testbed.between import network
from tests.testbed.disk import Disk, Model
from tests.testbed.processors import Processor
from tests.testbed.requests import of_client

FREE, ALONE, PAUSE, EVICT, STAY, LINGER = "no owners", "owners alone", "pause", "evict", "stay", "linger"
WAYS = (PAUSE, EVICT, STAY, LINGER)
MEAN_SECONDS, SEED = 30.0, 21
"""In the 200 s both owners are there half of the time, and in a quarter of it together."""
FREE_SECONDS, READY_SECONDS = 30.0, 14.0
MBYTES_PER_SECOND, AGAIN_SECONDS = 50, 30
POLL_SECONDS = 0.25
SETTINGS = '[migrate]\nto = "{} {}"\n' + f"mbytes-per-second = {MBYTES_PER_SECOND}\nagain-seconds = {AGAIN_SECONDS}\n"
PIECE = "head -c 4000000 /dev/zero | md5sum >/dev/null; dd if=/dev/zero of=/dev/vda bs=4096 count=1 oflag=direct 2>/dev/null"


@dataclass(frozen=True)
class Cell:
    """One run, with so many background VMs."""

    way: str
    jobs: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.way}-{self.jobs}".replace(" ", "-")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.way}, {self.jobs} background VMs"


def plan(jobs: list[int], ways: list[str]) -> list[Cell]:
    """Without one or the other first."""
    return [Cell(FREE, 1), Cell(ALONE, 0), *(Cell(way, each) for each in jobs for way in ways)]


def visits(number: int, seconds: float) -> list[tuple[float, float]]:
    """When the owner of a host comes and goes."""
    times = random.Random(SEED + number)
    at, found = times.expovariate(1 / MEAN_SECONDS), []
    while at < seconds:
        end = at + times.expovariate(1 / MEAN_SECONDS)
        found.append((at, min(end, seconds)))
        at = end + times.expovariate(1 / MEAN_SECONDS)
    return found


class Rig:
    """Two hosts and their owners."""

    def __init__(self, stack: ExitStack, qemu: str | None, intensity: int) -> None:
        load = paths.find_tool("cpuload", "loadgen")
        boot = replace(accel.prepare(qemu), initramfs=initramfs.get_initramfs(kernel.get_kernel(), programs=[load]))
        self.facts, self._intensity = host.facts(boot), intensity
        self._disk = stack.enter_context(Disk(Model(service_us=200)))
        self.hosts = [stack.enter_context(Libvirtd(boot, f"host{number}", hook=True)) for number in (1, 2)]
        self._cpus = sorted(os.sched_getaffinity(0))[:2]
        for one, cpu in zip(self.hosts, self._cpus, strict=True):
            stack.enter_context(Processor(one, partial(processors.one, cpu)))
        stack.enter_context(network(*self.hosts))
        self.owners = [self._start(one, f"owner{number}", "") for number, one in enumerate(self.hosts)]
        self.present = [False, False]
        self._ends = threading.Event()
        self._errors: list[BaseException] = []

    def _start(self, one: Libvirtd, name: str, its_policy: str) -> Domain:
        domain = Domain(one, name, its_policy, [disk_xml(self._disk, name)])
        domain.define()
        return domain.start().booted()

    # ---- processors

    def _confine(self) -> None:
        """All VMs of a host have its processor, and no other: until the run ends."""
        seen: dict[tuple[str, str, int], int] = {}
        while not self._ends.wait(POLL_SECONDS):
            for one, cpu in zip(self.hosts, self._cpus, strict=True):
                for dom in one.connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
                    looks = seen[one.name, dom.name(), dom.ID()] = seen.get((one.name, dom.name(), dom.ID()), 0) + 1
                    if looks in (1, 4, 12):  # some threads come later
                        with contextlib.suppress(AssertionError, OSError, libvirt.libvirtError):
                            for thread in Path(f"/proc/{Domain(one, dom.name()).pid}/task").iterdir():
                                os.sched_setaffinity(int(thread.name), {cpu})

    # ---- owners

    def _visit(self, number: int, began: float, seconds: float, found: list[dict[str, Any]]) -> None:
        """Each time that an owner is there: what it did."""
        guest = self.owners[number].guest
        assert guest
        for start, end in visits(number, seconds):
            if self._ends.wait(max(0.0, began + start - time.monotonic())):
                return
            self.present[number] = True
            load = Load(guest, "cpuload", {"intensity": self._intensity, "seconds": end - start}, latencies=False)
            result = load.result()
            self.present[number] = False
            found.append({"host": number, "start": start, "seconds": end - start, **result})

    # ---- background

    def _give_way(self, job: Domain, moves: list[float] | None) -> None:
        """Off its owner's processor at once. moves: how long each took; None: it only stops."""
        at = next(number for number, one in enumerate(self.hosts) if one is job.host)
        while not self._ends.wait(POLL_SECONDS):
            dom, other = self.hosts[at].connection.lookupByName(job.name), self.hosts[1 - at]
            paused = dom.state()[0] == libvirt.VIR_DOMAIN_PAUSED
            if not self.present[at]:
                if paused:
                    dom.resume()
            elif moves is not None and not self.present[1 - at] and not any(one.name().startswith("job") for one in other.connection.listAllDomains()):
                with contextlib.suppress(libvirt.libvirtError):
                    began = time.monotonic()
                    dom.migrate3(other.connection, {}, libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PERSIST_DEST
                                 | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE)
                    at = 1 - at
                    moves.append(time.monotonic() - began)
            elif not paused:
                dom.suspend()

    def _jobs(self, cell: Cell) -> list[Domain]:
        its = policy("background", "<idletime:cpu class='idle'/><idletime:disk target='vda' resource='slow'/>")
        jobs = [self._start(self.hosts[number], f"job{number}", its) for number in range(cell.jobs)]
        for job in jobs:
            assert job.guest
            job.guest.start(f"while :; do {PIECE}; done")
            wait_until(lambda: os.sched_getscheduler(job.pid) == os.SCHED_IDLE, "its class is in force")  # noqa: B023
        return jobs

    def _remove(self) -> None:
        for one in self.hosts:
            for dom in one.connection.listAllDomains():
                if dom.name().startswith("job"):
                    if dom.isActive():
                        dom.destroy()
                    if dom.isPersistent():
                        dom.undefine()

    # ---- a run

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What the owners and the background VMs did."""
        self._ends.clear()
        with ExitStack() as stack:
            stack.callback(self._remove)
            daemons = [stack.enter_context(self._daemon(one, cell)) for one in self.hosts]
            stack.callback(self._ends.set)
            threads = [self._thread(self._confine)]
            jobs = self._jobs(cell)
            time.sleep(READY_SECONDS)  # a first window of what they get
            moves: list[float] = []
            if cell.way in (PAUSE, EVICT):
                threads += [self._thread(self._give_way, job, moves if cell.way == EVICT else None) for job in jobs]
            owners: list[dict[str, Any]] = []
            mark, began = self._disk.mark(), time.monotonic()
            visitors = [self._thread(self._visit, number, began, seconds, owners) for number in range(2) if cell.way != FREE]
            self._wait(began, seconds)
            pieces = [len(of_client(self._disk.read(mark), f"job{number}")) for number in range(cell.jobs)]
            passed = time.monotonic() - began
            for one in visitors:
                one.join()
            said = [line for daemon in daemons for line in daemon.log().splitlines() if "domain 'job" in line]
            self._ends.set()
            for one in threads:
                one.join()
            if self._errors:
                raise self._errors[0]
            return {"seconds": passed, "pieces": pieces, "owners": owners, "moves": moves, "said": said}

    def _wait(self, began: float, seconds: float) -> None:
        time.sleep(max(0.0, began + seconds - time.monotonic()))

    def _thread(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        """What it raises, the run does."""
        def keep() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=keep, daemon=True)
        thread.start()
        return thread

    def _daemon(self, one: Libvirtd, cell: Cell) -> Idletimed:
        (one.folder / "log" / "idletimed.log").unlink(missing_ok=True)
        (one.run / CONFIG).write_text(SETTINGS.format(*(each.uri for each in self.hosts)) if cell.way == LINGER else "")
        return Idletimed(one)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.linger", description="Background VMs on two hosts with owners.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/linger", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=200, help="of a run")
    parser.add_argument("--intensity", type=int, default=30, help="percent of a processor that an owner takes")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2], help="how many background VMs")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="only these")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "linger.jsonl")

    def seconds_of(cell: Cell) -> float:
        return FREE_SECONDS if cell.way == FREE else arguments.seconds

    def work() -> None:
        run_folder.guard()
        if cells := results.missing(plan(arguments.jobs, arguments.ways)):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu, arguments.intensity)
                results.write("conditions", seconds=arguments.seconds, intensity=arguments.intensity, mean_seconds=MEAN_SECONDS,
                              mbytes_per_second=MBYTES_PER_SECOND, again_seconds=AGAIN_SECONDS, **rig.facts)
                work_off(cells, lambda cell: seconds_of(cell) + READY_SECONDS + 10,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, seconds_of(cell))))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    quiet_libvirt()
    sys.exit(main())
