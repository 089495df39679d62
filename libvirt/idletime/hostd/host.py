# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt's events: a thread with libvirt's own event loop and a connection that is made anew when it is lost.

What happens is told to the asyncio loop in four words: `appeared` (all domains that there are, after each
connect), `touched` (something happened to one), `reset` (a guest was reset), `migrated` (one came in, or went out).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import libvirt
import libvirt_qemu

from .. import due
from . import deeds, native, rates, reclaim, stopped, wish

RETRY_SECONDS = 1.0
RETRY_MOST_SECONDS = 15.0
DETACHED, DIVERGES = "IDLETIME_DETACHED", "IDLETIME_MIGRATION_DIVERGES"
JOB, MIGRATION = "JOB_STATUS_CHANGE", "MIGRATION"
JOBS_MOST = 1000
"""Jobs that were made and do not run yet; more are none."""

_MIGRATED = {
    (libvirt.VIR_DOMAIN_EVENT_RESUMED, libvirt.VIR_DOMAIN_EVENT_RESUMED_MIGRATED): deeds.IN,
    (libvirt.VIR_DOMAIN_EVENT_STOPPED, libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED): deeds.OUT,
}
"""Events and their details that mean that it is done: one that was begun may fail."""

KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 5, 6
"""A libvirtd that hangs for half a minute counts as lost."""

log = logging.getLogger("idletimed")


@dataclass(frozen=True)
class Listener:
    """Whom to tell; called in the loop's thread."""

    appeared: Callable[[list[str]], None]
    touched: Callable[[str], None]
    reset: Callable[[str], None]
    migrated: Callable[[str], None] = lambda _direction: None


