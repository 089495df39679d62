# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at all VMs that run, again and again: what `status` reads, but XML only when idletimed has said something new.

QEMUs are asked in threads. One that does not answer is not asked again before it has, and shows idletimed's last figures.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import libvirt

from .. import arena, domains, observed, resolve, sockets, state, status
from ..conf import rules
from ..domains import HostError
from ..hostd import usage
from ..hostd.metrics_facts import Reader
from ..patience import Patience
from ..police.look import Look as Files
from ..qmp import DomainMonitor
from ..resolve.tree import Tree
from ..state import DomainState
from ..status import DomainStatus, Told
from .model import Counted, Look

ANSWER_SECONDS = 1.0
"""QEMU answers within a millisecond; who does not is late, and is in a later look."""

FRESH_SECONDS = 10.0
"""So long what was found out of a VM holds of which idletimed says nothing: it is not attached, or idletimed does not run."""

SHARE = 0.009
"""Of one processor: looks come seldomer where they would take more. 1 % is promised; what a look costs varies."""
LONGEST_SECONDS = 10.0
_SMOOTH = 0.3  # of the last look in the mean: one that had to learn ten VMs anew is no reason to stand still


@dataclass
class Pace:
    """When to look again: not before `delay`, and so that all of this program takes SHARE of a processor."""

    delay: float
    _busy: float = field(default_factory=time.process_time)
    _mean: float | None = None

    def wait_seconds(self) -> float:
        """Asked once after each look; what happened before the first one is not counted."""
        busy, self._busy = time.process_time() - self._busy, time.process_time()
        if self._mean is None:
            self._mean = 0.0
        else:
            self._mean = self._mean * (1 - _SMOOTH) + busy * _SMOOTH if self._mean else busy
        return max(self.delay, min(self._mean / SHARE, LONGEST_SECONDS))


@dataclass
class _Known:
    """What does not change from look to look. said: idletimed's words that the facts are from; None: until is when they end."""

    domain: Any
    run: int
    persistent: bool
    facts: Told
    said: DomainState | None
    until: float


