# SPDX-License-Identifier: GPL-2.0-or-later
"""The backing file that a qcow2 image names. Two fields of its header; nothing else of the image is read."""

from __future__ import annotations

import os
import struct

from .tree import Tree

_HEADER = struct.Struct(">4sIQI")  # magic, version, offset and length of the backing file's name
_MAGIC = b"QFI\xfb"
_MAX_NAME = 1023  # QEMU's limit
MAX_CHAIN = 64


def backing_file(tree: Tree, path: str) -> str | None:
    """Absolute path of the backing file; None if there is none, or if it is no local file."""
    head = tree.head(path, _HEADER.size)
    if len(head) < _HEADER.size:
        return None
    magic, version, offset, length = _HEADER.unpack(head)
    if magic != _MAGIC or version not in (2, 3) or not 0 < length <= _MAX_NAME or not offset or offset > 1 << 62:
        return None
    name = tree.head(path, length, offset).decode("utf-8", "replace")
    if not name or name.startswith(("json:", "nbd:", "http:", "https:", "rbd:", "ssh:")) or "\0" in name:
        return None
    name = name.removeprefix("file:")
    return os.path.normpath(os.path.join(os.path.dirname(tree.real(path)), name))


def chain(tree: Tree, path: str) -> list[str]:
    """The files below an image, the nearest first."""
    found: list[str] = []
    while (below := backing_file(tree, path)) and below not in found and len(found) < MAX_CHAIN:
        found.append(below)
        path = below
    return found
