# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls that may never return: libvirt waits for a QEMU for as long as that one takes, and a QEMU that is stopped, or on
storage that is gone, takes for ever. Neither the other calls nor the end of the program wait for them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

SECONDS = 5.0
"""QEMU answers within milliseconds; beside a host's full load within a second."""

AT_ONCE = 4
"""libvirtd serves five calls of one connection at a time (max_client_requests): one is left."""


class Patience:
    """Makes calls in threads. seconds: when none has returned for so long, those under way are given up. at_once: that many
    at a time, those that have been given up and have not returned among them; with so many of these nothing is asked.
    Context: one thread at a time."""

    def __init__(self, seconds: float = SECONDS, at_once: int = AT_ONCE) -> None:
        self._seconds, self._at_once = seconds, at_once
        self._under_way: set[Hashable] = set()

    @property
    def late(self) -> frozenset[Hashable]:
        """Which have not returned yet."""
        return frozenset(self._under_way)

    def ask(self, calls: Mapping[K, Callable[[], T]]) -> dict[K, T]:
        """What they return. Left out are those that were given up, now or earlier, and those that were not asked. Raises what
        one of them raises."""
        said: queue.SimpleQueue[tuple[K, Any, BaseException | None]] = queue.SimpleQueue()
        late, under_way = self.late, set[K]()
        left = [key for key in calls if key not in late]
        room = self._at_once - len(late)
        found: dict[K, T] = {}
        while True:
            while left and len(under_way) < room:
                under_way.add(left[0])
                self._start(left.pop(0), calls, said)
            if not under_way:
                return found
            try:
                key, result, error = said.get(timeout=self._seconds)
            except queue.Empty:
                return found
            if error is not None:
                raise error
            found[key] = result
            under_way.discard(key)

    def _start(self, key: K, calls: Mapping[K, Callable[[], T]], said: queue.SimpleQueue[Any]) -> None:
        self._under_way.add(key)
        threading.Thread(target=self._call, args=(key, calls[key], said), daemon=True).start()

    def _call(self, key: K, call: Callable[[], T], said: queue.SimpleQueue[tuple[K, T | None, BaseException | None]]) -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as caught:  # handed to who waits for it
            error = caught
        self._under_way.discard(key)
        said.put((key, result, error))
