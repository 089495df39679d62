# SPDX-License-Identifier: GPL-2.0-or-later
"""Has background VMs' scratch disks trimmed, then dropped, while the file system that they are on is short of space.

    facts      every two seconds: statvfs, blocks of overlays; where it is short, whether guests have an agent (overlay.py)
    decision   police/space.py, for each file system
    act        overlay.py: trim, drop

Who is meant, a look at a domain says (settle.py). A VM whose disk was dropped is not started again by us.
What a guest does with a trim is not checked: what counts is what is free after the time for it.
Context: the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..police import space
from ..police.space import Act, Filesystem, How, State
from ..police.space import Scratch as Subject
from ..scratch import Scratch
from . import overlay, settings
from .deeds import Deeds
from .follow import Follower
from .hands import Hands
from .settle import Looked

PERIOD_SECONDS = 2.0
TRIMS_SIZE, TRIMS_MOST = 1, 4
"""Threads of their own: guests that do not answer must not keep looks and drops waiting."""

STOPPED_SECONDS, POLL_SECONDS = 20.0, 0.1
"""So long a trim waits for a VM that idletimed has stopped, which goes on for a part of the time: longer than exponential
idletime's longest stop of 16 s (004)."""

DROP_SECONDS = 60.0
"""libvirt gives a QEMU 15 s to end. Whose has not ended by then does not keep others from being dropped."""

CLOSE_SECONDS = 20.0
"""So long an ending idletimed waits for what it is about to empty. Its unit gives it 90 s."""

RATE_LOOKS = 6
"""How many looks back the rate is taken at which free space falls."""

log = logging.getLogger("idletimed")


@dataclass
class Member:
    """A background VM with scratch disks. trimmed_s: when it was asked to trim; trims: it is at it. deaf_until_s: its agent has
    failed at that, and is not asked before. refused_s: when it was found that it must not be dropped."""

    name: str
    disks: tuple[Scratch, ...]
    trimmed_s: float | None = None
    trims: bool = False
    deaf_until_s: float = 0.0
    refused_s: float | None = None


