# SPDX-License-Identifier: GPL-2.0-or-later
"""Limits of background VMs' devices while the foreground moves more than a rate (enforce='rate'), by libvirt's throttling.

Which devices have limits of ours is in the live XML (metadata urn:idletime:rate:1), written before the first limit and taken
out after the last: whoever is restarted lifts them. A device that has limits of its operator's is left alone, also where these
have taken the place of ours. Context: functions that take a connection, and Limits, run in a thread of hands; Rates is of the
event loop.
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
    """Devices with limits of ours, by name: target or tap. Whoever is not there any more has none."""
    element = live.find(f"./metadata/{{{NAMESPACE}}}limits")
    return frozenset() if element is None else _known(_keys(element), _devices_of(live))


@dataclass(frozen=True)
class _Target:
    """A device as libvirt names it for limits. key: in the record; a tap gets a new name by a migration, its address stays."""

    name: str
    is_tap: bool
    key: str


def _devices_of(live: Element) -> dict[str, _Target]:
    """By name."""
    found, macs = {}, set()
    for disk in live.iterfind("./devices/disk/target[@dev]"):
        name = disk.get("dev", "")
        found[name] = _Target(name, False, name)
    for interface in live.iterfind("./devices/interface"):
        target, mac = interface.find("./target[@dev]"), interface.find("./mac[@address]")
        if target is not None:
            name, address = target.get("dev", ""), "" if mac is None else mac.get("address", "")
            found[name] = _Target(name, True, address if address and address not in macs else name)
            macs.add(address)
    return found


def _known(keys: Iterable[str], there: Mapping[str, _Target]) -> frozenset[str]:
    """The names of recorded devices that are there; the record of an earlier version has taps by name, too."""
    return frozenset(name for name, one in there.items() if one.key in keys or name in keys)


def _keys(element: Element) -> frozenset[str]:
    return frozenset(element.get("devices", "").split())


def _recorded(domain: Any) -> frozenset[str]:
    element = kept.element_of(domain, NAMESPACE, _LIVE)
    return frozenset() if element is None else _keys(element)


def _record(domain: Any, keys: Iterable[str]) -> None:
    text = " ".join(sorted(keys))
    kept.keep(domain, etree.Element("limits", {"devices": text}) if text else None, PREFIX, NAMESPACE, _LIVE)


# ---- the act

@dataclass
class Limits:
    """What this process has set last, in libvirt's units, by run of a VM and key: what is in force instead is its operator's.
    Of limits of an earlier process that is not known; they are taken for ours. A VM is in one thread at a time."""

    _set: dict[tuple[str, int, str], int] = field(default_factory=dict)

    def apply(self, connection: Any, uuid: str, limits: Mapping[str, int]) -> None:
        """Give these devices these limits, in bytes a second, and lift those that others have from us. Raises libvirtError and
        OwnLimits when the rest is done."""
        try:
            own, refused = self.of_domain(connection.lookupByUUIDString(uuid), limits)
        except libvirt.libvirtError as error:
            if error.get_error_code() not in _GONE:
                raise
            return
        if refused is not None:
            raise refused
        if own:
            raise OwnLimits(f"{', '.join(sorted(own))}: has limits of its own, so it gets none of ours; remedy: take out "
                            "<iotune> or <bandwidth> (virsh blkdeviotune and domiftune, with 0), or write another enforce")

    def of_domain(self, domain: Any, limits: Mapping[str, int]) -> tuple[set[str], libvirt.libvirtError | None]:
        """Devices that have limits of their own, and what was refused first. One that refuses keeps none of the others from
        theirs; one that was unplugged is forgotten."""
        there = _devices_of(read(domain.XMLDesc(0)))
        recorded = _recorded(domain)
        before = {name for name in _known(recorded, there) if self._is_ours(domain, there[name])}
        meant = limits.keys() & there.keys()
        own = {name for name in meant - before if _limited(domain, there[name])}
        left, refused, said = meant - own, None, set(recorded)
        if not left <= before:
            said = {there[name].key for name in left | before}
            _record(domain, said)
        for name in sorted(left | before):
            try:
                self._limit(domain, there[name], limits.get(name, 0))
            except libvirt.libvirtError as error:
                if error.get_error_code() in _GONE:
                    raise
                left, refused = left | {name}, refused or error
        keys = {there[name].key for name in left}
        if keys != said:
            _record(domain, keys)
        return own, refused

    def _is_ours(self, domain: Any, one: _Target) -> bool:
        """Whether the limit of a recorded device is still what was set."""
        known = self._set.get((domain.UUIDString(), domain.ID(), one.key))
        try:
            return known is None or _in_force(domain, one).get(_OURS[one.is_tap]) == known
        except libvirt.libvirtError as error:
            if error.get_error_code() in _GONE:
                raise
            return True  # the act will be refused as well, and tried again

    def _limit(self, domain: Any, one: _Target, bytes_: int) -> None:
        """Of a disk in bytes a second; of a tap, what the guest sends, in KiB a second. 0 lifts."""
        value, place = bytes_, (domain.UUIDString(), domain.ID(), one.key)
        self._set.pop(place, None)  # a call that fails may have come through
        if one.is_tap:
            value = max(1, bytes_ // 1024) if bytes_ else 0
            domain.setInterfaceParameters(one.name, {_OURS[True]: value, "outbound.peak": 0, "outbound.burst": 0}, _LIVE)
        else:
            domain.setBlockIoTune(one.name, {_OURS[False]: value}, _LIVE)
        if value:
            self._set[place] = value


_OURS = {True: "outbound.average", False: "total_bytes_sec"}
"""The limit that we set: of a tap, of a disk."""


def _in_force(domain: Any, one: _Target) -> dict[str, Any]:
    found: dict[str, Any] = domain.interfaceParameters(one.name, _LIVE) if one.is_tap else domain.blockIoTune(one.name, _LIVE)
    return found


def _limited(domain: Any, one: _Target) -> bool:
    return any(value for key, value in _in_force(domain, one).items() if one.is_tap or key.endswith(("_sec", "_sec_max")))


def release(there: Iterable[Any], limits: Limits | None = None) -> tuple[list[str], list[str]]:
    """Lift all limits of ours on these domains: names, and what was not possible, in words."""
    done, problems, limits = [], [], limits or Limits()
    for domain in there:
        try:
            if _recorded(domain):
                _, refused = limits.of_domain(domain, {})
                if refused is not None:
                    raise refused
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
