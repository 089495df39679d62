# SPDX-License-Identifier: GPL-2.0-or-later
"""A block device -> the physical disks below it, and the resource that stands for them.

    partition   -> its disk                       dm (LVM, crypt), md, bcache -> what is in its slaves/
    loop        -> the file behind it             multipath -> itself: its slaves are paths to one disk

A device joins one resource only. So disks that something stripes, mirrors or concatenates are *one* resource:
whatever uses any of them contends with whatever uses another. The group is named after its first disk
(group-sda), and is the same for every domain of the host, since it is read from the host and not from the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .tree import Tree

CLASS = "/sys/class/block"
_MAX_DEPTH = 16


class Blocks:
    """The block devices of a host. file_disks: disks below a file (for loop devices)."""

    def __init__(self, tree: Tree, file_disks: Callable[[str], tuple[frozenset[str], tuple[str, ...]]]):
        self.tree = tree
        self._file_disks = file_disks
        self._groups: dict[str, frozenset[str]] | None = None

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
        """The physical disks below a device, and how they were found."""
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
        if file and depth < _MAX_DEPTH:
            disks, trail = self._file_disks(file)
            return disks, (self.label(name), *trail)
        return frozenset({name}), (self.label(name),)

    def _below(self, name: str) -> list[str]:
        real = self.tree.real(f"{CLASS}/{name}")
        if self.tree.exists(f"{real}/partition"):
            return [real.rsplit("/", 2)[-2]]
        if (self.tree.text(f"{real}/dm/uuid") or "").startswith("mpath-"):
            return []
        return self.tree.names(f"{real}/slaves")

    def label(self, name: str) -> str:
        """The name that people know: vg-lv (dm-3)."""
        known = self.tree.text(f"{CLASS}/{name}/dm/name")
        return f"{known} ({name})" if known else name

    # ---- groups

    def group(self, disks: Iterable[str]) -> frozenset[str]:
        """All disks that share a device, directly or over others, with any of these."""
        if self._groups is None:
            self._groups = self._all_groups()
        return frozenset().union(*(self._groups.get(disk, frozenset({disk})) for disk in disks))

    def _all_groups(self) -> dict[str, frozenset[str]]:
        groups: dict[str, frozenset[str]] = {}
        for name in self.tree.names(CLASS):
            if len(self._below(name)) > 1:
                self.join(groups, self.disks(name)[0])
        return groups

    @staticmethod
    def join(groups: dict[str, frozenset[str]], disks: frozenset[str]) -> None:
        """Make one group of these disks and of all groups that they are in."""
        whole = disks.union(*(groups.get(disk, frozenset()) for disk in disks))
        for disk in whole:
            groups[disk] = whole

    def add_group(self, disks: frozenset[str]) -> None:
        """Make one group of disks that something joins which is no block device (btrfs)."""
        self.group(())
        assert self._groups is not None
        self.join(self._groups, disks)

    def resource(self, disks: frozenset[str]) -> tuple[str, tuple[str, ...]]:
        """Name of the resource of these disks, and all disks that it stands for."""
        members = tuple(sorted(self.group(disks), key=natural))
        first = self.tree.text(f"{CLASS}/{members[0]}/dm/name") or members[0]
        return (f"group-{first}" if len(members) > 1 else first), members


def natural(name: str) -> tuple[int, str]:
    """sdb before sdaa."""
    return len(name), name
