# SPDX-License-Identifier: GPL-2.0-or-later
"""Policy and facts -> plan: which device joins which resource, with which properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import Finding, Kind, Severity
from ..policy.grammar import SETTINGS, SWITCHES
from ..policy.model import AUTO, NONE, Class, DevicePolicy, Policy
from .devices import DeviceFacts
from .facts import HostFacts, Resolution
from .result import DevicePlan, Plan, ResourcePlan, Unresolved
from .want import numbers_of

ID_PREFIX = "idletime-"
LEARNED: Mapping[str, int | bool] = {"auto": True, "budget-percent": 3}
"""What background gets where nobody said anything of an interval: one that is learned, and costs the foreground 3 %."""

_INTERVAL = ("interval-us", "auto", "budget-percent")
_MODEL = {"disk": "virtio-blk-pci", "interface": "virtio-net-pci"}


@dataclass
class _Chooser:
    policy: Policy
    host: HostFacts
    aliases: dict[str, str]
    findings: list[Finding] = field(default_factory=list)
    resources: dict[str, Resolution] = field(default_factory=dict)
    devices: list[DevicePlan] = field(default_factory=list)
    unresolved: list[Unresolved] = field(default_factory=list)
    left_alone: set[str] = field(default_factory=set)  # kinds of which some device is not attached

    def say(self, severity: Severity, said: DevicePolicy | None, label: str, message: str, remedy: str) -> None:
        line = said.line if said and said.line else self.policy.line
        self.findings.append(Finding(severity, Kind.FIT, message, remedy, label, line))


def choose(policy: Policy, devices: Sequence[DeviceFacts], host: HostFacts,
           aliases: dict[str, str], absent: Severity = Severity.ERROR) -> tuple[Plan, list[Finding]]:
    """The plan, and all findings; errors among them mean that the plan is not to be used.

    aliases: DeviceFacts.label -> id of the device in QEMU. absent: how bad it is that the policy names a device
    which the domain does not have.
    """
    chooser = _Chooser(policy, host, aliases)
    _check_targets(chooser, devices, absent)
    for device in devices:
        _device(chooser, device)
    resources = tuple(_resource(chooser, name) for name in sorted(chooser.resources))
    plan = Plan(resources, tuple(chooser.devices), _hotplug(chooser, devices), tuple(chooser.unresolved))
    return plan, chooser.findings


def _check_targets(chooser: _Chooser, devices: Sequence[DeviceFacts], absent: Severity) -> None:
    for kind, said in (("disk", chooser.policy.disks), ("interface", chooser.policy.interfaces)):
        there = [device for device in devices if device.kind == kind]
        for one in said:
            if one.target is not None and not any(_is(device, one) for device in there):
                known = ", ".join(device.target for device in there) or "none"
                chooser.say(absent, one, f"{kind} target='{one.target}'", f"the domain has no such {kind}",
                            f"use one of its targets ({known}), or remove the element")


def _is(device: DeviceFacts, said: DevicePolicy) -> bool:
    return said.target is not None and (said.target in device.names or said.target.lower() == device.target)


def said_of(policy: Policy, device: DeviceFacts) -> tuple[DevicePolicy, bool]:
    """What the policy says of a device, and whether it names it."""
    said = policy.disks if device.kind == "disk" else policy.interfaces
    for one in said:
        if _is(device, one):
            return one, True
    return next((one for one in said if one.target is None), DevicePolicy()), False


def _device(chooser: _Chooser, device: DeviceFacts) -> None:
    said, named = said_of(chooser.policy, device)
    name = None if said.resource == NONE else _name(chooser, device, said, named)
    if name is None:
        if device.takes_default:
            chooser.left_alone.add(device.kind)
        return
    _check_queues(chooser, device, said)
    chooser.devices.append(DevicePlan(
        device.kind, device.target, chooser.aliases[device.label], ID_PREFIX + name,
        said.class_ or chooser.policy.class_, said.queues or "", said.dscp))


def _check_queues(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy) -> None:
    last = max(numbers_of(said.queues)) if said.queues else 0
    if device.queues is not None and last >= device.queues:
        has = f"the queues 0 to {device.queues - 1}" if device.queues > 1 else "one queue, 0"
        chooser.say(Severity.ERROR, said, device.label, f"queues='{said.queues}': the {device.kind} has {has}",
                    f"correct the list, or give it more: <driver name='qemu' queues='{last + 1}'/>")


def _name(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy, named: bool) -> str | None:
    """Name of the resource that a device joins; None, with a finding, if it joins none."""
    unserved = device.unserved or _unknown(chooser.host, f"{_MODEL[device.kind]}.idletime")
    if unserved:
        chooser.say(Severity.ERROR if named else Severity.WARNING, said, device.label, f"left out: {unserved}",
                    f"{_serve(device)}, or write <{device.kind} target='{device.target}' resource='none'/>")
        return None
    resolution = Resolution(said.resource) if said.resource != AUTO else \
        chooser.host.resolutions.get(device.source, Resolution(
            None, problem="its source was not resolved", remedy="run this on the host of the domain"))
    if resolution.none:
        chooser.say(Severity.NOTE, said, device.label, f"left out: {resolution.none}", "")
        return None
    if resolution.name is None:
        _unresolved(chooser, device, said, resolution)
        return None
    for note in resolution.notes:
        chooser.say(Severity.NOTE, said, device.label, note, "")
    chooser.resources.setdefault(resolution.name, resolution)
    return resolution.name


def _unresolved(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy, resolution: Resolution) -> None:
    """Left out and said: a domain shall not fail to start because a route or a disk is not there."""
    remedy = (resolution.remedy + ", or " if resolution.remedy else "") + \
        f"name one: in /etc/idletime/resources.d, or <{device.kind} target='{device.target}' resource='NAME'/> " \
        "('none' leaves it out)"
    chooser.say(Severity.WARNING, said, device.label, f"not resolved, so left out: {resolution.problem}", remedy)
    chooser.unresolved.append(Unresolved(device.kind, device.target, chooser.aliases[device.label],
                                         resolution.problem, remedy))


def _serve(device: DeviceFacts) -> str:
    if not device.unserved:
        return "use an emulator that has it"
    if "past QEMU" in device.unserved:
        return "use a source that QEMU serves itself"
    return "use <target bus='virtio'/>" if device.kind == "disk" else "use <model type='virtio'/>"


def _unknown(host: HostFacts, property_: str) -> str:
    """Why a property cannot be used; "" if it can, or if the emulator was not asked."""
    if host.emulator is None or property_ in host.emulator:
        return ""
    return f"the domain's emulator does not know the property {property_}"


def _resource(chooser: _Chooser, name: str) -> ResourcePlan:
    settings = _settings(chooser, name)
    for key in settings:
        unknown = _unknown(chooser.host, f"idletime-resource.{key}")
        if unknown:
            chooser.say(Severity.ERROR, None, f"resource '{name}'", unknown,
                        "use an emulator that has it, or take it out of the policy or of resources.d")
    return ResourcePlan(ID_PREFIX + name, name, f"{chooser.host.run_dir}/{name}", settings,
                        chooser.resources[name].trail)


def _settings(chooser: _Chooser, name: str) -> dict[str, int | bool]:
    """What policy and host say of a resource, without what changes nothing there."""
    mine = [device for device in chooser.devices if device.resource == ID_PREFIX + name]
    settings = _merged(chooser.host.settings.get(name, {}), chooser.policy.settings_of(name))
    if any(device.class_ is not Class.FOREGROUND or device.queues for device in mine) and \
            not settings.keys() & {"interval-us", "auto"} and not _unknown(chooser.host, "idletime-resource.auto"):
        settings = {**LEARNED, **settings}
    idle = {switch for switch in SWITCHES if not settings.get(switch)}
    if "auto" in idle:
        idle.add("budget-percent")
    if not any(device.kind == "interface" for device in mine):
        idle.add("rate-bps")
    return {key: settings[key] for key in SETTINGS.values() if key in settings and key not in idle}


def _merged(host: Mapping[str, int | bool], policy: Mapping[str, int | bool]) -> dict[str, int | bool]:
    """The host's settings of a resource under the policy's: who says anything of the interval says all of it."""
    if policy.keys() & set(_INTERVAL):
        host = {key: value for key, value in host.items() if key not in _INTERVAL}
    return {**host, **policy}


def _hotplug(chooser: _Chooser, devices: Sequence[DeviceFacts]) -> tuple[DevicePlan, ...]:
    """What a device that is plugged in later joins: libvirt gives it no properties, so QEMU needs a default.

    There is one where it is clear: all devices of the kind join one resource.
    """
    plans = []
    for kind in ("disk", "interface"):
        ids = {device.resource for device in chooser.devices if device.kind == kind}
        if len(ids) == 1 and kind not in chooser.left_alone:
            plans.append(DevicePlan(kind, "", "", ids.pop(), _default_class(chooser.policy, kind)))
        elif ids:
            chooser.say(Severity.NOTE, None, kind, "what is plugged in later joins no resource: "
                        f"the domain's {kind}s do not all join the same one", "")
    return tuple(plans)


def _default_class(policy: Policy, kind: str) -> Class:
    said = policy.disks if kind == "disk" else policy.interfaces
    return next((one.class_ for one in said if one.target is None and one.class_), policy.class_)
