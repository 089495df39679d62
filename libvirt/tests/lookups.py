# SPDX-License-Identifier: GPL-2.0-or-later
"""What libvirt would say of the networks and pools of a fixture host: their XML lies where libvirtd keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from idletime.facts import Source
from idletime.resolve.lookup import Network, network_of, volume_of
from idletime.resolve.tree import Tree

NETWORKS = ("/run/libvirt/network", "/etc/libvirt/qemu/networks")
POOLS = ("/run/libvirt/storage", "/etc/libvirt/storage")


@dataclass(frozen=True)
class LibvirtFiles:
    """resolve.Lookup on a tree."""

    tree: Tree

    def volume(self, pool: str, volume: str) -> Source | None:
        return next((found for xml in self._texts(POOLS, pool) if (found := volume_of(xml, volume))), None)

    def network(self, name: str) -> Network | None:
        return next((found for xml in self._texts(NETWORKS, name) if (found := network_of(xml))), None)

    def _texts(self, folders: tuple[str, ...], name: str) -> Iterator[str]:
        for folder in folders:
            text = self.tree.text(f"{folder}/{name}.xml") if name and "/" not in name else None
            if text:
                yield text
