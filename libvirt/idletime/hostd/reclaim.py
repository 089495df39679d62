# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory of background VMs by libvirt: what they have, the balloon, saving and starting again.

What a balloon had before we took of it is in the live XML (metadata urn:idletime:memory:1), so that it is given back whoever
was restarted meanwhile. That we saved a domain is in its persistent XML, in the same namespace, as that is all there is of it.
Both are written before the act. Context: functions that take a connection or a domain run in a thread of hands.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import libvirt
from lxml import etree

from .. import domains
from ..xmltree import Element
from . import kept, stopped

NAMESPACE, PREFIX = "urn:idletime:memory:1", "idletimem"

_LIVE, _CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG
_STATS = libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_BALLOON
BEGINS_SECONDS = 300.0
"""Within so long a save that is on record is a job of libvirt, or has failed: who waits for another job waits 30 s."""

INFLATES_SECONDS = 60.0
"""A guest that was reset begins with an empty balloon, whatever it is to have, and fills it again: so long it seems to have
been given more."""

SLACK_BYTES = 1 << 20
"""A balloon is in pages, and a guest may round them: what is smaller by less than this is what was asked for."""

_ENDED = (libvirt.VIR_ERR_OPERATION_ABORTED, libvirt.VIR_ERR_OPERATION_TIMEOUT)
"""A save that somebody ended, or that was not begun, as another job took too long: it is not tried in another way."""

_RUNS = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED)


@dataclass(frozen=True)
class Record:
    """bytes: what the balloon had before we took of it; of a saved domain, what it had. least: the smallest that we asked for
    since. run: libvirt's id of the run that was saved. why: it was saved. at: when that began, in seconds since 1970. above:
    since when it has more than it had, likewise; 0: it has not."""

    bytes_: int
    run: int = 0
    why: str = ""
    at: int = 0
    least: int = 0
    above: int = 0


@dataclass(frozen=True)
class Has:
    """What a running domain has. was: on record. guest: it runs, so its balloon moves."""

    resident: int
    target: int
    was: int | None
    guest: bool
    persistent: bool


# ---- records

def of_domain(root: Element) -> Record | None:
    """The record in a domain's XML: live, what was taken; of one that is shut off, that we saved it."""
    element = root.find(f"./metadata/{{{NAMESPACE}}}memory")
    return None if element is None else _record(element)


def _record(element: Element) -> Record:
    return Record(kept.number(element, "bytes"), kept.number(element, "run"), element.get("why", ""),
                  kept.number(element, "at"), kept.number(element, "least"), kept.number(element, "above"))


def record_of(domain: Any, flags: int = _LIVE) -> Record | None:
    """The same of a domain. Raises libvirtError for all but that there is none."""
    element = kept.element_of(domain, NAMESPACE, flags)
    return None if element is None else _record(element)


def saved_of(domain: Any) -> Record | None:
    """That we saved a domain; None if we did not, or if it has been started since, or was not saved in the end, as where
    libvirtd was restarted meanwhile: then that is forgotten, for what its operator saves later is not ours to start."""
    if not domain.isPersistent() or (record := record_of(domain, _CONFIG)) is None:
        return None
    if domain.isActive() and domain.ID() == record.run and (
            time.time() < record.at + BEGINS_SECONDS or domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE):
        return None  # it is being saved
    if domain.isActive() or not domain.hasManagedSaveImage():
        _keep(domain, None, _CONFIG)
        return None
    return record


def _keep(domain: Any, record: Record | None, flags: int = _LIVE) -> None:
    element = None
    if record is not None:
        saved = {"run": str(record.run), "why": record.why, "at": str(record.at)} if record.run else {}
        more = {name: str(value) for name, value in (("least", record.least), ("above", record.above)) if value}
        values = {"bytes": str(record.bytes_)} | more | saved
        element = etree.Element("memory", values)
    kept.keep(domain, element, PREFIX, NAMESPACE, flags)


# ---- facts