class Space(Follower):
    """connect: gives a thread its connection. touch: has a domain looked at anew. deeds: where what is done is counted."""

    period_seconds = PERIOD_SECONDS

    def __init__(self, connect: Callable[[], Any], said: settings.Settings, touch: Callable[[str], None],
                 deeds: Deeds | None = None) -> None:
        super().__init__(connect, touch)
        self._deeds = deeds or Deeds()
        self._low, self._folder = said.space.low_percent / 100, said.run_dir
        self.members: dict[str, Member] = {}
        self._states: dict[int, State] = {}
        self._free: dict[int, deque[tuple[float, int]]] = {}
        self._finished: set[str] = set()
        self._trims: Hands | None = None
        self._drops: dict[str, asyncio.Task[None]] = {}  # and the end of one

    # ---- who is meant

    def seen(self, uuid: str, looked: Looked) -> None:
        """A domain was looked at."""
        if not looked.active:
            self._gone(uuid, looked)
        elif looked.choice is not None:
            self._see(uuid, looked)
        self._begin_looks()

    def _see(self, uuid: str, looked: Looked) -> None:
        member = self.members.get(uuid)
        if looked.dropped is not None and uuid not in self._drops:
            self._start(uuid, f"domain '{looked.name}' runs: its scratch disk was not dropped", "", overlay.forget, uuid)
        self._finished.discard(uuid)
        if not looked.scratch or not self._low:
            self.members.pop(uuid, None)
        elif member is None or member.disks != looked.scratch:
            self.members[uuid] = Member(looked.name, looked.scratch)

    def _gone(self, uuid: str, looked: Looked) -> None:
        """What an idletimed began that was killed in the middle is finished once; what comes of it is told."""
        if uuid in self._drops:
            return  # it is looked at again when that is done
        self.members.pop(uuid, None)
        if looked.dropped is not None and not looked.dropped.done and uuid not in self._finished:
            self._finished.add(uuid)
            self._start(uuid, f"domain '{looked.name}': {looked.dropped}", "", overlay.finish, uuid, self._folder)

    def forget(self, uuid: str) -> None:
        """A domain is gone."""
        self.members.pop(uuid, None)
        self._said.pop(uuid, None)
        self._finished.discard(uuid)

    def _wanted(self) -> bool:
        return bool(self.members)

    def _over(self) -> None:
        self._states.clear()
        self._free.clear()

    async def close(self) -> None:
        """A drop that is under way comes to its end; one that hangs the next idletimed finishes."""
        if self._task is not None:
            self._task.cancel()
        if self._drops:
            await asyncio.wait(list(self._drops.values()), timeout=CLOSE_SECONDS)
        self._stop_looks()
        self.members.clear()
        if self._trims is not None:
            self._trims.close()

    # ---- looks

    async def _look(self) -> None:
        disks = {uuid: member.disks for uuid, member in self.members.items()}
        seen: overlay.Seen | None = await self._ask("scratch disks", overlay.look, disks, self._low)
        if seen is None:
            return
        now = time.monotonic()
        self._states = {number: state for number, state in self._states.items() if number in seen.places}
        self._free = {number: past for number, past in self._free.items() if number in seen.places}
        for number, place in seen.places.items():
            there = Filesystem(place.free, place.size, self._rate(number, place.free, now), self._low)
            subjects = [self._subject(uuid, has, now) for (where, uuid), has in seen.disks.items()
                        if where == number and uuid in self.members]
            decision = space.decide(self._states.get(number, State()), there, subjects, now)
            self._states[number] = decision.state
            for act in decision.acts:
                self._begin(number, act)

    def _subject(self, uuid: str, has: overlay.Has, now: float) -> Subject:
        """What hinders a drop may end, such as a migration."""
        member = self.members[uuid]
        can = member.refused_s is None or now - member.refused_s >= space.AGAIN_S
        return Subject(uuid, has.allocated, has.agent and now >= member.deaf_until_s, member.trimmed_s, can)

    def _rate(self, number: int, free: int, now: float) -> float:
        """Bytes a second by which free space falls."""
        past = self._free.setdefault(number, deque(maxlen=RATE_LOOKS))
        past.append((now, free))
        then, had = past[0]
        return max(0.0, (had - free) / (now - then)) if now > then else 0.0

    # ---- acts

    def _begin(self, number: int, act: Act) -> None:
        member = self.members[act.name]
        if act.how is How.TRIM:
            if not member.trims:
                member.trimmed_s, member.trims = time.monotonic(), True
                self._start(act.name, f"domain '{member.name}' trims its disks", act.why, overlay.trim, act.name, deed=act)
            return
        if act.name in self._drops:
            return
        disks = ", ".join(one.target for one in member.disks)
        self._start(act.name, f"domain '{member.name}' is stopped, and its scratch disk dropped ({disks})", act.why,
                    overlay.drop, act.name, number, self._low, act.why, self._folder, deed=act)

    def _start(self, uuid: str, words: str, why: str, work: Callable[..., bool], *arguments: Any,
               deed: Act | None = None) -> None:
        """deed: to be counted when it is done."""
        log.info("%s%s", words, f": {why}" if why else "")
        task = self._beside(self._carry_out(uuid, words, work, arguments, deed))
        if work is not overlay.trim:
            self._drops[uuid] = task

    async def _carry_out(self, uuid: str, words: str, work: Callable[..., bool], arguments: tuple[Any, ...],
                         deed: Act | None) -> None:
        hands, failed, again_s = self._hands_for(work), False, space.AGAIN_S
        hands.watch(time.monotonic())
        try:
            if work is overlay.trim:
                await asyncio.wait_for(self._trim(hands, uuid), space.TRIM_S)
            else:
                await asyncio.wait_for(hands.do(work, *arguments), DROP_SECONDS)
            self._said.pop(uuid, None)
            if deed is not None:
                self._deeds.done("space", deed.how.value, "low-water", deed.frees)
        except Exception as error:
            self._complain(uuid, f"{words}: it did not come through: {str(error) or 'no answer'}")
            failed = True
            if isinstance(error, asyncio.TimeoutError):
                again_s = math.inf  # one that hangs has one of few threads already
        member = self.members.get(uuid)
        if member is not None:
            member.trims = member.trims and work is not overlay.trim
            if failed and work is overlay.trim:
                member.deaf_until_s = time.monotonic() + again_s
            member.refused_s = time.monotonic() if failed and work is overlay.drop else member.refused_s
        if work is not overlay.trim:
            self._drops.pop(uuid, None)
            self._states = {number: self._without(state, uuid, failed) for number, state in self._states.items()}
            self._touch(uuid)

    @staticmethod
    async def _trim(hands: Hands, uuid: str) -> None:
        """As soon as the VM runs. No thread is kept until then: others' guests have theirs trimmed meanwhile."""
        for _ in range(int(STOPPED_SECONDS / POLL_SECONDS)):
            if await hands.do(overlay.trim, uuid):
                return
            await asyncio.sleep(POLL_SECONDS)
        raise RuntimeError(f"idletimed has had it stopped for {STOPPED_SECONDS:.0f} s")

    @staticmethod
    def _without(state: State, uuid: str, failed: bool) -> State:
        """A VM has gone, or cannot: then nothing is to be waited for."""
        if uuid not in state.leaving:
            return state
        return replace(state, leaving=state.leaving - {uuid}, dropped_s=None if failed else state.dropped_s)

    def _hands_for(self, work: Callable[..., bool]) -> Hands:
        if work is overlay.trim:
            self._trims = self._trims or Hands(self._connect, TRIMS_SIZE, TRIMS_MOST)
            return self._trims
        return self._own_hands()
