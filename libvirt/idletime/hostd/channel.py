# SPDX-License-Identifier: GPL-2.0-or-later
"""One guest agent's line: connects, reads at a pace, answers. Context: the event loop.

Reading is by READ_BYTES at a time, and only while the guest has credit (pace.py): a guest that floods its port waits,
others do not notice. What we say is bounded too: of what a guest does not read, the last message is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from ..qmp import peer_of
from . import protocol
from .pace import WISH_COST, Pace, line_cost

READ_BYTES = 4096

RETRY_SECONDS = 1.0
RETRY_MOST_SECONDS = 30.0
"""QEMU listens from its start to its end; where it does not, there is no hurry."""

ERROR_SECONDS = 1.0
"""One error a second, as the protocol says."""

log = logging.getLogger("idletimed")


@dataclass(frozen=True)
class Ears:
    """Who wants to hear: on_open gives the first message; on_state gets each state that makes sense."""

    on_open: Callable[[], bytes]
    on_state: Callable[[protocol.State], None]


class Channel:
    """The line to one guest, kept open until close()."""

    def __init__(self, name: str, path: str, ears: Ears, pid: int | None = None) -> None:
        """pid: of the QEMU that has to be at the other end; None is not known."""
        self.name, self.path, self.pid = name, path, pid
        self._ears = ears
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._retry = RETRY_SECONDS
        self._sending, self._next = b"", b""
        self.pace = Pace(self._loop.time())
        self._connect()

    @property
    def open(self) -> bool:
        """Whether QEMU is at the other end; not whether an agent is."""
        return self._socket is not None

    def say(self, message: bytes) -> None:
        """Send a message, or have it replace the one that waits."""
        if self._socket is None:
            return
        if self._sending:
            self._next = message
        else:
            self._sending = message
            self._write()

    def charge_wish(self, now: float) -> None:
        """The guest has asked for something new, which costs more than reading it."""
        self.pace.charge(now, WISH_COST)

    def close(self) -> None:
        """Hang up for good."""
        self._hang_up()
        self._ears = Ears(lambda: b"", lambda state: None)

    def _connect(self) -> None:
        self._timer = None
        line = None
        try:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            line.connect(self.path)
            self._check_peer(line)
        except OSError as error:
            if line is not None:
                line.close()
            log.debug("%s: %s: %s", self.name, self.path, error)
            self._later(self._retry, self._connect)
            self._retry = min(2 * self._retry, RETRY_MOST_SECONDS)
            return
        self._retry = RETRY_SECONDS
        self._socket, self._lines = line, protocol.Lines()
        self._sending, self._next = b"", b""
        self._error_at = self._loop.time() - ERROR_SECONDS
        self._listen()
        self.say(b"\n" + self._ears.on_open())

    def _check_peer(self, line: socket.socket) -> None:
        """Who listens is the domain's QEMU, not somebody else who could make a socket there. Raises OSError."""
        peer = peer_of(line).pid
        if self.pid is not None and peer != self.pid:
            log.warning("domain '%s': process %d listens at the agent's channel %s, not its QEMU (%d): not spoken to",
                        self.name, peer, self.path, self.pid)
            raise PermissionError(f"process {peer} is not QEMU")

    def _hang_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None

    def _lost(self) -> None:
        """QEMU closed the line: it ended, or another one comes."""
        self._hang_up()
        self._later(self._retry, self._connect)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._timer = self._loop.call_later(seconds, what)

    # ---- in

    def _listen(self) -> None:
        self._timer = None
        assert self._socket is not None
        self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        now = self._loop.time()
        self.pace.charge(now, len(data))
        for line in self._lines.feed(data):
            self.pace.charge(now, line_cost(line))
            self._hear(line, now)
        self._breathe(now)

    def _breathe(self, now: float) -> None:
        """Stop reading a guest that has used up its credit."""
        wait = self.pace.wait_seconds(now)
        if wait > 0 and self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._later(wait, self._listen)

    def _hear(self, line: bytes | None, now: float) -> None:
        if line is None:
            self._complain(protocol.error("too-long", protocol.TOO_LONG), now)
            return
        try:
            state = protocol.parse(line)
        except protocol.Malformed as error:
            self._complain(protocol.error(error.code, str(error)), now)
            return
        if state is not None:
            self._ears.on_state(state)

    def _complain(self, message: bytes, now: float) -> None:
        if now - self._error_at >= ERROR_SECONDS and not self._sending:
            self._error_at = now
            self.say(message)

    # ---- out

    def _write(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._sending)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost()
            return
        self._sending = self._sending[sent:]
        if not self._sending:
            self._sending, self._next = self._next, b""
        if self._sending:
            self._loop.add_writer(self._socket, self._write)
        else:
            with contextlib.suppress(ValueError):
                self._loop.remove_writer(self._socket)
