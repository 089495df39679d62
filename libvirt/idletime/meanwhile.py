# SPDX-License-Identifier: GPL-2.0-or-later
"""A live policy that holds while a command runs, and the one before it: metadata urn:idletime:meanwhile:1 of the live XML.

Who was killed puts nothing back: then idletimed does, on this host, or where the domain was sent.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
from lxml import etree

from . import domains, state
from .domains import HostError
from .policy.parse import find
from .xmltree import Element, read

NAMESPACE, PREFIX = "urn:idletime:meanwhile:1", "idletimen"

LOOK_SECONDS = 10.0
"""No event says that a command was killed."""

BOOT = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Record:
    """pid, started: the command, in a run of its host, and space: its numbers of processes there. policy: the digest of what
    it wrote. before: what there was; None: no policy."""

    pid: int
    started: int
    boot: str
    space: str
    policy: str
    before: str | None


def of_domain(live: Element) -> Record | None:
    """The record in a domain's XML."""
    element = live.find(f"./metadata/{{{NAMESPACE}}}meanwhile")
    if element is not None:
        with contextlib.suppress(ValueError):
            return Record(int(element.get("pid", "")), int(element.get("started", "")), element.get("boot", ""),
                          element.get("space", ""), element.get("policy", ""), element.get("before"))
    return None


def mine(policy: str | None, before: str | None) -> Record:
    """Of this process. policy: what it is about to write."""
    pid = os.getpid()
    digest = state.digest(None if policy is None else read(policy))
    return Record(pid, state.started(pid) or 0, _boot(), _space(), digest, before)


def is_over(record: Record) -> bool:
    """Whether its command has ended, or ran on another host. Of one in a container nobody outside can tell."""
    if record.boot != _boot():
        return True
    return record.space == _space() and state.started(record.pid) != record.started


def clear(domain: Any) -> None:
    """Before another command changes the policy for its time: what one that was killed has left is put back first. Raises
    HostError where one is under way."""
    record = of_domain(read(domains.xml_of(domain)))
    if record is not None and not is_over(record):
        raise HostError(f"a command that changes the policy of '{domain.name()}' for its time is under way (process "
                        f"{record.pid}); remedy: wait for its end, or end it")
    put_back(domain)


def put_back(domain: Any) -> None:
    """The policy that was before, unless somebody has written another one since; then there is no record any more. Raises
    HostError, PolicyError."""
    live = read(domains.xml_of(domain))
    record = of_domain(live)
    if record is not None:
        if state.digest(find(live)) == record.policy:
            domains.set_policy(domain, record.before, True, False)
        keep(domain, None)


def keep(domain: Any, record: Record | None) -> None:
    """Write it; None removes it. Raises HostError."""
    text = None
    if record is not None:
        values = {"pid": str(record.pid), "started": str(record.started), "boot": record.boot, "space": record.space,
                  "policy": record.policy}
        text = etree.tostring(etree.Element("meanwhile", values | ({"before": record.before} if record.before else {})),
                              encoding="unicode")
    with domains.translated(f"write down what the policy of '{domain.name()}' was"):
        domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, PREFIX if text else None, NAMESPACE,
                           libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _boot() -> str:
    try:
        return Path(BOOT).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
