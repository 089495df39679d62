# SPDX-License-Identifier: GPL-2.0-or-later
"""What is wanted beside what is: the one model that tables and --json print. Built purely; sampled by sample()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from . import compiler, live, policy, resolve
from .compiler.facts import RUN_DIR
from .compiler.result import Plan
from .errors import MonitorError, PolicyError
from .qmp import UNKNOWN_COMMAND, Monitor


@dataclass(frozen=True)
class DeviceStatus:
    """One device. Wanted by the policy: resource, class_wanted. In QEMU now: the rest; None is unknown."""

    kind: str
    target: str
    device: str
    resource: str
    class_wanted: str
    class_now: str | None = None
    resource_now: str | None = None
    held: int | None = None
    in_service: int | None = None
    foreground_requests: int | None = None
    background_requests: int | None = None
    promotions: int | None = None


@dataclass(frozen=True)
class ResourceStatus:
    """One resource object of a domain; None is unknown."""

    id: str
    name: str
    path: str
    interval_us_wanted: int
    trail: tuple[str, ...] = ()
    state: str | None = None
    interval_us: int | None = None
    auto: bool | None = None
    shadow: bool | None = None
    rate_bps: int | None = None
    held: int | None = None
    collisions: int | None = None
    collision_cost_us: int | None = None


@dataclass(frozen=True)
class DomainStatus:
    """One domain. class_ None: no policy. in_force: whether QEMU has what the policy wants; None is unknown."""

    name: str
    uuid: str
    state: str
    persistent: bool
    class_: str | None = None
    control: str | None = None
    in_force: bool | None = None
    devices: tuple[DeviceStatus, ...] = ()
    resources: tuple[ResourceStatus, ...] = ()
    problems: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {key.rstrip("_"): value for key, value in asdict(self).items()}


@dataclass
class _Facts:
    """What is known of a domain before the model is built."""

    policy: policy.Policy | None = None
    plan: Plan = field(default_factory=Plan)
    query: Sequence[Mapping[str, Any]] | None = None
    problems: list[str] = field(default_factory=list)


def build(name: str, uuid: str, state: str, persistent: bool, facts: _Facts) -> DomainStatus:
    """The model from the facts. Pure."""
    if facts.policy is None:
        return DomainStatus(name, uuid, state, persistent, problems=tuple(facts.problems))
    return DomainStatus(name, uuid, state, persistent, facts.policy.class_.value, facts.policy.control.value,
                        _in_force(facts), _devices(facts), _resources(facts), tuple(facts.problems))


def _in_force(facts: _Facts) -> bool | None:
    if facts.query is None:
        return None
    left = live.difference(facts.plan, facts.query)
    return not left.commands and not left.findings and not facts.plan.unresolved


def _devices(facts: _Facts) -> tuple[DeviceStatus, ...]:
    now = {device["device"]: (resource["id"], device) for resource in facts.query or () for device in
           resource["devices"]}
    result = []
    for want in facts.plan.devices:
        resource, device = now.get(want.alias, (None, None))
        wanted = (want.kind, want.target, want.alias, want.resource, want.class_.value)
        if device is None:
            result.append(DeviceStatus(*wanted))
            continue
        result.append(DeviceStatus(*wanted, device["class"], resource, device["held"], device["in-service"],
                                   device["foreground"]["requests"], device["background"]["requests"],
                                   sum(device["promotions"].values())))
    return tuple(result)


def _resources(facts: _Facts) -> tuple[ResourceStatus, ...]:
    now = {resource["id"]: resource for resource in facts.query or ()}
    return tuple(ResourceStatus(
        want.id, want.name, want.path, int({**live.defaults(facts.plan, want.id), **want.properties}["interval-us"]),
        want.trail, *(now.get(want.id, {}).get(key) for key in
                      ("state", "interval-us", "auto", "shadow", "rate-bps", "held", "collisions", "collision-cost-us")))
        for want in facts.plan.resources)


# ---- sampling

def facts_of(xml: str, host: resolve.Host | None, monitor: Monitor | None, run_dir: str = RUN_DIR) -> _Facts:
    """Everything about one domain: its XML (live, if it runs), and QEMU's answer if there is a monitor."""
    facts = _Facts()
    try:
        facts.policy = policy.parse(xml)
        if facts.policy is None:
            return facts
        facts.plan = compiler.plan(xml, resolve.gather(xml, run_dir=run_dir, host=host))
        facts.problems += map(str, facts.plan.unresolved)
    except PolicyError as error:
        facts.problems += [str(finding) for finding in error.findings]
    if monitor is not None:
        facts.query = _query(monitor, facts)
    return facts


def _query(monitor: Monitor, facts: _Facts) -> list[dict[str, Any]] | None:
    try:
        return monitor.query()
    except MonitorError as error:
        text = "its QEMU is stock: it does not know query-idletime; remedy: set <emulator> to Idletime's QEMU"
        facts.problems.append(text if error.reason == UNKNOWN_COMMAND else str(error))
    return None


def sample(domain: Any, state: str, xml: str, host: resolve.Host | None, numbers: bool,
           run_dir: str = RUN_DIR) -> DomainStatus:
    """The status of one libvirt domain. numbers: ask QEMU (needs a read-write connection)."""
    monitor = Monitor(domain) if numbers and state in ("running", "paused") else None
    return build(domain.name(), domain.UUIDString(), state, bool(domain.isPersistent()),
                 facts_of(xml, host, monitor, run_dir))
