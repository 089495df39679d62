# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy of one domain, as data. Parsed by policy.parse(); immutable; no I/O."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..police.enforce import Enforce

NAMESPACE = "urn:idletime:policy:1"

AUTO = "auto"  # resource='auto': found out from the host
NONE = "none"  # resource='none': the device is left as stock QEMU has it


class Class(str, enum.Enum):
    """Service class, as QEMU names it."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"
    GUEST = "guest"


class Control(str, enum.Enum):
    """What the guest agent may do: nothing, or lower its VM and its processes."""

    NONE = "none"
    DEMOTE = "demote"


class CpuClass(str, enum.Enum):
    """Processor: minimal is the smallest cgroup share; idle is that, and SCHED_IDLE for vCPUs, emulator and I/O threads."""

    IDLE = "idle"
    MINIMAL = "minimal"


@dataclass(frozen=True)
class DevicePolicy:
    """What the policy says of one device, or (target None) of all devices of its kind that it does not name.

    class_ None means the policy's class. queues and dscp are lists as QEMU reads them, "" is none, None unset.
    """

    target: str | None = None
    resource: str = AUTO
    class_: Class | None = None
    queues: str | None = None
    dscp: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Memory:
    """Of a background VM, in bytes. low: what it keeps at least. high: beyond it its pages go first; None is not said."""

    low: int
    high: int | None = None


@dataclass(frozen=True)
class Space:
    """A scratch disk of a background VM: what is in it may be dropped while its file system is short of space."""

    target: str
    line: int | None = None


@dataclass(frozen=True)
class Policy:
    """The policy element.

    settings: properties of idletime-resource objects by QEMU's names ("interval-us": 20000, "auto": True), for
    all resources under key None, for one resource under its name. An absent property is QEMU's default.
    by: time of day at which a background domain becomes foreground for the rest of its run, "06:00"; None: it never does.
    jobs: block jobs of the domain are background, whatever its class. jobs_by: time of day at which they are to be done,
    "06:00"; None: whenever. jobs_diverging: what becomes of a migration that does not end at its pace, as the guest writes more
    than leaves: "wait" or "foreground".
    """

    class_: Class
    by: str | None = None
    disks: tuple[DevicePolicy, ...] = ()
    interfaces: tuple[DevicePolicy, ...] = ()
    settings: Mapping[str | None, Mapping[str, int | bool]] = field(default_factory=dict)
    control: Control = Control.NONE
    cpu: CpuClass | None = None
    memory: Memory | None = None
    jobs: bool = False
    jobs_by: str | None = None
    jobs_diverging: str = "wait"
    space: tuple[Space, ...] = ()
    enforce: Enforce = Enforce.INTERVAL
    line: int | None = None

    def over(self) -> Policy:
        """The same after its deadline."""
        return replace(self, class_=Class.FOREGROUND, disks=tuple(map(_over, self.disks)),
                       interfaces=tuple(map(_over, self.interfaces)), cpu=None, memory=None, space=(), enforce=Enforce.INTERVAL)

    def settings_of(self, resource: str) -> dict[str, int | bool]:
        """Properties of the object of this resource; what is said of the resource itself wins."""
        return {**self.settings.get(None, {}), **self.settings.get(resource, {})}


def _over(device: DevicePolicy) -> DevicePolicy:
    return replace(device, class_=None) if device.class_ is Class.BACKGROUND else device
