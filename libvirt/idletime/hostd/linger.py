# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends background VMs that get too little of this host's processors to another host, once that pays (paper 003, 2).

    facts      every two seconds: what VMs' processors ran and waited, and for how long police.py had stopped them;
               while one gets too little, every ten: other hosts' idle processors and memory, what the VM writes (peers.py)
    decision   police/linger.py
    act        virt-idletime migrate --idle, which is the operator's own: as idle load, as foreground's migration costs it most

Disks and uplinks are no reason to move: a VM that can be sent has its disks on storage that all hosts share, and libvirt knows
of no other host's uplink. Nothing is looked at where [migrate] names no host. Context: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..police import linger
from ..police.linger import Counts, Got, Place, Subject, Verdict
from ..policy import Class
from . import peers, settings
from .deeds import Deeds
from .follow import Follower
from .hands import Hands
from .settle import Looked

PERIOD_SECONDS = 2.0
ASK_SECONDS = 10.0
"""Between two looks at other hosts."""

LIMIT_SECONDS = 3600.0
"""A migration that has not ended by then is ended: idle time is not enough."""

CLOSE_SECONDS = 20.0

log = logging.getLogger("idletimed")


@dataclass
class Member:
    """A background VM. kind: what was last said of it."""

    name: str
    seen: tuple[Counts, ...] = ()
    got: Got = field(default_factory=Got)
    memory: int = 0
    kind: str = ""


