# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel counts of a device of this host, whoever uses it: facts. Reads /sys below one root."""

from __future__ import annotations

from dataclasses import dataclass

from ..facts import DISK
from ..resolve import block, net
from ..resolve.tree import Tree


@dataclass(frozen=True)
class Counted:
    """Since boot. busy_ms: time with requests in service; the kernel counts a jiffy where there was a moment, so it is too
    long. service_ms: sum of the requests' times. sent_bytes: of an interface."""

    busy_ms: int = 0
    service_ms: int = 0
    sent_bytes: int = 0


def read(tree: Tree, kind: str, device: str) -> Counted | None:
    """None: the kernel does not know the device."""
    name = device.removeprefix("/dev/")
    if not name:
        return None
    try:
        if kind != DISK:
            return Counted(sent_bytes=int(tree.text(f"{net.CLASS}/{name}/statistics/tx_bytes") or ""))
        fields = [int(one) for one in (tree.text(f"{block.CLASS}/{name}/stat") or "").split()]
        # Documentation/block/stat.rst: read, write, discard (Linux 4.18) and flush (5.5) ticks are fields 3, 7, 14, 16
        return Counted(fields[9], sum(fields[each] for each in (3, 7, 14, 16) if each < len(fields)))
    except (ValueError, IndexError):
        return None


def rate_bps(tree: Tree, device: str) -> int | None:
    """What an interface says of its speed; None where it says nothing (a bridge, a virtual one, no link)."""
    try:
        mbit = int(tree.text(f"{net.CLASS}/{device}/speed") or "")
    except ValueError:
        return None
    return mbit * 1_000_000 if mbit > 0 else None
