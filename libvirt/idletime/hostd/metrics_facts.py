# SPDX-License-Identifier: GPL-2.0-or-later
"""What metrics are made of: what idletimed says of VMs and observers below RUN_DIR/.state (state.py), and QEMU's answers.

A QEMU may be in a guest's hands: of its answer counts what fits SHAPE and belongs to the plan of its VM, the rest does not
become a label or a number. Context: a thread; a file that has not changed is not read again.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import jobs, observed, state
from ..gauge import said as said_gauge
from ..gauge.said import Gauge
from ..observed import ObserverState
from ..state import DomainState

MOST_VMS, MOST_RESOURCES, MOST_DEVICES = 1000, 32, 64
"""Figures of one VM are some five kilobytes of text, and some fifty series. Who has more VMs on a host: they are counted."""
LABEL_CHARACTERS = 128

STATES = ("idle", "foreground", "preemption", "background", "unknown", "lost")
EVENTS = ("foreground", "background", "timer", "empty")
COUNTED = STATES[:4]
CAUSES = ("deadline", "flush", "journal", "ring", "class-change", "flow", "stop")
REASONS = ("foreground", "interval", "budget", "inflight", "turn", "arena")
CLASSES = ("foreground", "background", "guest")
SPANS = ("second", "minute", "hour", "forecast")


class Misfit(ValueError):
    """What a QEMU answered is not of this shape; the text names the member and its value."""


@dataclass(frozen=True)
class Vm:
    """One running VM. key: of its file below .state. run: libvirt's id of this run. looked: when the figures were taken,
    seconds since 1970. resources: as fit() makes them; None: its QEMU is stock, or answers nothing that fits (misfit
    says what). stopped: by idletimed; None: it is one that is never stopped. memory_given: None: it never gives.
    limited: devices with a limit; None: it never has one."""

    key: str
    name: str
    run: int
    class_: str
    by: str
    in_force: bool
    problems: int
    looked: float
    libvirts: bool = True
    resources: tuple[Mapping[str, Any], ...] | None = None
    misfit: str = ""
    stopped: bool | None = None
    memory_given: int | None = None
    limited: int | None = None


@dataclass(frozen=True)
class Facts:
    """All of it, by name. left_out: VMs beyond MOST_VMS. files: what is wrong below /etc/idletime."""

    vms: tuple[Vm, ...] = ()
    observers: tuple[ObserverState, ...] = ()
    left_out: int = 0
    files: int = 0
    gauge: Gauge | None = None


# ---- what QEMU answers: only this, of these types

def _count(value: Any) -> int:
    if type(value) is int and 0 <= value < 1 << 64:
        return value
    raise Misfit


def _number(value: Any) -> float:
    if type(value) in (int, float) and abs(value) < 1 << 64 and math.isfinite(value):
        return float(value)
    raise Misfit


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise Misfit


class _OneOf:
    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, value: Any) -> str:
        if type(value) is str and value in self.words:
            return value
        raise Misfit


def _name(value: Any) -> str:
    if type(value) is str and value:
        return value
    raise Misfit


_TRAFFIC = {"requests": _count, "bytes": _count}

_HOLDS = {
    "background": _TRAFFIC, "held": _count, "in-service": _count,
    "promotions": dict.fromkeys(CAUSES, _count), "waits": dict.fromkeys(REASONS, _count),
    "hold": {"boundaries-us": [_count], "bins": [_count], "max-us": _count, "drained-us": _count},
}
"""Devices, block jobs and NBD exports."""

_DEVICE = {
    **_HOLDS, "device": _name, "class": _OneOf(*CLASSES), "seen": _flag, "foreground": _TRAFFIC,
    "passed": _count, "dropped": _count, "pieces": _count,
}

SHAPE = [{
    "id": _name, "state": _OneOf(*STATES), "interval-us": _count, "auto": _flag, "shadow": _flag, "budget-percent": _number,
    "counters": dict.fromkeys(COUNTED, dict.fromkeys(EVENTS, _count)),
    "collisions": _count, "collision-cost-us": _count, "generation": _count, "other-generations": [_count],
    "observer": {"state": _OneOf("absent", "seen", "lost"), "foreground": _TRAFFIC, "requeued": _count, "unpaired": _count,
                 "healed": _count, "missed": _count, "died": _count},
    "learned": {"ready": _flag, "changes": _count, "learner-us": _count, "service-us": _count, "slowdown-percent": _number,
                "credit-us": _number, "credit-max-us": _count, "spare": dict.fromkeys(SPANS, _number)},
    "devices": [_DEVICE], **{f"{kind}s": [{**_HOLDS, "id": _name}] for kind in jobs.NAMES},
}]


def fit(shape: Any, value: Any, where: str = "query-idletime") -> Any:
    """What of a value has this shape; members that are missing stay so, unknown ones are dropped. Pure. Raises Misfit."""
    if isinstance(shape, Mapping) and isinstance(value, Mapping):
        return {key: fit(each, value[key], f"{where}.{key}") for key, each in shape.items() if key in value}
    if isinstance(shape, list) and isinstance(value, list | tuple) and len(value) <= MOST_DEVICES:
        return tuple(fit(shape[0], each, where) for each in value)
    try:
        return shape(value)
    except (Misfit, TypeError) as error:
        raise Misfit(f"{where} is {str(value)[:80]!r}") from error


def resources_of(said: DomainState, query: Any) -> tuple[Mapping[str, Any], ...]:
    """What QEMU answered of the resources, devices, block jobs and exports of disks that the VM should have, by the
    operator's names. Pure. Raises Misfit."""
    names = {str(one["id"]): str(one["name"]) for one in said.resources[:MOST_RESOURCES]}
    targets = {str(one["alias"]): str(one["target"]) for one in said.devices[:MOST_DEVICES]}
    found = {}
    for one in fit(SHAPE, [_of_plan(one, targets) for one in query]):
        if one.get("id") in names:
            devices = {name: {**each, "target": _cut(targets[name])} for each in one.get("devices", ())
                       if (name := each.get("device")) in targets}
            found[one["id"]] = {**one, "name": _cut(names[one["id"]]), "devices": tuple(devices.values()),
                                "jobs": tuple(_jobs(one, said.exports, targets))}
    return tuple(found.values())


