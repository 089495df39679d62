# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks for metrics, by the clock, and has them served: reads what idletimed says, asks QEMUs anew, adds up, hands over.

Only while somebody reads are QEMUs asked: nobody's monitor is spoken to for figures that nobody wants. Those that libvirt has
not started are asked by idletimed's own looks only, for their monitor serves one client at a time. A scrape reads what was
handed over last; it waits for nothing and asks nobody.
Context: the event loop; files are read, QEMUs asked and pages made in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from prometheus_client.exposition import choose_encoder

from .. import VERSION
from ..qmp import DomainMonitor, query
from ..state import DomainState
from . import metrics_facts
from .deeds import Deeds
from .hands import Hands
from .metrics import Sample, Tally, families, note, samples
from .metrics_facts import Facts, Reader, Vm
from .metrics_ledger import Ledger, Sums
from .metrics_server import Api, Server, Tcp, Unix
from .settings import Settings

SOCKET, API_SOCKET = ".metrics.sock", ".api.sock"
"""In the run directory. No resource's name begins with a dot."""

PAGE_SECONDS, PAGE_PAUSE = 5.0, 1.0
"""A page that is open asks at least so often; then looks come so often."""

STALE_LEAST = 900.0
"""Seconds before figures count as stale."""

READ_SECONDS = 300.0
"""Whoever asked within that time reads; scrapers ask once a minute or more often."""

ANSWER_SECONDS = 5.0
"""How long a look waits for QEMUs; who answers later is in the next one."""

SIZE, MOST = 1, 4
"""Threads that ask QEMUs: half a millisecond each. Where four hang, the figures of all others grow old, and say so."""

Answer = tuple[int, Any, float]
"""Run, what query-idletime says, when."""

OPENMETRICS = "application/openmetrics-text"

REST = 9
"""So much of the time no page is made: 1000 VMs are 0.7 s of processor time, and a busy host makes much more of that."""

log = logging.getLogger("idletimed")


@dataclass
class Counts:
    """What idletimed counts of itself. Context: the event loop writes; numbers are read by others."""

    looks: int = 0
    failures: int = 0
    seconds: float = 0.0
    hanging: int = 0
    ticked: float = 0.0
    deeds: Deeds = field(default_factory=Deeds)

    def look(self, began: float, failed: bool) -> None:
        """A look at a VM has ended; began by time.monotonic()."""
        self.looks += 1
        self.failures += failed
        self.seconds += time.monotonic() - began

    def tick(self, hanging: int) -> None:
        """The loop lives."""
        self.hanging, self.ticked = hanging, time.monotonic()


@dataclass(frozen=True)
class Snapshot:
    """What is served until the next look; who asks first has it made into text. made: by time.monotonic()."""

    made: float
    facts: Facts = Facts()
    sums: Sums = field(default_factory=dict)
    tally: Tally = Tally(VERSION, 0)


@dataclass(frozen=True)
class _Text:
    """A snapshot as text. again: before that time no other is made."""

    of: Snapshot
    body: bytes
    again: float


