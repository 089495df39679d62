# SPDX-License-Identifier: GPL-2.0-or-later
"""What the boards of an arena and its observer show of the foreground: facts. Reads only; idletime/arena/arena.h and
observed.h have the layout.

A ring is read while others write it. Its entries are sorted by their times; what was overwritten meanwhile shortens what is
known, and is no error.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import arena

RING = 256
_RING = struct.Struct(f"={RING}Q")
_LABEL = 64
_OBSERVED = struct.Struct("=QII")  # magic, version, kind
_COUNTS = struct.Struct("=IIqQQQq")  # in_service, all_in_service, last_ns, started, bytes, ring_head, service_ns
_MAGIC, _VERSION, _BYTES, _LINE, _HISTORY = 0x6465767265736269, 1, 4096, 128, 256
_CREDENTIALS = struct.Struct("=iII")
SOCKET = "observer"
ANSWER_SECONDS = 1.0


@dataclass(frozen=True)
class Source:
    """One writer of foreground. key: the same at the next look. moves: (time in ns, whether it became busy), sorted. whole:
    these are all since it began to count. busy: has requests in service now. service_ns: sum of its requests' times in
    service."""

    key: str
    started: int
    bytes: int
    busy: bool
    moves: tuple[tuple[int, bool], ...]
    whole: bool
    service_ns: int = 0


@dataclass(frozen=True)
class Boards:
    """foreground: slots. background: requests that background participants have ever started, and how many there are."""

    foreground: tuple[Source, ...] = ()
    background_started: int = 0
    background: int = 0


def moves_of(ring: Sequence[int]) -> tuple[tuple[int, bool], ...]:
    """Transitions in order; empty places are none. Pure."""
    return tuple((entry >> 1, bool(entry & 1)) for entry in sorted(entry for entry in ring if entry))


def read(path: str) -> Boards:
    """Both boards. Raises arena.ArenaError."""
    found = [_slot(*one) for one in arena.foreground_lines(path)]
    background = arena.read_background(path)
    return Boards(tuple(found), sum(one.requests for one in background), len(background))


def _slot(index: int, line: arena.Line, page: bytes) -> Source:
    ring = _RING.unpack_from(page, _LABEL) if len(page) >= _LABEL + _RING.size else ()
    return Source(f"slot {index} of {line.pid}", line.started, line.bytes, bool(line.in_service), moves_of(ring),
                  line.ring_head <= RING, line.request_ns)


# ---- the observer

@dataclass
class Observer:
    """The page of one arena's observer, mapped as long as it lives; then a new one can be found."""

    path: str
    _line: socket.socket | None = None
    _page: mmap.mmap | None = None
    _number: int = 0

    def look(self, now_ns: int) -> Source | None:
        """None: there is none. Waits as find() does."""
        self.find()
        page = self._content()
        return None if page is None else observed(page, now_ns, self._number)

    def since(self, heads: Mapping[int, int]) -> arena.Transitions | None:
        """What happened since an earlier look at the one that was found, as arena.moment() tells it of a slot; each observer
        has a number of its own below zero. None: there is none, or it has ended. Does not wait."""
        page = self._content()
        return None if page is None else transitions(page, -self._number, heads)

    def find(self) -> None:
        """Connect to one, unless one lives that was found. Waits ANSWER_SECONDS twice at most."""
        if self._content() is None:
            with contextlib.suppress(OSError, ValueError):
                self._connect()

    def _content(self) -> bytes | None:
        if self._line is not None and self._has_ended():
            self.close()
        return None if self._page is None else bytes(self._page)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._page is not None:
            self._page.close()
        self._line = self._page = None

    def _has_ended(self) -> bool:
        try:
            return self._line is not None and self._line.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _connect(self) -> None:
        """Raises OSError."""
        name = os.path.join(arena.place(self.path), SOCKET)
        if not os.path.lexists(name):
            return
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        descriptors: list[int] = []
        try:
            line.settimeout(ANSWER_SECONDS)
            line.connect(name)
            if _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1] not in (
                    0, os.geteuid()):
                raise PermissionError(f"{name} is not root's")
            _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
            if not descriptors:
                raise OSError(f"{name} sends no page")
            page = mmap.mmap(descriptors[0], _BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
            if _OBSERVED.unpack_from(page)[:2] != (_MAGIC, _VERSION):
                raise OSError(f"{name} sends a page of another version")
            line.setblocking(False)
        except BaseException:
            line.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._line, self._page, self._number = line, page, self._number + 1


def observed(page: bytes, now_ns: int, number: int = 1) -> Source:
    """What a page shows; number: of the connection. Pure."""
    in_service, _, _, started, bytes_, head, service_ns = _COUNTS.unpack_from(page, _LINE)
    in_service = in_service if in_service < 1 << 31 else 0  # below zero for a moment: its writers are many
    return Source(f"observer {number}", started, bytes_, in_service > 0, moves_of(_RING.unpack_from(page, _HISTORY)),
                  head <= RING, service_ns + in_service * now_ns)


def transitions(page: bytes, number: int, heads: Mapping[int, int]) -> arena.Transitions:
    """What its ring has since an earlier look, as of a slot of that number. Its writers are many, so they are sorted; they
    raise the head before they write, so the newest entry is told again at the next look. Pure."""
    in_service, _, _, _, _, head, _ = _COUNTS.unpack_from(page, _LINE)
    ring = _RING.unpack_from(page, _HISTORY)
    before = heads.get(number, 0)
    first = max(max(before - 1, 0) if before <= head else 0, head - RING)
    new = moves_of([ring[at % RING] for at in range(first, head)])
    return arena.Transitions(number, in_service if in_service < 1 << 31 else 0, head, first, new)
