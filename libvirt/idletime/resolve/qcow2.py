# SPDX-License-Identifier: GPL-2.0-or-later
"""The header of a qcow2 image: the backing file that it names, and what kind of image it is. Nothing else of it is read."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from .tree import Tree

_HEADER = struct.Struct(">4sIQI")  # magic, version, offset and length of the backing file's name
_MAGIC = b"QFI\xfb"
_MAX_NAME = 1023  # QEMU's limit
MAX_CHAIN = 64
_REST = struct.Struct(">IQIIQQIIQ")  # cluster bits, size, encryption, L1 (2), refcounts (2), snapshots (2)
_FEATURES = struct.Struct(">QQQII")  # incompatible, compatible, autoclear, bits of a refcount (2^n), length of the header
_EXTENSION = struct.Struct(">II")
_BACKING_FORMAT = 0xE2792ACA
_MOST_EXTENSIONS = 64

DIRTY, CORRUPT, DATA_FILE, COMPRESSION, EXTENDED_L2 = 1, 2, 4, 8, 16
LAZY_REFCOUNTS = 1


@dataclass(frozen=True)
class Image:
    """Of a qcow2 image's header. backing: as it stands there, "" is none. size: what the guest sees, bytes. zstd: so its
    clusters are compressed."""

    version: int
    size: int
    cluster: int
    backing: str = ""
    backing_format: str = ""
    refcount_bits: int = 16
    incompatible: int = 0
    compatible: int = 0
    encrypted: bool = False
    snapshots: int = 0
    zstd: bool = False


def image(read: Callable[[int, int], bytes]) -> Image | None:
    """The header. read: size and offset to bytes, fewer at the end. None: it is no qcow2 image that we understand."""
    head = read(112, 0)
    if len(head) < _HEADER.size + _REST.size:
        return None
    magic, version, offset, length = _HEADER.unpack_from(head)
    bits, size, encryption, _, _, _, _, snapshots, _ = _REST.unpack_from(head, _HEADER.size)
    if magic != _MAGIC or version not in (2, 3) or not 9 <= bits <= 21 or not 0 <= length <= _MAX_NAME or offset >= 1 << bits:
        return None
    incompatible, compatible, _, order, end = (0, 0, 0, 4, 72) if version == 2 else \
        _FEATURES.unpack_from(head.ljust(112, b"\0"), 72)
    if order > 6 or not 72 <= end <= 1 << bits:
        return None
    try:
        backing = read(length, offset).decode() if offset and length else ""
        format_ = _extension(read, end, 1 << bits).decode()
    except UnicodeDecodeError:
        return None
    if "\0" in backing + format_:
        return None
    zstd = bool(incompatible & COMPRESSION) and len(head) > 104 and head[104] == 1
    return Image(version, size, 1 << bits, backing, format_, 1 << order, incompatible, compatible, encryption != 0, snapshots,
                 zstd)


def _extension(read: Callable[[int, int], bytes], at: int, end: int) -> bytes:
    """The format of the backing file; empty if it is not said."""
    for _ in range(_MOST_EXTENSIONS):
        head = read(_EXTENSION.size, at)
        if at >= end or len(head) < _EXTENSION.size:
            break
        kind, length = _EXTENSION.unpack(head)
        if kind == 0:
            break
        if kind == _BACKING_FORMAT:
            return read(min(length, _MAX_NAME), at + _EXTENSION.size)
        at += _EXTENSION.size + (length + 7) // 8 * 8
    return b""


# ---- what lies below an image

def backing_file(tree: Tree, path: str) -> str | None:
    """Absolute path of the backing file; None if there is none, or if it is no local file."""
    found = image(lambda length, offset: tree.head(path, length, offset))
    if found is None or not found.backing or found.backing.startswith(("json:", "nbd:", "http:", "https:", "rbd:", "ssh:")):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(tree.real(path)), found.backing.removeprefix("file:")))


def chain(tree: Tree, path: str) -> list[str]:
    """The files below an image, the nearest first."""
    found: list[str] = []
    while (below := backing_file(tree, path)) and below not in found and len(found) < MAX_CHAIN:
        found.append(below)
        path = below
    return found