class Book:
    """The page, as text. The event loop puts the last snapshot in; the server's thread reads it, and makes text of it."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.server: Server | None = None
        self.asked = -READ_SECONDS
        self.snapshot = Snapshot(time.monotonic())
        self._texts: dict[str, _Text] = {}

    def page(self, accept: str) -> tuple[list[bytes], str]:
        """For the server: what is of this moment, then what was made once."""
        self.asked = time.monotonic()
        # One of two, whatever else is asked for: of each a page is kept.
        encode, type_ = choose_encoder(OPENMETRICS if OPENMETRICS in accept else "")
        began = time.monotonic()
        text = self._texts.get(type_)
        if text is None or (text.of is not self.snapshot and began > text.again):
            of = self.snapshot
            body = encode(_families(samples(of.facts, of.sums, of.tally)))
            now = time.monotonic()
            text = self._texts[type_] = _Text(of, body, now + (now - began) * REST)
        now = time.monotonic()
        server = self.server
        ages = encode(_families((
            ("idletime_daemon_tick_age_seconds", (), now - self._counts.ticked),
            ("idletime_daemon_facts_age_seconds", (), now - text.of.made),
            ("idletime_daemon_scrapes_total", (), server.answered if server else 0),
            ("idletime_daemon_refused_scrapes_total", (), server.refused if server else 0))))
        return [ages.removesuffix(b"# EOF\n"), text.body], type_


def _families(found: Iterable[Sample]) -> Any:
    """What encoders take: something that has collect()."""
    return SimpleNamespace(collect=lambda: families(found))


class Looks:
    """All of it. connect: gives a thread its connection to libvirt, or None. said, fresh: what idletimed says of each VM and
    what its QEMU answered since, by key; other threads may read them."""

    def __init__(self, settings: Settings, counts: Counts, connect: Callable[[], Any], api: Api | None = None) -> None:
        self._settings, self._counts, self._started = settings, counts, time.time()
        counts.tick(0)
        self._ledger, self._reader = Ledger(), Reader(settings.run_dir)
        self.said: dict[str, DomainState] = {}
        self.fresh: dict[str, Answer] = {}
        self._hurry, self._page_asked = asyncio.Event(), -PAGE_SECONDS
        self._loop = asyncio.get_running_loop()
        self._vms: dict[str, tuple[DomainState, Answer | None, Vm]] = {}
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._said: dict[str, str] = {}
        self.book = Book(counts)
        self.server = self.book.server = Server(self.book.page, listeners(settings), api)
        self._hands = Hands(connect, SIZE, MOST) if self.server.listeners and settings.uri else None
        self._task = asyncio.create_task(self._follow()) if self.server.listeners else None

    def close(self) -> None:
        """Look and serve no more."""
        if self._task is not None:
            self._task.cancel()
        self.server.close()
        if self._hands is not None:
            self._hands.close()

    async def _follow(self) -> None:
        self.server.start()
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except Exception:  # whatever it is, the next look comes
                log.exception("a fault of ours; going on")
            await self._pause(time.monotonic() - began)

    async def _pause(self, took: float) -> None:
        """Until the next look: soon, while a page is open or when one is opened."""
        if self._paged:
            await asyncio.sleep(max(PAGE_PAUSE, took * REST))
            return
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), self._settings.metrics.look_seconds)

    @property
    def _paged(self) -> bool:
        return time.monotonic() - self._page_asked < PAGE_SECONDS

    def hurry(self) -> None:
        """A page is open. Context: any thread."""
        self._page_asked = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._hurry.set)

    async def look(self) -> None:
        """One look, from files to what is served."""
        said, left_out = await asyncio.to_thread(self._reader.read)
        if time.monotonic() - self.book.asked < READ_SECONDS or self._paged:
            await self._ask(said)
        self.said, self.fresh = said, {key: one for key, one in self.fresh.items() if key in said}
        counts = self._counts
        tally = Tally(VERSION, self._started, counts.looks, counts.failures, counts.seconds, counts.hanging,
                      counts.deeds.copy(), stale_seconds(self._settings))
        self.book.snapshot = await asyncio.to_thread(self._snapshot, said, left_out, tally)

    def _snapshot(self, said: dict[str, DomainState], left_out: int, tally: Tally) -> Snapshot:
        """Thread. One look at a time, so nobody else has the ledger."""
        self._vms = {key: one for key, one in self._vms.items() if key in said}
        vms = metrics_facts.named_apart([self._vm(key, one) for key, one in said.items()])
        self._complain(vms)
        facts = Facts(vms, self._reader.observers(), left_out, self._reader.files(), self._reader.gauge())
        note(self._ledger, facts)
        return Snapshot(time.monotonic(), facts, self._ledger.copy(), tally)

    def _vm(self, key: str, said: DomainState) -> Vm:
        """What has not changed is not looked through again."""
        fresh = self.fresh.get(key)
        known = self._vms.get(key)
        if known is not None and known[0] is said and known[1] is fresh:
            return known[2]
        vm = metrics_facts.vm_of(key, said)
        if fresh is not None and is_newer(fresh, said):
            vm = metrics_facts.with_figures(vm, said, fresh[1], fresh[2])
        self._vms[key] = said, fresh, vm
        return vm

    def _complain(self, vms: tuple[Vm, ...]) -> None:
        """Once a VM."""
        for vm in vms:
            if vm.misfit and vm.key not in self._said:
                log.warning("no metrics of '%s': %s; remedy: does it run Idletime's QEMU of this version?", vm.name, vm.misfit)
        self._said = {vm.key: vm.misfit for vm in vms if vm.misfit}

    # ---- QEMUs

    async def _ask(self, said: dict[str, DomainState]) -> None:
        """Ask all that have been spoken to, and wait a little. Who did not answer the last time is not asked twice."""
        if self._hands is None:
            return
        self._hands.watch(time.monotonic())
        for key, one in said.items():
            if one.query is not None and not one.socket and key not in self._asked:
                self._asked[key] = self._hands.do(answer_of, one.uuid)
                self._asked[key].add_done_callback(partial(self._heard, key))
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=ANSWER_SECONDS)

    def _heard(self, key: str, done: asyncio.Future[Any]) -> None:
        self._asked.pop(key, None)
        if not done.cancelled() and done.exception() is None and done.result() is not None:
            self.fresh[key] = done.result()  # else the figures are those of the last look, and say how old they are


def is_newer(fresh: Answer, said: DomainState) -> bool:
    """Whether an answer of QEMU's is of this run, and later than idletimed's last look. A look of the future is of before the
    clock was set back."""
    return fresh[0] == said.run and (fresh[2] > said.looked or said.looked > time.time())


def stale_seconds(settings: Settings) -> float:
    """A look that comes to nothing, and the next one too, say that no look comes. Slow answers do not."""
    return max(STALE_LEAST, 3.0 * max(settings.resync_seconds, settings.metrics.look_seconds))


def listeners(settings: Settings) -> tuple[Unix | Tcp, ...]:
    """Where the page is to be served."""
    said = settings.metrics
    unix: tuple[Unix | Tcp, ...] = (Unix(f"{settings.run_dir}/{SOCKET}", said.group),) if said.socket else ()
    if settings.api.socket:
        unix = (*unix, Unix(f"{settings.run_dir}/{API_SOCKET}", settings.api.group, api=True))
    return (*unix, Tcp(said.address, said.port)) if said.port else unix


def answer_of(connection: Any, uuid: str) -> Answer | None:
    """Asks a domain; None where it does not run. Context: a thread of hands."""
    domain = connection.lookupByUUIDString(uuid)
    return (domain.ID(), query(DomainMonitor(domain)), time.time()) if domain.isActive() else None
