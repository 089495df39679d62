# SPDX-License-Identifier: GPL-2.0-or-later
"""A Ceph cluster has one name, however it is reached: rbd in QEMU, rbd in the kernel, or CephFS.

The name is its fsid. A source that names monitors only is told by them: which cluster has which monitors is in the
configuration files and in what the kernel has mapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from .names import resource_name
from .outcome import Unresolved
from .tree import Tree

CONFIGURATION = "/etc/ceph"
_MAPPED = "/sys/bus/rbd/devices"
_HOSTS = ("mon_host", "mon_initial_members")
_FSID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def hosts_of(text: str) -> frozenset[str]:
    """Host names and addresses without ports: of "[v2:10.1.0.1:3300/0,v1:10.1.0.1:6789/0]", "mon1:6789", "[fd00::9]"."""
    plain = re.sub(r"\bv[12]:|:\d+/\d+|:\d+(?=[,\s]|$)", "", text)
    return frozenset(filter(None, re.split(r"[\s,\[\]]+", plain)))


class Clusters:
    """The clusters that a host knows."""

    def __init__(self, tree: Tree):
        self.tree = tree

    def name(self, text: str = "", fsid: str | None = None) -> str | None:
        """Resource of the cluster with this fsid, or with these monitors (text, as hosts_of() reads them); without
        either, of the only one that is configured. None if it is not known."""
        if fsid is None and text:
            mine = hosts_of(text)
            fsid = next((one for one, hosts in self._known().items() if hosts & mine), None)
        elif fsid is None and len(self._known()) == 1:
            fsid = next(iter(self._known()))
        return resource_name("ceph", fsid) if fsid else None

    def of_mount(self, source: str) -> str | None:
        """The same for a source of CephFS: "10.1.0.1:6789,10.1.0.2:6789:/", or "user@FSID.NAME=/"."""
        found = _FSID.search(source)
        return self.name(fsid=found.group()) if found else self.name(source.rpartition(":")[0])

    def of_device(self, real: str) -> str:
        """The same for a mapped image, by its directory /sys/devices/rbd/N/block/rbdN. Raises Unresolved."""
        device = real.split("/block/")[0]
        fsid = self.tree.text(f"{device}/cluster_fsid")
        name = self.name(fsid=fsid) if fsid else self.name(self._monitors(device))
        if name is None:
            raise Unresolved(f"which Ceph cluster '/dev/{real.rpartition('/')[2]}' is of is not known")
        return name

    def _monitors(self, device: str) -> str:
        return (self.tree.text(f"{device}/config_info") or "").partition(" ")[0]

    def _known(self) -> dict[str, frozenset[str]]:
        """fsid -> monitors. Read once."""
        if "ceph" not in self.tree.memory:
            self.tree.memory["ceph"] = _merged([*self._configured(), *self._mapped()])
        return cast("dict[str, frozenset[str]]", self.tree.memory["ceph"])

    def _configured(self) -> Iterable[tuple[str, frozenset[str]]]:
        for name in self.tree.names(CONFIGURATION):
            text = (self.tree.text(f"{CONFIGURATION}/{name}") or "") if name.endswith(".conf") else ""
            values = {key.strip().replace(" ", "_"): value.strip() for key, sign, value in
                      (line.partition("=") for line in text.splitlines()) if sign}
            if "fsid" in values:
                yield values["fsid"], frozenset().union(*(hosts_of(values.get(key, "")) for key in _HOSTS))

    def _mapped(self) -> Iterable[tuple[str, frozenset[str]]]:
        for number in self.tree.names(_MAPPED):
            fsid = self.tree.text(f"{_MAPPED}/{number}/cluster_fsid")
            if fsid:
                yield fsid, hosts_of(self._monitors(f"{_MAPPED}/{number}"))


def _merged(pairs: Iterable[tuple[str, frozenset[str]]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for fsid, hosts in pairs:
        found[fsid] = found.get(fsid, frozenset()) | hosts
    return found
