# SPDX-License-Identifier: GPL-2.0-or-later
"""The block jobs and migrations that run, and NBD exports that are background: how far each is, how fast, what holds it,
when it ends.
Two looks, and one pure model of both.

libvirt says which jobs there are, on a read-only connection, too, and without a word to the monitor of a domain; of exports
idletimed's last look does. What Idletime does with them says QEMU (query-idletime), or else that look.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import libvirt

from . import domains, jobs, state
from .devices import devices_of
from .errors import MonitorError
from .facts import DISK
from .patience import Patience
from .police import deadline
from .police.deadline import Track
from .qmp import UNKNOWN_COMMAND, DomainMonitor, query
from .xmltree import read

_TYPES = {libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_PULL: "pull", libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_COPY: "copy",
          libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_COMMIT: "commit", libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_ACTIVE_COMMIT: "commit",
          libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_BACKUP: "backup"}

Have = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Seen:
    """A job, migration or export in one look. total: what reads an export may read as much as it likes; of a migration it grows
    while the guest writes. disk: none, of a migration. id: of an export and a migration.
    alias: of the disk of a job.
    track: of one that has a deadline, as of idletimed's last look."""

    domain: str
    disk: str
    type: str
    done: int
    total: int = 0
    id: str = ""
    track: Track | None = None
    alias: str = ""


@dataclass(frozen=True)
class Look:
    """seconds: by the monotonic clock. have: of each domain, what query-idletime said; None is not known. asked: it said so
    now; else that is of idletimed's last look, and its figures are old. silent: domains of whose jobs nothing is known: their
    QEMUs do not answer, or too many others do not."""

    seconds: float
    jobs: tuple[Seen, ...] = ()
    have: Mapping[str, Have | None] = field(default_factory=dict)
    asked: bool = True
    silent: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobStatus:
    """One job; None is not known. rate: bytes a second, between the two looks. class_: "background", or "foreground" where
    it is as in stock QEMU. held: whether it waits now. waited_percent: of its chunks, those that waited 1 ms and more.
    idle_used_percent: of the resource's idle time, what it used between the looks, by the mean time that a background
    request takes. left_seconds: until its end, at this rate, or what its deadline makes of it; end: in seconds since 1970.
    by: its deadline, likewise; urgent: it is foreground now so as to be done in time, or at all. diverges: a migration that
    does not end at this pace, as the guest writes more than leaves."""

    domain: str
    disk: str
    type: str
    done: int
    total: int
    done_percent: float | None = None
    rate: float | None = None
    class_: str | None = None
    resource: str | None = None
    held: bool | None = None
    waited_percent: float | None = None
    idle_used_percent: float | None = None
    left_seconds: float | None = None
    end: float | None = None
    by: float | None = None
    urgent: bool = False
    diverges: bool = False


def build(before: Look, after: Look, now: float) -> list[JobStatus]:
    """The jobs of the second look. now: in seconds since 1970. Pure."""
    earlier = {(one.domain, one.disk, one.id): one for one in before.jobs}
    return [_status(earlier.get((one.domain, one.disk, one.id)), one, before, after, now) for one in after.jobs]


def _status(earlier: Seen | None, one: Seen, before: Look, after: Look, now: float) -> JobStatus:
    seconds = after.seconds - before.seconds
    rate = None
    if earlier is not None and earlier.type == one.type and one.done >= earlier.done and seconds > 0:
        rate = (one.done - earlier.done) / seconds
    left = (one.total - one.done) / rate if rate and one.total else None
    have = after.have.get(one.domain)
    track = one.track
    if track is not None and left is not None:
        left = min(left, max(0.0, deadline.expected_end(track, one.total) - now))
    class_, resource, held, waited, used = _held(one, have, before.have.get(one.domain), seconds)
    if not after.asked:
        held = waited = used = None
    return JobStatus(one.domain, one.disk, one.type, one.done, one.total, 100 * one.done / one.total if one.total else None,
                     rate, class_, resource, held, waited, used, left, None if left is None else now + left,
                     None if track is None or not track.by else track.deadline, track is not None and track.urgent,
                     one.type == jobs.MIGRATION and jobs.diverges(have or ()))


def _held(one: Seen, have: Have | None, had: Have | None, seconds: float) -> tuple[
        str | None, str | None, bool | None, float | None, float | None]:
    if have is None:
        return None, None, None, None, None
    on = list(_attached(one, have))
    if not on:
        return "foreground", None, None, None, None
    resource, said = on[0]  # a chunk has waited on all of them
    was = next((was for at, was in _attached(one, had or ()) if at["id"] == resource["id"]), None)
    names = ", ".join(str(at["id"]).removeprefix("idletime-") for at, _ in on)
    bins, bounds = said["hold"]["bins"], said["hold"]["boundaries-us"]
    chunks = sum(bins)
    waited = sum(number for number, from_us in zip(bins, (0, *bounds), strict=True) if from_us >= 1000)
    return ("background", names, any(there["held"] for _, there in on), 100 * waited / chunks if chunks else None,
            _used(said, was, resource, seconds))