def look(connection: Any, uuids: Iterable[str]) -> dict[str, Has]:
    """What these domains have; one that does not run, or that libvirt would have to wait for, is left out. Raises
    libvirtError."""
    found = {}
    for domain, one in domains.stats_of(connection, uuids, _STATS):
        current = one.get("balloon.current")
        if current and domain.isActive():
            record = record_of(domain)
            found[domain.UUIDString()] = Has(
                one.get("balloon.rss", current) * 1024, current * 1024, record.bytes_ if record else None,
                one.get("state.state") in _RUNS, bool(domain.isPersistent()))
    return found


# ---- acts: True where it is done, or there is nothing to do; all raise libvirtError, or OSError

def balloon(connection: Any, uuid: str, bytes_: int) -> bool:
    """Take of a domain, or give back. When it has what it had, that is forgotten; so it is where somebody else has given it
    more than that, for INFLATES_SECONDS, or made it smaller than we ever did: nothing of ours is left then."""
    domain = connection.lookupByUUIDString(uuid)
    record, now = record_of(domain), domain.info()[2] * 1024
    if record is not None and now > record.bytes_:
        if not record.above:
            _keep(domain, replace(record, above=int(time.time())))
        if not record.above or 0 <= time.time() - record.above < INFLATES_SECONDS:
            return True
    elif record is not None and record.above:
        record = replace(record, above=0)
        _keep(domain, record)
    if record is not None and (now > record.bytes_ or now < record.least - SLACK_BYTES):
        _keep(domain, None)
        if bytes_ >= min(now, record.bytes_):
            return True
        record = None
    was, least = (record.bytes_, record.least) if record else (now, 0)
    if bytes_ < was and not 0 < least <= bytes_:
        _keep(domain, Record(was, least=min(bytes_, now)))
    domain.setMemoryFlags(min(bytes_, was) // 1024, _LIVE)
    if record is not None and bytes_ >= was:
        _keep(domain, None)
    return True


def restore(connection: Any, uuid: str) -> bool:
    """Give a domain back all that was taken."""
    domain = connection.lookupByUUIDString(uuid)
    record = record_of(domain)
    return record is None or balloon(connection, uuid, record.bytes_)


def reclaim(_connection: Any, folder: str, bytes_: int) -> bool:
    """Have the kernel reclaim of a cgroup. Where it finds less than that, it says EAGAIN; a file with a buffer would write, and
    so reclaim, once more."""
    with open(f"{folder}/memory.reclaim", "wb", buffering=0) as file:
        file.write(str(bytes_).encode())
    return True


def save(connection: Any, uuid: str, why: str) -> bool:
    """Save a domain that runs, past the page cache where the file system can: memory is short."""
    domain = connection.lookupByUUIDString(uuid)
    if not domain.isActive():
        return False
    _keep(domain, Record(domain.info()[2] * 1024, domain.ID(), why, int(time.time())), _CONFIG)
    try:
        # Also one that idletimed has stopped runs on when it is started again; then it is looked at anew.
        running = libvirt.VIR_DOMAIN_SAVE_RUNNING if stopped.record_of(domain) is not None else 0
        try:
            domain.managedSave(running | libvirt.VIR_DOMAIN_SAVE_BYPASS_CACHE)
        except libvirt.libvirtError as error:
            if error.get_error_code() in _ENDED:
                raise
            domain.managedSave(running)
    except libvirt.libvirtError:
        _keep(domain, None, _CONFIG)
        raise
    return True


def start(connection: Any, uuid: str) -> bool:
    """Start a domain that we saved, and forget that. Forgotten first: where idletimed ends then it stays saved, for its
    operator. Where it cannot be started it is remembered again."""
    domain = connection.lookupByUUIDString(uuid)
    if (record := saved_of(domain)) is not None:
        _keep(domain, None, _CONFIG)
        try:
            domain.create()
        except libvirt.libvirtError:
            if not domain.isActive() and domain.hasManagedSaveImage():
                _keep(domain, record, _CONFIG)
            raise
    return True
