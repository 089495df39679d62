"""A web server in a foreground VM beside one in a background VM (dissertation, 3.1), and beside a migration (paper 003, Figure 11).

    python3 -m tests.bench.web [--seconds 12] [--rates 10 100] [--ways none 'auto 3 %'] [--output build/bench/web] [--qemu PATH]

nginx in both VMs, whose uplink is one. The foreground has few clients or many, each of which asks at most ten times a second, as
WebSTONE's; the background twenty that ask again at once. What keeps it back:

    pool       five clients in place of twenty, as a pool of five servers
    priority   that, and the processors after everybody else: the least weight and cpu.idle
    cap        that of a pool, each connection with a fifth of a tenth of the uplink
    20 ms, auto 3 %   its packets are held by us, twenty clients

Response times are multiples of the fastest of a page of that size on that link. A second series migrates a VM beside the clients:
as it comes, at a fixed rate of a tenth, and held. One JSON line a run; what is there is not run again. As root.
`python3 -m tests.report.web FILE` makes table and plots.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Collection, Iterator

from tests.bench.net.pair import Pair
from tests.bench.net.plan import LINK, Case, at_rate
from tests.bench.resume import ResultsFile, work_off
from tests.framework import accel, host, initramfs, kernel, paths
from tests.framework.interrupt import exit_status
from tests.framework.process import Process
from tests.framework.qemu import Boot
from tests.report import web as report
from tests.report.netresults import IDLE, SHARED
from tests.testbed import webserver
from tests.testbed.link import Link, Model
from tests.testbed.mover import Mover
from tests.testbed.namespace import NamespaceError
from tests.testbed.webclient import LIMIT_SECONDS

RATES = (10, 100)
CLIENTS = {(10, "light"): 1, (10, "heavy"): 5, (100, "light"): 4, (100, "heavy"): 16}
"""Of the foreground, by the uplink's Mbit/s: some 10 and 50 % of 10 Mbit/s, 5 and 20 % of 100, which is what an emulated guest serves."""
CLIENT_RATE = 10.0
GREEDY, POOL = 20, 5
ALONE, NONE, IN_POOL, PRIORITY, CAP, FIXED, AUTO = "alone", "none", "pool", "priority", "cap", "20 ms", "auto 3 %"
WAYS = (NONE, IN_POOL, PRIORITY, CAP, FIXED, AUTO)
CAP_SHARE = 0.1
MIGRATION = "migration"
MOVES = ("as it comes", "a tenth", AUTO)
UNCONTROLLED = Case("tcp", "tcp")
CASES = {FIXED: replace(UNCONTROLLED, interval_us=20000), AUTO: replace(UNCONTROLLED, auto=True)}
SETTLE_SECONDS, MOVE_SECONDS, AFTER_SECONDS, LOOK_SECONDS = 1.5, 60.0, 5.0, 0.5
FASTEST = "fastest"
"""One client alone, whose fastest answers are what the others' are measured by."""


@dataclass(frozen=True)
class Cell:
    """One run. `kind`: light, heavy, FASTEST or MIGRATION."""

    rate: int
    kind: str
    way: str

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.rate}-{self.kind}-{self.way}".replace(" ", "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.rate} Mbit/s, {self.kind}, {self.way}"


def answers(rate: int, ways: Collection[str]) -> list[Cell]:
    """Of two web servers on one link."""
    return [Cell(rate, FASTEST, ALONE), *(Cell(rate, kind, way) for kind in ("light", "heavy") for way in (ALONE, *ways))]


def plan(rate: int, ways: Collection[str]) -> list[Cell]:
    """On one link. Migrations are beside many clients, where all ways are asked for."""
    moves = [Cell(rate, MIGRATION, way) for way in MOVES] if rate == max(RATES) and set(ways) == set(WAYS) else []
    return [*answers(rate, ways), *moves]


class Clients:
    """A context manager: clients of one server, at the sink."""

    _number = 0

    def __init__(self, link: Link, address: str, clients: int, rate: float, seconds: float) -> None:
        Clients._number += 1
        self._log = link.folder / f"clients.{Clients._number}"
        argv = [sys.executable, "-m", "tests.testbed.webclient", address, f"--clients={clients}", f"--rate={rate}", f"--seconds={seconds}"]
        self._seconds = seconds
        self._process: Process = link.start(argv, self._log)

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def result(self) -> dict[str, Any]:
        """Of all of them, at their end."""
        self._process.wait(self._seconds + 2 * LIMIT_SECONDS)
        return dict(json.loads(self._log.read_text().splitlines()[-1]))


