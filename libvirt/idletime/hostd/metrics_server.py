# SPDX-License-Identifier: GPL-2.0-or-later
"""Serves one page, by HTTP, on a Unix socket and on a TCP address, and the API (api.py) on a Unix socket of its own. A thread
with a loop of its own: what readers do costs idletimed's loop nothing but the interpreter's lock, and little of that:

    RATE connections a second are taken from each listener; more wait in the kernel
    MOST of them at a time; one more ends the oldest of the user who has most, so that whoever opens and says nothing keeps
    nobody out; root's are not ended for others', nor while they are carried out
    SECONDS each to ask, to be answered and to read; who does not is ended
    the page is made once for all who ask between two looks, and sent from where it lies

It reads one request of HEAD_BYTES at most, answers, and closes. Where the page is, it knows GET and HEAD of one path: nothing
can be changed there. The API gets the request, with BODY_BYTES of content at most, and who asks by the kernel's word.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from ..qmp import peer_of

RATE, MOST, SECONDS, HEAD_BYTES = 50, 16, 10.0, 8192
BODY_BYTES = 65536
"""A policy has some hundred."""
BACKLOG = 64
RETRY_SECONDS = 10.0
"""An address may come later than idletimed."""
PATH = "/metrics"

log = logging.getLogger("idletimed")

Page = Callable[[str], tuple[list[bytes], str]]
"""Makes the page's parts and its type, for a header Accept."""


@dataclass(frozen=True)
class Request:
    """uid: of who asks; None where the kernel does not say. words: of the query."""

    method: str
    path: str
    words: tuple[str, ...]
    accept: str
    body: bytes = b""
    uid: int | None = None


@dataclass(frozen=True)
class Response:
    status: str
    type: str
    parts: list[bytes]
    allow: str = ""


Api = Callable[[Request], Awaitable[Response]]
"""Context: the server's loop."""


