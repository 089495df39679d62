# SPDX-License-Identifier: GPL-2.0-or-later
"""What the host's processors, disks and uplinks did, and what of it background VMs did: facts for suspension (police/facts.py).

    whose               processors      disks and uplinks
    everybody's         /proc/stat      /proc/diskstats; packets that the uplink sent
    foreground VMs'     (the rest)      the arena's foreground board
    background VMs'     domstats        domstats: requests of its disks, packets of its taps

A resource is looked at in both ways where both are possible: the board is exact, and the kernel sees those who are not on it.
One look of libvirt for all VMs, without waiting for one that is busy. Context: a thread of hands.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import libvirt

from .. import arena, domains
from ..facts import DISK, INTERFACE, DeviceFacts, Plan
from ..plan import said_of
from ..police import facts
from ..police.facts import Reading, number
from ..police.look import Look
from ..police.suspend import Sample
from ..policy import NONE, Policy
from ..resolve import Host
from ..resolve.tree import Tree
from . import stopped, watched

_STATS = (libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BLOCK
          | libvirt.VIR_DOMAIN_STATS_INTERFACE)

REQUEST_BYTES, PACKET_BYTES = 512 << 10, 1500
"""The kernel cuts what is larger (max_sectors_kb where it is known; an Ethernet frame), and counts the pieces."""


@dataclass(frozen=True)
class Access:
    """A disk or interface of a VM. counted: its name in domstats, target or tap. resource, arena: "" where it has none. host:
    names of the devices of this host behind it."""

    kind: str
    counted: str
    resource: str = ""
    arena: str = ""
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """A VM at a look. runs; or paused, as by an operator or by us: then record says whether it was us."""

    runs: bool = False
    paused: bool = False
    record: stopped.Record | None = None


@dataclass(frozen=True)
class Usage:
    """One look. reading: None where the kernel says nothing. unsure: accesses of a device that the kernel counted while
    libvirt was asked: they may be of a background VM and not be among its own.
    moved: bytes of each device of the host, and of each resource of which the kernel counts none; and of each background device
    on it, by "VM name"."""

    vms: Mapping[str, Seen]
    reading: Reading | None
    unsure: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[str, Moved] = field(default_factory=dict)


@dataclass
class Moved:
    """Bytes since the device is there."""

    total: int
    own: dict[str, int] = field(default_factory=dict)


def between(before: Usage, after: Usage, quiet_per_second: float = 0.0) -> Sample | None:
    """What was used from one look to the other; of a device that the kernel counts without what may be a VM's and is not among
    its own, and without what is nobody's work. None where that cannot be told. Pure."""
    if before.reading is None or after.reading is None:
        return None
    sample = facts.between(before.reading, after.reading)
    if sample is None:
        return None
    nobodys = {key: quiet_per_second + (count + before.unsure.get(key, 0)) / sample.seconds
               for key, count in after.unsure.items()}
    return facts.quiet(sample, nobodys)


def accesses(policy: Policy, devices: Iterable[DeviceFacts], plan: Plan, host: Host) -> tuple[Access, ...]:
    """What a VM shares, whether or not its QEMU holds it. plan: of its policy, with all that can be held."""
    tree = Tree(host.root)
    paths = {resource.id: (resource.name, resource.path) for resource in plan.resources}
    planned = {(one.kind, one.target): paths[one.resource] for one in plan.devices}
    found = []
    for one in devices:
        if said_of(policy, one)[0].resource == NONE:
            continue
        resource, path = planned.get((one.kind, one.target), ("", ""))
        behind = host.resolve(one.source)
        if one.kind == DISK:
            names = watched.disks(tree, resource, one.source.name, behind)
            found.append(Access(DISK, one.target, resource, path, tuple(name.rpartition("/")[2] for name in names)))
        else:
            found.append(Access(one.kind, watched.tap(tree, one), resource, path, watched.uplinks(tree, resource, behind)))
    return tuple(found)


# ---- a look

def look(connection: Any, vms: Mapping[str, Sequence[Access]], files: Look, work: frozenset[str] = frozenset()) -> Usage:
    """Look at background VMs, by UUID, and at what they share. work: disks at which a block job or an export is background,
    as work_of() has them. Asks nothing that libvirt would have to wait for a QEMU for. Raises libvirtError."""
    shares = _Shares(files, {one for its in vms.values() for one in its}, work)
    stats = dict(_stats(connection, vms))
    seen = {uuid: _seen(domain, one) for uuid, (domain, one) in stats.items()}
    counted = {uuid: one for uuid, (_, one) in stats.items()}
    cpus, now = files.cpus(), time.monotonic()
    if cpus is None:
        return Usage(seen, None)
    cpu = {uuid: one.get("cpu.time", 0) / 1e9 for uuid, one in counted.items()}
    shares.count_again()
    for uuid, one in counted.items():
        for access in vms[uuid]:
            shares.add(uuid, access, one)
    return Usage(seen, Reading(now, cpus, cpu, shares.totals(), shares.known()), shares.unsure(), shares.moved())


def _stats(connection: Any, vms: Iterable[str]) -> Iterator[tuple[str, tuple[Any, dict[str, Any]]]]:
    for domain, one in domains.stats_of(connection, vms, _STATS):
        if "cpu.time" in one:  # it runs, or is paused
            yield domain.UUIDString(), (domain, one)


