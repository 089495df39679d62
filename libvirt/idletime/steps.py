# SPDX-License-Identifier: GPL-2.0-or-later
"""What a running QEMU lacks of a plan, as QMP commands. Pure.

    the device is                           what is to be done
    on the planned resource                 idletime-set, where class or queues differ
    on no resource                          object-add where that is not there, then idletime-attach
    on another resource of ours             idletime-detach; attached anew when it has left
    on a resource of somebody else          nothing; a finding
    on a resource of ours, and not planned  idletime-detach
    not resolved now                        nothing: it keeps what it has

A resource of ours that nobody uses any more is deleted. `pending` says that another look is needed after the commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import Finding, Kind, Severity
from .facts import INTERFACE, DevicePlan, Plan, ResourcePlan
from .plan import ID_PREFIX, numbers_of

# QEMU's values where a policy says nothing: what a property goes back to when it is taken out of the policy.
DEFAULTS = {"interval-us": 20000, "max-inflight": 1, "max-request-bytes": 131072, "max-hold-ms": 5000, "weight": 100,
            "rate-bps": 0}
UPLINK_DEFAULTS = {**DEFAULTS, "interval-us": 5000, "max-inflight": 2}
DSCP_DEFAULT = "1"
AUTO_DEFAULTS = {"auto": True, "budget-percent": 3, "shadow": False}
"""auto is off where an interval is given."""

Have = Sequence[Mapping[str, Any]]
"""The answer of query-idletime."""


@dataclass(frozen=True)
class Command:
    """One QMP command."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Steps:
    """commands, in order; findings: what cannot be brought about; pending: the rest follows when these are done."""

    commands: tuple[Command, ...] = ()
    findings: tuple[Finding, ...] = ()
    pending: bool = False

    @property
    def nothing(self) -> bool:
        return not self.commands and not self.findings and not self.pending


@dataclass
class _Steps:
    want: Plan
    resources: Mapping[str, Mapping[str, Any]]
    devices: Mapping[str, tuple[str, Mapping[str, Any]]]
    commands: list[Command] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    pending: bool = False

    def do(self, name: str, **arguments: Any) -> None:
        self.commands.append(Command(name, {key.replace("_", "-"): value for key, value in arguments.items()}))

    def detach(self, alias: str) -> None:
        """The device leaves; what waits for that comes later."""
        self.pending = True
        if not self.devices[alias][1].get("detaching"):
            self.do("idletime-detach", device=alias)


def defaults(want: Plan, resource: str) -> Mapping[str, Any]:
    """QEMU's values for a resource (its id): a disk's, or an uplink's where a NIC of the plan has it, or migration."""
    uplink = any(device.kind == INTERFACE and device.resource == resource for device in want.devices) or (
        want.migration is not None and want.migration.resource == resource)
    return {**(UPLINK_DEFAULTS if uplink else DEFAULTS), **AUTO_DEFAULTS}


def steps(want: Plan, have: Have) -> Steps:
    """What to send so that a QEMU has what the plan wants. None where nothing differs."""
    run = _Steps(want, {resource["id"]: resource for resource in have},
                 {device["device"]: (resource["id"], device) for resource in have for device in resource["devices"]})
    for resource in want.resources:
        _resource(run, resource)
    moved = {resource.id for resource in want.resources if _elsewhere(run, resource)}
    for device in want.devices:
        _device(run, device, device.resource in moved)
    _leave(run)
    _unused(run)
    return Steps(tuple(run.commands), tuple(run.findings), run.pending)


# ---- resources

def _elsewhere(run: _Steps, want: ResourcePlan) -> bool:
    """Its arena is another one than planned (run-dir was changed): it is made anew, once nobody is on it."""
    there = run.resources.get(want.id)
    return there is not None and there["path"] != want.path


def _resource(run: _Steps, want: ResourcePlan) -> None:
    if want.id not in run.resources:
        run.do("object-add", qom_type="idletime-resource", id=want.id, path=want.path, **want.properties)
    elif not _elsewhere(run, want):
        changed = _changed(want, defaults(run.want, want.id), run.resources[want.id])
        if changed:
            run.do("idletime-set", resource=want.id, **changed)


def _changed(want: ResourcePlan, stock: Mapping[str, Any], have: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {**stock, "auto": "interval-us" not in want.properties, **want.properties}
    if wanted["auto"] and have.get("auto"):
        # What QEMU has learned is not what it was given. Before it learns, interval-us is the value that it starts with.
        learned = {"interval-us", "max-inflight"} - (set(want.properties) - {"interval-us"})
        wanted = {name: value for name, value in wanted.items() if name not in learned}
    return {name: value for name, value in wanted.items() if value != have.get(name, stock[name])}


def _unused(run: _Steps) -> None:
    wanted = {resource.id for resource in run.want.resources if not _elsewhere(run, resource)}
    for id_, resource in run.resources.items():
        used = resource["devices"] or resource.get("jobs") or resource.get("exports") or resource.get("migrations")
        if id_.startswith(ID_PREFIX) and id_ not in wanted and not used:
            run.do("object-del", id=id_)
            run.pending = run.pending or id_ in {one.id for one in run.want.resources}


# ---- devices

def _device(run: _Steps, want: DevicePlan, moved: bool) -> None:
    resource, have = run.devices.get(want.alias, ("", {}))
    if resource and not resource.startswith(ID_PREFIX):
        run.findings.append(Finding(
            Severity.WARNING, Kind.LIVE, f"is on resource '{resource}', which is not idletimed's: it stays there",
            f"idletime-detach it, or start it without the property idletime={resource}", want.label))
    elif not resource:
        run.pending = run.pending or moved
        if not moved:
            _attach(run, want)
    elif resource != want.resource or moved or have.get("detaching"):
        run.detach(want.alias)
    else:
        _set(run, want, have)


def _attach(run: _Steps, want: DevicePlan) -> None:
    lists = {"background-queues": want.queues, "dscp": want.dscp}
    run.commands.append(Command("idletime-attach", {
        "device": want.alias, "resource": want.resource, "class": want.class_.value,
        **{name: value for name, value in lists.items() if value}}))


def _set(run: _Steps, want: DevicePlan, have: Mapping[str, Any]) -> None:
    if "dscp" in have and numbers_of(have["dscp"]) != numbers_of(want.dscp or DSCP_DEFAULT):
        run.detach(want.alias)  # cannot be changed in place
        return
    changed: dict[str, Any] = {}
    if have["class"] != want.class_.value:
        changed["class"] = want.class_.value
    if have["background-queues"] != want.queues:
        changed["background_queues"] = want.queues
    if changed:
        run.do("idletime-set", device=want.alias, **changed)


def _leave(run: _Steps) -> None:
    """Devices on a resource of ours that the plan leaves out. One whose resource is not known now (a route is gone)
    keeps what it has."""
    wanted = {one.alias for one in run.want.devices} | {one.alias for one in run.want.unresolved}
    for alias, (resource, _) in run.devices.items():
        if alias not in wanted and resource.startswith(ID_PREFIX):
            run.detach(alias)