class Linger(Follower):
    """connect: gives a thread its connection. touch: has a domain looked at anew. stopped: for how long a VM was, in seconds, by
    cause (police.py). deeds: where what is done is counted."""

    period_seconds = PERIOD_SECONDS

    def __init__(self, connect: Callable[[], Any], said: settings.Settings, touch: Callable[[str], None],
                 stopped: Callable[[str], Mapping[str, float]], deeds: Deeds | None = None) -> None:
        super().__init__(connect, touch)
        self._deeds, self._stopped = deeds or Deeds(), stopped
        self._settings, self._uri, self._folder = said.migrate, said.uri, said.run_dir
        self._to = tuple(said.migrate.to.split())
        self.members: dict[str, Member] = {}
        self._since: dict[str, float] = {}
        self._peers: Hands | None = None
        self._asked = float("-inf")
        self._thinks: asyncio.Task[None] | None = None
        self._moving: asyncio.subprocess.Process | None = None
        self._ended = False

    # ---- who is meant

    def seen(self, uuid: str, looked: Looked) -> None:
        """A domain was looked at. Whole tenants only: what a guest asked for itself it may take back at any time."""
        if not (self._to and looked.active):
            self.forget(uuid)
        elif looked.choice is not None:
            if looked.background and looked.policy is not None and looked.policy.class_ is Class.BACKGROUND:
                self.members.setdefault(uuid, Member(looked.name)).name = looked.name
            else:
                self.forget(uuid)
        self._begin_looks()

    def forget(self, uuid: str) -> None:
        """A domain is gone, or is not background."""
        self.members.pop(uuid, None)
        self._since.pop(uuid, None)
        self._said.pop(uuid, None)

    def _wanted(self) -> bool:
        return bool(self.members) and not self._ended

    def _over(self) -> None:
        self._since.clear()

    async def close(self) -> None:
        """A migration is ended: the VM stays here, and its policy is put back."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()
        if self._moving is not None:
            self._interrupt(self._moving)
        if self._acts:
            await asyncio.wait(list(self._acts), timeout=CLOSE_SECONDS)
        self._stop_looks()
        self.members.clear()
        if self._peers is not None:
            self._peers.close()

    @staticmethod
    def _interrupt(process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)

    # ---- looks

    async def _look(self) -> None:
        found: dict[str, peers.Vm] | None = await self._ask("processors of background VMs", peers.look, list(self.members))
        if found is None:
            return
        now, gets = time.monotonic(), {}
        for uuid, vm in found.items():
            member = self.members.get(uuid)
            if member is None:
                continue
            by = self._stopped(uuid)
            stopped = by.get("processor", 0.0)
            counts = Counts(now, vm.ran_s, vm.waited_s, stopped, sum(by.values()) - stopped)
            member.seen, member.memory = linger.window(member.seen, counts), vm.memory
            gets[uuid] = linger.got(member.seen, member.got)
            member.got = gets[uuid] or member.got
        before, self._since = self._since, linger.episodes(self._since, gets, now)
        for uuid in before.keys() - self._since.keys():
            self._tell(uuid, "", "it has what it wants of the processors again")
        idle = self._moving is None and (self._thinks is None or self._thinks.done())
        if self._since and idle and now - self._asked >= ASK_SECONDS:
            self._asked = now
            self._thinks = self._beside(self._think())

    async def _think(self) -> None:
        """Look at other hosts, decide, act."""
        places = await self._places()
        subjects = [one for uuid in self._since if (one := await self._subject(uuid, bool(places))) is not None]
        for verdict in linger.decide(subjects, self._since, places, self._settings.mbytes_per_second * 1e6, time.monotonic()):
            if verdict.name in self.members and not self._ended:
                self._carry_out(verdict)

    async def _places(self) -> list[Place]:
        """Hosts that answer."""
        hands = self._peers = self._peers or Hands(self._connect, min(4, len(self._to)), 2 * len(self._to) + 4)
        hands.watch(time.monotonic())
        found = await asyncio.gather(*(asyncio.wait_for(hands.do(peers.place, uri), ASK_SECONDS) for uri in self._to),
                                     return_exceptions=True)
        for uri, one in zip(self._to, found, strict=True):
            if isinstance(one, BaseException):
                self._complain(uri, f"nobody is sent to {uri}: {str(one) or 'no answer'}")
            else:
                self._said.pop(uri, None)
        return [one for one in found if isinstance(one, Place)]

    async def _subject(self, uuid: str, ask: bool) -> Subject | None:
        """None: it cannot be looked at. ask: also what takes time."""
        assert self._hands is not None
        member, hands = self.members.get(uuid), self._hands
        if member is None:
            return None
        try:
            at = await asyncio.wait_for(hands.do(peers.moved_at, uuid), ASK_SECONDS)
            rests = at is not None and 0 <= time.time() - at < self._settings.again_seconds
            writes = await asyncio.wait_for(hands.do(peers.writes, uuid), ASK_SECONDS) if ask and not rests else 0.0
        except Exception as error:  # whatever it is, it stays where it is
            self._complain(uuid, f"domain '{member.name}' is not moved, as it cannot be looked at: {str(error) or 'no answer'}")
            return None
        self._said.pop(uuid, None)
        return Subject(uuid, member.got, member.memory, writes, rests)

    # ---- acts

    def _carry_out(self, one: Verdict) -> None:
        if not one.to:
            self._tell(one.name, one.kind, f"stays: {one.why}")
        elif self._settings.dry_run:
            self._tell(one.name, one.kind, f"would move to {one.to} (dry-run): {one.why}")
        else:
            self._tell(one.name, one.kind, f"moves to {one.to}: {one.why}")
            self._beside(self._move(one.name, one.to))

    def _tell(self, uuid: str, kind: str, text: str) -> None:
        """Once, until it is about something else; the numbers in between are for those who want to know more."""
        member = self.members.get(uuid)
        if member is None:
            return
        log.log(logging.DEBUG if kind == member.kind else logging.INFO, "domain '%s' %s", member.name, text)
        member.kind = kind

    async def _move(self, uuid: str, to: str) -> None:
        assert self._hands is not None
        member = self.members[uuid]
        argv = [sys.executable, "-m", "idletime", "--connect", self._uri, "--run-dir", self._folder, "migrate", uuid, to, "--idle",
                "--json"]
        where = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        try:
            await self._hands.do(peers.note, uuid, time.time())
            self._moving = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, env=where,
                                                                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
            error = await self._ends(self._moving)
        except Exception as caught:  # the VM stays where it is
            error = str(caught)
        finally:
            self._moving = None
        if error:
            self._complain(uuid, f"domain '{member.name}' could not be moved to {to}: {error}")
            member.kind = ""
        else:
            log.info("domain '%s' runs at %s", member.name, to)
            self._deeds.done("migrate", "move", "processor")
        self._touch(uuid)

    async def _ends(self, process: asyncio.subprocess.Process) -> str:
        """What it said, where it failed."""
        said = asyncio.ensure_future(process.communicate())
        done, _ = await asyncio.wait([said], timeout=LIMIT_SECONDS)
        if not done:
            self._interrupt(process)
        _, text = await said
        return "" if process.returncode == 0 else text.decode(errors="replace").strip() or f"status {process.returncode}"
