# SPDX-License-Identifier: GPL-2.0-or-later
"""What two looks at a host come to: rates, and the last minute of each resource in states. Pure.

A rate is that of the time between the last two looks; None where a figure is not known, is idletimed's of an earlier look, or
has fallen (a QEMU that started anew). A cell of a strip is what was seen in that second: where looks come seldomer, what was
seen before. So the shares of the letters in a strip are the shares of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..policy.model import Class
from ..status import BlockJob, DeviceStatus, DomainStatus, ResourceStatus


@dataclass(frozen=True)
class Counted:
    """A device of which its VM's QEMU says nothing, as libvirt counts it."""

    uuid: str
    kind: str
    target: str
    requests: int
    bytes: int


@dataclass(frozen=True)
class Look:
    """One look at a host. at: by time.monotonic(); when: in seconds since 1970. arenas: the state of resources at which no
    QEMU looks, as their boards show it. kernel: bytes of the host's device that has the resource's name, whoever moves them.
    notes: in words."""

    at: float
    when: float
    vms: tuple[DomainStatus, ...] = ()
    arenas: Mapping[str, str] = field(default_factory=dict)
    kernel: Mapping[str, int] = field(default_factory=dict)
    unattached: tuple[Counted, ...] = ()
    notes: tuple[str, ...] = ()


STATES = {"lost": "L", "background": "B", "foreground": "F", "preemption": "P", "idle": "i", "unknown": "?"}
"""Letters; where QEMUs see different states, because they looked one after the other, the first of these holds."""

SECONDS = 60
NOTHING = " "

STOCK, HOST, UNKNOWN = "stock", "host", "unknown"
"""In place of a class: of VMs at which none of ours looks, of what the kernel counts beyond ours, of what nobody may ask."""

ELSE = "(all else)"


@dataclass(frozen=True)
class ResourceRow:
    """interval_us: the longest in force of those VMs that look. collision_cost: share of the time that the foreground waited at
    least. strip: letters, the newest last."""

    name: str
    state: str
    interval_us: int | None
    foreground_per_s: float | None
    background_per_s: float | None
    foreground_bytes_per_s: float | None
    background_bytes_per_s: float | None
    held: int | None
    in_service: int | None
    collisions_per_s: float | None
    collision_cost: float | None
    strip: str


@dataclass(frozen=True)
class DeviceRow:
    """One device or block job, or what else moves bytes. kind: of a device, or "job". class_: of QEMU now, or "stock", "host",
    "unknown". wanted: what the policy says of it. of_vm: the class of its VM, "" where it has none."""

    vm: str
    uuid: str
    target: str
    kind: str
    resource: str
    class_: str
    wanted: str
    of_vm: str
    requests_per_s: float | None
    bytes_per_s: float | None
    held: int | None = None
    in_service: int | None = None
    promotions_per_s: float | None = None
    in_force: bool | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.uuid, self.target


