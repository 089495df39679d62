"""A file on the operator's own disk, as what two machines share: read past every cache of this host, and gone with us.

The file has no name: it is made with O_TMPFILE, or loses its name before the first byte is written. So nothing has to be
removed: when the last process that has it open is gone, its room is free, whatever ended them. QEMU gets a descriptor.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Callable

from tests.testbed import place

CHUNK_BYTES = 4 << 20
"""Written at a time: random bytes, as a disk or a file system may compress, or keep equal blocks once."""

LEAST_BYTES = 64 << 20
"""Less is no test of a disk: drives keep as much in memory."""

KEPT_PERCENT, KEPT_BYTES = 5, 1 << 30
"""What stays free for others: 5 % of the file system, or 1 GiB where that is less."""

FDSET = 1
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class PlaceError(ValueError):
    """The folder or the size is not fit for it; the text says why, and what would be."""


def bytes_of(text: str) -> int:
    """4G, 500M or a number of bytes."""
    word = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = word[-1:] if word[-1:] in UNITS else ""
    number = word[: len(word) - len(unit)]
    if not number.isascii() or not number.isdigit():
        raise PlaceError(f"SIZE={text}: use a number with K, M, G or T, such as 4G")
    return int(number) * UNITS[unit]


def words_of(size: int) -> str:
    """The same for people: 4 GiB, 1.5 GiB, 500 MiB."""
    unit = next(unit for unit in ("T", "G", "M", "K", "") if size >= UNITS[unit] or not unit)
    return f"{size / UNITS[unit]:.3g} {unit}iB" if unit else f"{size} bytes"


def room(folder: Path) -> int:
    """Bytes that a file there may take."""
    system = os.statvfs(folder)
    kept = min(KEPT_BYTES, system.f_blocks * system.f_frsize * KEPT_PERCENT // 100)
    return max(0, system.f_bavail * system.f_frsize - kept)


def check_folder(folder: Path) -> None:
    """Refuse what is no folder on a disk."""
    if not folder.is_dir():
        raise PlaceError(f"DISK={folder}: no folder; name one on the disk that the VMs' images are on")
    kind = place.mount_of(folder).kind
    if kind in place.MEMORY:
        raise PlaceError(f"DISK={folder}: is on {kind}, which is memory and no disk; name a folder on the disk that the VMs' images are on")


def check_size(folder: Path, size: int) -> None:
    """Refuse a size that is no test, or that would leave too little to others."""
    free = room(folder)
    if free < LEAST_BYTES:
        raise PlaceError(f"DISK={folder}: has {words_of(free)} to spare, the least file is {words_of(LEAST_BYTES)}; free some room, or name another folder")
    if size < LEAST_BYTES:
        raise PlaceError(f"SIZE={words_of(size)}: too small, drives keep as much in memory; use {words_of(LEAST_BYTES)} or more")
    if size > free:
        raise PlaceError(f"SIZE={words_of(size)}: more than the {words_of(free)} that {folder} has to spare; use less, or free some room")


def _nameless(folder: Path) -> int:
    """A descriptor of a new file without a name; file systems without O_TMPFILE give one whose name is gone."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise PlaceError(f"DISK={folder}: no file can be made there: {error.strerror}") from error
    plain, name = tempfile.mkstemp(prefix=".idletime-demo-", dir=folder)
    try:
        return os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        raise PlaceError(f"DISK={folder}: its file system has no direct I/O ({error.strerror}), so the host's memory would be measured; "
                         "name a folder on another one") from error
    finally:
        os.unlink(name)
        os.close(plain)


def _fill(file: int, size: int, told: Callable[[int], None]) -> None:
    """Write `size` bytes of data past the page cache; direct I/O wants memory of whole pages."""
    with mmap.mmap(-1, CHUNK_BYTES) as memory:
        for done in range(0, size, CHUNK_BYTES):
            memory[:] = os.urandom(CHUNK_BYTES)
            _write(file, memory, done)
            told(min(size, done + CHUNK_BYTES))
    os.fsync(file)


def _write(file: int, memory: mmap.mmap, offset: int) -> None:
    try:
        written = os.pwrite(file, memory, offset)
    except OSError as error:
        raise PlaceError(f"after {words_of(offset)} the file could not be written any more: {error.strerror}; use a smaller SIZE") from error
    if written != len(memory):
        raise PlaceError(f"after {words_of(offset + written)} the disk was full; use a smaller SIZE")


@dataclass
class OwnFile:
    """A context manager: enter makes and fills the file, leave gives it up. Machines read it, and cannot write it."""

    folder: Path
    size: int
    told: Callable[[int], None] = lambda done: None
    """Is told the bytes that are written."""
    fds: tuple[int, ...] = field(init=False, default=())
    """What a machine's process inherits."""

    def __enter__(self) -> OwnFile:
        check_folder(self.folder)
        self.size -= self.size % CHUNK_BYTES
        check_size(self.folder, self.size)
        self._device = place.device_of(self.folder)
        writable = _nameless(self.folder)
        try:
            _fill(writable, self.size, self.told)
            # A read-only descriptor of the same file, which has no name to open it by.
            self.fds = (os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC),)
        finally:
            os.close(writable)
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for each in self.fds:
            os.close(each)
        self.fds = ()

    def options(self, node: str, client: str) -> list[str]:
        """QEMU's options for a block node: direct I/O, and no lock, as two machines have the file open."""
        return ["-add-fd", f"fd={self.fds[0]},set={FDSET}",
                "-blockdev", f"driver=file,node-name={node},filename=/dev/fdset/{FDSET},aio=native,cache.direct=on,locking=off,read-only=on"]

    def parameters(self) -> dict[str, Any]:
        """For reports."""
        return {"model": "own", "size": str(self.size), **place.describe(self.folder)}

    def mark(self) -> place.Count | None:
        """What the block device has done so far, of all its users."""
        return place.count(self._device)

    def account(self, mark: place.Count | None) -> dict[str, Any]:
        """Requests of all users since mark(): what is more than the guests' own is the load of others."""
        now = self.mark()
        if mark is None or now is None:
            return {"device_reads": None, "device_writes": None}
        return {"device_reads": now.reads - mark.reads, "device_writes": now.writes - mark.writes}
