# SPDX-License-Identifier: GPL-2.0-or-later
"""The data between the steps: facts of devices and host, and the plan that comes of them. Immutable; no I/O.

    facts     DeviceFacts (of a VM), Source, Resolution, HostFacts (of the host)
    plan      Plan: which device joins which resource, as what
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .police.enforce import Through
from .policy.model import Class

RUN_DIR = "/run/idletime"

DISK, INTERFACE = "disk", "interface"


@dataclass(frozen=True)
class Source:
    """What is behind one device, as the VM's definition says. Key of HostFacts.resolutions.

    device: "disk" or "interface". type: libvirt's type attribute ("file", "block", "network", "bridge", ...).
    name: path, bridge, device, network or volume name. endpoint: protocol and hosts of network storage, sorted, such as
    "nbd:10.0.0.5:10809". format: image format. backing: sources below, where they are named. bridge: of a virtual
    network, where libvirt has filled it in (live XML).
    """

    device: str
    type: str
    name: str = ""
    endpoint: str = ""
    format: str = ""
    backing: tuple[Source, ...] = ()
    bridge: str = ""


@dataclass(frozen=True)
class Resolution:
    """The resource behind a source.

    name: of the resource, None if there is none. devices: host devices that it stands for. trail: how it was
    found, for people ("/var/lib/libvirt/images/a.img", "/dev/sda2", "sda"). problem and remedy: why it is not known which
    one it is. none: why there is none to be found. notes: what people should know though it worked. apart: why the kernel does
    not know at an uplink by which interface of this host the packets came, "" if it does.
    """

    name: str | None
    devices: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    none: str = ""
    apart: str = ""


@dataclass(frozen=True)
class HostFacts:
    """The host, as far as one VM needs it.

    uplink: by which the host itself sends, where the VM's policy is about that. run_dir: parent of all arenas. settings: what
    the host says of a resource, by its name; a VM's policy wins over it.
    """

    resolutions: Mapping[Source, Resolution] = field(default_factory=dict)
    run_dir: str = RUN_DIR
    settings: Mapping[str, Mapping[str, int | bool]] = field(default_factory=dict)
    uplink: Resolution | None = None


@dataclass(frozen=True)
class DeviceFacts:
    """One disk or interface of a VM.

    target: "vda", or the MAC address. names: all that a policy may call it. alias: its id in QEMU (its QOM path, if it has
    none); "" if that is not known, as in XML that does not run. unserved: why QEMU cannot schedule it, "" if it can.
    queues: how many it has (pairs, of an interface); None if that is not known. guest_names: what the guest may call it.
    through: who sees its requests. cached: the cache mode of a disk that fills this host's page cache, "" of one that does not.
    copies: what a block job of a disk writes now, where that is another image. passed: the guest's SCSI commands go to the disk
    as they are (device='lun').
    """

    kind: str
    target: str
    names: frozenset[str]
    alias: str
    source: Source
    unserved: str = ""
    queues: int | None = None
    guest_names: Mapping[str, str] = field(default_factory=dict, hash=False)
    through: Through = Through.QEMU
    cached: str = ""
    copies: tuple[Source, ...] = ()
    passed: bool = False

    @property
    def label(self) -> str:
        return f"{self.kind} target='{self.target}'"

    def called(self, name: str) -> bool:
        """Whether a policy means it by this name: its target, its alias, or its address in whatever case."""
        return name in self.names or name.lower() == self.target


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
    """One device that is to be attached to a resource. alias is its id in QEMU."""

    kind: str  # "disk" or "interface"
    target: str  # "vda", or the MAC address
    alias: str
    resource: str  # ResourcePlan.id
    class_: Class
    queues: str = ""
    dscp: str | None = None

    @property
    def label(self) -> str:
        return f"{self.kind} target='{self.target}'"


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
class DiskJobs:
    """A disk whose block jobs and NBD exports are background, and the resource that they are to be attached to. alias: of
    the disk, in QEMU. by: time of day at which each job is to be done; "": whenever. also: those of what a job of it writes
    now, to which that is attached as well."""

    target: str
    resource: str  # ResourcePlan.id
    alias: str = ""
    by: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Migration:
    """The resource by which a VM migrates away as background, and the time of day at which it is to be done; "": whenever.
    diverging: what becomes of it where the guest writes more than leaves, "wait" or "foreground"."""

    resource: str  # ResourcePlan.id
    by: str = ""
    diverging: str = "wait"

    @property
    def lets_go(self) -> bool:
        """Whether it becomes foreground where it would not end."""
        return self.diverging == Class.FOREGROUND.value


@dataclass(frozen=True)
class Plan:
    """All that the QEMU of one VM shall have. jobs: of which disks the block jobs are background; which of them run, the plan
    does not know (jobs.py). migration: None: it is as in stock QEMU."""

    resources: tuple[ResourcePlan, ...] = ()
    devices: tuple[DevicePlan, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    jobs: tuple[DiskJobs, ...] = ()
    migration: Migration | None = None

    @property
    def asks(self) -> bool:
        """Whether there is anything that QEMU shall have."""
        return bool(self.devices or self.jobs or self.migration)