@dataclass(frozen=True)
class Model:
    """seconds: between the last two looks; None after the first. history: of each resource, when it was in what state."""

    look: Look
    seconds: float | None = None
    resources: tuple[ResourceRow, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    history: Mapping[str, tuple[tuple[float, str], ...]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """What --json prints."""
        return {"when": self.look.when, "seconds": self.seconds, "vms": len(self.look.vms), "resources": self.resources,
                "devices": self.devices, "notes": self.look.notes}


ORDERS = ("bytes", "requests", "held", "name")


def ordered(devices: Iterable[DeviceRow], order: str) -> list[DeviceRow]:
    """The busiest first; those that do the same by name."""
    by: dict[str, Any] = {"bytes": lambda one: one.bytes_per_s, "requests": lambda one: one.requests_per_s,
                          "held": lambda one: one.held, "name": lambda one: 0}
    return sorted(devices, key=lambda one: (-(by[order](one) or 0), one.vm, one.target))


def busiest(resources: Sequence[ResourceRow], most: int) -> list[ResourceRow]:
    """As many as there is room for, in their order."""
    by = sorted(resources, key=lambda one: -((one.foreground_bytes_per_s or 0) + (one.background_bytes_per_s or 0)))[:most]
    return [one for one in resources if one in by]


def after(before: Model | None, look: Look) -> Model:
    """The model after one more look."""
    rate = _Rates(before.look if before else None, look)
    history = _history(before.history if before else {}, look)
    devices = [_device(one, device, rate) for one in look.vms for device in one.devices if device.class_now]
    devices += [_job(one, job, rate) for one in look.vms for job in one.block_jobs]
    vms = {one.uuid: one for one in look.vms}
    devices += [_counted(one, vms[one.uuid], rate) for one in look.unattached]
    devices += [_else(name, devices, rate) for name in sorted(look.kernel)]
    resources = tuple(_resource(name, look, rate, history[name]) for name in sorted(history))
    return Model(look, rate.seconds, resources, tuple(ordered(devices, ORDERS[0])), history)


# ---- rates

class _Rates:
    def __init__(self, before: Look | None, now: Look) -> None:
        self.seconds = now.at - before.at if before is not None and now.at > before.at else None
        self._old, self._new = (_counters(one) if one else {} for one in (before, now))

    def of(self, *keys: tuple[Any, ...]) -> float | None:
        """The sum of the rates of counters."""
        rates = [self._one(key) for key in keys]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    def some(self, keys: Iterable[tuple[Any, ...]]) -> float | None:
        """The sum of those that are known."""
        known = [rate for key in keys if (rate := self._one(key)) is not None]
        return sum(known) if known else None

    def _one(self, key: tuple[Any, ...]) -> float | None:
        old, new = self._old.get(key), self._new.get(key)
        return None if self.seconds is None or old is None or new is None or new < old else (new - old) / self.seconds


_OF_DEVICE = ("foreground_requests", "background_requests", "foreground_bytes", "background_bytes", "promotions")
_OF_JOB = ("requests", "bytes", "promotions")
_OF_VIEW = ("collisions", "collision_cost_us")


def _counters(look: Look) -> dict[tuple[Any, ...], int | None]:
    """All that only grows, by what it is of; not what is of an earlier look than this."""
    found: dict[tuple[Any, ...], int | None] = {("kernel", name): count for name, count in look.kernel.items()}
    for one in (vm for vm in look.vms if vm.figures_at is None):
        for device in one.devices:
            found |= {(one.uuid, device.device, name): getattr(device, name) for name in _OF_DEVICE}
        for job in one.block_jobs:
            found |= {(one.uuid, job.id, _of_job(name)): getattr(job, name) for name in _OF_JOB}
        for resource in one.resources:
            found |= {(one.uuid, resource.id, name): getattr(resource, name) for name in _OF_VIEW}
    for other in look.unattached:
        found |= {(other.uuid, other.target, "requests"): other.requests, (other.uuid, other.target, "bytes"): other.bytes}
    return found


def _of_job(name: str) -> str:
    """What counts it as a device has it: all that a job does is background."""
    return name if name == "promotions" else f"background_{name}"


# ---- rows

def _device(one: DomainStatus, device: DeviceStatus, rate: _Rates) -> DeviceRow:
    key = one.uuid, device.device
    return DeviceRow(
        one.name, one.uuid, device.target, device.kind, _name_of(device.resource, one), device.class_now or UNKNOWN,
        device.class_wanted, one.class_ or "",
        rate.of((*key, "foreground_requests"), (*key, "background_requests")),
        rate.of((*key, "foreground_bytes"), (*key, "background_bytes")),
        device.held, device.in_service, rate.of((*key, "promotions")), one.in_force)


def _job(one: DomainStatus, job: BlockJob, rate: _Rates) -> DeviceRow:
    requests, bytes_, promotions = (rate.of((one.uuid, job.id, _of_job(name))) for name in _OF_JOB)
    class_ = Class.BACKGROUND.value
    return DeviceRow(one.name, one.uuid, f"{job.disk} {job.type}", "job", _name_of(job.resource, one), class_, class_,
                     one.class_ or "", requests, bytes_, job.held, job.in_service, promotions, one.in_force)


def _name_of(id_: str, one: DomainStatus) -> str:
    return next((resource.name for resource in one.resources if resource.id == id_), id_)


def _counted(one: Counted, vm: DomainStatus, rate: _Rates) -> DeviceRow:
    key = one.uuid, one.target
    class_ = UNKNOWN if vm.class_ and vm.in_force is None else STOCK
    return DeviceRow(vm.name, one.uuid, one.target, one.kind, "", class_, vm.class_ or "", vm.class_ or "",
                     rate.of((*key, "requests")),
                     rate.of((*key, "bytes")), in_force=vm.in_force)


def _else(name: str, devices: Iterable[DeviceRow], rate: _Rates) -> DeviceRow:
    """What the kernel counts of a device of the host, and no VM of ours moves."""
    ours = [one.bytes_per_s for one in devices if one.resource == name]
    all_, known = rate.of(("kernel", name)), [one for one in ours if one is not None]
    rest = None if all_ is None or len(known) < len(ours) else max(0.0, all_ - sum(known))
    return DeviceRow(ELSE, "", name, "", name, HOST, "", "", None, rest)


def _resource(name: str, look: Look, rate: _Rates, history: tuple[tuple[float, str], ...]) -> ResourceRow:
    views = [(one, resource) for one in look.vms for resource in one.resources if resource.name == name]
    devices = [(one.uuid, each) for one, resource in views for each in one.devices if each.resource == resource.id]
    jobs = [(one.uuid, each) for one, resource in views for each in one.block_jobs if each.resource == resource.id]
    counted = [*((uuid, each.device) for uuid, each in devices), *((uuid, each.id) for uuid, each in jobs)]
    of_device = {what: rate.some((*of, what) for of in counted) for what in _OF_DEVICE}
    of_view = {what: rate.some((one.uuid, resource.id, what) for one, resource in views) for what in _OF_VIEW}
    cost = of_view["collision_cost_us"]
    return ResourceRow(
        name, history[-1][1] if history else "unknown", _interval([resource for _, resource in views]),
        of_device["foreground_requests"], of_device["background_requests"],
        of_device["foreground_bytes"], of_device["background_bytes"],
        _sum((*(each.held for _, each in devices), *(each.held for _, each in jobs))),
        _sum((*(each.in_service for _, each in devices), *(each.in_service for _, each in jobs))),
        of_view["collisions"], None if cost is None else cost / 1e6, strip(history, look.at))


def _interval(views: Iterable[ResourceStatus]) -> int | None:
    return max((one.interval_us for one in views if one.interval_us is not None and one.state not in (None, "unknown")),
               default=None)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None


# ---- the last minute

def _history(before: Mapping[str, tuple[tuple[float, str], ...]], look: Look) -> dict[str, tuple[tuple[float, str], ...]]:
    """One that no VM uses any more goes when its minute is over."""
    now = {resource.name for one in look.vms for resource in one.resources}
    found = {}
    for name in {*before, *now}:
        seen = (*before.get(name, ()), *([(look.at, _state(name, look))] if name in now else []))
        if kept := tuple(one for one in seen if one[0] > look.at - SECONDS):
            found[name] = kept
    return found


def _state(name: str, look: Look) -> str:
    seen = {resource.state for one in look.vms for resource in one.resources if resource.name == name and resource.state}
    state = next((one for one in STATES if one in seen), "unknown")
    return look.arenas.get(name, state) if state == "unknown" else state


def strip(history: Iterable[tuple[float, str]], now: float) -> str:
    """A letter a second, the newest last."""
    letters = [NOTHING] * SECONDS
    for at, state in history:
        first = SECONDS - 1 - int(now - at)
        letters[max(first, 0):] = STATES.get(state, "?") * (SECONDS - max(first, 0))
    return "".join(letters)
