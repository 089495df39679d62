# SPDX-License-Identifier: GPL-2.0-or-later
"""Threads with a connection each, which carry out what may take long.

A call into libvirt waits for the QEMU it is about. One that hangs (stopped, on a dead NFS) keeps its thread; after
PATIENCE_SECONDS another thread takes that one's place, so that the other domains are served. A thread that comes back
and finds its place taken ends. libvirtd serves five calls of a connection at a time: hence a connection for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

SIZE = 3
"""Threads in good times: more only wait for each other in libvirtd."""

MOST = 32
"""With so many QEMUs hanging at once, the rest waits."""

PATIENCE_SECONDS = 10.0
"""A settled domain takes some 20 ms, a busy host ten times that."""


class _Hand(threading.Thread):
    def __init__(self, hands: Hands) -> None:
        super().__init__(daemon=True, name="idletimed-hand")
        self.hands = hands
        self.since: float | None = None
        self.replaced = False
        self.connection: Any = None

    def run(self) -> None:
        while not self.replaced and (job := self.hands.jobs.get()) is not None:
            self.since = time.monotonic()
            self._carry_out(*job)
            self.since = None
        self._disconnect()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.hands.loop.call_soon_threadsafe(self.hands.threads.discard, self)

    def _carry_out(self, future: asyncio.Future[Any], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        if future.cancelled():
            return  # who asked has not waited for so long
        try:
            result, error = work(self._connected(), *arguments), None
        except Exception as caught:  # handed to who waits for it
            result, error = None, caught
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.hands.loop.call_soon_threadsafe(_settle, future, result, error)

    def _connected(self) -> Any:
        if self.connection is None or not self.connection.isAlive():
            self._disconnect()
            self.connection = self.hands.connect()
        return self.connection

    def _disconnect(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(Exception):
                self.connection.close()
            self.connection = None


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Hands:
    """The threads. connect: gives a thread its connection, may raise. Context: all methods, and all changes of
    `threads`, in the loop's thread."""

    def __init__(self, connect: Callable[[], Any], size: int = SIZE, most: int = MOST) -> None:
        self.connect, self.size, self.most = connect, size, most
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.threads: set[_Hand] = set()
        self.loop = asyncio.get_running_loop()
        for _ in range(size):
            self._add()

    def do(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Have work(connection, *arguments) carried out; the future has its result or its exception."""
        future = self.loop.create_future()
        self.jobs.put((future, work, arguments))
        return future

    def room(self) -> int:
        """How many jobs can be under way at once, those that hang included."""
        return len(self.threads)

    def watch(self, now: float) -> int:
        """Replace the threads that hang; returns how many do. To be called every few seconds."""
        hanging = [thread for thread in self.threads
                   if thread.since is not None and now - thread.since > PATIENCE_SECONDS]
        for thread in hanging:
            if not thread.replaced and len(self.threads) < self.most:
                thread.replaced = True
                self._add()
        return len(hanging)

    def close(self) -> None:
        """Let the threads end when they have nothing more to do; one that hangs ends with the process."""
        for _ in range(len(self.threads)):
            self.jobs.put(None)

    def _add(self) -> None:
        thread = _Hand(self)
        self.threads.add(thread)
        thread.start()
