# SPDX-License-Identifier: GPL-2.0-or-later
"""What linger.py has to know of background VMs and of other hosts, and that a VM was moved. Context: a thread of hands.

That a VM was sent elsewhere is kept in its live XML (metadata urn:idletime:moved:1), which goes with it: so the next host does
not send it on at once, nor does this one try again at once where it failed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import libvirt
from lxml import etree

from .. import domains
from ..police.linger import Place
from ..xmltree import Element, read
from . import kept

NAMESPACE, PREFIX = "urn:idletime:moved:1", "idletimev"

SAMPLE_SECONDS = 2.0
"""Over so long a host's idle processors are measured."""

RESERVE = 0.05
"""Of a host's memory, what a VM may not have."""

DIRTY_SECONDS = 1

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_NOWAIT = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
_ACTIVE = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE


@dataclass(frozen=True)
class Candidate:
    """What of a VM says whether and how it can be sent. moved_at: when it was sent here, or was to be sent from here, in
    seconds since 1970; None: it was not. memory: bytes that it may have; sent: what of that is to be sent. block: a disk that
    is a block device, "" is none."""

    moved_at: float | None
    memory: int
    sent: int
    block: str


def look(connection: Any, uuids: Iterable[str]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Of those VMs that are there, the seconds that each vCPU ran, and that it waited for a processor. Raises libvirtError."""
    found = domains.stats_of(connection, uuids, libvirt.VIR_DOMAIN_STATS_VCPU)
    return {domain.UUIDString(): _vcpus(one) for domain, one in found if "vcpu.maximum" in one}


def _vcpus(stats: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Those that are plugged in."""
    return tuple((stats[f"vcpu.{number}.time"] / 1e9, stats.get(f"vcpu.{number}.delay", 0) / 1e9)
                 for number in range(stats["vcpu.maximum"]) if f"vcpu.{number}.time" in stats)


def candidate(connection: Any, uuid: str) -> Candidate:
    """Look at a VM that may be sent. Raises libvirtError."""
    domain = connection.lookupByUUIDString(uuid)
    root = read(domain.XMLDesc())
    ((_, stats),) = connection.domainListGetStats([domain], libvirt.VIR_DOMAIN_STATS_BALLOON, _NOWAIT)
    memory = int(root.findtext("./memory") or 0) * 1024
    resident = stats.get("balloon.rss", 0) * 1024
    shared = root.find("./memoryBacking/hugepages") is not None or root.find("./memoryBacking/source") is not None
    return Candidate(_moved_at(domain), memory, memory if shared or not resident else min(resident, memory), _block(root))


def _block(root: Element) -> str:
    """Nobody can tell whether another host means the same by such a name."""
    return next((str(disk.find("target").get("dev")) for disk in root.iterfind("./devices/disk[@type='block']")
                 if disk.find("readonly") is None and disk.find("shareable") is None), "")


def writes(connection: Any, uuid: str) -> float:
    """Bytes a second that a guest writes, measured by QEMU in a sample of its pages; 0 where it runs not. Takes somewhat more
    than DIRTY_SECONDS. Raises libvirtError."""
    domain = connection.lookupByUUIDString(uuid)
    if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
        return 0.0
    domain.startDirtyRateCalc(DIRTY_SECONDS, 0)
    for _ in range(5):
        time.sleep(DIRTY_SECONDS)
        ((_, stats),) = connection.domainListGetStats([domain], libvirt.VIR_DOMAIN_STATS_DIRTYRATE, 0)
        if stats.get("dirtyrate.calc_status") == libvirt.VIR_DOMAIN_DIRTYRATE_MEASURED:
            return float(stats["dirtyrate.megabytes_per_second"]) * (1 << 20)
    raise libvirt.libvirtError("QEMU does not say how much the guest writes")


# ---- hosts

def here(connection: Any) -> Place:
    """This host. Takes somewhat more than SAMPLE_SECONDS. Raises libvirtError."""
    return _place(connection, "")


def place(connection: Any, uri: str) -> Place | None:
    """Another host; None: it is this one. Takes somewhat more than SAMPLE_SECONDS. Raises HostError, libvirtError."""
    other = domains.connect(uri, read_only=True)
    try:
        return None if _host(other) == _host(connection) else _place(other, uri)
    finally:
        other.close()


def _place(connection: Any, uri: str) -> Place:
    """What VMs may have is theirs, whether they have touched it or not; memory that they share is "cached" to libvirt."""
    idle, began = _idle_s(connection), time.monotonic()
    time.sleep(SAMPLE_SECONDS)
    seconds = time.monotonic() - began
    memory = connection.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    promised = sum(one.get("balloon.current", 0)
                   for _, one in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_BALLOON, _NOWAIT | _ACTIVE))
    now = sum(memory.get(one, 0) for one in ("free", "buffers", "cached"))
    free = min(now, memory["total"] - promised) - memory["total"] * RESERVE
    return Place(uri, (_idle_s(connection) - idle) / seconds, max(0, int(free)) * 1024)


def _host(connection: Any) -> str:
    return str(read(connection.getCapabilities()).findtext("./host/uuid"))


def _idle_s(connection: Any) -> float:
    stats = connection.getCPUStats(libvirt.VIR_NODE_CPU_STATS_ALL_CPUS)
    return float(stats["idle"] + stats.get("iowait", 0)) / 1e9


# ---- the record

def _moved_at(domain: Any) -> float | None:
    element = kept.element_of(domain, NAMESPACE, _LIVE)
    try:
        return None if element is None else float(element.get("at", "0"))
    except ValueError:
        return None


def note(connection: Any, uuid: str, at: float) -> bool:
    """It is about to be sent. Raises libvirtError."""
    kept.keep(connection.lookupByUUIDString(uuid), etree.Element("moved", {"at": f"{at:.0f}"}), PREFIX, NAMESPACE, _LIVE)
    return True
