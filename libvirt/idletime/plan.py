# SPDX-License-Identifier: GPL-2.0-or-later
"""Policy and facts -> plan: which device joins which resource, as what. Pure.

Nothing here stops a VM: what does not fit is left out, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import Finding, Kind, Severity
from .facts import (
    DISK,
    INTERFACE,
    DeviceFacts,
    DevicePlan,
    DiskJobs,
    HostFacts,
    Migration,
    Plan,
    Resolution,
    ResourcePlan,
    Unresolved,
)
from .police.enforce import Enforce, Through
from .policy.grammar import SETTINGS, SWITCHES
from .policy.model import AUTO, NONE, Class, DevicePolicy, Policy

ID_PREFIX = "idletime-"
LEARNED: Mapping[str, int | bool] = {"auto": True, "budget-percent": 3}
"""What a resource gets where nobody said anything of an interval: one that is learned, and costs the foreground 3 %."""

_INTERVAL = ("interval-us", "auto", "budget-percent")


@dataclass
class _Chooser:
    policy: Policy
    host: HostFacts
    running: bool
    findings: list[Finding] = field(default_factory=list)
    resources: dict[str, Resolution] = field(default_factory=dict)
    devices: list[DevicePlan] = field(default_factory=list)
    unresolved: list[Unresolved] = field(default_factory=list)
    jobs: list[DiskJobs] = field(default_factory=list)
    migration: Migration | None = None

    @property
    def misfit(self) -> Severity:
        """A running domain may have lost a device that its policy names; in a definition that is a mistake."""
        return Severity.WARNING if self.running else Severity.ERROR

    def say(self, severity: Severity, said: DevicePolicy | None, label: str, message: str, remedy: str) -> None:
        line = said.line if said and said.line else self.policy.line
        self.findings.append(Finding(severity, Kind.FIT, message, remedy, label, line))


def choose(policy: Policy, devices: Sequence[DeviceFacts], host: HostFacts,
           running: bool = True) -> tuple[Plan, tuple[Finding, ...]]:
    """The plan for a VM with this policy, and all findings; what an error or a warning is about is not in the plan."""
    chooser = _Chooser(policy, host, running)
    _check_targets(chooser, devices)
    for device in devices:
        _device(chooser, device)
    _migration(chooser)
    resources = tuple(_resource(chooser, name) for name in sorted(chooser.resources))
    plan = Plan(resources, tuple(chooser.devices), tuple(chooser.unresolved), tuple(chooser.jobs), chooser.migration)
    return plan, tuple(chooser.findings)


def _check_targets(chooser: _Chooser, devices: Sequence[DeviceFacts]) -> None:
    for kind, said in ((DISK, chooser.policy.disks), (INTERFACE, chooser.policy.interfaces)):
        there = [device for device in devices if device.kind == kind]
        for one in said:
            if one.target is not None and not any(_is(device, one) for device in there):
                known = ", ".join(device.target for device in there) or "none"
                chooser.say(chooser.misfit, one, f"{kind} target='{one.target}'", f"the domain has no such {kind}",
                            f"use one of its targets ({known}), or remove the element")
        for device in there:
            twice = [one for one in said if _is(device, one)]
            for one in twice[1:]:
                chooser.say(chooser.misfit, one, f"{kind} target='{one.target}'",
                            f"it is that of target='{twice[0].target}', which counts", "keep one of them")


def _is(device: DeviceFacts, said: DevicePolicy) -> bool:
    return said.target is not None and device.called(said.target)


def said_of(policy: Policy, device: DeviceFacts) -> tuple[DevicePolicy, bool]:
    """What the policy says of a device, and whether it names it."""
    said = policy.disks if device.kind == DISK else policy.interfaces
    for one in said:
        if _is(device, one):
            return one, True
    return next((one for one in said if one.target is None), DevicePolicy()), False


def _device(chooser: _Chooser, device: DeviceFacts) -> None:
    said, named = said_of(chooser.policy, device)
    class_ = said.class_ or chooser.policy.class_
    if device.cached and class_ is Class.BACKGROUND:
        chooser.say(Severity.NOTE, said, device.label, f"cache='{device.cached}': it takes the place of the foreground's "
                    "pages in the host's page cache, and its writes come from the host, which nothing holds",
                    "<driver cache='none'/>")
    jobs = chooser.policy.jobs and device.kind == DISK
    if jobs and said.resource == NONE:
        chooser.say(Severity.NOTE, said, device.label, "its block jobs are not held: resource='none'", "")
    if said.resource == NONE or not _has_queues(chooser, device, said):
        return
    name = _name(chooser, device, said, named or class_ is not Class.FOREGROUND)
    if jobs and (of_jobs := name or _of_unserved(chooser, device, said)):
        chooser.jobs.append(DiskJobs(device.target, ID_PREFIX + of_jobs, device.alias, chooser.policy.jobs_by or "",
                                     _also(chooser, device, said, of_jobs)))
    if name is not None:
        chooser.devices.append(DevicePlan(device.kind, device.target, device.alias, ID_PREFIX + name, class_,
                                          said.queues or "", said.dscp))


def _has_queues(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy) -> bool:
    last = max(numbers_of(said.queues or "") or (0,))
    if device.queues is None or last < device.queues:
        return True
    has = f"the queues 0 to {device.queues - 1}" if device.queues > 1 else "one queue, 0"
    chooser.say(chooser.misfit, said, device.label, f"left out: queues='{said.queues}': the {device.kind} has {has}",
                f"correct the list, or give it more: <driver name='qemu' queues='{last + 1}'/>")
    return False


def _name(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy, matters: bool) -> str | None:
    """Name of the resource that a device joins; None, with a finding, if it joins none."""
    if device.unserved:
        alone = matters and chooser.policy.enforce is Enforce.INTERVAL  # else the VM is stopped, or limited
        chooser.say(Severity.WARNING if alone else Severity.NOTE, said, device.label, f"left out: {device.unserved}",
                    f"{_serve(device)}, or write <{device.kind} target='{device.target}' resource='none'/>")
        return None
    resolution = Resolution(said.resource) if said.resource != AUTO else chooser.host.resolutions.get(
        device.source, Resolution(None, problem="its source was not resolved", remedy="run this on the host of the domain"))
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


def _of_unserved(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy) -> str | None:
    """The resource for block jobs of a disk that QEMU cannot schedule: jobs do not pass its bus."""
    if not device.unserved or device.through is not Through.OTHER:
        return None
    found = Resolution(said.resource)
    if said.resource == AUTO:
        found = chooser.host.resolutions.get(device.source, Resolution(None))
    if found.name is None:
        chooser.say(Severity.NOTE if found.none else Severity.WARNING, said, device.label, "its block jobs are not held: "
                    f"{found.none or found.problem or 'its source was not resolved'}", found.remedy)
        return None
    chooser.resources.setdefault(found.name, found)
    return found.name


def _also(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy, of_disk: str) -> tuple[str, ...]:
    """The resources of what a job of the disk writes, where these are others."""
    found = {}
    for copy in device.copies:
        one = chooser.host.resolutions.get(copy, Resolution(None, problem="it was not resolved"))
        if one.name is None and not one.none:
            chooser.say(Severity.NOTE, said, device.label, f"its block job is not held for what it writes ('{copy.name}'): "
                        f"{one.problem}", one.remedy)
        elif one.name is not None and one.name != of_disk:
            found[one.name] = one
    for name, one in found.items():
        chooser.resources.setdefault(name, one)
    return tuple(ID_PREFIX + name for name in found)


def _unresolved(chooser: _Chooser, device: DeviceFacts, said: DevicePolicy, resolution: Resolution) -> None:
    """Left out and said: what is behind it may come back, or an operator may name it."""
    remedy = (resolution.remedy + ", or " if resolution.remedy else "") + \
        f"name one: in /etc/idletime/resources.d, or <{device.kind} target='{device.target}' resource='NAME'/> " \
        "('none' leaves it out)"
    chooser.say(Severity.WARNING, said, device.label, f"not resolved, so left out: {resolution.problem}", remedy)
    chooser.unresolved.append(Unresolved(device.kind, device.target, device.alias, resolution.problem, remedy))


def _serve(device: DeviceFacts) -> str:
    if "past QEMU" in device.unserved:
        return "use a source that QEMU serves itself"
    if "SCSI controller" in device.unserved:
        return "use <controller type='scsi' model='virtio-scsi'/>"
    return "use <target bus='virtio'/>" if device.kind == DISK else "use <model type='virtio'/>"


# ---- migration

def _migration(chooser: _Chooser) -> None:
    """By the host's uplink, with the jobs: the VM need not have a NIC on it."""
    found = chooser.host.uplink
    if found is None:
        return
    if found.name is None:
        chooser.say(Severity.NOTE, None, "migration", f"it is not held: {found.none or found.problem}", found.remedy)
        return
    chooser.resources.setdefault(found.name, found)
    chooser.migration = Migration(ID_PREFIX + found.name, chooser.policy.jobs_by or "", chooser.policy.jobs_diverging)


