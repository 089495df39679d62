# SPDX-License-Identifier: GPL-2.0-or-later
"""That it was idletimed who stopped a VM, kept in its running domain: metadata urn:idletime:stopped:1 of the live XML.

There it survives a restart of libvirtd and of idletimed, a save and a migration, and ends with the domain. It is written before
the VM is stopped, and taken out after it goes on: so a VM that runs may have it, and one that we stopped always has.
Context: functions that take a connection or a domain run in a thread of hands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import libvirt
from lxml import etree

from ..xmltree import Element
from . import kept

NAMESPACE, PREFIX = "urn:idletime:stopped:1", "idletimes"

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE


_WAITING = (libvirt.VIR_DOMAIN_PAUSED_UNKNOWN, libvirt.VIR_DOMAIN_PAUSED_USER, libvirt.VIR_DOMAIN_PAUSED_FROM_SNAPSHOT)
"""Why a VM is paused that only waits for a resume. The rest are libvirt's and QEMU's own: a migration, an I/O error."""

_RESTORED = (libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_SAVE)
"""So libvirt leaves a VM that was paused when it was saved, and is restored; and while a migration or a save is under way."""


@dataclass(frozen=True)
class Record:
    """seconds: for how long this time; 0 is until the host is idle. why: in words."""

    seconds: float
    why: str


def may_wait(state: int | None, reason: int | None) -> bool:
    """Whether a VM is paused, and goes on when somebody says so, or when what is under way ends. Asks nobody."""
    return state == libvirt.VIR_DOMAIN_PAUSED and reason in _WAITING + _RESTORED


def waits(domain: Any, state: int | None, reason: int | None) -> bool:
    """Whether a VM is paused, and goes on when somebody says so. libvirt may wait for its QEMU to tell."""
    return may_wait(state, reason) and (reason in _WAITING or not _has_job(domain))


def _has_job(domain: Any) -> bool:
    """Of one that is coming in libvirt does not say."""
    try:
        return bool(domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE)
    except libvirt.libvirtError:
        return True


# ---- the record

def to_xml(record: Record) -> Element:
    """The element, without a prefix."""
    return etree.Element("stopped", {"seconds": f"{record.seconds:g}", "why": record.why})


def of_domain(live: Element) -> Record | None:
    """The record that is in a domain's XML."""
    element = live.find(f"./metadata/{{{NAMESPACE}}}stopped")
    return None if element is None else _record(element)


def _record(element: Element) -> Record:
    """Nobody but us writes it; whatever it says, it says that we stopped the domain."""
    seconds = 0.0
    with contextlib.suppress(ValueError):
        seconds = min(max(0.0, float(element.get("seconds", "0"))), 3600.0)
    return Record(seconds, element.get("why", ""))


def record_of(domain: Any) -> Record | None:
    """The same of a domain. Raises libvirtError for all but that there is none."""
    element = kept.element_of(domain, NAMESPACE, _LIVE)
    return None if element is None else _record(element)


def _keep(domain: Any, record: Record | None) -> None:
    kept.keep(domain, None if record is None else to_xml(record), PREFIX, NAMESPACE, _LIVE)


# ---- acts

def stop(connection: Any, uuid: str, record: Record) -> bool:
    """Stop a VM that runs; whether it was. One that does not run, for whatever reason, is left alone. Raises libvirtError."""
    domain = connection.lookupByUUIDString(uuid)
    if domain.state()[0] not in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED):
        return False
    _keep(domain, record)
    domain.suspend()
    return True


def go_on(connection: Any, uuid: str) -> bool:
    """Let a VM that we stopped go on, and forget it; whether that is done. Raises libvirtError."""
    try:
        return _go_on(connection.lookupByUUIDString(uuid))
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_DOMAIN_METADATA):
            return True
        raise


def _go_on(domain: Any) -> bool:
    """A VM that waits for something else meanwhile (a migration, a snapshot) is tried again later."""
    record = record_of(domain)
    if not domain.isActive() or record is None:
        return True
    state, reason = domain.state()
    if state != libvirt.VIR_DOMAIN_PAUSED:
        _keep(domain, record)  # waits for a suspend of an idletimed that has ended since, if one is under way
        state, reason = domain.state()
    if state == libvirt.VIR_DOMAIN_PAUSED and not waits(domain, state, reason):
        return False
    if state == libvirt.VIR_DOMAIN_PAUSED:
        domain.resume()
    _keep(domain, None)
    return True


def release(there: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Let those of these domains go on that idletimed stopped: names, and what was not possible, in words."""
    done, problems = [], []
    for domain in there:
        name = domain.name()
        try:
            if record_of(domain) is None:
                continue
            if _go_on(domain):
                done.append(name)
            else:
                problems.append(f"domain '{name}': it waits for something else; remedy: try again, or virsh resume {name}")
        except libvirt.libvirtError as error:
            problems.append(f"domain '{name}': {error.get_error_message()}; remedy: try again, or virsh resume {name}")
    return done, problems
