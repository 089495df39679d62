# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of several evictors acts: the one that holds a lock of tooz, since more of its drivers have locks than elections."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from tooz import coordination, locking

LOCK = b"idletime-openstack-evict"
log = logging.getLogger("idletime-openstack-evict")


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
    """url: of tooz, such as redis://HOST:6379, etcd3+http://HOST:2379, file:///run/idletime-openstack-evict."""

    def __init__(self, url: str, member: str = "") -> None:
        self._url = url
        self._shown = re.sub("(://[^@/]*?:)[^@]*@", r"\1***@", url)  # without a password
        self._member = (member or f"{socket.gethostname()}-{os.getpid()}").encode()
        self._coordinator: Any = None
        self._lock: Any = None
        self._heart: _Heart | None = None

    def leads(self) -> bool:
        """After the lock was lost False once, whoever has it now: what was known from before may have changed meanwhile."""
        try:
            if self._lost():
                log.warning("[eviction] coordination '%s': no heartbeat came through in time, so the lock may be another's; "
                            "asks for it anew", self._shown)
                self.stop()
                return False
            if self._coordinator is None:
                self._start()
            return self._lock.acquired or bool(self._lock.acquire(blocking=False))
        except LeaderError:
            self.stop()
            raise
        except Exception as error:  # drivers raise what their clients do, not only ToozError
            self.stop()
            text = " ".join(str(error).split()) or type(error).__name__
            raise LeaderError(f"[eviction] coordination '{self._shown}': {text}; remedy: does it run?") from error

    def _start(self) -> None:
        try:
            coordinator = coordination.get_coordinator(self._url, self._member)
        except Exception as error:  # of a driver that is not there it is stevedore's
            raise LeaderError(f"[eviction] coordination '{self._shown}': {error}; remedy: a URL of tooz, such as "
                              "redis://HOST:6379, and the driver's own client library") from error
        coordinator.start()
        self._coordinator, self._lock = coordinator, coordinator.get_lock(LOCK)
        self._heart = _Heart(coordinator.heartbeat)
        if not self._heart.lease_seconds and not _tells(self._lock):
            raise LeaderError(f"[eviction] coordination '{self._shown}': a lock of this driver is lost with its connection "
                              "and does not say so; remedy: redis://, etcd3+http://, zookeeper://, memcached:// or file://")

    def _lost(self) -> bool:
        """Whether the lock, had it been ours, may have been another's since."""
        if self._heart is None:
            return False
        return not self._heart.in_time() or (self._lock.acquired and not self._owns())

    def _owns(self) -> bool:
        return bool(self._lock.is_still_owner()) if _tells(self._lock) else True

    def stop(self) -> None:
        """Whatever is wrong: the lease ends by itself."""
        coordinator, lock, heart = self._coordinator, self._lock, self._heart
        if heart is not None:
            heart.stop()
        with contextlib.suppress(Exception):
            if lock is not None and lock.acquired and self._owns():
                lock.release()
        with contextlib.suppress(Exception):
            if coordinator is not None:
                coordinator.stop()
        self._coordinator = self._lock = self._heart = None


def _tells(lock: Any) -> bool:
    """Whether it can say that it is still held. etcd's cannot, nor can those of data bases."""
    return type(lock).is_still_owner is not locking.Lock.is_still_owner


class _Heart:
    """Keeps leases alive, from a thread of its own, and knows whether one may have run out meanwhile: where the process was
    stopped, or the server not reached, for longer than a lease lasts. tooz's own heart does not tell.

    beat: of a coordinator; returns how long leases last, in seconds, or None where there are none. The first one is here, and
    raises what it raises."""

    def __init__(self, beat: Callable[[], float | None]) -> None:
        self._beat = beat
        self._last = _now()
        self._late = False
        self.lease_seconds = float(beat() or 0.0)
        self._ended = threading.Event()
        if self.lease_seconds:
            threading.Thread(target=self._run, name="heart", daemon=True).start()

    def _run(self) -> None:
        pause = self.lease_seconds / 3
        while not self._ended.wait(pause):
            began, pause = _now(), self.lease_seconds / 3
            try:
                self._beat()
            except Exception as error:  # drivers raise what their clients do
                log.debug("heartbeat: %s", error)
                pause = min(pause, 1.0)
                continue
            # The lease counts from somewhere between; a beat that is answered after its end may have come too late.
            self._late = self._late or _now() - self._last >= self.lease_seconds
            self._last = began

    def in_time(self) -> bool:
        """Called from any thread. False remains so."""
        return not self.lease_seconds or not (self._late or _now() - self._last >= self.lease_seconds)

    def stop(self) -> None:
        self._ended.set()


def _now() -> float:
    """Seconds; goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
