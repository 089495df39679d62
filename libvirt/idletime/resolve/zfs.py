# SPDX-License-Identifier: GPL-2.0-or-later
"""ZFS: the pool that a zvol is in, and a pool's disks. /sys knows neither; /dev/zvol and udev's database do."""

from __future__ import annotations

import posixpath
from typing import cast

from .tree import Tree

_ZVOLS = "/dev/zvol"
_UDEV = "/run/udev/data"
_CLASS = "/sys/class/block"
_MAX_DEPTH = 16


def pool_of(tree: Tree, device: str) -> str | None:
    """The pool of a zvol ("zd16"), by the links that udev makes: /dev/zvol/POOL/DATASET/..."""
    return next((pool for pool in tree.names(_ZVOLS) if _leads_to(tree, f"{_ZVOLS}/{pool}", device, 0)), None)


def _leads_to(tree: Tree, path: str, device: str, depth: int) -> bool:
    if posixpath.basename(tree.real(path)) == device:
        return True
    return depth < _MAX_DEPTH and any(_leads_to(tree, f"{path}/{name}", device, depth + 1) for name in tree.names(path))


def pools(tree: Tree) -> dict[str, list[str]]:
    """The devices of each pool that udev has seen. Read once."""
    if "zpools" not in tree.memory:
        found: dict[str, list[str]] = {}
        for name in tree.names(_CLASS):
            number = tree.text(f"{_CLASS}/{name}/dev")
            properties = _udev(tree, number) if number else {}
            if properties.get("ID_FS_TYPE") == "zfs_member" and properties.get("ID_FS_LABEL"):
                found.setdefault(properties["ID_FS_LABEL"], []).append(name)
        tree.memory["zpools"] = found
    return cast("dict[str, list[str]]", tree.memory["zpools"])


def members(tree: Tree, pool: str) -> list[str]:
    """The devices of a pool; none if udev does not know."""
    return pools(tree).get(pool, [])


def _udev(tree: Tree, number: str) -> dict[str, str]:
    lines = (tree.text(f"{_UDEV}/b{number}") or "").splitlines()
    return dict(line[2:].split("=", 1) for line in lines if line.startswith("E:") and "=" in line)