class Host:
    """The connection for events. Context: the loop's thread, but where it says "event thread"."""

    def __init__(self, uri: str, listener: Listener) -> None:
        self.uri, self.listener = uri, listener
        self._loop = asyncio.get_running_loop()
        self._lost = threading.Event()
        self._ending = False
        self._made: set[tuple[str, str]] = set()  # event thread: jobs, by domain, that do not run yet
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=self._events, daemon=True, name="idletimed-events").start()
        threading.Thread(target=self._connections, daemon=True, name="idletimed-host").start()

    def open(self) -> Any:
        """A connection of one's own; for threads of `hands`."""
        connection = libvirt.open(self.uri)
        with contextlib.suppress(libvirt.libvirtError):
            connection.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
        return connection

    def close(self) -> None:
        """Hear nothing more."""
        self._ending = True
        self._lost.set()

    def _events(self) -> None:
        while not self._ending:
            with contextlib.suppress(libvirt.libvirtError):
                libvirt.virEventRunDefaultImpl()

    def _connections(self) -> None:
        """Connect, wait until that is lost, connect again."""
        delay = RETRY_SECONDS
        while not self._ending:
            self._lost.clear()
            try:
                connection = self.open()
                self._listen(connection)
                delay = RETRY_SECONDS
            except libvirt.libvirtError as error:
                log.warning("no connection to %s: %s; trying again in %g s", self.uri, error, delay)
                time.sleep(delay)
                delay = min(2 * delay, RETRY_MOST_SECONDS)
                continue
            self._lost.wait()
            with contextlib.suppress(libvirt.libvirtError):
                connection.close()
            if not self._ending:
                log.warning("the connection to %s is lost; what runs keeps its settings", self.uri)

    def _listen(self, connection: Any) -> None:
        """Events first, then the list: what happens in between is heard twice rather than never."""
        connection.registerCloseCallback(lambda *_: self._lost.set(), None)
        for number, callback in self._callbacks().items():
            connection.domainEventRegisterAny(None, number, callback, None)
        with contextlib.suppress(libvirt.libvirtError):  # no QEMU: then a second look comes with the retry
            libvirt_qemu.qemuMonitorEventRegister(connection, None, DETACHED, self._detached, None, 0)
            libvirt_qemu.qemuMonitorEventRegister(connection, None, DIVERGES, self._diverges, None, 0)
            libvirt_qemu.qemuMonitorEventRegister(connection, None, JOB, self._job, None, 0)
            libvirt_qemu.qemuMonitorEventRegister(connection, None, MIGRATION, self._moves, None, 0)
        uuids = [domain.UUIDString() for domain in connection.listAllDomains()]
        log.info("connected to %s: %d domains", self.uri, len(uuids))
        self._tell(self.listener.appeared, uuids)

    def _callbacks(self) -> dict[int, Callable[..., None]]:
        """Event thread: each says only which domain it was."""

        def touched(_connection: Any, domain: Any, *_rest: Any) -> None:
            self._tell(self.listener.touched, domain.UUIDString())

        def life(connection: Any, domain: Any, event: int, detail: int, *_rest: Any) -> None:
            if (event, detail) in _MIGRATED:
                self._tell(self.listener.migrated, _MIGRATED[event, detail])
            touched(connection, domain)

        def reset(_connection: Any, domain: Any, *_rest: Any) -> None:
            self._tell(self.listener.reset, domain.UUIDString())

        def metadata(_connection: Any, domain: Any, _kind: int, namespace: str | None, *_rest: Any) -> None:
            ours = (wish.NAMESPACE, native.NAMESPACE, stopped.NAMESPACE, reclaim.NAMESPACE,
                    rates.NAMESPACE, due.NAMESPACE)
            if namespace not in ours:  # rules may look at any other, and at titles
                self._tell(self.listener.touched, domain.UUIDString())

        return {
            libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE: life,
            libvirt.VIR_DOMAIN_EVENT_ID_REBOOT: reset,
            libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED: touched,
            libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED: touched,
            libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE: metadata,
            libvirt.VIR_DOMAIN_EVENT_ID_BLOCK_JOB_2: touched,  # its end may put a disk on another resource
        }

    def _detached(self, _connection: Any, domain: Any, *_rest: Any) -> None:
        """Event thread: a device has left its resource."""
        self._tell(self.listener.touched, domain.UUIDString())

    def _diverges(self, _connection: Any, domain: Any, _event: str, _seconds: int, _micros: int, details: str | None,
                  *_rest: Any) -> None:
        """Event thread: a migration that is held does not end at its pace."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            said = json.loads(details or "")
            log.warning("domain '%s': its migration does not end at this pace: the guest writes %.1f MiB/s, and %.1f MiB/s "
                        "leave; remedy: wait for a quieter hour, or end it (virsh domjobabort %s) and begin again by "
                        "'virt-idletime migrate' with --if-diverging foreground", domain.name(), said["written"] / (1 << 20),
                        said["left"] / (1 << 20), domain.name())
        self._tell(self.listener.touched, domain.UUIDString())

    def _job(self, _connection: Any, domain: Any, _event: str, _seconds: int, _micros: int, details: str | None,
             *_rest: Any) -> None:
        """Event thread: a job runs for the first time. libvirt's own events tell only when one is ready or has ended; QEMU's
        tell of each pause, too, as every drain makes one."""
        try:
            said = json.loads(details or "")
            job, status = (domain.UUIDString(), str(said["id"])), said["status"]
        except (ValueError, TypeError, KeyError):
            return
        if status == "created" and len(self._made) < JOBS_MOST:
            self._made.add(job)
        elif job in self._made:
            self._made.discard(job)
            self._tell(self.listener.touched, job[0])

    def _moves(self, _connection: Any, domain: Any, _event: str, _seconds: int, _micros: int, details: str | None,
               *_rest: Any) -> None:
        """Event thread: a migration has begun to send; libvirt tells of its end."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            if json.loads(details or "")["status"] == "active":
                self._tell(self.listener.touched, domain.UUIDString())

    def _tell(self, whom: Callable[..., None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(whom, what)
