"""Facts about a folder of this host: its file system, what room there is, which block device is below it. Only reads."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""File systems without a disk."""

REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "9p", "virtiofs"})
"""File systems whose disk is another machine's; those of FUSE may be either."""

DISK_SECTOR_BYTES = 512
"""The unit of /sys/block/*/stat, whatever the disk's own is."""


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo, without what nobody asks for."""

    point: str
    kind: str
    source: str


def _unescape(word: str) -> str:
    """Blanks, tabs, line ends and backslashes are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


def _mounts(text: str) -> list[Mount]:
    """Fields by number: 4 is the mount point; behind the " - " come the type and the source."""
    result = []
    for line in text.splitlines():
        front, _, back = line.partition(" - ")
        kind, source = back.split(" ")[:2]
        result.append(Mount(_unescape(front.split(" ")[4]), kind, _unescape(source)))
    return result


def mount_of(folder: Path, mountinfo: str | None = None) -> Mount:
    """The mount that a folder is on: of those whose point is above it the longest, and of equals the last."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    place = folder.resolve()
    above = [mount for mount in _mounts(text) if place.is_relative_to(mount.point)]
    return max(enumerate(above), key=lambda pair: (len(pair[1].point), pair[0]))[1]


def _number(folder: Path, mount: Mount) -> str | None:
    """MAJOR:MINOR of the block device; btrfs and overlays have a number of their own (major 0), so the source is asked."""
    number = folder.stat().st_dev
    if os.major(number) == 0 and mount.source.startswith("/dev/"):
        try:
            number = os.stat(mount.source).st_rdev
        except OSError:
            return None
    return f"{os.major(number)}:{os.minor(number)}" if os.major(number) else None


def device_of(folder: Path, root: Path = Path("/")) -> Path | None:
    """The folder in /sys of the whole disk below (of a partition: its parent), or None where the kernel has none."""
    number = _number(folder, mount_of(folder))
    link = root / "sys/dev/block" / number if number else None
    if link is None or not link.exists():
        return None
    device = link.resolve()
    return device if (device / "queue").is_dir() else device.parent


def _word(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def describe(folder: Path) -> dict[str, Any]:
    """What a figure of this disk means nothing without; unknown is None. Names no folder and no serial number."""
    mount, device = mount_of(folder), device_of(folder)
    facts: dict[str, Any] = {"filesystem": mount.kind, "remote": mount.kind in REMOTE or mount.kind.startswith("fuse")}
    if device is None:
        return {**facts, "device": None, "drive": None, "rotational": None, "scheduler": None, "below": []}
    scheduler = _word(device / "queue/scheduler") or ""
    return {
        **facts, "device": device.name, "drive": _word(device / "device/model"),
        "rotational": {"1": True, "0": False}.get(_word(device / "queue/rotational") or ""),
        "scheduler": scheduler.partition("[")[2].partition("]")[0] or scheduler or None,
        "below": sorted(each.name for each in (device / "slaves").glob("*")),
    }


@dataclass(frozen=True)
class Count:
    """Requests that a block device has ended, since the host started."""

    reads: int
    writes: int


def count(device: Path | None) -> Count | None:
    """From /sys/block/NAME/stat: the first field is reads, the fifth writes."""
    text = _word(device / "stat") if device else None
    if text is None:
        return None
    fields = text.split()
    return Count(int(fields[0]), int(fields[4]))
