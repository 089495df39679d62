# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps the gauge: looks at boards, observers and the kernel's counters by the clock, and says what is spare.

Context: look() in one thread at a time; the event loop calls it. A look at a resource is some reads, whoever uses it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..arena import ArenaError
from ..gauge import boards, kernel, said
from ..gauge.measure import Look, Measured, between
from ..gauge.place import Place
from ..gauge.said import Gauge, Gauged
from ..gauge.spare import Smoother
from ..resolve.tree import Tree

LOOK_SECONDS = 2.0
"""A ring covers 128 bursts: at 64 bursts a second all of the time."""

KEEP_SECONDS = 10.0
"""What was known is said for so long while nobody knows: when the first background VM comes, its observer is not there yet."""

log = logging.getLogger("idletimed")


@dataclass
class _Known:
    """Of one resource: its smoother, its last look, and when its share was known last."""

    observer: boards.Observer
    smoother: Smoother = field(default_factory=Smoother)
    look: Look | None = None
    measured: Measured = Measured(None)
    known_ns: int = 0


class Looker:
    """Facts, the pure computation, and the file. root: of /sys."""

    def __init__(self, run_dir: str, root: str = "/") -> None:
        self._run_dir, self._root = run_dir, root
        self._known: dict[str, _Known] = {}

    def look(self, places: Sequence[Place], now_ns: int | None = None, at: float | None = None) -> Gauge:
        """Look at these resources, and say what is found. Raises OSError where it cannot be said."""
        tree = Tree(self._root)
        for name in self._known.keys() - {one.resource for one in places}:
            self._known.pop(name).observer.close()
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        found = tuple(self._one(one, tree, now_ns) for one in places)
        gauge = Gauge(time.time() if at is None else at, now_ns / 1e9, found)
        said.write(self._run_dir, gauge)
        return gauge

    def _one(self, place: Place, tree: Tree, now_ns: int) -> Gauged:
        known = self._known.setdefault(place.resource, _Known(boards.Observer(place.path)))
        look = Look(now_ns, _boards(place.path), known.observer.look(now_ns), kernel.read(tree, place.kind, place.device))
        if known.look is not None:
            known.measured = between(place.kind, place.rate_bps, known.look, look)
            if known.measured.spare is not None:
                known.smoother.add(known.measured.spare, (now_ns - known.look.at_ns) / 1e9)
                known.known_ns = now_ns
            elif now_ns - known.known_ns > KEEP_SECONDS * 1e9:
                known.smoother = Smoother()  # what was known is old by the time that it can be known again
        known.look = look
        return Gauged(place.resource, place.kind, place.device, known.measured.source, known.measured.whole,
                      known.smoother.spare, place.rate_bps, known.measured.problem)

    def close(self) -> None:
        for one in self._known.values():
            one.observer.close()
        self._known.clear()


def _boards(path: str) -> boards.Boards | None:
    try:
        return boards.read(path)
    except ArenaError:
        return None


class Gauges:
    """Has the looker look by the clock. places: called in the event loop, gives what makes the places in the thread."""

    def __init__(self, run_dir: str, places: Callable[[], Callable[[], Sequence[Place]]]) -> None:
        self._looker, self._places = Looker(run_dir), places
        self._failed = ""
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Look no more; a look that is under way ends first."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._looker.close()

    async def _look(self) -> None:
        """Whatever goes wrong, the next look comes; it is said once."""
        find = self._places()
        thread = asyncio.ensure_future(asyncio.to_thread(lambda: self._looker.look(find())))
        failed = ""
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.gather(thread, return_exceptions=True)
            raise
        except Exception as error:
            failed = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"  # a file's name is new each time
        if failed and failed != self._failed:
            log.warning("the gauge says nothing: %s", failed)
        self._failed = failed