def _of_plan(resource: Any, targets: Mapping[str, str]) -> Any:
    """Without devices that are not among these: a VM may have more than are shown."""
    devices = resource.get("devices") if isinstance(resource, Mapping) else None
    if not isinstance(devices, list | tuple):
        return resource
    return {**resource, "devices": [each for each in devices if not isinstance(each, Mapping) or each.get("device") in targets]}


def _jobs(resource: Mapping[str, Any], exports: Mapping[str, str], targets: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Those that libvirt has started on one of these disks, and migration."""
    for one in jobs.attached([resource]):
        if one.kind == jobs.MIGRATION:
            yield {**one.said, "target": _cut(one.id), "type": one.kind}
            continue
        type_, target = (one.kind, exports.get(one.id, "")) if one.kind == jobs.EXPORT else jobs.of_libvirt(one.id, targets)
        if target in targets.values():
            yield {**one.said, "target": _cut(target), "type": type_}


def vm_of(key: str, said: DomainState) -> Vm:
    """Facts of a VM, by what idletimed says of it. Pure."""
    vm = Vm(key, _cut(said.name), said.run, said.class_ if said.class_ in CLASSES else "none", said.by, said.in_force,
            len(said.problems), said.looked, not said.socket,
            stopped=bool(said.stopped) if said.suspends or said.stopped else None,
            memory_given=said.memory_given if type(said.memory_given) is int else None,
            limited=len(said.limited) if type(said.limited) is tuple else None)
    return vm if said.query is None else with_figures(vm, said, said.query, said.looked)


def with_figures(vm: Vm, said: DomainState, query: Any, looked: float) -> Vm:
    """The same with what its QEMU answered just then. Pure."""
    try:
        return replace(vm, resources=resources_of(said, query), looked=looked, misfit="")
    except (Misfit, KeyError, TypeError, AttributeError) as error:
        return replace(vm, misfit=str(error) or type(error).__name__)


def _cut(text: str) -> str:
    """A label. What is no character (bytes of a path) is shown as one."""
    return text[:LABEL_CHARACTERS].encode("utf-8", "replace").decode()


def named_apart(vms: Sequence[Vm]) -> tuple[Vm, ...]:
    """By name; whose name another one has, too, is told apart by its key. Pure."""
    seen = Counter(vm.name for vm in vms)
    return tuple(sorted((vm if seen[vm.name] == 1 else replace(vm, name=f"{vm.name} ({vm.key})") for vm in vms),
                        key=lambda vm: vm.name))


# ---- reading

@dataclass
class _File:
    stamp: tuple[int, int, int]
    said: DomainState | None


@dataclass
class Reader:
    """Reads RUN_DIR/.state."""

    run_dir: str
    _files: dict[str, _File] = field(default_factory=dict)

    def read(self) -> tuple[dict[str, DomainState], int]:
        """What is said of each VM, by key, of MOST_VMS at most; and of how many it was not read."""
        folder = os.path.join(self.run_dir, state.FOLDER)
        try:
            keys = sorted(name.removesuffix(".json") for name in os.listdir(folder) if _is_vm(name))
        except OSError:
            keys = []
        self._files = {key: found for key in keys[:MOST_VMS] if (found := self._file(folder, key)) is not None}
        return {key: one.said for key, one in self._files.items() if one.said is not None}, len(keys[MOST_VMS:])

    def _file(self, folder: str, key: str) -> _File | None:
        try:
            found = os.stat(os.path.join(folder, f"{key}.json"))
        except OSError:
            return None
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        known = self._files.get(key)
        return known if known is not None and known.stamp == stamp else _File(stamp, state.domain(self.run_dir, key))

    def observers(self) -> tuple[ObserverState, ...]:
        """What is said of observers."""
        return tuple(observed.read(self.run_dir).values())

    def gauge(self) -> Gauge | None:
        """What the gauge says."""
        return said_gauge.read(self.run_dir)

    def files(self) -> int:
        """How much is wrong below /etc/idletime."""
        said = state.daemon(self.run_dir)
        return len(said.problems) if said is not None else 0


def _is_vm(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".") and name not in state.NO_VMS
