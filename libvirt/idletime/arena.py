# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads an arena: who is on the boards of a resource, now. Reads only; no slot is claimed.

The layout is that of idletime/arena/arena.h, ABI 3; another version is said, not guessed: generations() tells which are in
use at one place, as idletime/arena/generation.h puts them. A value that makes no
sense is a value of a damaged board: it is shown, it hurts nobody. Who may read the boards but not the lock files beside
them is shown dead participants, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

ABI = 3
MAGIC = 0x656D6974656C6469
_HEADER = struct.Struct("=QIIIIQQ")  # magic, abi, kind, slots, slots_high, size, clock
_FOREGROUND = struct.Struct("=IIqQQQQ")  # as Line
_BACKGROUND = struct.Struct("=IIQqQqQI")  # waiting, wake, vtime, interval, started, due, cost, weight
_FIRST, _BELOW = 3, "abi-"  # the first generation has the path itself
_PAGE, _LINE, _SLOTS, _LABEL = 4096, 64, 1024, 64
_RING, _TOKENS, _TOKEN_SHIFT = 256, 64, 48
_FLOCK = struct.Struct("@hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OFD_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)


class ArenaError(Exception):
    """The arena cannot be read; the text says which file and why."""


@dataclass(frozen=True)
class Foreground:
    """A foreground participant. idle_us: since its last event; None while it is in service. requests, bytes: begun by it."""

    label: str
    pid: int
    in_service: int
    idle_us: int | None
    requests: int
    bytes: int = 0


@dataclass(frozen=True)
class Line:
    """A foreground slot as it is on the board. ring_head: transitions ever written to its ring. request_ns: sum of
    its requests' times in service."""

    in_service: int
    pid: int
    last_ns: int
    started: int
    bytes: int
    ring_head: int
    request_ns: int


@dataclass(frozen=True)
class Background:
    """A background participant. waiting: it holds requests and wants to start one."""

    waiting: bool
    weight: int
    requests: int
    interval_us: int = 0


@dataclass(frozen=True)
class Transitions:
    """When a foreground slot became busy or idle since an earlier look. head: how many there ever were. first: the number of
    the first one here; more have been lost if it is not that of the earlier look. all: times, and whether it was busy from
    then on."""

    slot: int
    in_service: int
    head: int
    first: int
    all: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class Moment:
    """Both boards, for who looks often. started: background requests by slot. in_service: background requests."""

    now_ns: int
    foreground: tuple[Transitions, ...] = ()
    started: Mapping[int, int] = field(default_factory=dict)
    waiting: int = 0
    in_service: int = 0
    interval_us: int | None = None


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
    path = place(path)
    return Arena(tuple(_read_foreground(path, now_ns)), tuple(_read_background(path)))


def foreground_lines(path: str) -> Iterator[tuple[int, Line, bytes]]:
    """Each living foreground participant: slot, its line, its page (label and ring). Raises ArenaError."""
    for descriptor, index, line in _lines(place(path), "foreground", _PAGE, _FOREGROUND):
        yield index, Line(*line), os.pread(descriptor, _PAGE, _PAGE + _SLOTS * _LINE + index * _PAGE)


def read_background(path: str) -> tuple[Background, ...]:
    """The living background participants. Raises ArenaError."""
    return tuple(_read_background(place(path)))


def place(path: str) -> str:
    """Where the boards of our version are: the path itself, or a folder below it."""
    below = os.path.join(path, f"{_BELOW}{ABI}")
    return below if _version(below) == ABI or (ABI != _FIRST and _version(path) != ABI) else path


def generations(path: str) -> tuple[int, ...]:
    """Versions of which somebody lives there, or one cannot know, in order. Those of two do not see each other."""
    try:
        below = [entry.path for entry in os.scandir(path) if entry.name.startswith(_BELOW)]
    except OSError:
        return ()
    found = {_version(one): one for one in (path, *sorted(below))}
    return tuple(sorted(version for version, one in found.items() if version is not None and _inhabited(one)))


def _version(folder: str) -> int | None:
    """Of the boards in a folder; None: there are none."""
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(folder, "foreground"), _READ)
        try:
            data = _header(descriptor)
        finally:
            os.close(descriptor)
        if len(data) == _HEADER.size and _HEADER.unpack(data)[0] == MAGIC:
            return int(_HEADER.unpack(data)[1])
    return None


def _inhabited(folder: str) -> bool:
    """Whether a participant lives; who may not ask is told that one does."""
    return any(_held(folder, name) for name in ("foreground", "background"))


