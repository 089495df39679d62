# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk source -> its resource."""

from __future__ import annotations

import contextlib
import re

from ..conf.resources import Identity, links_of
from ..facts import Resolution, Source
from .block import CLASS, Blocks
from .files import Mount, mount_of
from .lookup import Lookup
from .names import resource_name
from .outcome import NoResource, Unresolved
from .qcow2 import chain
from .tree import Tree

_FILESYSTEM = "find out which disks it is on"


class Disks:
    """Resolves disk sources on one host."""

    def __init__(self, tree: Tree, lookup: Lookup | None = None):
        self.tree = tree
        self.lookup = lookup
        self.blocks = Blocks(tree, self._file_disks)

    def resolve(self, source: Source) -> Resolution:
        """The resource behind a source. Raises Unresolved, NoResource."""
        if source.type == "volume":
            source = self._volume(source)
        if source.type == "network":
            return self._network(source)
        if source.type == "nvme":
            return Resolution(resource_name("nvme", source.name), (source.name,), (source.name,))
        if not source.name:
            raise Unresolved("it has no source", "give it one")
        top = self._local(source.name)
        return self._with_backing(source, top)

    def _volume(self, source: Source) -> Source:
        """What a volume is, with what the domain says of its format and of what is below."""
        pool, _, volume = source.name.partition("/")
        found = self.lookup.volume(pool, volume) if self.lookup else None
        if found is None:
            raise Unresolved(f"volume '{volume}' of pool '{pool}' is not known",
                             "start the pool, and run this with a connection to libvirt")
        return Source("disk", found.type, found.name, found.endpoint, source.format, source.backing)

    def identity(self, source: Source, found: Resolution) -> Identity:
        """By what an operator may name the resource of a source: found is what it comes to without."""
        pools = [source.name.partition("/")[0]] if source.type in ("volume", "network") else []
        with contextlib.suppress(Unresolved):
            source = self._volume(source) if source.type == "volume" else source
        if source.type == "network":
            return Identity(pool=(*pools, source.name.partition("/")[0]), host=(source.endpoint.partition(":")[2],))
        names = [name for name in found.devices if self.tree.exists(f"{CLASS}/{name}")]
        top = self._device(source.name) if source.name else None
        names = list(dict.fromkeys([*(self.blocks.way(top) if top else []), *names]))
        numbers = (self.tree.text(f"{CLASS}/{name}/dev") or "" for name in names)
        paths = (source.name, self.tree.real(source.name), *links_of(self.tree, names)) if source.name else ()
        return Identity(path=paths, device=tuple(numbers), pool=tuple(pools))

    def _device(self, path: str) -> str | None:
        """The block device that a path is, or that its filesystem is on."""
        name = self.blocks.kernel_name(path)
        mount = None if name else mount_of(self.tree, path)
        return name or (self.blocks.by_number(mount.number) if mount else None)

    # ---- local storage

    def _local(self, path: str) -> Resolution:
        """The resource of a file, a directory or a device node."""
        name = self.blocks.kernel_name(path)
        mount = None if name else mount_of(self.tree, path)
        if mount and mount.server:
            resource = self.blocks.clusters.of_mount(mount.source) if mount.type == "ceph" else None
            kind = "nfs" if mount.type.startswith("nfs") else mount.type
            return Resolution(resource or resource_name(kind, mount.server), (mount.server,),
                              (path, f"{mount.type} {mount.source}"))
        disks, trail = self.blocks.disks(name) if name else self._file_disks(path)
        resource, members = self.blocks.resource(disks)
        return Resolution(resource_name(resource), members, (path, *trail), notes=self._notes(path, resource, members))

    def _notes(self, path: str, resource: str, members: tuple[str, ...]) -> tuple[str, ...]:
        notes = []
        if len(members) > 1:
            notes.append(f"'{path}' joins '{resource}', which stands for {', '.join(members)}: something on this host "
                         "spans them, so they count as one")
        if members[0].startswith("zpool-"):
            notes.append(f"udev does not know the disks of '{members[0]}': what uses them past ZFS is not seen")
        luns = self.blocks.other_luns(members)
        if luns:
            notes.append(f"'{path}' is on a LUN of a storage array, as {', '.join(luns)} {'is' if len(luns) == 1 else 'are'}"
                         ": each is a resource of its own; if they are of one array, name one resource for them")
        return tuple(notes)

    def _file_disks(self, path: str, overlays: tuple[str, ...] = ()) -> tuple[frozenset[str], tuple[str, ...]]:
        """The disks below a file, through overlays. Raises Unresolved, NoResource."""
        mount = mount_of(self.tree, path)
        if mount is None:
            raise Unresolved(f"no mount of '{path}' is in /proc/self/mountinfo", "run this on the host of the domain")
        if mount.type == "overlay" and mount.option("upperdir"):
            if mount.point in overlays:  # a container's root names a folder of the host above it
                raise Unresolved(f"'{path}' is on an overlay whose upper folder is not visible from here", _FILESYSTEM)
            disks, trail = self._file_disks(mount.option("upperdir") or "", (*overlays, mount.point))
            return disks, (f"overlay on {mount.point}", *trail)
        if mount.type == "devtmpfs":
            raise Unresolved(f"there is no block device {path}", "correct the path, or bring the device up")
        if mount.in_memory:
            raise NoResource(f"'{path}' is in memory ({mount.type} on {mount.point})")
        return self._filesystem(path, mount)

    def _filesystem(self, path: str, mount: Mount) -> tuple[frozenset[str], tuple[str, ...]]:
        """A filesystem's disks: by its device number, or by its source, which may name several (bcachefs)."""
        here = f"{mount.type} on {mount.point}"
        if mount.type == "zfs":
            return self.blocks.pool_disks(mount.source.split("/")[0], (here,))
        names = [self.blocks.by_number(mount.number) or self.blocks.kernel_name(one) for one in mount.source.split(":")]
        if not any(names):
            raise Unresolved(f"'{path}' is on {here}, which does not name its disks", _FILESYSTEM)
        found = [self.blocks.disks(name) for name in names if name]
        return frozenset().union(*(disks for disks, _ in found)), (here, *found[0][1])

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
            except NoResource:
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
        trail = (f"{protocol} {source.name}".strip(), f"endpoint {host}") if host else (f"{protocol} {source.name}",)
        cluster = self.blocks.clusters.name(host) if protocol == "rbd" else None
        if cluster:
            return Resolution(cluster, (host or cluster,), trail)
        where = host or {"rbd": source.name.partition("/")[0]}.get(protocol, "")
        if not protocol or not where:
            raise Unresolved(f"network storage '{source.endpoint}' names no host", "give its <source> a <host>")
        name = resource_name(protocol, *re.sub(r"[\[\]]", "", where).split(":"))
        return Resolution(name, (where,), (f"{protocol} {source.name}".strip(), f"endpoint {where}"))
