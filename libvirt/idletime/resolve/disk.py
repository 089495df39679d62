# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk source -> its resource."""

from __future__ import annotations

import re
from typing import Protocol

from ..compiler.facts import Resolution, Source
from .block import Blocks
from .files import Mount, btrfs_devices, mount_of
from .names import resource_name
from .qcow2 import chain
from .tree import Tree

_NOTHING: frozenset[str] = frozenset()
_NAME_IT = "find out which disk it is"


class Lookup(Protocol):
    """What only libvirt knows. Each returns None when it does not know, and never raises."""

    def volume(self, pool: str, volume: str) -> str | None:
        """Path of a storage volume."""

    def bridge(self, network: str) -> str | None:
        """Bridge or device that a virtual network uses."""


class Unresolved(Exception):
    """Why there is no resource, and what to do."""

    def __init__(self, problem: str, remedy: str = _NAME_IT):
        self.problem, self.remedy = problem, remedy
        super().__init__(problem)


class Disks:
    """Resolves disk sources on one host."""

    def __init__(self, tree: Tree, lookup: Lookup | None = None):
        self.tree = tree
        self.lookup = lookup
        self.blocks = Blocks(tree, self._file_disks)

    def resolve(self, source: Source) -> Resolution:
        """The resource behind a source. Raises Unresolved."""
        if source.type == "network":
            return self._network(source)
        if source.type == "nvme":
            return Resolution(resource_name("nvme", source.name), (source.name,), (source.name,))
        top = self._local(self._path(source))
        return self._with_backing(source, top)

    def _path(self, source: Source) -> str:
        if source.type == "volume":
            pool, _, volume = source.name.partition("/")
            path = self.lookup.volume(pool, volume) if self.lookup else None
            if not path:
                raise Unresolved(f"volume '{volume}' of pool '{pool}' has no known path",
                                 "start the pool, and run this with a connection to libvirt")
            return path
        if not source.name:
            raise Unresolved("it has no source", "give it one")
        return source.name

    # ---- local storage

    def _local(self, path: str) -> Resolution:
        """The resource of a file, a directory or a device node."""
        name = self.blocks.kernel_name(path)
        mount = None if name else mount_of(self.tree, path)
        if mount and mount.server:
            return Resolution(resource_name("nfs" if mount.type.startswith("nfs") else mount.type, mount.server),
                              (mount.server,), (path, f"{mount.type} {mount.source}"))
        disks, trail = self.blocks.disks(name) if name else self._file_disks(path)
        if not disks:
            raise Unresolved(f"'{path}' is on no known disk: {trail[-1]}")
        resource, members = self.blocks.resource(disks)
        return Resolution(resource_name(resource), members, (path, *trail), notes=_spanning(path, resource, members))

    def _file_disks(self, path: str, overlays: tuple[str, ...] = ()) -> tuple[frozenset[str], tuple[str, ...]]:
        """The disks below a file, through overlays; none with a reason in the trail."""
        mount = mount_of(self.tree, path)
        if mount is None:
            return _NOTHING, (f"no mount of '{path}' in /proc/self/mountinfo",)
        if mount.type == "overlay" and mount.option("upperdir"):
            if mount.point in overlays:  # a container's root names a folder of the host above it
                return _NOTHING, ("its upper folder is not visible from here",)
            disks, trail = self._file_disks(mount.option("upperdir") or "", (*overlays, mount.point))
            return disks, (f"overlay on {mount.point}", *trail)
        if mount.type == "devtmpfs":
            return _NOTHING, (f"there is no block device {path}",)
        if mount.in_memory:
            return _NOTHING, (f"{mount.type} on {mount.point} is memory",)
        name = self.blocks.by_number(mount.number) or self.blocks.kernel_name(mount.source)
        if name is None:
            return _NOTHING, (f"{mount.type} on {mount.point} does not name its disks",)
        return self._filesystem(mount, name)

    def _filesystem(self, mount: Mount, name: str) -> tuple[frozenset[str], tuple[str, ...]]:
        disks, trail = self.blocks.disks(name)
        members = btrfs_devices(self.tree, name) if mount.type == "btrfs" else []
        for member in members:
            disks |= self.blocks.disks(member)[0]
        if len(disks) > 1 and members:
            self.blocks.add_group(disks)
        return disks, (f"{mount.type} on {mount.point}", *trail)

    # ---- what lies below an image

    def _with_backing(self, source: Source, top: Resolution) -> Resolution:
        """A device joins one resource: that of the image that is written. Others below it are named."""
        others = {}
        for path in self._below(source, top):
            try:
                below = self._local(path)
            except Unresolved as error:
                others[path] = f"not resolved: {error.problem}"
                continue
            if below.name != top.name:
                others[path] = f"on resource '{below.name}'"
        notes = tuple(f"backing file '{path}' is {where}: its reads are not seen there, the disk joins "
                      f"'{top.name}' only" for path, where in others.items())
        return Resolution(top.name, top.devices, top.trail, notes=top.notes + notes)

    def _below(self, source: Source, top: Resolution) -> list[str]:
        if source.backing:
            return [below.name for below in source.backing if below.type in ("file", "block") and below.name]
        return chain(self.tree, top.trail[0]) if source.format in ("qcow2", "") else []

    # ---- network storage

    def _network(self, source: Source) -> Resolution:
        protocol, _, host = source.endpoint.partition(":")
        where = host or {"rbd": source.name.partition("/")[0]}.get(protocol, "")
        if not protocol or not where:
            raise Unresolved(f"network storage '{source.endpoint}' names no host", "give its <source> a <host>")
        name = resource_name(protocol, *re.sub(r"[\[\]]", "", where).split(":"))
        return Resolution(name, (where,), (f"{protocol} {source.name}".strip(), f"endpoint {where}"))


def _spanning(path: str, resource: str, members: tuple[str, ...]) -> tuple[str, ...]:
    if len(members) == 1:
        return ()
    return (f"'{path}' joins '{resource}', which stands for {', '.join(members)}: something on this host spans them, "
            f"so they count as one",)
