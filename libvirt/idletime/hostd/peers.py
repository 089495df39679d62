# SPDX-License-Identifier: GPL-2.0-or-later
"""What linger.py has to know of background VMs and of other hosts, and that a VM was moved. Context: a thread of hands.

That a VM was sent elsewhere is kept in its live XML (metadata urn:idletime:moved:1), which goes with it: so the next host does
not send it on at once, nor does this one try again at once where it failed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import libvirt
from lxml import etree

from .. import domains
from ..police.linger import Place
from ..xmltree import read
from . import kept

NAMESPACE, PREFIX = "urn:idletime:moved:1", "idletimem"

SAMPLE_SECONDS = 2.0
"""Over so long another host's idle processors are measured."""

RESERVE = 0.05
"""Of another host's memory, what a VM may not have."""

DIRTY_SECONDS = 1

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_NOWAIT = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT


@dataclass(frozen=True)
class Vm:
    """A background VM that runs, or is stopped. ran_s, waited_s: of its vCPUs, together. memory: bytes that it has."""

    ran_s: float
    waited_s: float
    memory: int


def look(connection: Any, uuids: Iterable[str]) -> dict[str, Vm]:
    """Those of them that are there. Raises libvirtError."""
    there = []
    for uuid in uuids:
        with _unless_gone():
            there.append(connection.lookupByUUIDString(uuid))
    wanted = libvirt.VIR_DOMAIN_STATS_VCPU | libvirt.VIR_DOMAIN_STATS_BALLOON
    stats = connection.domainListGetStats(there, wanted, _NOWAIT) if there else []
    return {domain.UUIDString(): _vm(one) for domain, one in stats if "vcpu.maximum" in one}


def _vm(stats: Mapping[str, Any]) -> Vm:
    ran, waited = (sum(stats.get(f"vcpu.{number}.{what}", 0) for number in range(stats["vcpu.maximum"])) / 1e9
                   for what in ("time", "delay"))
    return Vm(ran, waited, min(stats.get(f"balloon.{one}", 1 << 62) for one in ("rss", "maximum")) * 1024)


@contextlib.contextmanager
def _unless_gone() -> Any:
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise


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


def place(connection: Any, uri: str) -> Place | None:
    """Another host; None: it is this one. Takes somewhat more than SAMPLE_SECONDS. Raises HostError, libvirtError."""
    other = domains.connect(uri, read_only=True)
    try:
        if _host(other) == _host(connection):
            return None
        idle, began = _idle_s(other), time.monotonic()
        time.sleep(SAMPLE_SECONDS)
        seconds = time.monotonic() - began
        memory = other.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        free = sum(memory.get(one, 0) for one in ("free", "buffers", "cached")) - memory["total"] * RESERVE
        return Place(uri, (_idle_s(other) - idle) / seconds, max(0, int(free)) * 1024)
    finally:
        other.close()


def _host(connection: Any) -> str:
    return str(read(connection.getCapabilities()).findtext("./host/uuid"))


def _idle_s(connection: Any) -> float:
    stats = connection.getCPUStats(libvirt.VIR_NODE_CPU_STATS_ALL_CPUS)
    return float(stats["idle"] + stats.get("iowait", 0)) / 1e9


# ---- the record

def moved_at(connection: Any, uuid: str) -> float | None:
    """When it was sent here, or was to be sent from here, in seconds since 1970; None: it was not. Raises libvirtError."""
    element = kept.element_of(connection.lookupByUUIDString(uuid), NAMESPACE, _LIVE)
    try:
        return None if element is None else float(element.get("at", "0"))
    except ValueError:
        return None


def note(connection: Any, uuid: str, at: float) -> bool:
    """It is about to be sent. Raises libvirtError."""
    kept.keep(connection.lookupByUUIDString(uuid), etree.Element("moved", {"at": f"{at:.0f}"}), PREFIX, NAMESPACE, _LIVE)
    return True
