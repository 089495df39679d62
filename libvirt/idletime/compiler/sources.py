# SPDX-License-Identifier: GPL-2.0-or-later
"""What is behind a device, as its XML says. Pure."""

from __future__ import annotations

from ..xmltext import Element
from .facts import Source

# Attribute of <source> that names it, by type of disk and of interface.
_DISK = {"file": "file", "block": "dev", "dir": "dir", "nvme": "namespace", "vhostuser": "path", "vhostvdpa": "dev"}
_INTERFACE = {"bridge": "bridge", "network": "network", "direct": "dev", "vdpa": "dev"}


def disk_source(element: Element) -> Source:
    """The source of a <disk>, a <mirror> or a <backingStore>, with what is below it where the XML says so."""
    type_, source = element.get("type", ""), element.find("source")
    driver = element.find("driver") if element.tag == "disk" else element.find("format")
    format_ = "" if driver is None else driver.get("type", "")
    if source is None:
        return Source("disk", type_, format=format_)
    endpoint = endpoint_of(source.get("protocol", ""), source) if type_ == "network" else ""
    return Source("disk", type_, _disk_name(type_, source), endpoint, format_, _backing(element))


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
        return Source("interface", type_, source.get("network", ""), bridge=source.get("bridge", ""))
    if type_ == "bridge" and element.find("virtualport[@type='openvswitch']") is not None:
        return Source("interface", "openvswitch", "" if source is None else source.get("bridge", ""))
    if type_ == "ethernet":
        target = element.find("target")
        return Source("interface", type_, "" if target is None else target.get("dev", ""))
    attribute = _INTERFACE.get(type_)
    return Source("interface", type_, source.get(attribute, "") if source is not None and attribute else "")
