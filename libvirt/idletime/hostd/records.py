# SPDX-License-Identifier: GPL-2.0-or-later
"""Watches what libvirt writes down of its running domains, for changes of which no event tells.

An external snapshot, and a new source of a disk or interface (virsh update-device), are no events of libvirt's. But
libvirtd writes its record of a domain anew then: NAME.xml, replaced by rename. It does so for other reasons, too (a
migration, in which a domain should not be asked): so what is behind the devices is read and compared.
Context: the event loop; files are read in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path

from lxml import etree

from ..devices import devices_of

# linux/inotify.h
_MOVED_TO, _DELETE, _OVERFLOW = 0x80, 0x200, 0x4000
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name that follows
_READ_BYTES = 65536
_SUFFIX = ".xml"

log = logging.getLogger("idletimed")


def sources(file: Path) -> Hashable:
    """What is behind the devices of a domain, by libvirt's record of it; None where there is none that can be read."""
    try:
        domain = etree.parse(str(file), etree.XMLParser(resolve_entities=False, no_network=True)).find("./domain")
    except (OSError, etree.XMLSyntaxError):
        return None
    return None if domain is None else tuple((one.alias, one.source, one.copies) for one in devices_of(domain))


class Records:
    """Calls changed() with the name of a domain when something else is behind one of its devices. folder None: watches
    nothing."""

    def __init__(self, folder: str | None, changed: Callable[[str], None]) -> None:
        self._folder, self._changed = Path(folder or "/"), changed
        self._known: dict[str, Hashable] = {}
        self._names: set[str] = set()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._line = self._open() if folder else None
        self._task = asyncio.create_task(self._follow()) if self._line is not None else None

    def watch(self) -> None:
        """libvirtd is there: so is its folder, perhaps another one than before."""
        if self._line is None:
            return
        if _libc().inotify_add_watch(self._line, os.fsencode(self._folder), _MOVED_TO | _DELETE) < 0:
            log.warning("changes in %s are not seen (%s): a disk that goes on with an overlay is looked at every "
                        "resync-seconds", self._folder, os.strerror(ctypes.get_errno()))
        self._mark(self._all())

    def close(self) -> None:
        """Watch no more."""
        if self._line is not None:
            self._loop.remove_reader(self._line)
            os.close(self._line)
            self._line = None
        if self._task is not None:
            self._task.cancel()

    def _open(self) -> int | None:
        line = int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if line < 0:
            log.warning("no inotify (%s): external snapshots are seen every resync-seconds", os.strerror(ctypes.get_errno()))
            return None
        self._loop.add_reader(line, self._drain)
        return line

    def _all(self) -> Iterable[str]:
        with contextlib.suppress(OSError):
            return [name for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
        return ()

    def _mark(self, names: Iterable[str]) -> None:
        self._names.update(names)
        self._wake.set()

    def _drain(self) -> None:
        assert self._line is not None
        with contextlib.suppress(OSError):
            while data := os.read(self._line, _READ_BYTES):
                self._hear(data)

    def _hear(self, data: bytes) -> None:
        """That some were lost is a message, too."""
        found = list(_events(data))
        lost = any(mask & _OVERFLOW for mask, _ in found)
        self._mark(self._all() if lost else (name for _, name in found if name.endswith(_SUFFIX)))

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            names, self._names = self._names, set()
            for name in names:
                try:
                    self._compare(name, await asyncio.to_thread(sources, self._folder / name))
                except Exception:  # whatever it is, the next change is seen
                    log.exception("a fault of ours; going on")

    def _compare(self, file: str, found: Hashable) -> None:
        """A domain that is new, or gone, is an event of libvirt's."""
        before = self._known.pop(file, None)
        if found is None:
            return
        self._known[file] = found
        if before is not None and before != found:
            self._changed(file.removesuffix(_SUFFIX))


def _events(data: bytes) -> Iterator[tuple[int, str]]:
    """Mask and name of each event."""
    at = 0
    while at + _EVENT.size <= len(data):
        _, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield mask, os.fsdecode(data[at - length:at].split(b"\0")[0])


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