class Sampler:
    """connect: gives a connection, and whether QEMUs may be asked by it; None where this host has no libvirt. Context: one
    thread."""

    def __init__(self, connect: Callable[[], tuple[Any, bool]] | None, run_dir: str, numbers: bool, files: Files = Files()):
        self._connect, self._run_dir, self._numbers, self._files = connect, run_dir, numbers, files
        self._connection: Any = None
        self._may_ask = False
        self._reader = Reader(run_dir)
        self._known: dict[str, _Known] = {}
        self._patience = Patience(lambda: connect()[0] if connect else None, ANSWER_SECONDS)

    def look(self) -> Look:
        """Raises nothing: what is wrong is among the notes."""
        at, when, notes = time.monotonic(), time.time(), []
        found: list[DomainStatus] = []
        unattached: tuple[Counted, ...] = ()
        if self._connect is not None:
            try:
                found = self._of_libvirt(self._connect, at)
                unattached = self._counted(found)
                if not self._may_ask:
                    notes.append("figures are those of idletimed's last looks: libvirt lets us not ask QEMUs")
            except (HostError, libvirt.libvirtError) as error:
                self._connection = None
                notes.append(str(error))
        if vms := sockets.there(self._run_dir):
            found += sockets.statuses(vms, rules.load(Tree("/", self._run_dir)), self._numbers, self._run_dir)
        if state.daemon(self._run_dir) is None:
            notes.append("idletimed does not run: nothing new is carried out; remedy: systemctl start idletimed")
        return Look(at, when, tuple(found), self._arenas(found), self._kernel(found), unattached, tuple(notes))

    # ---- VMs

    def _of_libvirt(self, connect: Callable[[], tuple[Any, bool]], now: float) -> list[DomainStatus]:
        if self._connection is None:
            (self._connection, self._may_ask), self._known = connect(), {}
        there = {domain.UUIDString(): (domain, state_) for domain, state_ in domains.active(self._connection)}
        self._learn({uuid: domain for uuid, (domain, _) in there.items()}, now)
        facts = self._ask({uuid: state_ for uuid, (_, state_) in there.items()})
        return [_status(known, there[uuid][1], facts[uuid]) for uuid, known in self._known.items()]

    def _learn(self, there: Mapping[str, Any], now: float) -> None:
        """Look at those anew that are new, or of which idletimed says something else than before."""
        said, _ = self._reader.read()
        host, files = resolve.Host(lookup=domains.HostLookup(self._connection), run_dir=self._run_dir), None
        kept: dict[str, _Known] = {}
        for uuid, domain in there.items():
            known = self._known.get(uuid)
            if known is None or known.run != domain.ID() or known.said is not said.get(uuid) or now > known.until:
                files = rules.load(Tree("/", self._run_dir)) if files is None else files
                known = self._look_at(domain, said.get(uuid), host, files, now)
            if known is not None:
                kept[uuid] = known
        self._known = kept

    def _look_at(self, domain: Any, said: DomainState | None, host: resolve.Host, files: rules.Rules,
                 now: float) -> _Known | None:
        with contextlib.suppress(HostError, libvirt.libvirtError):  # it went away since it was listed
            xml, run = domains.xml_of(domain), domain.ID()
            fits = said is not None and status.said_of(xml, run, domain.UUIDString(), self._run_dir) is not None
            facts = status.told(xml, said, files) if fits and said is not None else None
            until = now + FRESH_SECONDS if facts is None else float("inf")
            facts = facts or status.facts_of(xml, host, None, self._run_dir, files)
            return _Known(domain, run, bool(domain.isPersistent()), facts, said, until)
        return None

    def _ask(self, states: Mapping[str, str]) -> dict[str, Told]:
        """Facts with QEMU's figures of now, where it answers in time."""
        observers = observed.read(self._run_dir)
        facts = {uuid: replace(known.facts, observers=observers) for uuid, known in self._known.items()}
        asked = [uuid for uuid, one in facts.items() if self._may_ask and one.plan.asks
                 and states[uuid] in ("running", "paused")]
        answers = {uuid: partial(_answered, uuid, facts[uuid]) for uuid in asked}
        return {**facts, **self._patience.ask(answers)}

    # ---- what else does I/O

    def _counted(self, found: Iterable[DomainStatus]) -> tuple[Counted, ...]:
        """Devices of VMs at which none of ours looks: not attached, or on a stock QEMU."""
        asked = [one.uuid for one in found if not any(device.class_now for device in one.devices)]
        if not asked:
            return ()
        flags = libvirt.VIR_DOMAIN_STATS_BLOCK | libvirt.VIR_DOMAIN_STATS_INTERFACE
        stats = self._connection.domainListGetStats([self._known[uuid].domain for uuid in asked], flags,
                                                    libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
        return tuple(Counted(domain.UUIDString(), *each)
                     for domain, one in stats for each in usage.counted(one))

    def _kernel(self, found: Iterable[DomainStatus]) -> dict[str, int]:
        names = {resource.name for one in found for resource in one.resources}
        disks = self._files.disks()
        counts = {name: disks[name].bytes_ if name in disks else self._files.sent_bytes(name) for name in names}
        return {name: count for name, count in counts.items() if count is not None}

    def _arenas(self, found: Iterable[DomainStatus]) -> dict[str, str]:
        views = [resource for one in found for resource in one.resources]
        seen = {one.name for one in views if one.state not in (None, "unknown")}
        unseen = {one.name: one for one in views if one.name not in seen}
        return {name: text for name, one in unseen.items() if (text := _by_boards(one))}


def _answered(uuid: str, facts: Told, connection: Any) -> Told:
    facts = replace(facts, problems=list(facts.problems))
    with contextlib.suppress(libvirt.libvirtError):  # it went away since it was listed
        status.ask(DomainMonitor(connection.lookupByUUIDString(uuid)), facts)
    return facts


def _status(known: _Known, state_: str, facts: Told) -> DomainStatus:
    domain = known.domain
    found = status.build(domain.name(), domain.UUIDString(), state_, known.persistent, facts)
    return replace(found, stopped=known.said.stopped) if known.said else found


def _by_boards(resource: status.ResourceStatus) -> str | None:
    """What a background participant would see, but for the kernel's observer."""
    try:
        left = arena.read(resource.path).interval_left_us(resource.interval_us or resource.interval_us_wanted)
    except arena.ArenaError:
        return None
    return "foreground" if left is None else "preemption" if left else "idle"