# ---- resources

def _resource(chooser: _Chooser, name: str) -> ResourcePlan:
    return ResourcePlan(ID_PREFIX + name, name, f"{chooser.host.run_dir}/{name}", _settings(chooser, name),
                        chooser.resources[name].trail)


def _settings(chooser: _Chooser, name: str) -> dict[str, int | bool]:
    """What policy and host say of a resource, without what changes nothing there."""
    uplinks = {device.resource for device in chooser.devices if device.kind == INTERFACE}
    if chooser.migration is not None:
        uplinks.add(chooser.migration.resource)
    settings = _merged(chooser.host.settings.get(name, {}), chooser.policy.settings_of(name))
    if not settings.keys() & {"interval-us", "auto"}:
        settings = {**LEARNED, **settings}
    idle = {switch for switch in SWITCHES if not settings.get(switch)}
    if "auto" in idle:
        idle.add("budget-percent")
        if "interval-us" not in settings:
            idle.remove("auto")  # said, since QEMU learns where nobody says anything
    if ID_PREFIX + name not in uplinks:
        idle.add("rate-bps")
    return {key: settings[key] for key in SETTINGS.values() if key in settings and key not in idle}


def _merged(host: Mapping[str, int | bool], policy: Mapping[str, int | bool]) -> dict[str, int | bool]:
    """The host's settings of a resource under the policy's: who says anything of the interval says all of it."""
    if policy.keys() & set(_INTERVAL):
        host = {key: value for key, value in host.items() if key not in _INTERVAL}
    return {**host, **policy}


# ---- lists of queues

QUEUES_MAX = 1024
"""Queues that a virtio device can have; a list beyond that is no list."""


def numbers_of(text: str) -> frozenset[int] | None:
    """The numbers of a list such as "0-2,5"; "" is none; None if it is not a list. Whoever wrote it: it takes no time."""
    numbers: set[int] = set()
    for part in text.split(",") if text else []:
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isascii() and end.isdecimal() and len(end) <= 4 for end in ends):
            return None
        low, high = int(ends[0]), int(ends[1])
        if low > high or high >= QUEUES_MAX:
            return None
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def queue_list(numbers: Iterable[int]) -> str:
    """The shortest list of these numbers, as QEMU prints it."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)
