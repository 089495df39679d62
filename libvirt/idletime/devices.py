# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks and interfaces in libvirt's XML: what they are, what they are called, what is behind them. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from .facts import DISK, INTERFACE, DeviceFacts, Source
from .police.enforce import Through
from .xmltree import Element, get

CHANNEL = "org.idletime.agent.0"

_VIRTIO_SCSI = ("virtio-scsi", "virtio-transitional", "virtio-non-transitional")

_NOT_BY_QEMU = {"vhostuser": Through.VHOST_USER, "vhostvdpa": Through.VDPA, "vdpa": Through.VDPA, "hostdev": Through.VFIO}

# Attribute of <source> that names it, by type of disk and of interface.
_DISK = {"file": "file", "block": "dev", "dir": "dir", "nvme": "namespace", "vhostuser": "path", "vhostvdpa": "dev"}
_INTERFACE = {"bridge": "bridge", "network": "network", "direct": "dev", "vdpa": "dev"}


def devices_of(root: Element, backup: Element | None = None) -> list[DeviceFacts]:
    """All disks and interfaces of a domain; CD-ROMs and floppies are left out. Aliases are known in live XML only.
    backup: the <domainbackup> that runs."""
    said = (root.findtext("vcpu") or "").strip()
    vcpus = int(said) if said.isascii() and said.isdecimal() and len(said) <= 6 else 1
    scsi = {one.get("index", "0"): one for one in root.findall("./devices/controller[@type='scsi']")}
    disks = [disk for disk in root.findall("./devices/disk") if disk.get("device", "disk") in ("disk", "lun")]
    return [_disk(disk, vcpus, scsi, backup) for disk in disks] + \
        [_interface(interface, number) for number, interface in enumerate(root.findall("./devices/interface"))]


def channel_of(root: Element) -> str:
    """Socket of the guest agent's channel in live XML; "" if there is none."""
    for channel in root.findall("./devices/channel"):
        if get(channel, "target", "name") == CHANNEL:
            return get(channel, "source", "path")
    return ""


def _queues(element: Element, default: int | None) -> int | None:
    """What the XML says; else QEMU gives a disk a queue for each processor, and an interface one pair."""
    said = get(element, "driver", "queues")
    return int(said) if said.isdecimal() else default


def _disk(element: Element, vcpus: int, scsi: Mapping[str, Element], backup: Element | None) -> DeviceFacts:
    target, alias = get(element, "target", "dev"), get(element, "alias", "name")
    bus = get(element, "target", "bus") or ("virtio" if target.startswith("vd") else "")
    controller = scsi.get(get(element, "address", "controller") or "0") if bus == "scsi" else None
    unserved = ""
    if element.get("type") in _NOT_BY_QEMU:
        unserved = f"its requests go through {_NOT_BY_QEMU[element.get('type', '')].value}, past QEMU"
    elif bus == "scsi":
        unserved = _unserved_scsi(controller)
    elif bus != "virtio":
        unserved = f"bus '{bus or 'of its target name'}' is not served, only 'virtio' and 'scsi' on virtio-scsi"
    return DeviceFacts(DISK, target, frozenset({target, alias} - {""}), alias, disk_source(element), unserved,
                       _queues(element if controller is None else controller, vcpus), _guest_names(element),
                       _through(element, unserved), _cached(element), tuple(_copies(element, target, backup)),
                       bus == "scsi" and element.get("device") == "lun")


def _copies(element: Element, target: str, backup: Element | None) -> Iterator[Source]:
    """A copy, and the base into which the uppermost image is committed, is the disk's mirror. The scratch file of a backup in
    pull mode is written for the guest's requests, not by the job."""
    mirror = element.find("mirror")
    if mirror is not None:
        yield disk_source(mirror)
    for one in [] if backup is None else backup.findall("./disks/disk"):
        if one.get("name") == target and one.find("target") is not None:
            type_ = one.get("type", "file")
            yield Source(DISK, type_, get(one, "target", _DISK.get(type_, "file")))


def _cached(element: Element) -> str:
    """Files and block devices alone pass the host's page cache, unless QEMU opens them with O_DIRECT."""
    mode = get(element, "driver", "cache") or "default"
    return mode if element.get("type") in ("file", "block", "volume") and mode not in ("none", "directsync") else ""


def _unserved_scsi(controller: Element | None) -> str:
    """Disks of virtio-scsi are served; libvirt writes the model of each controller into XML that runs."""
    model = "" if controller is None else controller.get("model", "")
    if model in _VIRTIO_SCSI:
        return ""
    return f"its SCSI controller is of model '{model or 'default'}', which is not served, only 'virtio-scsi'"


