# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls that may never return: libvirt waits for a QEMU for as long as that one takes, and a QEMU that is stopped, or on
storage that is gone, takes for ever. Neither the other calls nor the end of the program wait for them.

Each thread has a connection of its own: a call that hangs would keep the answers of others on the same one.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

SECONDS = 5.0
"""QEMU answers within milliseconds; beside a host's full load within a second."""

AT_ONCE = 4
"""Threads in good times: more only wait for each other in libvirtd."""

MOST = 8
"""So many may hang: each takes one of libvirtd's twenty workers (max_workers)."""


class Patience:
    """Makes calls in threads. connect: gives a thread its connection, may raise. seconds: when none has returned for so long,
    those under way are given up, and others take their places. Context: one thread at a time."""

    def __init__(self, connect: Callable[[], Any], seconds: float = SECONDS, at_once: int = AT_ONCE) -> None:
        self._connect, self._seconds, self._at_once = connect, seconds, at_once
        self._spare: list[Any] = []
        self._under_way: set[Hashable] = set()

    @property
    def late(self) -> frozenset[Hashable]:
        """Which have not returned yet."""
        return frozenset(self._under_way)

    def ask(self, calls: Mapping[K, Callable[[Any], T]]) -> dict[K, T]:
        """What they return. Left out are those that were given up, now or earlier, and where too many hang those that were not
        asked. Raises what one of them raises, and what connect raises."""
        left: queue.SimpleQueue[tuple[K, Callable[[Any], T]]] = queue.SimpleQueue()
        said: queue.SimpleQueue[tuple[K, Any, BaseException | None]] = queue.SimpleQueue()
        late, found = self.late, dict[K, T]()
        waited = {key for key in calls if key not in late}
        for key in waited:
            left.put((key, calls[key]))
        while waited and self._start(left, said):
            with contextlib.suppress(queue.Empty):
                while waited:
                    key, result, error = said.get(timeout=self._seconds)
                    if error is not None:
                        raise error
                    found[key] = result
                    waited.discard(key)
        with contextlib.suppress(queue.Empty):  # who comes back late does not go on with them
            while True:
                left.get_nowait()
        return found

    def _start(self, left: queue.SimpleQueue[Any], said: queue.SimpleQueue[Any]) -> int:
        """As many threads as there may be; returns their number."""
        number = min(self._at_once, left.qsize(), MOST - len(self._under_way))
        for _ in range(number):
            threading.Thread(target=self._work, args=(left, said), daemon=True).start()
        return max(number, 0)

    def _work(self, left: queue.SimpleQueue[Any], said: queue.SimpleQueue[Any]) -> None:
        connection, result, error = None, None, None
        with contextlib.suppress(queue.Empty):
            while error is None:
                key, call = left.get_nowait()
                self._under_way.add(key)
                try:
                    connection = connection or self._connected()
                    result = call(connection)
                except Exception as caught:  # handed to who waits for it
                    error = caught
                self._under_way.discard(key)
                said.put((key, result, error))
        if connection is not None:
            self._spare.append(connection)

    def _connected(self) -> Any:
        with contextlib.suppress(IndexError):
            while not (spare := self._spare.pop()).isAlive():
                spare.close()
            return spare
        return self._connect()
