# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends background VMs that get too little of this host's processors to another host, once that pays (paper 003, 2).

    facts      every two seconds: what VMs' processors ran and waited, and for how long police.py had stopped them;
               while one gets too little, every ten: hosts' idle processors and memory; what one writes that is to go (peers.py)
    decision   police/linger.py
    act        virt-idletime migrate --idle, which is the operator's own: as idle load, so that a foreground does not pay for it

Disks and uplinks are no reason to move: a VM that can be sent has its disks on storage that all hosts share, and libvirt knows
of no other host's uplink. Nothing is looked at where [migrate] names no host. Context: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import state
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
"""Between two looks at hosts, and for an answer."""

ASKED_MOST = 16
"""Hosts at a time; as many more threads where some hang."""

LEAST_SECONDS, TIMES = 60.0, 10.0
"""A migration ends by itself within its estimated time, or the uplink is not idle: after so many times that it is ended."""

END_SECONDS = 20.0
"""For a command that was interrupted."""

_THINKING, _SAYING = "another host", "its file"
"""Of whom a complaint is that is no VM's and no host's; "" is that of looks, which each look that succeeds takes back."""

_KILLED = ("the command hung and was killed, so its live policy may still say jobs='background'; remedy: 'virt-idletime show' "
           "says, 'virt-idletime enable DOMAIN --set jobs=foreground' puts it back")

log = logging.getLogger("idletimed")


@dataclass
class Member:
    """A background VM. got: as of the last window that said something; known: whether that is the last one. kind: what was last
    said of it, and says: in words, "" where it gets enough."""

    name: str
    seen: tuple[Counts, ...] = ()
    got: Got = field(default_factory=Got)
    known: bool = False
    kind: str = ""
    says: str = ""


