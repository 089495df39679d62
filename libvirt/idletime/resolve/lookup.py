# SPDX-License-Identifier: GPL-2.0-or-later
"""What only libvirt knows of a source: its networks and its storage pools. Lookup is the question; domains.HostLookup asks
libvirt's API.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Protocol

from lxml import etree

from ..devices import endpoint_of
from ..facts import Source

_FILES = ("dir", "fs", "netfs", "vstorage")
_NETWORK = {"rbd": "rbd", "gluster": "gluster", "iscsi-direct": "iscsi", "sheepdog": "sheepdog"}
_PATH_BY_NAME = (*_FILES, "logical", "zfs")
"""Pools in which a volume's path is the target's path and its name; the others number their volumes."""


@dataclass(frozen=True)
class Network:
    """A virtual network. mode: of <forward>, "" is isolated. devices: that it is bound to, of the host."""

    mode: str
    bridge: str = ""
    devices: tuple[str, ...] = ()
    openvswitch: bool = False


class Lookup(Protocol):
    """Each returns None when it does not know, and never raises."""

    def volume(self, pool: str, volume: str) -> Source | None:
        """Source of a storage volume: a file, a block device, or network storage."""

    def network(self, name: str) -> Network | None:
        """A virtual network."""


def network_of(xml: str) -> Network | None:
    """The network in <network> or <networkstatus>; None if it is neither. Pure."""
    root = _element(xml, "network")
    if root is None:
        return None
    forward, bridge, port = root.find("forward"), root.find("bridge"), root.find("virtualport")
    devices: list[str] = []
    if forward is not None:
        devices = [one.get("dev", "") for one in (*forward.iterfind("interface"), *forward.iterfind("pf"), forward)]
    return Network("" if forward is None else forward.get("mode", "nat"),
                   "" if bridge is None else bridge.get("name", ""), tuple(dict.fromkeys(filter(None, devices))),
                   port is not None and port.get("type") == "openvswitch")


def volume_of(pool_xml: str, volume: str, path: str | None = None) -> Source | None:
    """The source of a volume, from its pool's XML and, where libvirt says it, its path; None if not known. Pure."""
    root = _element(pool_xml, "pool")
    if root is None:
        return None
    type_, source = root.get("type", ""), root.find("source")
    if type_ in _NETWORK and source is not None:
        pool = source.findtext("name") or ""
        return Source("disk", "network", posixpath.join(pool, volume), endpoint_of(_NETWORK[type_], source))
    target = root.findtext("./target/path")
    if path is None and target and type_ in _PATH_BY_NAME:
        path = posixpath.join(target, volume)
    return Source("disk", "file" if type_ in _FILES else "block", path) if path else None


def _element(xml: str, name: str) -> etree._Element | None:
    try:
        root = etree.fromstring(xml.encode())
    except etree.XMLSyntaxError:
        return None
    return root if root.tag == name else root.find(name)