def _interface(element: Element, number: int) -> DeviceFacts:
    mac, alias = get(element, "mac", "address").lower(), get(element, "alias", "name")
    model = get(element, "model", "type")
    unserved = ""
    if element.get("type") in _NOT_BY_QEMU:
        unserved = f"its packets go through {_NOT_BY_QEMU[element.get('type', '')].value}, past QEMU"
    elif model not in ("virtio", "virtio-transitional", "virtio-non-transitional"):
        unserved = f"model '{model or 'default'}' is not served, only 'virtio'"
    names = frozenset({mac, alias, get(element, "target", "dev")} - {""})
    return DeviceFacts(INTERFACE, mac or f"net{number}", names, alias, interface_source(element), unserved,
                       _queues(element, 1), _guest_names(element), _through(element, unserved))


def _through(element: Element, unserved: str) -> Through:
    return _NOT_BY_QEMU.get(element.get("type", ""), Through.OTHER if unserved else Through.QEMU)


def _guest_names(element: Element) -> dict[str, str]:
    """By which a guest may know the device."""
    address = element.find("address[@type='pci']")
    names = {"target": get(element, "target", "dev"), "serial": (element.findtext("serial") or "")[:20],
             "mac": get(element, "mac", "address").lower(), "pci": "" if address is None else pci_address(address)}
    return {name: value for name, value in names.items() if value}


def pci_address(address: Element) -> str:
    """As lspci in the guest prints it; on a machine without unusual bridges libvirt's bus is the guest's."""
    domain, bus, slot, function = (_number(address.get(name, "0")) for name in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def _number(text: str) -> int:
    """As libvirt reads it: 0x15, or 025 in octal digits; what is none is 0."""
    with contextlib.suppress(ValueError):
        return int(text, 8 if text[:1] == "0" and text[1:].isdecimal() else 0)
    return 0


# ---- sources

def disk_source(element: Element) -> Source:
    """The source of a <disk>, a <mirror> or a <backingStore>, with what is below it where the XML says so."""
    type_, source = element.get("type", ""), element.find("source")
    driver = element.find("driver") if element.tag == "disk" else element.find("format")
    format_ = "" if driver is None else driver.get("type", "")
    if source is None:
        return Source(DISK, type_, format=format_)
    endpoint = endpoint_of(source.get("protocol", ""), source) if type_ == "network" else ""
    return Source(DISK, type_, _disk_name(type_, source), endpoint, format_, _backing(element))


def _disk_name(type_: str, source: Element) -> str:
    if type_ == "volume":
        return f"{source.get('pool', '')}/{source.get('volume', '')}"
    if type_ == "nvme":
        address = source.find("address")
        parts = (("domain", 4), ("bus", 2), ("slot", 2), ("function", 1))
        if address is None:
            return ""
        return "{}:{}:{}.{}".format(*(address.get(part, "0x0")[2:].rjust(width, "0") for part, width in parts))
    return str(source.get("name" if type_ == "network" else _DISK.get(type_, "file"), ""))


def _backing(element: Element) -> tuple[Source, ...]:
    backing = element.find("backingStore")
    if backing is None or backing.find("source") is None:
        return ()
    below = disk_source(backing)
    return (Source(below.device, below.type, below.name, below.endpoint, below.format), *below.backing)


def endpoint_of(protocol: str, source: Element) -> str:
    """protocol:host:port, hosts sorted, so that the order in which monitors are listed does not matter."""
    hosts = sorted(_host(host) for host in source.findall("host"))
    return ":".join([protocol, *hosts[:1]])


def _host(host: Element) -> str:
    if host.get("transport") == "unix":
        return f"unix:{host.get('socket', '')}"
    return ":".join(str(part) for part in (host.get("name"), host.get("port")) if part)


def interface_source(element: Element) -> Source:
    """The source of an <interface>."""
    type_, source = element.get("type", ""), element.find("source")
    if type_ == "network" and source is not None:
        return Source(INTERFACE, type_, source.get("network", ""), bridge=source.get("bridge", ""))
    if type_ == "bridge" and element.find("virtualport[@type='openvswitch']") is not None:
        return Source(INTERFACE, "openvswitch", "" if source is None else source.get("bridge", ""))
    if type_ == "ethernet":
        return Source(INTERFACE, type_, get(element, "target", "dev"))
    attribute = _INTERFACE.get(type_)
    return Source(INTERFACE, type_, source.get(attribute, "") if source is not None and attribute else "")
