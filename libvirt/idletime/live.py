# SPDX-License-Identifier: GPL-2.0-or-later
"""What a running domain lacks: a pure difference, and the act.

Live: resource objects can be made; interval, caps and weight of a resource, class and queues of a device that has a
resource can be changed. Not live: a device keeps the resource (or none) that it was started with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .compiler.choose import ID_PREFIX
from .compiler.result import DevicePlan, Plan, ResourcePlan
from .errors import Finding, Kind, Severity
from .qmp import Monitor

_RESTART = "apply with --config and restart the domain (shut down and start; a reboot inside is not enough)"

# QEMU's values where a policy says nothing: what a property goes back to when it is taken out of the policy.
DEFAULTS = {"interval-us": 20000, "max-inflight": 1, "max-request-bytes": 131072, "max-hold-ms": 5000, "weight": 100,
            "rate-bps": 0}
UPLINK_DEFAULTS = {**DEFAULTS, "interval-us": 5000, "max-inflight": 2}
AUTO_DEFAULTS = {"auto": False, "budget-percent": 5, "shadow": False}


@dataclass(frozen=True)
class Command:
    """One QMP command."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class LivePlan:
    """commands, in order; findings (Kind.LIVE): what needs a restart of the domain."""

    commands: tuple[Command, ...]
    findings: tuple[Finding, ...]


def defaults(want: Plan, resource: str) -> Mapping[str, Any]:
    """QEMU's values for a resource (its id): a disk's, or an uplink's where a NIC of the plan has it. Pure."""
    uplink = any(device.kind == "interface" and device.resource == resource for device in want.devices)
    return {**(UPLINK_DEFAULTS if uplink else DEFAULTS), **AUTO_DEFAULTS}


def difference(want: Plan, have: Sequence[Mapping[str, Any]]) -> LivePlan:
    """What to send so that a running domain has what the plan wants. have: what query-idletime returned. Pure.

    No commands when nothing differs. A device without a resource cannot get one live: a finding says so.
    """
    there = {resource["id"]: resource for resource in have}
    devices = {device["device"]: (resource["id"], device) for resource in have for device in resource["devices"]}
    commands: list[Command] = []
    findings: list[Finding] = []
    used = {device.resource for device in want.devices if devices.get(device.alias, ("",))[0] == device.resource}
    for resource in want.resources:
        if resource.id in there:
            commands += _resource(resource, defaults(want, resource.id), there[resource.id])
        elif resource.id in used:
            commands.append(_object_add(resource))
    for device in want.devices:
        _device(device, devices.get(device.alias), commands, findings)
    _superfluous(want, devices, commands, findings)
    return LivePlan(tuple(commands), tuple(findings))


def _object_add(resource: ResourcePlan) -> Command:
    return Command("object-add", {"qom-type": "idletime-resource", "id": resource.id, "path": resource.path,
                                  **resource.properties})


def _resource(want: ResourcePlan, stock: Mapping[str, Any], have: Mapping[str, Any]) -> list[Command]:
    wanted = {**stock, **want.properties}
    if wanted["auto"] and have.get("auto"):
        # What QEMU has learned is not what it was given. Before it learns, interval-us is the value that it starts with.
        learned = {"interval-us", "max-inflight"} - (set(want.properties) - {"interval-us"})
        wanted = {name: value for name, value in wanted.items() if name not in learned}
    changed = {name: value for name, value in wanted.items() if value != have.get(name, stock[name])}
    return [Command("idletime-set", {"resource": want.id, **changed})] if changed else []


def _device(want: DevicePlan, found: tuple[str, Mapping[str, Any]] | None, commands: list[Command],
            findings: list[Finding]) -> None:
    resource, have = found or ("", {})
    if resource != want.resource:
        findings.append(_stuck(want, resource))
        return
    changed: dict[str, Any] = {}
    if have["class"] != want.class_.value:
        changed["class"] = want.class_.value
    if have["background-queues"] != want.queues:
        changed["background-queues"] = want.queues
    if changed:
        commands.append(Command("idletime-set", {"device": want.alias, **changed}))


def _stuck(want: DevicePlan, resource: str) -> Finding:
    label = f"{want.kind} target='{want.target}'"
    if not resource:
        return Finding(Severity.WARNING, Kind.LIVE, f"runs without a resource (the policy wants '{want.resource}'): "
                       "a running device cannot get one", _RESTART, label)
    return Finding(Severity.WARNING, Kind.LIVE, f"runs on resource '{resource}' (the policy wants '{want.resource}'): "
                   "a running device cannot change it", _RESTART, label)


def _superfluous(want: Plan, devices: Mapping[str, tuple[str, Mapping[str, Any]]], commands: list[Command],
                 findings: list[Finding]) -> None:
    """Devices that are on a resource of ours though the policy leaves them out: from now on nothing of them is held.
    One whose resource is not known now (a route is gone) keeps what it has."""
    wanted = {one.alias for one in want.devices} | {one.alias for one in want.unresolved}
    for alias, (resource, device) in devices.items():
        if alias in wanted or not resource.startswith(ID_PREFIX):
            continue
        if device["class"] != "foreground" or device["background-queues"]:
            commands.append(Command("idletime-set", {"device": alias, "class": "foreground", "background-queues": ""}))
        findings.append(Finding(Severity.NOTE, Kind.LIVE, f"device '{alias}' stays on resource '{resource}' as "
                                "foreground, though the policy leaves it out", _RESTART))


def apply(monitor: Monitor, want: Plan) -> tuple[Finding, ...]:
    """Query, difference, send. Returns the findings of difference(). Raises MonitorError on the first refusal;
    what was sent before it stays."""
    plan = difference(want, monitor.query())
    for command in plan.commands:
        monitor.execute(command.name, dict(command.arguments))
    return plan.findings