def _seen(domain: Any, one: Mapping[str, Any]) -> Seen:
    state, reason = one.get("state.state"), one.get("state.reason")
    if stopped.may_wait(state, reason):
        return Seen(paused=True, record=stopped.record_of(domain))
    return Seen(runs=state in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED))


class _Shares:
    """Devices, each with all accesses and those of background VMs. Where libvirt left out what a VM did, as it would have to
    wait for it, its devices are left out: all would be taken for the foreground's. So are disks where held jobs work: what
    these read and write is in no VM's statistics. Foreground that is on the board is seen there all the same."""

    def __init__(self, files: Look, there: Iterable[Access], work: frozenset[str]) -> None:
        self._files = files
        self._kernel = {(one.kind, name) for one in there for name in one.host}
        self._early = self._whole = self._counted()  # of the kernel: what is everybody's
        self._own: dict[str, dict[str, int]] = {}
        self._unknown: set[str] = set(work)
        self._rest: dict[str, int] = {}  # of arenas: what is foreground
        self._moved: dict[str, Moved] = {}

    def count_again(self) -> None:
        """libvirt has answered."""
        self._whole = self._counted()
        disks = self._files.disks()
        for kind, name in self._kernel:
            total = disks[name].bytes_ if name in disks else self._files.sent_bytes(name)
            if total is not None:
                self._moved[_key(kind, name)] = Moved(total)

    def _counted(self) -> dict[str, int]:
        disks = self._files.disks()
        found = {_key(kind, name): disks[name].requests if name in disks else self._files.sent_packets(name)
                 for kind, name in self._kernel}
        return {key: count for key, count in found.items() if count is not None}

    def add(self, uuid: str, access: Access, stats: Mapping[str, Any]) -> None:
        """What a VM did."""
        count, size = _count(access, stats)
        busy = access.kind == DISK and "block.count" not in stats
        if access.arena and (foreground := _foreground(access.arena)) is not None:
            key = f"resource {access.resource}"
            self._rest[key] = foreground.requests
            self._note(key, uuid, count, busy)
            if not any(_key(access.kind, name) in self._moved for name in access.host):  # network storage
                own = self._moved[key].own if key in self._moved else {}
                own[f"{uuid} {access.counted}"] = size
                self._moved[key] = Moved(foreground.bytes + sum(own.values()), own)
        for name in access.host:
            if (key := _key(access.kind, name)) in self._whole:
                self._note(key, uuid, max(count, size // self._largest(access.kind, name)), busy)
            if key in self._moved:
                self._moved[key].own[f"{uuid} {access.counted}"] = size

    def _note(self, key: str, uuid: str, count: int, busy: bool) -> None:
        own = self._own.setdefault(key, {})
        own[uuid] = own.get(uuid, 0) + count
        if busy:
            self._unknown.add(key)

    def _largest(self, kind: str, name: str) -> int:
        if kind != DISK:
            return PACKET_BYTES
        kib = number(self._files.text(f"/sys/class/block/{name}/queue/max_sectors_kb"))
        return kib * 1024 if kib else REQUEST_BYTES

    def unsure(self) -> dict[str, int]:
        return {key: max(0, count - self._early.get(key, count)) for key, count in self._whole.items()}

    def known(self) -> dict[str, dict[str, int]]:
        """What background VMs did, by device."""
        return {key: own for key, own in self._own.items() if key not in self._unknown}

    def moved(self) -> dict[str, Moved]:
        return {key: one for key, one in self._moved.items() if key not in self._unknown}

    def totals(self) -> dict[str, int]:
        """What everybody did, by device."""
        whole = self._whole | {key: rest + sum(self._own[key].values()) for key, rest in self._rest.items()}
        return {key: count for key, count in whole.items() if key not in self._unknown}


def work_of(part: watched.Part) -> frozenset[str]:
    """Disks of this host at which block jobs and exports of a VM are background."""
    return frozenset(_key(DISK, name.rpartition("/")[2]) for use in part.uses if use.work for name in use.host)


def _key(kind: str, name: str) -> str:
    return f"{'disk' if kind == DISK else 'uplink'} {name}"


@dataclass(frozen=True)
class _Foreground:
    """Sums."""

    requests: int
    bytes: int


def _foreground(path: str) -> _Foreground | None:
    """All foreground participants that are there now; a sum that falls is no use (facts.between, windows.foreground)."""
    try:
        there = arena.read(path).foreground
    except arena.ArenaError:
        return None
    return _Foreground(sum(one.requests for one in there), sum(one.bytes for one in there))


_COUNTERS = ((DISK, "block", ("rd.reqs", "wr.reqs"), ("rd.bytes", "wr.bytes")), (INTERFACE, "net", ("tx.pkts",), ("tx.bytes",)))
"""Kind, its name in domstats, what its requests are, and its bytes: of an interface what the VM sent."""


def counted(stats: Mapping[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """All disks and interfaces of a VM: kind, name, requests, bytes. Pure."""
    for kind, name, *sums in _COUNTERS:
        for number_ in range(stats.get(f"{name}.count", 0)):
            requests, size = (sum(int(stats.get(f"{name}.{number_}.{each}", 0)) for each in one) for one in sums)
            yield kind, str(stats.get(f"{name}.{number_}.name", "")), requests, size


def _count(access: Access, stats: Mapping[str, Any]) -> tuple[int, int]:
    """Requests and bytes of one of them."""
    return next(((requests, size) for kind, name, requests, size in counted(stats)
                 if (kind, name) == (access.kind, access.counted)), (0, 0))
