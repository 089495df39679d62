# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the files that facts.py knows, below one root. What cannot be read is None or empty, and no failure.

Bounded: at most MOST bytes of a file, and no file that is not a regular one. Context: any thread; nothing is kept open.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import PurePosixPath

from . import facts

MOST = 1 << 20
"""Bytes. /proc/stat of a host with 1,000 processors is 100 KB; /proc/diskstats with 1,000 disks 120 KB."""


class Look:
    """Facts of the host whose files are below root."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def text(self, path: str) -> str | None:
        """A file's text, of MOST bytes at most; None where there is none, or where it cannot be read."""
        if ".." in PurePosixPath(path).parts or "\0" in path:
            return None
        try:
            descriptor = os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return _all(descriptor).decode(errors="replace") if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        except OSError:
            return None  # a process that has just ended
        finally:
            os.close(descriptor)

    def cpus(self) -> facts.Cpus | None:
        return facts.cpus(self.text("/proc/stat") or "")

    def disks(self) -> dict[str, facts.Disk]:
        return facts.disks(self.text("/proc/diskstats") or "")

    def sent_packets(self, interface: str) -> int | None:
        """Packets that an interface has sent: what suspension counts of the network (004, 4.1: inbound is left out)."""
        return facts.number(self._of_interface(interface, "tx_packets"))

    def sent_bytes(self, interface: str) -> int | None:
        return facts.number(self._of_interface(interface, "tx_bytes"))

    def _of_interface(self, interface: str, name: str) -> str | None:
        return None if "/" in interface else self.text(f"/sys/class/net/{interface}/statistics/{name}")

    def pressure(self, resource: str = "memory", cgroup: str | None = None) -> dict[str, facts.Pressure]:
        """PSI of cpu, io or memory: the host's, or that of a cgroup of version 2. Empty where there is none."""
        where = f"/proc/pressure/{resource}" if cgroup is None else f"/sys/fs/cgroup{cgroup}/{resource}.pressure"
        return facts.pressure(self.text(where) or "")

    def meminfo(self) -> dict[str, int]:
        return facts.meminfo(self.text("/proc/meminfo") or "")

    def swapped(self, pid: int | None, cgroup: str | None = None) -> int:
        """Bytes in swap: of a cgroup of version 2, else of a process, whose shared memory is not in it."""
        of_group = facts.number(self.text(f"/sys/fs/cgroup{cgroup}/memory.swap.current")) if cgroup is not None else None
        if of_group is not None:
            return of_group
        return facts.meminfo(self.text(f"/proc/{pid}/status") or "").get("VmSwap", 0) if pid is not None else 0

    def unified(self) -> bool:
        """Whether the host has cgroup v2 alone."""
        return self.text("/sys/fs/cgroup/cgroup.controllers") is not None

    def group_of(self, pid: int) -> str | None:
        """The group of version 2 that libvirt made for a domain, below the root of all, by its QEMU's process. None where there
        is no such: a group that others share says nothing of the domain."""
        path = facts.cgroup(self.text(f"/proc/{pid}/cgroup") or "")
        own = re.sub(r"/libvirt/(emulator|vcpu[0-9]+|iothread[0-9]+)$", "", path)
        return own if self.unified() and own != path else None


def _all(descriptor: int) -> bytes:
    """Files of /proc may come in parts."""
    parts, left = [], MOST
    while left > 0 and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
