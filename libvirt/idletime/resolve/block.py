# SPDX-License-Identifier: GPL-2.0-or-later
"""A block device -> the physical disks below it, and the resource that stands for them.

    partition   -> its disk                       dm (LVM, crypt), md, bcache -> what is in its slaves/
    loop        -> the file behind it, if it is visible from here; else itself
                                                  multipath -> itself: its slaves are paths to one disk
    zvol        -> the disks of its pool          rbd       -> its Ceph cluster
    nbd, ublk and others behind which the kernel shows nothing -> not resolved

A device joins one resource only. So disks that something stripes, mirrors or concatenates are *one* resource, and so are
the namespaces of one NVMe device: whatever uses any of them contends with whatever uses another. The group is named
after its first disk (group-sda), and is the same for every domain of the host, since it is read from the host and not
from the domain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from . import zfs
from .ceph import Clusters
from .files import bcachefs_devices, btrfs_filesystems
from .outcome import NoResource, Unresolved
from .tree import Tree

CLASS = "/sys/class/block"
_MAX_DEPTH = 16
_NAMESPACE = re.compile(r"nvme(\d+)n\d+")
_REMOTE = re.compile(r"/(?:session\d+|rport-[^/]+)/")  # iSCSI, Fibre Channel
_MEMORY = ("ram", "zram")


class Blocks:
    """The block devices of a host. file_disks: disks below a file (for loop devices)."""

    def __init__(self, tree: Tree, file_disks: Callable[[str], tuple[frozenset[str], tuple[str, ...]]]):
        self.tree = tree
        self._file_disks = file_disks
        self._groups: dict[str, frozenset[str]] | None = None
        self.clusters = Clusters(tree)

    def kernel_name(self, path: str) -> str | None:
        """Name in /sys/class/block of a device node, such as /dev/mapper/vg-lv; None if there is none."""
        number = self.tree.device_number(path)
        if number:
            return self.by_number(number)
        name = self.tree.real(path).removeprefix("/dev/").replace("/", "!")
        return name if self.tree.exists(f"{CLASS}/{name}") else None

    def by_number(self, number: str) -> str | None:
        """Name of the device "8:1"."""
        path = f"/sys/dev/block/{number}"
        return self.tree.real(path).rsplit("/", 1)[-1] if self.tree.exists(path) else None

    def disks(self, name: str, depth: int = 0) -> tuple[frozenset[str], tuple[str, ...]]:
        """The physical disks below a device, and how they were found. Raises Unresolved, NoResource."""
        below = self._below(name)
        if depth >= _MAX_DEPTH or not below:
            return self._bottom(name, depth)
        disks: frozenset[str] = frozenset()
        trail: tuple[str, ...] = (self.label(name),)
        for one in below:
            found, how = self.disks(one, depth + 1)
            disks |= found
            trail += how
        return disks, trail

    def _bottom(self, name: str, depth: int) -> tuple[frozenset[str], tuple[str, ...]]:
        file = self.tree.text(f"{CLASS}/{name}/loop/backing_file")
        if file and not self.tree.exists(file):
            return frozenset({name}), (self.label(name), "whose file is not visible from here")
        if file and depth < _MAX_DEPTH:
            disks, trail = self._file_disks(file)
            return disks, (self.label(name), *trail)
        real = self.tree.real(f"{CLASS}/{name}")
        if re.fullmatch(r"zd\d+", name):
            return self.pool_disks(zfs.pool_of(self.tree, name) or name, (self.label(name),))
        if re.fullmatch(r"rbd\d+", name):
            cluster = self.clusters.of_device(real)
            return frozenset({cluster}), (self.label(name), cluster)
        if name.rstrip("0123456789") in _MEMORY:
            raise NoResource(f"'/dev/{name}' is memory")
        if "/devices/virtual/block/" in real and not self._is_multipath(real):
            raise Unresolved(f"the kernel does not tell what is behind '/dev/{name}'")
        return frozenset({name}), (self.label(name),)

    def pool_disks(self, pool: str, trail: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
        """The disks of a ZFS pool; where udev does not know them, the pool stands for itself."""
        disks = frozenset().union(*(self.disks(one)[0] for one in zfs.members(self.tree, pool)))
        return disks or frozenset({f"zpool-{pool}"}), (*trail, f"zpool {pool}")

    def _below(self, name: str) -> list[str]:
        real = self.tree.real(f"{CLASS}/{name}")
        if self.tree.exists(f"{real}/partition"):
            return [real.rsplit("/", 2)[-2]]
        return [] if self._is_multipath(real) else self.tree.names(f"{real}/slaves")

    def _is_multipath(self, real: str) -> bool:
        return (self.tree.text(f"{real}/dm/uuid") or "").startswith("mpath-")

    def label(self, name: str) -> str:
        """The name that people know: vg-lv (dm-3)."""
        known = self.tree.text(f"{CLASS}/{name}/dm/name")
        return f"{known} ({name})" if known else name

    def way(self, name: str, depth: int = 0) -> list[str]:
        """A device and all that the kernel shows below it, paths to a multipath disk included. Never raises."""
        below = self._below(name) or self._paths(name)[1:]
        return [name, *(one for each in below if depth < _MAX_DEPTH for one in self.way(each, depth + 1))]

    # ---- groups

    def group(self, disks: Iterable[str]) -> frozenset[str]:
        """All disks that share a device, directly or over others, with any of these."""
        if self._groups is None:
            self._groups = self._all_groups()
        return frozenset().union(*(self._groups.get(disk, frozenset({disk})) for disk in disks))

    def _all_groups(self) -> dict[str, frozenset[str]]:
        groups: dict[str, frozenset[str]] = {}
        for members in self._spanned():
            try:
                disks = frozenset().union(*(self.disks(member)[0] for member in members))
            except (Unresolved, NoResource):
                continue  # whoever uses it is told
            if len(disks) > 1:
                self._join(groups, disks)
        return groups

    def _spanned(self) -> Iterator[list[str]]:
        """The devices that each thing on this host spans: devices in /sys, filesystems, pools, NVMe devices."""
        names = self.tree.names(CLASS)
        yield from ([name] for name in names if len(self._below(name)) > 1)
        yield from btrfs_filesystems(self.tree)
        yield from ([name for path in paths if (name := self.kernel_name(path))] for paths in
                    bcachefs_devices(self.tree))
        yield from zfs.pools(self.tree).values()
        controllers: dict[str, list[str]] = {}
        for name in names:
            if match := _NAMESPACE.fullmatch(name):
                controllers.setdefault(match.group(1), []).append(name)
        yield from controllers.values()

    @staticmethod
    def _join(groups: dict[str, frozenset[str]], disks: frozenset[str]) -> None:
        """Make one group of these disks and of all groups that they are in."""
        whole = disks.union(*(groups.get(disk, frozenset()) for disk in disks))
        for disk in whole:
            groups[disk] = whole

    def resource(self, disks: frozenset[str]) -> tuple[str, tuple[str, ...]]:
        """Name of the resource of these disks, and all disks that it stands for."""
        members = tuple(sorted(self.group(disks), key=natural))
        first = self.tree.text(f"{CLASS}/{members[0]}/dm/name") or members[0]
        return (f"group-{first}" if len(members) > 1 else first), members

    # ---- arrays

    def other_luns(self, disks: Iterable[str]) -> list[str]:
        """Where one of these disks is a LUN of a storage array: the host's other LUNs, which may be of the same array."""
        mine = {path for disk in disks for path in self._paths(disk)}
        if not any(map(self._is_remote, mine)):
            return []
        return [name for name in self.tree.names(CLASS) if name not in mine and self._is_remote(name) and
                not self.tree.exists(f"{self.tree.real(f'{CLASS}/{name}')}/partition")]

    def _paths(self, disk: str) -> list[str]:
        return [disk, *self.tree.names(f"{CLASS}/{disk}/slaves")]

    def _is_remote(self, disk: str) -> bool:
        return bool(_REMOTE.search(self.tree.real(f"{CLASS}/{disk}")))


def natural(name: str) -> tuple[int, str]:
    """sdb before sdaa."""
    return len(name), name
