# SPDX-License-Identifier: GPL-2.0-or-later
"""What the compiler returns. Immutable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import Finding
from ..policy.model import Class, Policy


@dataclass(frozen=True)
class ResourcePlan:
    """One idletime-resource object. properties by QEMU's names, without path; absent is QEMU's default."""

    id: str  # id of the object, "idletime-sda"
    name: str  # of the resource, "sda"
    path: str  # of the arena, "/run/idletime/sda"
    properties: Mapping[str, int | bool]
    trail: tuple[str, ...] = ()


@dataclass(frozen=True)
class DevicePlan:
    """One device that is attached to a resource. alias is the id of the device in QEMU."""

    kind: str  # "disk" or "interface"
    target: str  # "vda", or the MAC address
    alias: str
    resource: str  # ResourcePlan.id
    class_: Class
    queues: str = ""
    dscp: str | None = None


@dataclass(frozen=True)
class Unresolved:
    """A device whose resource is not known on this host: it is left out, and keeps what it has while it runs."""

    kind: str
    target: str
    alias: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind} target='{self.target}': not resolved, so left out: {self.problem}; remedy: {self.remedy}"


@dataclass(frozen=True)
class Plan:
    """All that QEMU is told for one domain."""

    resources: tuple[ResourcePlan, ...] = ()
    devices: tuple[DevicePlan, ...] = ()
    hotplug: tuple[DevicePlan, ...] = ()  # default of devices that are plugged in later; no target, no alias
    unresolved: tuple[Unresolved, ...] = ()


@dataclass(frozen=True)
class CompileResult:
    """xml: the domain, ready to be defined. findings: warnings and notes (errors are raised)."""

    xml: str
    policy: Policy | None
    plan: Plan
    findings: tuple[Finding, ...] = ()
