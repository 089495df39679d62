# SPDX-License-Identifier: GPL-2.0-or-later
"""What memory.py and space.py have in common: a look once a period while there is somebody to look at, and acts beside it.

Context: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from .hands import Hands

PATIENCE_SECONDS = 10.0
SIZE, MOST = 2, 8
"""Threads: one looks, one acts."""

log = logging.getLogger("idletimed")


class Follower(ABC):
    """connect: gives a thread its connection. touch: has a domain looked at anew."""

    period_seconds = 1.0

    def __init__(self, connect: Callable[[], Any], touch: Callable[[str], None]) -> None:
        self._connect, self._touch = connect, touch
        self._hands: Hands | None = None
        self._task: asyncio.Task[None] | None = None
        self._acts: set[asyncio.Task[None]] = set()
        self._said: dict[str, str] = {}

    @abstractmethod
    def _wanted(self) -> bool:
        """Whether there is somebody to look at."""

    @abstractmethod
    async def _look(self) -> None:
        """Facts, a decision, acts."""

    @abstractmethod
    def _over(self) -> None:
        """There is nobody any more."""

    def _begin_looks(self) -> None:
        if self._task is None and self._wanted():
            self._own_hands()
            self._task = asyncio.create_task(self._follow())

    def _own_hands(self) -> Hands:
        self._hands = self._hands or Hands(self._connect, SIZE, MOST)
        return self._hands

    async def _follow(self) -> None:
        while self._wanted():
            began = time.monotonic()
            try:
                await self._look()
            except Exception:  # whatever it is, the next look comes
                log.exception("a fault of ours; going on")
            await asyncio.sleep(max(0.0, began + self.period_seconds - time.monotonic()))
        self._task = None
        self._over()

    async def _ask(self, what: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """The facts of a look; None: nothing is known, so nothing is done."""
        assert self._hands is not None
        self._hands.watch(time.monotonic())
        try:
            found = await asyncio.wait_for(self._hands.do(work, *arguments), PATIENCE_SECONDS)
        except Exception as error:
            self._complain("", f"{what} cannot be looked at: {str(error) or type(error).__name__}")
            return None
        self._said.pop("", None)
        return found

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Carry out an act while looks go on."""
        task = asyncio.create_task(work)
        self._acts.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._acts.discard)
        return task

    def _complain(self, uuid: str, text: str) -> None:
        """Once, until it is well again."""
        if self._said.get(uuid) != text:
            log.warning("%s", text)
        self._said[uuid] = text

    def _stop_looks(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._hands is not None:
            self._hands.close()