def _attached(one: Seen, have: Have) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The resources that it is on, and what is said of it there."""
    for resource in have:
        for each in jobs.attached([resource]):
            is_it = each.id == one.id if each.kind != jobs.JOB else \
                not one.id and jobs.of_libvirt(each.id, {one.alias: one.disk})[1] == one.disk
            if is_it and not each.said["detaching"]:
                yield resource, each.said


def _used(said: Mapping[str, Any], was: Mapping[str, Any] | None, resource: Mapping[str, Any], seconds: float) -> float | None:
    """Known where the resource learns."""
    learned = resource.get("learned") or {}
    idle, service_us = learned.get("spare", {}).get("second"), learned.get("service-us")
    if was is None or was["id"] != said["id"] or not idle or not service_us or seconds <= 0:
        return None
    starts: int = said["background"]["requests"] - was["background"]["requests"]
    used: float = 100 * starts * service_us / 1e6 / seconds / idle
    return min(100.0, max(0.0, used))


# ---- looking

def look(connection: Any, ask: bool, run_dir: str, only: Any = None, patience: Patience | None = None) -> Look:
    """All jobs that run now. ask: QEMUs may be asked. only: of this domain. patience: by it, instead of by this connection.
    Raises HostError."""
    there = {one.name(): one for one in ([only] if only is not None else [one for one, _ in domains.active(connection)])}
    began = time.monotonic()
    asked = {name: partial(_look, one.UUIDString(), ask, run_dir) for name, one in there.items()}
    answers = (patience or Patience(lambda: connection)).ask(asked)
    jobs_ = [one for name in there if name in answers for one in answers[name][0]]
    have = {name: said for name in there if name in answers for said in answers[name][1]}
    return Look(began, tuple(jobs_), have, ask, tuple(name for name in there if name not in answers))


def _look(uuid: str, ask: bool, run_dir: str, connection: Any) -> tuple[list[Seen], list[Have | None]]:
    """The jobs of a domain, and where there are any, what query-idletime says."""
    with contextlib.suppress(libvirt.libvirtError, domains.HostError):  # it has ended meanwhile, or is about to
        domain = connection.lookupByUUIDString(uuid)
        said = state.domain(run_dir, uuid)
        said = said if said is not None and said.run == domain.ID() else None
        seen = [*_of_domain(domain, said), *_moving(domain, said)]
        have = [_have(domain, ask, said)] if seen or (said and said.exports) else []
        return [*seen, *_exported(domain.name(), said, have[0] if have else None)], have
    return [], []


def _of_domain(domain: Any, state_: state.DomainState | None) -> list[Seen]:
    if not domain.isActive():
        return []
    result = []
    there = devices_of(read(domains.xml_of(domain)))
    targets = {one.alias: one.target for one in there}
    tracks = {jobs.of_libvirt(id_, targets): track
              for id_, track in deadline.of_record(state_.deadlines if state_ else {}).items()}
    for device in there:
        if device.kind != DISK:
            continue
        with contextlib.suppress(libvirt.libvirtError):
            said = domain.blockJobInfo(device.target, 0)
            if said:
                type_ = _TYPES.get(said["type"], "unknown")
                result.append(Seen(domain.name(), device.target, type_, int(said["cur"]), int(said["end"]),
                                   track=tracks.get((type_, device.target)), alias=device.alias))
    return result


def _moving(domain: Any, state_: state.DomainState | None) -> list[Seen]:
    """Its migration to another host, if one runs."""
    said: Mapping[str, int] = {}
    with contextlib.suppress(libvirt.libvirtError):
        said = domain.jobStats()
    if said.get("operation") != libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT or "data_remaining" not in said:
        return []
    tracks = deadline.of_record(state_.deadlines if state_ else {})
    done = int(said["data_processed"])
    return [Seen(domain.name(), "", jobs.MIGRATION, done, done + int(said["data_remaining"]), jobs.OUTGOING,
                 tracks.get(jobs.OUTGOING))]


def _exported(domain: str, said: state.DomainState | None, have: Have | None) -> list[Seen]:
    """Those that are still there, or were and are urgent now."""
    if said is None:
        return []
    there, tracks = {one.key: one.said for one in jobs.attached(have or ())}, deadline.of_record(said.deadlines)
    found = []
    for id_, disk in said.exports.items():
        track, attached = tracks.get(id_), there.get((jobs.EXPORT, id_))
        if attached is not None or (track is not None and track.urgent):
            done = attached["background"]["bytes"] if attached is not None else 0
            found.append(Seen(domain, disk, jobs.EXPORT, done, id=id_, track=track))
    return found


def _have(domain: Any, ask: bool, said: state.DomainState | None) -> Have | None:
    """A domain to whose monitor nobody has spoken has nothing of ours, and is not spoken to."""
    if not domains.tainted(domain):
        return ()
    if ask:
        try:
            return query(DomainMonitor(domain))
        except MonitorError as error:
            return () if error.reason == UNKNOWN_COMMAND else None  # stock; or it does not answer
    return said.query if said is not None else None
