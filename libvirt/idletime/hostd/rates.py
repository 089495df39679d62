# SPDX-License-Identifier: GPL-2.0-or-later
"""Limits of background VMs' devices while the foreground moves more than a rate (enforce='rate'), by libvirt's throttling.

Which devices have limits of ours is in the live XML (metadata urn:idletime:rate:1), written before the first limit and taken
out after the last: whoever is restarted lifts them. A device that has limits of its operator's is left alone.
Context: functions that take a connection run in a thread of hands; Rates is of the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import libvirt
from lxml import etree

from ..police import windows
from ..police.windows import Reading, Thresholds, Window
from ..xmltree import Element, read
from . import kept
from .usage import Moved

NAMESPACE, PREFIX = "urn:idletime:rate:1", "idletimer"

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


class OwnLimits(ValueError):
    """Devices have limits that are not ours; the text says which, and the remedy."""


# ---- the record

def of_domain(live: Element) -> frozenset[str]:
    """Devices with limits of ours, by name: target or tap."""
    element = live.find(f"./metadata/{{{NAMESPACE}}}limits")
    return frozenset() if element is None else _names(element)


def _names(element: Element) -> frozenset[str]:
    return frozenset(element.get("devices", "").split())


def _recorded(domain: Any) -> frozenset[str]:
    element = kept.element_of(domain, NAMESPACE, _LIVE)
    return frozenset() if element is None else _names(element)


def _record(domain: Any, names: Iterable[str]) -> None:
    text = " ".join(sorted(names))
    kept.keep(domain, etree.Element("limits", {"devices": text}) if text else None, PREFIX, NAMESPACE, _LIVE)


# ---- the act

def apply(connection: Any, uuid: str, limits: Mapping[str, int]) -> None:
    """Give these devices these limits, in bytes a second, and lift those that others have from us. Raises libvirtError, and
    OwnLimits when the rest is done."""
    try:
        domain = connection.lookupByUUIDString(uuid)
        before = _recorded(domain)
        own = {name for name in limits.keys() - before if _limited(domain, name)}
        names = limits.keys() - own
        if names | before != before:
            _record(domain, names | before)
        for name in names | before:
            _limit(domain, name, limits.get(name, 0))
        if names != names | before:
            _record(domain, names)
    except libvirt.libvirtError as error:
        if error.get_error_code() not in _GONE:
            raise
        return
    if own:
        raise OwnLimits(f"{', '.join(sorted(own))}: has limits of its own, so it gets none of ours; remedy: take out <iotune> "
                        "or <bandwidth>, or write another enforce")


def _is_tap(domain: Any, name: str) -> bool:
    """Names of disks are in the XML, too; libvirt knows both by their target."""
    return bool(read(domain.XMLDesc(0)).xpath("./devices/interface/target[@dev=$name]", name=name))


def _limited(domain: Any, name: str) -> bool:
    if _is_tap(domain, name):
        return any(domain.interfaceParameters(name, _LIVE).values())
    return any(value for key, value in domain.blockIoTune(name, _LIVE).items() if key.endswith(("_sec", "_sec_max")))


def _limit(domain: Any, name: str, bytes_: int) -> None:
    """Of a disk in bytes a second; of a tap, what the guest sends, in KiB a second. 0 lifts."""
    if _is_tap(domain, name):
        average = max(1, bytes_ // 1024) if bytes_ else 0
        domain.setInterfaceParameters(name, {"outbound.average": average, "outbound.peak": 0, "outbound.burst": 0}, _LIVE)
    else:
        domain.setBlockIoTune(name, {"total_bytes_sec": bytes_}, _LIVE)


def release(connection: Any) -> tuple[list[str], list[str]]:
    """Lift all limits of ours on this host: names of domains, and what was not possible, in words. Raises libvirtError."""
    done, problems = [], []
    for domain in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        try:
            if _recorded(domain):
                apply(connection, domain.UUIDString(), {})
                done.append(domain.name())
        except libvirt.libvirtError as error:
            problems.append(f"domain '{domain.name()}': {error.get_error_message()}; remedy: try again, or virsh blkdeviotune "
                            "and virsh domiftune, with 0")
    return done, problems


# ---- who gets which

@dataclass
class _Device:
    window: Window = ()
    limits: Mapping[str, int] | None = None


@dataclass
class Rates:
    """The windows of all devices of the host that background VMs use."""

    thresholds: Thresholds
    _devices: dict[str, _Device] = field(default_factory=dict)

    def look(self, moved: Mapping[str, Moved], now: float,
             limited: Iterable[str]) -> tuple[dict[str, dict[str, int]], list[str]]:
        """One look: limits by VM and device, of VMs that are meant; and what has begun or ended, in words. A device of which
        nothing is known at this look keeps what it has, for as long as a window."""
        said = []
        meant = set(limited)
        self._devices = {key: one for key, one in self._devices.items() if one.window[-1].at_s > now - windows.SECONDS}
        for key, one in moved.items():
            device = self._devices.setdefault(key, _Device())
            device.window = windows.add(device.window, Reading(now, one.total, one.own))
            if not any(_split(name)[0] in meant for name in one.own):
                device.limits = None
                continue
            decision = windows.decide(device.limits, device.window, self.thresholds)
            device.limits = decision.limits
            if decision.why:
                how = "not limited any more" if decision.limits is None else "limited"
                said.append(f"{key}: background is {how}: {decision.why}")
        return {uuid: self._of(uuid) for uuid in meant}, said

    def _of(self, uuid: str) -> dict[str, int]:
        """The smallest of each device: a disk may be on several."""
        found: dict[str, int] = {}
        for device in self._devices.values():
            for name, limit in (device.limits or {}).items():
                whose, counted = _split(name)
                if whose == uuid:
                    found[counted] = min(limit, found.get(counted, limit))
        return found


def _split(name: str) -> tuple[str, str]:
    uuid, _, counted = name.partition(" ")
    return uuid, counted
