# SPDX-License-Identifier: GPL-2.0-or-later
"""QMP commands to a running QEMU: through libvirt, or by a socket of its own."""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from .errors import MonitorError
from .plan import numbers_of

UNKNOWN_COMMAND = "CommandNotFound"


class Monitor(Protocol):
    """The monitor of one running QEMU."""

    def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Send a command; returns QMP's "return". Raises MonitorError."""


def query(monitor: Monitor) -> list[dict[str, Any]]:
    """query-idletime: one dictionary a resource, as in qapi/idletime.json. Raises MonitorError also where it is something else:
    a QEMU may be in a guest's hands."""
    found = monitor.execute("query-idletime")
    if not isinstance(found, list) or not all(map(_is_resource, found)):
        raise MonitorError("QEMU's answer to query-idletime has another form; remedy: start the VM on this host's QEMU", "form")
    return found


@dataclass(frozen=True)
class _May:
    """A member that need not be there."""

    form: Any


def _is_list(value: Any) -> bool:
    return isinstance(value, str) and numbers_of(value) is not None


_MOST = 1 << 64


def _count(value: Any) -> bool:
    """What 64 bits hold: others are an overflow somewhere, or are no JSON."""
    return type(value) is int and 0 <= value < _MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _MOST  # neither is nan


_TRAFFIC = {"requests": _count, "bytes": _count}
_HELD = {"held": _count, "in-service": _count, "background": _TRAFFIC, "promotions": {}}
_DEVICE = {**_HELD, "device": str, "class": str, "foreground": _TRAFFIC, "background-queues": _is_list, "dscp": _May(_is_list),
           "detaching": _May(bool), "seen": _May(bool)}
_WORK = {**_HELD, "id": str, "detaching": bool, "hold": {"bins": [_count], "boundaries-us": [_count]}}
_WORKS = ("jobs", "exports", "migrations")
_LEARNED = {"service-us": _May(_number), "spare": _May({"second": _May(_number)})}
_RESOURCE = {
    "id": str, "path": str, "devices": [_DEVICE], **{name: _May([_WORK]) for name in _WORKS},
    "state": _May(str), "auto": _May(bool), "shadow": _May(bool), "generation": _May(_count),
    "other-generations": _May([_count]), "observer": _May({"state": _May(str)}), "learned": _May(_LEARNED),
    **{name: _May(_count) for name in ("interval-us", "rate-bps", "held", "collisions", "collision-cost-us")}}
"""What those who ask take for granted."""


def _is_resource(one: Any) -> bool:
    if not _has(one, _RESOURCE):
        return False
    works = [each for name in _WORKS for each in one.get(name, ())]
    return all(_count(number) for each in (*one["devices"], *works) for number in each["promotions"].values()) and \
        all(len(each["hold"]["bins"]) == len(each["hold"]["boundaries-us"]) + 1 for each in works)


def _has(value: Any, form: Any) -> bool:
    """Whether a value is of a form: a type, what a function says, a list of one form, or members of theirs; others are not
    looked at."""
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            _has(value[name], each.form if isinstance(each, _May) else each) if name in value else isinstance(each, _May)
            for name, each in form.items())
    if isinstance(form, list):
        return isinstance(value, list) and all(_has(each, form[0]) for each in value)
    return type(value) is form if isinstance(form, type) else bool(form(value))


def _request(name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
    return {"execute": name, "arguments": arguments} if arguments else {"execute": name}


def _result(name: str, answer: dict[str, Any]) -> Any:
    if "error" in answer:
        error = answer["error"] if isinstance(answer["error"], dict) else {}
        raise MonitorError(f"QEMU refused {name}: {error.get('desc', 'no reason given')}",
                           str(error.get("class", "GenericError")))
    return answer.get("return")


class DomainMonitor:
    """Of a libvirt domain. libvirt serialises the commands of one domain, marks it as tainted (custom-monitor), and
    refuses a read-only connection.
    """

    def __init__(self, domain: Any):
        """domain: libvirt.virDomain, active, of a read-write connection to a QEMU driver."""
        self._domain = domain

    def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Raises MonitorError."""
        return _result(name, json.loads(self._send(json.dumps(_request(name, arguments)))))

    def _send(self, text: str) -> str:
        import libvirt  # late: what only reads files needs no libvirt
        import libvirt_qemu
        try:
            return str(libvirt_qemu.qemuMonitorCommand(self._domain, text, 0))
        except libvirt.libvirtError as error:
            raise MonitorError(f"libvirt refused a monitor command: {error.get_error_message()}") from error


@dataclass(frozen=True)
class Peer:
    """Who is at the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


def peer_of(line: socket.socket) -> Peer:
    """The process that listens (or connected) there, as the kernel knows it."""
    form = struct.Struct("3i")
    return Peer(*form.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size)))


class SocketMonitor:
    """Of a QEMU with a QMP socket. QEMU serves one client of a socket at a time: connect, ask, and leave. A context
    manager; all of it takes `seconds` at most.
    """

    LINE_BYTES = 2 << 20  # of an answer; as Python objects that may be fifty times as much, and whoever is asked may be hostile

    def __init__(self, path: str, seconds: float = 5.0):
        self._path, self._until, self._rest = path, time.monotonic() + seconds, bytearray()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> SocketMonitor:
        """Raises MonitorError: nobody listens, or somebody else is served and does not leave in time."""
        try:
            self._within()
            self._line.connect(self._path)
            self.peer = peer_of(self._line)
            self._read()  # the greeting
            self.execute("qmp_capabilities")
        except OSError as error:
            self._line.close()
            raise MonitorError(f"no answer from the monitor {self._path}: {self._why(error)}", "socket") from error
        except MonitorError:
            self._line.close()
            raise
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._line.close()

    def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Raises MonitorError."""
        try:
            self._within()
            self._line.sendall(json.dumps(_request(name, arguments)).encode() + b"\n")
            while True:
                answer = self._read()
                if "event" not in answer:
                    return _result(name, answer)
        except OSError as error:
            raise MonitorError(f"no answer from the monitor {self._path} to {name}: {self._why(error)}", "socket") from error

    @staticmethod
    def _why(error: OSError) -> str:
        return "another client is connected, or QEMU hangs" if isinstance(error, TimeoutError) else str(error)

    def _within(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._line.settimeout(left)

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            self._within()
            data = self._line.recv(65536)
            if not data or len(self._rest) > self.LINE_BYTES:
                raise ConnectionError("it closed the line")
            self._rest += data
        text, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConnectionError(f"it does not speak QMP: {error}") from error
        if not isinstance(answer, dict):
            raise ConnectionError("it does not speak QMP")
        return answer
