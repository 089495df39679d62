"""QMP from synchronous code: one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Coroutine

from qemu.qmp import ExecuteError, QMPClient, QMPError

QMP_SECONDS = 20.0
"""Time that QEMU may take to answer a command."""


class CommandError(RuntimeError):
    """QEMU refused a command; the text is QEMU's own."""


class Qmp:
    """A QMP session over a connected socket."""

    def __init__(self, channel: socket.socket, name: str) -> None:
        self._client = QMPClient(name)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        channel.setblocking(False)
        self._call(self._client.connect(channel), "the greeting", QMP_SECONDS)

    def execute(self, command: str, timeout_seconds: float = QMP_SECONDS, **arguments: Any) -> Any:
        """Run a QMP command; underscores in argument names become dashes."""
        fixed = {name.replace("_", "-"): value for name, value in arguments.items()}
        try:
            return self._call(self._client.execute(command, fixed or None), command, timeout_seconds)
        except ExecuteError as error:
            raise CommandError(f"{command}: {error}") from None

    def give(self, fd: int, name: str) -> None:
        """Hand a descriptor over; QEMU knows it by this name. Ours stays open."""
        async def work() -> None:
            self._client.send_fd_scm(fd)
            await self._client.execute("getfd", {"fdname": name})

        self._call(work(), "getfd", QMP_SECONDS)

    def close(self) -> None:
        """End the session; QEMU may be gone already."""
        try:
            self._call(self._client.disconnect(), "disconnect", QMP_SECONDS)
        except (EOFError, OSError, QMPError, TimeoutError):
            pass
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any], what: str, timeout_seconds: float) -> Any:
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_seconds), self._loop)
        try:
            return future.result()
        except asyncio.TimeoutError:
            raise TimeoutError(f"QMP: no answer to {what} within {timeout_seconds} s") from None
