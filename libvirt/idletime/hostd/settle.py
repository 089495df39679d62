# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings one domain to what its policy says: level-triggered, from whatever state it is in.

    persistent XML    compiled, and defined anew if that changes it
    arenas            made
    running QEMU      what query-idletime shows, brought to the policy with the guest's wish laid over it

Context: a thread of `hands`. Nothing is done where nothing differs, so that it may be called at any time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any

import libvirt
from lxml import etree

from .. import compiler, domains, live, resolve
from ..compiler.merge import NAMESPACE as COMPILED
from ..compiler.result import Plan
from ..compiler.want import channel_of
from ..errors import Finding, IdletimeError, MonitorError, PolicyError, Severity
from ..policy import Policy
from ..policy import parse as parse_policy
from ..qmp import Monitor
from . import arena, owner, rights, wish
from .protocol import Wish
from .settings import Settings

_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)
"""It was undefined, or stopped, while we looked."""


@dataclass(frozen=True)
class Looked:
    """What a look at a domain found, and what holds now. problems: for the log, in words."""

    name: str
    active: bool = False
    running: bool = False
    policy: Policy | None = None
    devices: tuple[rights.GuestDevice, ...] = ()
    grant: rights.Grant = field(default_factory=lambda: rights.Grant(Plan()))
    wish: Wish = Wish()
    channel: str | None = None
    problems: tuple[str, ...] = ()
    failed: bool = False  # worth another try


@dataclass
class Memory:
    """What libvirt has made of what was compiled, by domain. Were that not compiled, defining it again would go on
    for ever: libvirt does not keep something, and that is a fault of ours to be told."""

    made: dict[str, str] = field(default_factory=dict)


def settle(connection: Any, uuid: str, wanted: Wish | None, settings: Settings, memory: Memory) -> Looked | None:
    """Look at a domain and act; None if it is gone. wanted: what its guest asks for now; None: what is on record."""
    try:
        domain = connection.lookupByUUIDString(uuid)
        return _settle(_Job(connection, domain, settings, memory), uuid, wanted)
    except libvirt.libvirtError as error:
        if error.get_error_code() in _GONE:
            return None
        raise


@dataclass
class _Job:
    connection: Any
    domain: Any
    settings: Settings
    memory: Memory
    problems: list[str] = field(default_factory=list)
    failed: bool = False

    def facts(self, xml: str) -> Any:
        lookup = domains.HostLookup(self.connection)
        return resolve.gather(xml, lookup=lookup, run_dir=self.settings.run_dir)


def _settle(job: _Job, uuid: str, wanted: Wish | None) -> Looked:
    name = job.domain.name()
    if job.domain.isPersistent():
        with _noting(job):
            _config(job, uuid)
    looked = Looked(name)
    if job.domain.isActive():
        with _noting(job):
            looked = _live(job, looked, wanted)
    return replace(looked, problems=tuple(job.problems), failed=job.failed)


@contextlib.contextmanager
def _noting(job: _Job) -> Any:
    """A wrong policy is the operator's to mend; what libvirt, QEMU or the host refused may work later."""
    try:
        yield
    except PolicyError as error:
        job.problems += [str(finding) for finding in error.findings]
    except (IdletimeError, OSError, ValueError, etree.XMLSyntaxError) as error:
        job.problems.append(str(error))
        job.failed = True


def _config(job: _Job, uuid: str) -> None:
    """The persistent XML, compiled. A domain that never heard of us is not even parsed."""
    xml = domains.xml_to_define(job.domain)
    if "urn:idletime:" not in xml:
        return
    result = compiler.compile(xml, job.facts(xml))
    _note(job, result.findings)
    if result.plan.resources:
        _arenas(job, xml, result.plan)
    if not job.settings.compile_on_define or xml == result.xml:
        return
    if job.memory.made.get(uuid) == xml:
        job.problems.append("libvirt does not keep what was compiled; remedy: compare 'virsh dumpxml --inactive' with "
                            "'virt-idletime compile'")
        return
    if domains.xml_to_define(job.domain) != xml:
        job.failed = True  # somebody has defined it meanwhile: look again
        return
    domains.define(job.connection, result.xml)
    made = domains.xml_of(job.domain, inactive=True)
    if COMPILED in made:  # else somebody has defined it anew in this moment
        job.memory.made[uuid] = made


def _note(job: _Job, findings: tuple[Finding, ...]) -> None:
    job.problems += [str(finding) for finding in findings if finding.severity is not Severity.NOTE]


def _arenas(job: _Job, xml: str, plan: Plan) -> None:
    who = owner.of_domain(xml, job.settings.owner)
    for resource in plan.resources:
        arena.make(resource.path, who, arena.selinux_label)


# ---- a domain that runs

def _live(job: _Job, looked: Looked, wanted: Wish | None) -> Looked:
    xml = domains.xml_of(job.domain)
    running = domains.state(job.domain) == "running"
    looked = replace(looked, active=True, running=running, channel=channel_path(xml))
    policy = parse_policy(xml)
    if policy is None:
        return looked
    plan = compiler.plan(xml, job.facts(xml))
    there = rights.devices(xml, plan)
    if not job.domain.isPersistent():  # else it was said of the persistent XML
        job.problems += map(str, plan.unresolved)
    asked = _recorded(job, xml, policy, there, wanted)
    granted = rights.grant(policy, plan, there, asked)
    _arenas(job, xml, plan)
    granted = _bring(job, plan, granted, asked)
    return replace(looked, policy=policy, devices=there, grant=granted, wish=asked)


def _recorded(job: _Job, xml: str, policy: Policy, there: tuple[rights.GuestDevice, ...], wanted: Wish | None) -> Wish:
    """The wish that counts. A new one is put on record first: were we killed now, it would not be lost."""
    kept = wish.of_domain(xml)
    if wanted is None or wanted == kept:
        return kept
    allowed = rights.grant(policy, Plan(), there, wanted)
    record = wish.to_xml(wanted) if wanted and not _nothing_allowed(allowed) else None
    if record is not None or kept:
        job.domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, record, wish.PREFIX if record else None,
                               wish.NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    return wanted


def _nothing_allowed(allowed: rights.Grant) -> bool:
    return not allowed.background and not allowed.queues


def _bring(job: _Job, plan: Plan, granted: rights.Grant, asked: Wish) -> rights.Grant:
    """Bring QEMU to the plan with the wish; where it refuses that, to the policy's own."""
    monitor = Monitor(job.domain)
    try:
        _apply(job, monitor, granted.plan)
        return granted
    except MonitorError as error:
        if granted.plan == plan:
            raise
        reason = str(error)
    _apply(job, monitor, plan)
    parts: list[Any] = [None] if asked.background else []
    failed = tuple(rights.Refusal("failed", reason, entry) for entry in [*parts, *granted.queues])
    return rights.Grant(plan, refused=granted.refused + failed)


def _apply(job: _Job, monitor: Monitor, plan: Plan) -> None:
    _note(job, live.apply(monitor, plan))


def channel_path(live_xml: str) -> str | None:
    """The host's end of the agent's channel."""
    return channel_of(etree.fromstring(live_xml.encode())) or None
