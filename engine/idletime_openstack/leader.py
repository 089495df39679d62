# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of several evictors acts: the one that holds a lock of tooz, since more of its drivers have locks than elections."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any, Protocol

import tooz
from tooz import coordination

LOCK = b"idletime-openstack-evict"


class LeaderError(Exception):
    """The text names the setting, what came, and the remedy."""


class Leader(Protocol):
    def leads(self) -> bool:
        """Whether this one acts, now. Raises LeaderError; then nobody knows, and it does not."""

    def stop(self) -> None:
        """Another one may lead at once."""


class Alone:
    """There is one evictor."""

    def leads(self) -> bool:
        return True

    def stop(self) -> None:
        pass


class Elected:
    """url: of tooz, such as etcd3+http://HOST:2379, redis://HOST:6379, file:///run/idletime-openstack-evict."""

    def __init__(self, url: str, member: str = "") -> None:
        self._url = url
        self._member = (member or f"{socket.gethostname()}-{os.getpid()}").encode()
        self._coordinator: Any = None
        self._lock: Any = None

    def leads(self) -> bool:
        try:
            if self._coordinator is None:
                self._start()
            if self._lock.acquired and self._owns():
                return True
            return bool(self._lock.acquire(blocking=False))
        except LeaderError:
            raise
        except Exception as error:  # drivers raise what their clients do, not only ToozError
            self.stop()
            text = " ".join(str(error).split()) or type(error).__name__
            raise LeaderError(f"[eviction] coordination '{self._url}': {text}; remedy: does it run?") from error

    def _start(self) -> None:
        try:
            coordinator = coordination.get_coordinator(self._url, self._member)
        except Exception as error:  # of a driver that is not there it is stevedore's
            raise LeaderError(f"[eviction] coordination '{self._url}': {error}; remedy: a URL of tooz, such as "
                              "etcd3+http://HOST:2379, and the driver's own client library") from error
        coordinator.start(start_heart=True)
        self._coordinator, self._lock = coordinator, coordinator.get_lock(LOCK)

    def _owns(self) -> bool:
        """Leases end where heartbeats do not come through. A driver that cannot say so has none."""
        try:
            return bool(self._lock.is_still_owner())
        except tooz.NotImplemented:
            return True

    def stop(self) -> None:
        coordinator, lock, self._coordinator, self._lock = self._coordinator, self._lock, None, None
        with contextlib.suppress(Exception):  # whatever is wrong: the lease ends by itself
            if lock is not None and lock.acquired:
                lock.release()
        with contextlib.suppress(Exception):
            if coordinator is not None:
                coordinator.stop()
