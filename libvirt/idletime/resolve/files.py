# SPDX-License-Identifier: GPL-2.0-or-later
"""A file -> its mount -> the disks, or the server, below its filesystem."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from .tree import Tree

MOUNTINFO = "/proc/self/mountinfo"

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre")
_MEMORY = ("tmpfs", "ramfs", "hugetlbfs", "devtmpfs")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo. number: "8:1"."""

    number: str
    point: str
    type: str
    source: str
    options: str

    @property
    def in_memory(self) -> bool:
        return self.type in _MEMORY

    @property
    def server(self) -> str | None:
        """The server of a network filesystem, None if it is local."""
        if self.type not in _NETWORK:
            return None
        text = self.source.removeprefix("//")
        if self.type == "lustre":
            return text.split("@")[0]
        bracketed = re.match(r"(?:[^@/]*@)?\[([^\]]+)\]", text)
        return bracketed.group(1) if bracketed else re.split(r"[:/,]", text.rsplit("@", 1)[-1])[0]

    def option(self, name: str) -> str | None:
        """Value of a mount option, such as upperdir of an overlay."""
        for option in self.options.split(","):
            key, _, value = option.partition("=")
            if key == name:
                return value
        return None


def _unescape(text: str) -> str:
    """mountinfo writes space, tab, newline and backslash as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def mounts(tree: Tree) -> list[Mount]:
    """All mounts, in the order in which they were made; a line that is not understood is left out. Read once."""
    if MOUNTINFO not in tree.memory:
        tree.memory[MOUNTINFO] = _read_mounts(tree)
    return cast("list[Mount]", tree.memory[MOUNTINFO])


def _read_mounts(tree: Tree) -> list[Mount]:
    found = []
    for line in (tree.text(MOUNTINFO) or "").splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if separator and len(left) >= 6 and len(right) >= 2:
            found.append(Mount(left[2], _unescape(left[4]), right[0], _unescape(right[1]),
                               _unescape(right[2]) if len(right) > 2 else ""))
    return found


def mount_of(tree: Tree, path: str) -> Mount | None:
    """The mount that a file is on: the deepest one, of these the last."""
    real = tree.real(path)
    best: Mount | None = None
    for mount in mounts(tree):
        inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def btrfs_filesystems(tree: Tree) -> list[list[str]]:
    """The devices of each btrfs."""
    return [devices for uuid in tree.names("/sys/fs/btrfs") if
            (devices := tree.names(f"/sys/fs/btrfs/{uuid}/devices"))]


def bcachefs_devices(tree: Tree) -> list[list[str]]:
    """The device nodes of each bcachefs that is mounted: its source names them all."""
    return [mount.source.split(":") for mount in mounts(tree) if mount.type == "bcachefs"]
