# SPDX-License-Identifier: GPL-2.0-or-later
"""Serves one page, by HTTP, on a Unix socket and on a TCP address. A thread with a loop of its own: what readers do costs
idletimed's loop nothing but the interpreter's lock, and little of that:

    RATE connections a second are taken from each listener; more wait in the kernel
    MOST of them at a time; one more ends the oldest, so that whoever opens and says nothing keeps nobody out
    SECONDS each; who does not ask, or does not read, in that time is ended
    the page is made once for all who ask between two looks, and sent from where it lies

It reads one request of HEAD_BYTES at most, answers, and closes. It knows GET and HEAD of one path: nothing can be changed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

RATE, MOST, SECONDS, HEAD_BYTES = 50, 16, 10.0, 8192
BACKLOG = 64
RETRY_SECONDS = 10.0
"""An address may come later than idletimed."""
PATH = "/metrics"

log = logging.getLogger("idletimed")

Page = Callable[[str], tuple[list[bytes], str]]
"""Makes the page's parts and its type, for a header Accept."""


@dataclass(frozen=True)
class Unix:
    """group: who may read; "": all users of the host, as they may ask `virt-idletime status`."""

    path: str
    group: str = ""

    def open(self) -> socket.socket:
        """Raises OSError."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
            line.bind(self.path)
            os.chmod(self.path, 0o600)
            if self.group:
                shutil.chown(self.path, group=self.group)
            os.chmod(self.path, 0o660 if self.group else 0o666)
        except LookupError as error:
            line.close()
            raise OSError(f"metrics.group is '{self.group}': {error}") from error
        except OSError:
            line.close()
            raise
        return line

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Tcp:
    address: str
    port: int

    def open(self) -> socket.socket:
        """Raises OSError."""
        numbers = socket.AI_NUMERICHOST | socket.AI_PASSIVE
        found = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM, flags=numbers)
        family, kind, protocol, _, address = found[0]
        line = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            line.bind(address)
        except OSError:
            line.close()
            raise
        return line

    def close(self) -> None:
        pass

    def __str__(self) -> str:
        return f"{self.address} port {self.port}"


@dataclass
class Server:
    """The thread. answered, refused: only grow; other threads read them."""

    page: Page
    listeners: tuple[Unix | Tcp, ...]
    answered: int = 0
    refused: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True, name="idletimed-metrics")
        self._thread.start()

    def close(self) -> None:
        """Serve no more; waits for the thread, which waits for nobody."""
        if self._thread is None:
            self._loop.close()
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop)
            self._thread.join(SECONDS)

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        await asyncio.gather(*(self._keep(listener) for listener in self.listeners))

    async def _keep(self, listener: Unix | Tcp) -> None:
        """Listen, for ever."""
        said = ""
        while True:
            try:
                with contextlib.closing(listener.open()) as line:
                    line.listen(BACKLOG)
                    log.info("metrics: %s", listener)
                    said = ""
                    await self._accept(line)
            except OSError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("no metrics at %s: %s; trying again every %g s; remedy: see idletime-metrics(7)", listener,
                                error, RETRY_SECONDS)
            except Exception:  # whatever it is, the next scrape is answered
                log.exception("a fault of ours; going on")
            finally:
                listener.close()
            await asyncio.sleep(RETRY_SECONDS)

    async def _accept(self, line: socket.socket) -> None:
        there: dict[asyncio.Task[None], None] = {}
        try:
            while True:
                client, _ = await self._loop.sock_accept(line)
                if len(there) >= MOST:
                    next(iter(there)).cancel()
                task = self._loop.create_task(self._attend(client))
                there[task] = None
                task.add_done_callback(lambda task: there.pop(task, None))
                await asyncio.sleep(1 / RATE)
        finally:
            for task in list(there):
                task.cancel()

    async def _attend(self, client: socket.socket) -> None:
        """One client, to its end."""
        with contextlib.closing(client):
            try:
                async with asyncio.timeout(SECONDS):
                    request = await self._request(client)
                    if request is None:
                        self.refused += 1
                        return
                    await self._answer(client, request)
            except (TimeoutError, asyncio.CancelledError, OSError):
                self.refused += 1
            except Exception:  # whatever it is, the next scrape is answered
                log.exception("a fault of ours; going on")

    async def _request(self, client: socket.socket) -> bytes | None:
        """Until the empty line. None: it went, or says too much."""
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            data = await self._loop.sock_recv(client, HEAD_BYTES)
            head += data
            if not data or len(head) > HEAD_BYTES:
                return None
        return head

    async def _answer(self, client: socket.socket, request: bytes) -> None:
        status, type_, parts, head_only = _answer_to(request, self.page)
        length = sum(len(part) for part in parts)
        allow = "Allow: GET, HEAD\r\n" if status.startswith("405") else ""
        lines = f"HTTP/1.1 {status}\r\nContent-Type: {type_}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
        await self._loop.sock_sendall(client, lines.encode())
        for part in parts if not head_only else ():
            await self._loop.sock_sendall(client, part)
        if status.startswith("200"):
            self.answered += 1
        client.shutdown(socket.SHUT_WR)
        await self._loop.sock_recv(client, 1)  # so that what it still sends does not take our answer away


_PLAIN = "text/plain; charset=utf-8"


def _answer_to(request: bytes, page: Page) -> tuple[str, str, list[bytes], bool]:
    """Status, type, parts, whether only the head was asked for."""
    lines = request.decode("latin-1").splitlines()
    words = lines[0].split() if lines else []
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "400 Bad Request", _PLAIN, [b"this is HTTP: GET /metrics\n"], False
    method, path = words[0], words[1].partition("?")[0]
    if method not in ("GET", "HEAD"):
        return "405 Method Not Allowed", _PLAIN, [b"nothing can be changed here: GET /metrics\n"], False
    if path != PATH:
        return "404 Not Found", _PLAIN, [b"metrics are at /metrics\n"], method == "HEAD"
    accept = ",".join(line.partition(":")[2].strip() for line in lines[1:] if line.lower().startswith("accept:"))
    parts, type_ = page(accept)
    return "200 OK", type_, parts, method == "HEAD"