class Traffic:
    """A context manager that looks how much the foreground's NIC and the uplink have sent."""

    def __init__(self, link: Link, device: str) -> None:
        self._link, self._device, self._over = link, device, threading.Event()
        self.looks: list[tuple[float, int, int]] = []
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            text = self._link.host.command("ip", "-s", "-j", "link", "show", "dev", self._device)
            own = int(json.loads(text)[0]["stats64"]["rx"]["bytes"])
            self.looks.append((time.monotonic(), own, self._link.uplink()["bytes"]))

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Rig:
    """Two VMs with a web server each, on one uplink."""

    def __init__(self, pair: Pair, boot: Boot, rate: int) -> None:
        self.pair, self._boot, self._rate = pair, boot, rate
        self._guests = {role: machine.guest for role, machine in pair.machines.items()}
        self._addresses = dict(zip(self._guests, (tap.address for tap in pair.taps)))
        for guest in self._guests.values():
            webserver.start(guest)
        self._limited = False

    def _clients(self, role: str, clients: int, rate: float, seconds: float) -> Clients:
        return Clients(self.pair.link, self._addresses[role], clients, rate, seconds)

    def _control(self, way: str) -> None:
        self.pair.control(CASES.get(way, UNCONTROLLED))
        pids = {role: [machine.process.pid] for role, machine in self.pair.machines.items()}
        self.pair.processors.assign(IDLE if way == PRIORITY else SHARED, **pids)
        if (way == CAP) != self._limited:
            self._limited = way == CAP
            webserver.limit(self._guests["background"], int(self._rate * 1e6 / 8 * CAP_SHARE / POOL) if self._limited else 0)

    def run(self, cell: Cell, seconds: float) -> dict[str, Any]:
        """What the foreground's clients saw, and what the background's got meanwhile."""
        if cell.kind == MIGRATION:
            return self._beside_migration(cell)
        self._control(cell.way)
        number = 1 if cell.kind == FASTEST else CLIENTS[cell.rate, cell.kind]
        with ExitStack() as stack:
            if cell.way != ALONE:
                many = GREEDY if cell.way in (NONE, FIXED, AUTO) else POOL
                other = stack.enter_context(self._clients("background", many, 0, seconds + 2 * SETTLE_SECONDS))
                time.sleep(SETTLE_SECONDS)
            begin = time.monotonic()
            own = stack.enter_context(self._clients("foreground", number, CLIENT_RATE, seconds)).result()
            end = begin + seconds
            result = {"foreground": [request[1:] for request in own["requests"]], "failed": own["failed"], "background_mb_s": None}
            if cell.way != ALONE:
                answered = [size for at, size, took in other.result()["requests"] if begin <= at + took < end]
                result["background_mb_s"] = sum(answered) / 1e6 / seconds
        return result

    def _beside_migration(self, cell: Cell) -> dict[str, Any]:
        self._control(NONE)
        assert self.pair.arena
        with ExitStack() as stack:
            mover = stack.enter_context(Mover(self._boot, self.pair.link, self.pair.arena, auto="on"))
            traffic = stack.enter_context(Traffic(self.pair.link, self.pair.taps[0].device))
            seconds = 2 * AFTER_SECONDS + MOVE_SECONDS
            clients = stack.enter_context(self._clients("foreground", CLIENTS[cell.rate, "heavy"], CLIENT_RATE, seconds))
            time.sleep(SETTLE_SECONDS + AFTER_SECONDS)
            begin = time.monotonic()
            mover.begin(cell.way == AUTO, int(self._rate * 1e6 / 8 * CAP_SHARE) if cell.way == MOVES[1] else 0)
            status = mover.wait(MOVE_SECONDS)
            end = time.monotonic()
            own = clients.result()
        return {"begin": begin, "end": end, "status": status["status"], "foreground": own["requests"], "failed": own["failed"],
                "looks": traffic.looks}


def prepared(qemu: str | None) -> tuple[Boot, Boot]:
    """This QEMU with the system of the tests, and with one that has a web server."""
    plain = accel.prepare(qemu, network=True)
    return plain, replace(plain, initramfs=initramfs.get_initramfs(kernel.get_kernel(), network=True, linked=[webserver.program()]))


@contextmanager
def rig_on(plain: Boot, boot: Boot, link: Model) -> Iterator[Rig]:
    """Both VMs, and their servers; what prepared() gave."""
    with Pair(boot, link) as pair:
        yield Rig(pair, plain, link.rate_mbit)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.web", description="Web servers in two VMs on one uplink.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "web", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=12, help="of a run")
    parser.add_argument("--rates", type=int, nargs="+", choices=RATES, default=RATES, help="of the uplink, Mbit/s")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="what keeps the background back (all, and migrations)")
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "web.jsonl")

    def work() -> None:
        for rate in arguments.rates:
            if cells := results.missing(plan(rate, arguments.ways)):
                plain, boot = prepared(arguments.qemu)
                with rig_on(plain, boot, at_rate(LINK, rate)) as rig:
                    results.write("conditions", seconds=arguments.seconds, clients={kind: CLIENTS[rate, kind] for kind in ("light", "heavy")},
                                  rate_mbit=rate, **host.facts(plain))
                    work_off(cells, lambda cell: 100 if cell.kind == MIGRATION else arguments.seconds + 6,
                             lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, arguments.seconds)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on", (NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