@dataclass(frozen=True)
class Unix:
    """group: who may read; "": all users of the host, as they may ask `virt-idletime status`. api: it serves that."""

    path: str
    group: str = ""
    api: bool = False

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
            raise OSError(f"{'api' if self.api else 'metrics'}.group is '{self.group}': {error}") from error
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
    """The thread. answered, refused: readers of the page; only grow; other threads read them."""

    page: Page
    listeners: tuple[Unix | Tcp, ...]
    api: Api | None = None
    answered: int = 0
    refused: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _working: set[asyncio.Task[None]] = field(default_factory=set)

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
                    log.info("%s: %s", _what(listener), listener)
                    said = ""
                    await self._accept(line, self.api if isinstance(listener, Unix) and listener.api else None)
            except OSError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("no %s at %s: %s; trying again every %g s; remedy: see idletime-%s(7)", _what(listener),
                                listener, error, RETRY_SECONDS, _what(listener))
            except Exception:  # whatever it is, the next scrape is answered
                log.exception("a fault of ours; going on")
            finally:
                listener.close()
            await asyncio.sleep(RETRY_SECONDS)

    async def _accept(self, line: socket.socket, api: Api | None) -> None:
        there: dict[asyncio.Task[None], int | None] = {}
        try:
            while True:
                client, _ = await self._loop.sock_accept(line)
                uid = peer_of(client).uid if client.family == socket.AF_UNIX else None
                if len(there) < MOST or self._make_room(there, uid):
                    task = self._loop.create_task(self._attend(client, api, uid))
                    there[task] = uid
                    task.add_done_callback(lambda task: there.pop(task, None))
                else:
                    client.close()
                await asyncio.sleep(1 / RATE)
        finally:
            for task in list(there):
                task.cancel()

    def _make_room(self, there: dict[asyncio.Task[None], int | None], uid: int | None) -> bool:
        """End one for another of this user, if there is one that may be ended."""
        counts = Counter(its for its in there.values() if its != 0)
        whose = max(counts, key=lambda its: counts[its]) if counts else 0
        if whose == 0 and uid != 0:
            return False
        oldest = next((task for task, its in there.items() if its == whose and (its != 0 or task not in self._working)), None)
        if oldest is not None:
            oldest.cancel()
            del there[oldest]  # it may take a moment to end
        return oldest is not None

    async def _attend(self, client: socket.socket, api: Api | None, uid: int | None) -> None:
        """One client, to its end. uid: of who it is; None where the kernel does not say."""
        with contextlib.closing(client):
            try:
                async with asyncio.timeout(SECONDS):
                    head, rest = await self._head(client)
                    if head is None:
                        raise ConnectionResetError
                    asked = await self._asked(client, uid, head, rest) if api is not None else None
                if api is None:
                    response, head_only = _answer_to(head, self.page)
                elif isinstance(asked, Request):
                    response, head_only = await self._by_api(api, asked), asked.method == "HEAD"
                else:
                    assert asked is not None
                    response, head_only = asked, False
                async with asyncio.timeout(SECONDS):
                    await self._send(client, response, head_only)
                self.answered += api is None and response.status.startswith("200")
            except (TimeoutError, asyncio.CancelledError, OSError):
                self.refused += api is None
            except Exception:  # whatever it is, the next scrape is answered
                log.exception("a fault of ours; going on")

    async def _head(self, client: socket.socket) -> tuple[bytes | None, bytes]:
        """Until the empty line, and what came behind it. None: it went, or says too much."""
        data = b""
        while True:
            for end in (b"\r\n\r\n", b"\n\n"):
                head, found, rest = data.partition(end)
                if found:
                    return head + found, rest
            more = await self._loop.sock_recv(client, HEAD_BYTES)
            data += more
            if not more or len(data) > HEAD_BYTES:
                return None, b""

    async def _asked(self, client: socket.socket, uid: int | None, head: bytes, rest: bytes) -> Request | Response:
        """What the API is asked, or what is wrong with that."""
        request, length = _parse(head)
        if request is None:
            return Response("400 Bad Request", _PLAIN, [b"this is HTTP, see idletime-api(7)\n"])
        if not 0 <= length <= BODY_BYTES:
            return Response("413 Content Too Large", _PLAIN, [b"at most %d bytes are read\n" % BODY_BYTES])
        while len(rest) < length:
            if not (more := await self._loop.sock_recv(client, length - len(rest))):
                raise ConnectionResetError
            rest += more
        return replace(request, body=rest[:length], uid=uid)

    async def _by_api(self, api: Api, request: Request) -> Response:
        """A change goes on when its time is over: libvirt has begun it."""
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        try:
            async with asyncio.timeout(SECONDS):
                return await api(request)
        except TimeoutError:
            return Response("504 Gateway Timeout", "application/json", [_LATE])
        finally:
            self._working.discard(task)

    async def _send(self, client: socket.socket, response: Response, head_only: bool) -> None:
        length = sum(len(part) for part in response.parts)
        allow = f"Allow: {response.allow}\r\n" if response.allow else ""
        lines = (f"HTTP/1.1 {response.status}\r\nContent-Type: {response.type}\r\nContent-Length: {length}\r\n{allow}"
                 "Connection: close\r\n\r\n")
        await self._loop.sock_sendall(client, lines.encode())
        for part in response.parts if not head_only else ():
            await self._loop.sock_sendall(client, part)
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            await self._loop.sock_recv(client, 1)  # so that what it still sends does not take our answer away


def _what(listener: Unix | Tcp) -> str:
    return "api" if isinstance(listener, Unix) and listener.api else "metrics"


_PLAIN = "text/plain; charset=utf-8"
_LATE = b'{"problem":"it takes too long; a change may be carried out all the same","remedy":"look again"}\n'


def _parse(head: bytes) -> tuple[Request | None, int]:
    """A request without its content, and how long that is; None is no HTTP, a negative length is none."""
    lines = head.decode("latin-1").splitlines()
    words = lines[0].split() if lines else []
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None, 0
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
    accept = ",".join(value for name, value in headers if name == "accept")
    length = next((value for name, value in headers if name == "content-length"), "0")
    path, _, query = words[1].partition("?")
    known = length.isascii() and length.isdecimal() and len(length) < 10 and not any(
        name == "transfer-encoding" for name, _ in headers)
    return Request(words[0], path, tuple(query.split("&")) if query else (), accept), int(length) if known else -1


def _answer_to(head: bytes, page: Page) -> tuple[Response, bool]:
    """Metrics, and whether only the head was asked for."""
    request, _ = _parse(head)
    if request is None:
        return Response("400 Bad Request", _PLAIN, [b"this is HTTP: GET /metrics\n"]), False
    if request.method not in ("GET", "HEAD"):
        return Response("405 Method Not Allowed", _PLAIN, [b"nothing can be changed here: GET /metrics\n"], "GET, HEAD"), False
    head_only = request.method == "HEAD"
    if request.path != PATH:
        return Response("404 Not Found", _PLAIN, [b"metrics are at /metrics\n"]), head_only
    parts, type_ = page(request.accept)
    return Response("200 OK", type_, parts), head_only