def _held(folder: str, name: str) -> bool:
    file = os.path.join(folder, f"{name}.alive")
    with _locks(folder, name) as locks:
        return os.path.lexists(file) and _alive(locks, 0, 0)


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
        descriptor = os.open(file, _READ)
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


def _lines(path: str, name: str, offset: int, form: struct.Struct) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The slots of a board that a living process owns: descriptor of the board, slot, fields."""
    with _board(path, name) as (descriptor, high), _locks(path, name) as locks:
        data = os.pread(descriptor, high * _LINE, offset)
        for index in range(len(data) // _LINE):
            line = form.unpack_from(data, index * _LINE)
            if any(line) and _alive(locks, index):
                yield descriptor, index, line


@contextlib.contextmanager
def _locks(path: str, name: str) -> Iterator[int | None]:
    """The file in which the owners of slots say that they live; None if we may not open it."""
    try:
        descriptor = os.open(os.path.join(path, f"{name}.alive"), _READ)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _alive(locks: int | None, index: int, count: int = 1) -> bool:
    """Whether somebody holds the lock of this slot; count 0: of it or of one behind it."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, index, count, 0)
    try:
        answer = fcntl.fcntl(locks, _OFD_GETLK, question) if locks is not None else None
    except OSError:
        answer = None
    if answer is None:
        return True  # unknown: rather shown than hidden
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _read_foreground(path: str, now_ns: int) -> Iterator[Foreground]:
    for descriptor, index, (in_service, pid, last_ns, started, size, _head, _sum) in \
            _lines(path, "foreground", _PAGE, _FOREGROUND):
        label = os.pread(descriptor, _LABEL, _PAGE + _SLOTS * _LINE + index * _PAGE)
        text = label.split(b"\0")[0].decode("utf-8", "replace")
        idle = None if in_service else max(0, now_ns - last_ns) // 1000
        yield Foreground("".join(c if c.isprintable() else "?" for c in text), pid, in_service, idle, started, size)


def _read_background(path: str) -> Iterator[Background]:
    for _, _, (waiting, _wake, _vtime, interval_ns, started, _due, _cost, weight) in \
            _lines(path, "background", 2 * _PAGE, _BACKGROUND):
        yield Background(bool(waiting), weight, started, max(interval_ns, 0) // 1000)


# ---- for who looks often

def moment(path: str, heads: Mapping[int, int]) -> Moment:
    """Look at the boards, and at what happened since. heads: of each foreground slot at the earlier look. Raises ArenaError."""
    path = place(path)
    foreground = tuple(_read_transitions(path, heads))
    background = list(_lines(path, "background", 2 * _PAGE, _BACKGROUND))
    return Moment(
        time.clock_gettime_ns(time.CLOCK_MONOTONIC), foreground,
        {slot: line[4] for _, slot, line in background}, sum(bool(line[0]) for _, _, line in background),
        _tokens(path, {slot for _, slot, _ in background}),
        max((max(line[3], 0) // 1000 for _, _, line in background), default=None))


def _read_transitions(path: str, heads: Mapping[int, int]) -> Iterator[Transitions]:
    for descriptor, slot, line in _lines(path, "foreground", _PAGE, _FOREGROUND):
        in_service, head = line[0], line[5]
        before = heads.get(slot, 0)
        first = max(before if before <= head else 0, head - _RING)
        if first == head:
            yield Transitions(slot, in_service, head, head, ())
            continue
        ring = _unpacked(struct.Struct(f"={_RING}Q"), descriptor, _PAGE + _SLOTS * _LINE + slot * _PAGE + _LABEL)
        # What was written while we read took the place of the oldest.
        now = _unpacked(_FOREGROUND, descriptor, _PAGE + slot * _LINE)[5]
        first = min(max(first, now - _RING + 1), head) if now != head else first
        entries = (ring[number % _RING] for number in range(first, head))
        yield Transitions(slot, in_service, head, first, tuple((entry >> 1, bool(entry & 1)) for entry in entries))


def _unpacked(form: struct.Struct, descriptor: int, offset: int) -> tuple[int, ...]:
    """Of a board, which its QEMU's user may truncate at any time. Raises ArenaError."""
    data = os.pread(descriptor, form.size, offset)
    if len(data) < form.size:
        raise ArenaError("a board of the arena is too short")
    return form.unpack(data)


def _tokens(path: str, living: set[int]) -> int:
    """Background requests in service whose owner lives."""
    with _board(path, "background") as (descriptor, _):
        tokens = _unpacked(struct.Struct(f"={_TOKENS}Q"), descriptor, _PAGE)
    return sum(token != 0 and (token >> _TOKEN_SHIFT) - 1 in living for token in tokens)
