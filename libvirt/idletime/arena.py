# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads an arena: who is on the boards of a resource, now. Reads only; no slot is claimed.

The layout is that of idletime/arena/arena.h, ABI 2; another version is said, not guessed. A value that makes no
sense is a value of a damaged board: it is shown, it hurts nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

ABI = 2
MAGIC = 0x656D6974656C6469
_HEADER = struct.Struct("=QIIIIQQ")  # magic, abi, kind, slots, slots_high, size, clock
_FOREGROUND = struct.Struct("=IIqQQQ")  # in_service, pid, last_ns, started, bytes, ring_head
_BACKGROUND = struct.Struct("=IIIIQqQqI")  # waiting, wake, weight, in_service, vtime, interval, started, due, pid
_PAGE, _LINE, _SLOTS, _LABEL = 4096, 64, 1024, 64
_FLOCK = struct.Struct("@hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid
_OFD_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)


class ArenaError(Exception):
    """The arena cannot be read; the text says which file and why."""


@dataclass(frozen=True)
class Foreground:
    """A foreground participant. idle_us: since its last event; None while it is in service."""

    label: str
    pid: int
    in_service: int
    idle_us: int | None
    requests: int


@dataclass(frozen=True)
class Background:
    """A background participant. waiting: it holds requests and wants to start one."""

    pid: int
    waiting: bool
    in_service: int
    weight: int
    requests: int


@dataclass(frozen=True)
class Arena:
    """A look at both boards."""

    foreground: tuple[Foreground, ...]
    background: tuple[Background, ...]

    def interval_left_us(self, interval_us: int) -> int | None:
        """Until the preemption interval ends; 0 when it has, None while foreground is in service."""
        if any(one.in_service for one in self.foreground):
            return None
        return max([0, *(interval_us - (one.idle_us or 0) for one in self.foreground)])


def read(path: str, now_ns: int | None = None) -> Arena:
    """Look at the arena in a directory. Raises ArenaError."""
    now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) if now_ns is None else now_ns
    return Arena(tuple(_read_foreground(path, now_ns)), tuple(_read_background(path)))


def _header(descriptor: int) -> bytes:
    try:
        return os.pread(descriptor, _HEADER.size, 0)
    except OSError:  # a pipe, a directory
        return b""


@contextlib.contextmanager
def _board(path: str, name: str) -> Iterator[tuple[int, int]]:
    """An open board, and the number of slots that were ever claimed."""
    file = os.path.join(path, name)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ArenaError(f"cannot open {file}: {error.strerror}") from error
    try:
        data = _header(descriptor)
        if len(data) < _HEADER.size:
            raise ArenaError(f"{file} is too short for a board")
        magic, abi, _kind, _slots, high, _size, _clock = _HEADER.unpack(data)
        if magic != MAGIC:
            raise ArenaError(f"{file} is not a board")
        if abi != ABI:
            raise ArenaError(f"{file} has version {abi}, this program reads {ABI}")
        yield descriptor, min(high, _SLOTS)
    finally:
        os.close(descriptor)


def _lines(descriptor: int, offset: int, high: int, form: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The slots that a living process owns."""
    data = os.pread(descriptor, high * _LINE, offset)
    for index in range(len(data) // _LINE):
        line = form.unpack_from(data, index * _LINE)
        if any(line) and _alive(descriptor, offset + index * _LINE):
            yield index, line


def _alive(descriptor: int, offset: int) -> bool:
    """Whether somebody holds the lock of the slot at this offset."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    try:
        answer = fcntl.fcntl(descriptor, _OFD_GETLK, question)
    except OSError:
        return True  # unknown: rather shown than hidden
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _read_foreground(path: str, now_ns: int) -> Iterator[Foreground]:
    with _board(path, "foreground") as (descriptor, high):
        for index, (in_service, pid, last_ns, started, _bytes, _head) in \
                _lines(descriptor, _PAGE, high, _FOREGROUND):
            label = os.pread(descriptor, _LABEL, _PAGE + _SLOTS * _LINE + index * _PAGE)
            text = label.split(b"\0")[0].decode("utf-8", "replace")
            idle = None if in_service else max(0, now_ns - last_ns) // 1000
            yield Foreground("".join(c if c.isprintable() else "?" for c in text), pid, in_service, idle, started)


def _read_background(path: str) -> Iterator[Background]:
    with _board(path, "background") as (descriptor, high):
        for _, (waiting, _wake, weight, in_service, _vtime, _interval, started, _due, pid) in \
                _lines(descriptor, 2 * _PAGE, high, _BACKGROUND):
            yield Background(pid, bool(waiting), in_service, weight, started)