class Linger(Follower):
    """connect: gives a thread its connection. touch: has a domain looked at anew. stopped: for how long a VM was, in seconds,
    by cause (police.py). deeds: where what is done is counted."""

    period_seconds = PERIOD_SECONDS

    def __init__(self, connect: Callable[[], Any], said: settings.Settings, touch: Callable[[str], None],
                 stopped: Callable[[str], Mapping[str, float]], deeds: Deeds | None = None) -> None:
        super().__init__(connect, touch)
        self._deeds, self._stopped = deeds or Deeds(), stopped
        self._settings, self._uri, self._folder = said.migrate, said.uri, said.run_dir
        self._to = tuple(dict.fromkeys(said.migrate.to.split()))
        self.members: dict[str, Member] = {}
        self._since: dict[str, float] = {}
        self._peers: Hands | None = None
        self._pending: dict[str, asyncio.Future[Any]] = {}  # hosts that have been asked, by URI; "" is this one
        self._asked = float("-inf")
        self._thinks: asyncio.Task[None] | None = None
        self._moving: asyncio.subprocess.Process | None = None
        self._ended = False
        self._published: dict[str, str] = {}

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
        self._publish()

    async def close(self) -> None:
        """A migration is ended: the VM stays here, and its policy is put back."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()
        if self._moving is not None:
            _interrupt(self._moving)
        if self._thinks is not None and self._moving is None:
            self._thinks.cancel()
        if self._acts:
            await asyncio.wait(list(self._acts), timeout=END_SECONDS + 5)
        self._stop_looks()
        self.members.clear()
        self._publish()
        if self._peers is not None:
            self._peers.close()

    # ---- looks

    async def _look(self) -> None:
        found: dict[str, tuple[tuple[float, float], ...]] | None = await self._ask("processors of background VMs", peers.look,
                                                                                    list(self.members))
        if found is None:
            return
        now, gets = time.monotonic(), {}
        for uuid, vcpus in found.items():
            member = self.members.get(uuid)
            if member is None:
                continue
            by = self._stopped(uuid)
            stopped = by.get("processor", 0.0)
            member.seen = linger.window(member.seen, Counts(now, vcpus, stopped, sum(by.values()) - stopped))
            gets[uuid] = got = linger.got(member.seen, member.got)
            member.got, member.known = got or member.got, got is not None
        before, self._since = self._since, linger.episodes(self._since, gets, now)
        for uuid in before.keys() - self._since.keys():
            self._tell(uuid, "", "has what it wants of the processors again")
        if self._since and now - self._asked >= ASK_SECONDS and (self._thinks is None or self._thinks.done()):
            self._asked = now
            self._thinks = self._beside(self._think())
        self._publish()

    def _publish(self) -> None:
        """For virt-idletime explain."""
        says = {uuid: one.says for uuid, one in self.members.items() if one.says}
        if says == self._published:
            return
        self._published = says
        try:
            state.write_linger(self._folder, says)
        except OSError as error:
            self._complain(_SAYING, f"virt-idletime explain does not know who stays or moves: {error}")

    async def _think(self) -> None:
        """Look at hosts, decide, act: one after the other, so that one VM moves at a time."""
        try:
            subjects = [one for uuid in list(self._since) if (one := await self._subject(uuid)) is not None]
            here: Place | None = Place("", 0.0, 0)
            there: list[Place] = []
            if any(not one.hindered for one in subjects):
                here, *others = await self._places(("", *self._to))
                there = [one for one in others if one is not None]
            if here is None:
                return
            verdicts = self._decide(subjects, here, there)
            mover = next((one for one in verdicts if one.to), None)
            if mover is not None:  # what it writes is asked where it matters, as QEMU has to look
                subjects = [replace(one, writes=await self._hand(peers.writes, one.name)) if one.name == mover.name else one
                            for one in subjects]
                verdicts = self._decide(subjects, here, there)
            self._said.pop(_THINKING, None)
            for verdict in sorted(verdicts, key=lambda one: bool(one.to)):  # a move takes its time
                await self._carry_out(verdict)
        except Exception as error:  # whatever it is, all stay where they are
            self._complain(_THINKING, f"nobody is sent to another host: {str(error) or 'no answer'}")

    def _decide(self, subjects: list[Subject], here: Place, places: list[Place]) -> list[Verdict]:
        return linger.decide(subjects, self._since, here, places, self._settings.mbytes_per_second * 1e6, time.monotonic())

    async def _hand(self, work: Callable[..., Any], *arguments: Any) -> Any:
        assert self._hands is not None
        return await asyncio.wait_for(self._hands.do(work, *arguments), ASK_SECONDS)

    async def _subject(self, uuid: str) -> Subject | None:
        """None: it cannot be looked at, or nothing is known of it now."""
        member = self.members.get(uuid)
        if member is None or not member.known:
            return None
        try:
            found: peers.Candidate = await self._hand(peers.candidate, uuid)
        except Exception as error:  # whatever it is, it stays where it is
            why = str(error) or "no answer"
            self._complain(uuid, f"domain '{member.name}' is not moved, as it cannot be looked at: {why}")
            return None
        self._said.pop(uuid, None)
        return Subject(uuid, member.got, found.memory, found.sent, hindered=self._hinders(found))

    def _hinders(self, one: peers.Candidate) -> str:
        again = self._settings.again_seconds
        if one.moved_at is not None and abs(time.time() - one.moved_at) < again:  # the other host's clock may be ahead
            return f"it was moved, or was to be, less than {again} s ago"
        if one.block and not self._settings.block_disks:
            return (f"its disk {one.block} is a block device, and whether other hosts have the same is not known; remedy: "
                    "block-disks = true where they do")
        return ""

    async def _places(self, uris: Sequence[str]) -> list[Place | None]:
        """This host and others, in this order; None: it has not answered in time, or is this one. One that hangs is asked again
        when it has answered."""
        self._peers = self._peers or Hands(self._connect, min(ASKED_MOST, len(self._to) + 1), 2 * ASKED_MOST)
        self._peers.watch(time.monotonic())
        for uri in uris:
            if uri not in self._pending:
                self._pending[uri] = self._peers.do(peers.place, uri) if uri else self._peers.do(peers.here)
        done, _ = await asyncio.wait(self._pending.values(), timeout=ASK_SECONDS)
        return [self._answer(uri, done) for uri in uris]

    def _answer(self, uri: str, done: set[asyncio.Future[Any]]) -> Place | None:
        found, error = None, "no answer"
        if self._pending[uri] in done:
            future = self._pending.pop(uri)
            caught = future.exception()
            error = "" if caught is None else str(caught) or type(caught).__name__
            found = None if error else future.result()
        if error:
            what = f"nobody is sent to {uri}" if uri else "this host's processors cannot be looked at"
            self._complain(uri, f"{what}: {error}")
        else:
            self._said.pop(uri, None)
        return found

    # ---- acts

    async def _carry_out(self, one: Verdict) -> None:
        if self._ended or one.name not in self.members:
            return
        if not one.to:
            self._tell(one.name, one.kind, f"stays: {one.why}")
        elif self._settings.dry_run:
            self._tell(one.name, one.kind, f"would move to {one.to} (dry-run): {one.why}")
        else:
            self._tell(one.name, one.kind, f"moves to {one.to}: {one.why}")
            await self._move(one.name, one.to, max(LEAST_SECONDS, TIMES * one.seconds))

    def _tell(self, uuid: str, kind: str, text: str) -> None:
        """Once, until it is about something else; the numbers in between are for those who want to know more."""
        member = self.members.get(uuid)
        if member is None:
            return
        log.log(logging.DEBUG if kind == member.kind else logging.INFO, "domain '%s' %s", member.name, text)
        member.kind, member.says = kind, text if kind else ""

    async def _move(self, uuid: str, to: str, limit_seconds: float) -> None:
        """What fails stays where it is."""
        member = self.members[uuid]
        try:
            await self._hand(peers.note, uuid, time.time())
            error = "idletimed ends" if self._ended else await self._migrate(uuid, to, limit_seconds)
        except Exception as caught:
            error = str(caught) or "no answer"
        if error:
            self._complain(uuid, f"domain '{member.name}' could not be moved to {to}: {error}")
            member.kind, member.says = "", f"could not be moved to {to}: {error}"
        else:
            log.info("domain '%s' runs at %s", member.name, to)
            self._deeds.done("migrate", "move", "processor")
        self._touch(uuid)

    async def _migrate(self, uuid: str, to: str, limit_seconds: float) -> str:
        """Why the command failed, "" if it did not."""
        argv = [sys.executable, "-m", "idletime", "--connect", self._uri, "--run-dir", self._folder,
                "migrate", uuid, to, "--idle", "--json"]
        process = self._moving = await asyncio.create_subprocess_exec(
            *argv, cwd="/", env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
        said = asyncio.ensure_future(process.communicate())
        try:
            if not (await asyncio.wait([said], timeout=limit_seconds))[0]:
                _interrupt(process)
                if not (await asyncio.wait([said], timeout=END_SECONDS))[0]:
                    process.kill()
                    await said
                    return _KILLED
            _, text = await said
        finally:
            self._moving = None
        return "" if process.returncode == 0 else text.decode(errors="replace").strip() or f"status {process.returncode}"


def _interrupt(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
