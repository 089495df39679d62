# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts of a domain's disks and interfaces, read from its XML. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..xmltext import Element
from .facts import Source
from .sources import disk_source, interface_source

USER_ALIAS = "ua-"
OURS = "ua-idletime-"

_NOT_BY_QEMU = {"vhostuser": "vhost-user", "vhostvdpa": "vhost-vdpa", "vdpa": "vhost-vdpa", "hostdev": "VFIO"}


@dataclass(frozen=True)
class DeviceFacts:
    """One disk or interface. unserved: why no idletime property reaches it, "" if one does.

    predicted: the alias that libvirt gives it at start if the XML names none ("" if that cannot be known).
    takes_default: whether QEMU's default for devices of its type (-global) reaches it, served or not.
    queues: how many it has (pairs, of an interface); None if that is not known.
    """

    kind: str
    element: Element
    target: str
    names: frozenset[str]
    alias: str
    predicted: str
    source: Source
    unserved: str = ""
    takes_default: bool = True
    queues: int | None = None

    @property
    def label(self) -> str:
        return f"{self.kind} target='{self.target}'"


def devices_of(root: Element) -> list[DeviceFacts]:
    """All disks and interfaces of a domain, or the one of a device's XML; CD-ROMs and floppies are left out."""
    disks = [root] if root.tag == "disk" else root.findall("./devices/disk")
    interfaces = [root] if root.tag == "interface" else root.findall("./devices/interface")
    vcpus = int(root.findtext("vcpu") or 1) if root.tag == "domain" else None
    return [_disk(disk, vcpus) for disk in disks if disk.get("device", "disk") in ("disk", "lun")] + \
        [_interface(interface, number) for number, interface in enumerate(interfaces)]


def get(element: Element, path: str, name: str) -> str:
    """An attribute of a child, "" if either is missing."""
    child = element.find(path)
    return "" if child is None else child.get(name, "")


def _alias(element: Element) -> str:
    return get(element, "alias", "name")


def disk_index(target: str) -> int | None:
    """vda is 0, vdz 25, vdaa 26: as libvirt numbers virtio disks."""
    match = re.fullmatch(r"(?:vd|sd|hd|xvd|ubd)([a-z]{1,5})", target)
    if not match:
        return None
    index = 0
    for letter in match.group(1):
        index = index * 26 + ord(letter) - ord("a") + 1
    return index - 1


def _queues(element: Element, default: int | None) -> int | None:
    """What the XML says; else QEMU gives a disk a queue for each processor, and an interface one pair."""
    said = get(element, "driver", "queues")
    return int(said) if said.isdecimal() else default


def _disk(element: Element, vcpus: int | None) -> DeviceFacts:
    target = get(element, "target", "dev")
    bus = get(element, "target", "bus") or ("virtio" if target.startswith("vd") else "")
    index, alias = disk_index(target), _alias(element)
    unserved = ""
    if element.get("type") in _NOT_BY_QEMU:
        unserved = f"its requests go through {_NOT_BY_QEMU[element.get('type', '')]}, past QEMU"
    elif bus != "virtio":
        unserved = f"bus '{bus or 'of its target name'}' is not served, only 'virtio'"
    return DeviceFacts("disk", element, target, frozenset({target, alias} - {""}), alias,
                       "" if index is None else f"virtio-disk{index}", disk_source(element), unserved, not unserved,
                       _queues(element, vcpus))


def _interface(element: Element, number: int) -> DeviceFacts:
    mac, alias, model = get(element, "mac", "address").lower(), _alias(element), get(element, "model", "type")
    unserved = ""
    if element.get("type") in _NOT_BY_QEMU:
        unserved = f"its packets go through {_NOT_BY_QEMU[element.get('type', '')]}, past QEMU"
    elif model not in ("virtio", "virtio-transitional", "virtio-non-transitional"):
        unserved = f"model '{model or 'default'}' is not served, only 'virtio'"
    names = frozenset({mac, alias, get(element, "target", "dev")} - {""})
    return DeviceFacts("interface", element, mac or f"net{number}", names, alias, f"net{number}",
                       interface_source(element), unserved,
                       model.startswith("virtio") and element.get("type") != "hostdev", _queues(element, 1))
