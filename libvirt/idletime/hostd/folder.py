# SPDX-License-Identifier: GPL-2.0-or-later
"""Looks at the VMs behind a folder of QMP sockets (vms.py), by the clock. Context: the event loop; looks run in threads.

A VM whose QEMU does not answer costs a thread for some seconds and no more; the others are looked at meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .. import state
from ..conf.rules import Rules
from ..errors import IdletimeError
from . import vms
from .settings import Settings
from .watched import Part

SEARCH_SECONDS = 2.0
"""How soon a VM that was started is found: a pattern of paths costs microseconds."""

UNSEEN_SECONDS, AGAIN_SECONDS = 30.0, 5.0
"""How long observers are left as they were for VMs that could not be asked since idletimed began, and how often these are."""

AT_ONCE = 4

log = logging.getLogger("idletimed")

Say = Callable[[str, str, tuple[str, ...]], None]


@dataclass
class _Seen:
    """One socket: which file it is, when it is due, until when one that cannot be asked is waited for, whether it is being
    looked at."""

    file: tuple[int, int]
    due: float
    waits_until: float
    busy: bool = False
    part: Part | None = None
    looked: bool = False


class Folder:
    """All sockets. say: takes a key, the VM's name and its problems. changed: called after looks, and when VMs go.
    counted: takes when a look began, and whether it failed."""

    def __init__(self, settings: Settings, known: Callable[[], Rules], say: Say,
                 changed: Callable[[], None] = lambda: None,
                 counted: Callable[[float, bool], None] = lambda _began, _failed: None) -> None:
        self._settings, self._known, self._say, self._changed, self._counted = settings, known, say, changed, counted
        self._seen: dict[str, _Seen] = {}
        self._there: set[str] | None = None
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(AT_ONCE, "idletimed-qmp")
        self._looks: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._follow()) if settings.qmp.sockets else None

    def touch_all(self) -> None:
        """Rules, resources or routes have changed."""
        for seen in self._seen.values():
            seen.due = 0

    def parts(self) -> list[Part] | None:
        """What observers have to know of the VMs; None before all have been looked at."""
        if self._task is None:
            return []
        now = self._loop.time()
        if self._there is None or any(not seen.looked and now < seen.waits_until for seen in self._seen.values()):
            return None
        return [seen.part for seen in self._seen.values() if seen.part]

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _follow(self) -> None:
        while True:
            try:
                self._search(self._loop.time())
            except Exception:  # whatever it is, the next search comes
                log.exception("a fault of ours; going on")
            await asyncio.sleep(SEARCH_SECONDS)

    def _search(self, now: float) -> None:
        there = vms.sockets(self._settings.qmp)
        waits_until = now + UNSEEN_SECONDS if self._there is None else now  # observers know nothing of one that comes later
        if self._there != there.keys():
            self._there = set(there)
            state.keep_vms(self._settings.run_dir, self._there)
        for path in self._seen.keys() - there.keys():
            del self._seen[path]
            self._say(path, path, ())
            self._changed()
        for path, file in there.items():
            seen = self._seen.get(path)
            if seen is None or (seen.file != file and not seen.busy):
                seen = self._seen[path] = _Seen(file, now, waits_until)
            if seen.due <= now and not seen.busy:
                seen.busy = True
                task = asyncio.create_task(self._look(path, seen))
                self._looks.add(task)
                task.add_done_callback(self._looks.discard)

    async def _look(self, path: str, seen: _Seen) -> None:
        began, failed = time.monotonic(), True
        seen.due = self._loop.time() + self._settings.qmp.look_seconds
        try:
            found = await self._loop.run_in_executor(self._pool, vms.settle, path, self._settings, self._known())
            self._say(path, found.name, found.problems)
            seen.part, failed, seen.looked = found.part, found.failed, True
            if failed:
                seen.due = 0
        except Exception as error:  # whatever it is, the other VMs are served
            problem = str(error) if isinstance(error, IdletimeError) else f"{type(error).__name__}: {error}"
            self._say(path, Path(path).name, (problem,))
            self._tell(path, problem)
            if self._loop.time() < seen.waits_until:
                seen.due = min(seen.due, self._loop.time() + AGAIN_SECONDS)
        self._counted(began, failed)
        seen.busy = False
        self._changed()

    def _tell(self, path: str, problem: str) -> None:
        """For the command to show; not of a socket that was removed meanwhile."""
        if path in self._seen:
            with contextlib.suppress(OSError):
                vms.not_asked(path, self._settings, problem)
