# SPDX-License-Identifier: GPL-2.0-or-later
"""The messages of the port org.idletime.agent.0, version 1, as data. Pure. The guest is hostile.

Nothing that a guest writes raises anything but Malformed; nothing of it is kept beyond the limits below.
The protocol itself: guest-agent/PROTOCOL.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1

LINE_BYTES = 65536
"""Longest line with its newline; a longer one is thrown away."""

QUEUE_ENTRIES = 64
"""Most devices that one request may name; a VM has some thirty PCI slots for them."""

NAMES = ("target", "serial", "mac", "pci")
"""How a device may be named, the first one that is there counts."""

NAME_CHARACTERS = 64
QUEUES_CHARACTERS = 256
"""Longest name and queue list that are looked at: MAC addresses and serials are shorter, and so is any list in use."""

_SESSION = re.compile(r"[\x21-\x7e]{1,64}\Z")


class Malformed(ValueError):
    """A line that cannot be used; the text is the message of the error that answers it, code its code."""

    def __init__(self, message: str, code: str = "malformed"):
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class QueueWish:
    """One device whose queues shall be background: names as the guest knows them, list as QEMU reads it."""

    device: Mapping[str, str]
    queues: str


@dataclass(frozen=True)
class Wish:
    """All that a guest asks for; an empty one is nothing."""

    background: bool = False
    queues: tuple[QueueWish, ...] = ()

    def __bool__(self) -> bool:
        return self.background or bool(self.queues)


@dataclass(frozen=True)
class State:
    """A message `state`."""

    session: str
    sequence: int
    wish: Wish


class Lines:
    """Cuts a stream of bytes into lines; keeps at most one line. A line that is too long comes as None, once."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that end within `data`, without newline and without empty ones."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            line = self._end(part)
            if line != b"":
                yield line
        self._keep(rest)

    def _end(self, part: bytes) -> bytes | None:
        self._keep(part)
        line = None if self._skipping else bytes(self._rest).strip(b" \t\r")
        self._rest.clear()
        self._skipping = False
        return line

    def _keep(self, part: bytes) -> None:
        if len(self._rest) + len(part) >= LINE_BYTES:
            self._skipping = True
            self._rest.clear()
        if not self._skipping:
            self._rest += part


def parse(line: bytes) -> State | None:
    """The state in a line; None for what is to be ignored (errors, unknown types). Raises Malformed."""
    message = _object(line)
    if _member(message, "version", int) != VERSION:
        raise Malformed(f"version {_short(message['version'])} is not spoken here", "version")
    if _member(message, "type", str) != "state":
        return None
    return State(_session(message), _sequence(message), _wish(_member(message, "request", dict, {})))


def _object(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not a JSON object: {_short(error)}") from None
    if not isinstance(message, dict):
        raise Malformed(f"not a JSON object but {_short(message)}")
    return message


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _short(value: object) -> str:
    """A guest's value in a message of ours: bounded, and without control characters. Of a deep list ascii() takes long."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = ascii(value) if not isinstance(value, Exception) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _member(message: Mapping[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """A member of the right type; a missing one is `default`, where there is one."""
    value = message.get(name)
    if value is None and default is not ...:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Malformed(f"{name} is {_short(value)}: it must be {_KINDS[kind]}")
    return value


_KINDS = {int: "an integer", str: "a string", dict: "an object", list: "a list"}


def _session(message: Mapping[str, Any]) -> str:
    session: str = _member(message, "session", str)
    if not _SESSION.match(session):
        raise Malformed(f"session is {_short(session)}: it must be 1 to 64 visible ASCII characters")
    return session


def _sequence(message: Mapping[str, Any]) -> int:
    sequence: int = _member(message, "sequence", int)
    if not 0 <= sequence < 1 << 63:
        raise Malformed(f"sequence is {_short(sequence)}: it must be 0 to 2^63 - 1")
    return sequence


def _wish(request: Mapping[str, Any]) -> Wish:
    wanted = _member(request, "class", str, "foreground")
    if wanted not in ("foreground", "background"):
        raise Malformed(f"request.class is {_short(wanted)}: it must be foreground or background")
    entries = _member(request, "queues", list, [])
    if len(entries) > QUEUE_ENTRIES:
        raise Malformed(f"request.queues has {len(entries)} entries: at most {QUEUE_ENTRIES} are read")
    return Wish(wanted == "background", tuple(_queue_wish(entry) for entry in entries))


def _queue_wish(entry: Any) -> QueueWish:
    if not isinstance(entry, dict):
        raise Malformed(f"an entry of request.queues is {_short(entry)}: it must be an object")
    device = _member(entry, "device", dict, {})
    names = {name: _bounded(device, name, NAME_CHARACTERS)
             for name in (*NAMES, "kernel") if device.get(name) is not None}
    return QueueWish(names, _bounded(entry, "queues", QUEUES_CHARACTERS))


def _bounded(message: Mapping[str, Any], name: str, limit: int) -> str:
    value: str = _member(message, name, str, "")
    if len(value) > limit or not value.isprintable():
        raise Malformed(f"{name} is {_short(value)}: it must be at most {limit} printable characters")
    return value


# ---- what we say

def encode(message: Mapping[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"version": VERSION, **message}, separators=(",", ":")).encode() + b"\n"


def error(code: str, message: str) -> bytes:
    """The line that answers one which could not be used."""
    speaks = {"speaks": [VERSION]} if code == "version" else {}
    return encode({"type": "error", "code": code, "message": message, **speaks})


TOO_LONG = f"a line of more than {LINE_BYTES} bytes was thrown away"
