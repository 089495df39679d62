# SPDX-License-Identifier: GPL-2.0-or-later
"""Has background VMs give memory back while the foreground is short of it, where their policy names a minimum (paper 003).

    facts      once a second: /proc/meminfo, PSI of foreground VMs, VMs that are about to start (their hook says so); reclaim.py
    decision   police/memory.py, for all of them
    act        reclaim.py: balloon, memory.reclaim, save, start; memory.low of cgroup v2

Who is meant, a look at a domain says (settle.py). libvirt is asked while memory is short, or was. What was taken is read from
the domain, so that it does not matter who was restarted meanwhile. Context: the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..police import memory
from ..police.look import Look
from ..police.memory import Act, Group, Host, How, Saved, State, Vm
from ..policy import Memory as Said
from . import reclaim, settings
from .deeds import Deeds
from .follow import Follower
from .protect import FILE, Protection
from .settle import Looked

PERIOD_SECONDS = 1.0

GIVES, STARTING = ".gives", ".starting"
"""In the run directory: there while somebody gives; a folder with a file for each VM that is about to start."""

log = logging.getLogger("idletimed")


@dataclass
class Member:
    """A background VM with a minimum, or one that was. said: None: it is to have all that it had. recorded: something was
    taken, or may have been. busy: an act is under way. refused_s: when it could not be saved."""

    name: str
    said: Said | None
    folder: str | None
    balloon: bool
    pid: int | None = None
    recorded: bool = False
    busy: bool = False
    refused_s: float | None = None


class Memory(Follower):
    """connect: gives a thread its connection. touch: has a domain looked at anew. root: where /proc and /sys are. deeds: where
    what is done is counted."""

    def __init__(self, connect: Callable[[], Any], said: settings.Settings, touch: Callable[[str], None],
                 root: str = "/", deeds: Deeds | None = None) -> None:
        super().__init__(connect, touch)
        self._deeds = deeds or Deeds()
        self._files, self._root = Look(root), root.rstrip("/")
        self._settings = memory.Settings(said.memory.within_seconds, said.memory.calm_seconds, PERIOD_SECONDS)
        self._reserve, self._run_dir = said.memory.reserve_percent / 100, Path(said.run_dir)
        self.members: dict[str, Member] = {}
        self.saved: dict[str, tuple[str, Saved]] = {}
        self._unstarted: dict[str, float] = {}  # those of them that could not be started, and when
        self._groups: dict[str, Group] = {}
        self._open: set[str] = set()  # foreground that nothing protects
        self._protection = Protection(self._root, self._run_dir)
        self._state = State()
        self._tell()

    # ---- who is meant

    def seen(self, uuid: str, looked: Looked) -> None:
        """A domain was looked at."""
        if not looked.active:
            self.forget(uuid)
            if looked.saved is not None:
                self.saved[uuid] = (looked.name, Saved(uuid, looked.saved.bytes_))
        elif looked.choice is not None:
            self.saved.pop(uuid, None)
            self._see(uuid, looked, looked.policy.memory if looked.background and looked.policy else None)
        self._tell()
        self._begin_looks()

    def _see(self, uuid: str, looked: Looked, said: Said | None) -> None:
        folder = self._files.group_of(looked.pid) if looked.pid else None
        self._groups.pop(uuid, None)
        self._open.discard(uuid)
        if folder and (said or (looked.policy and not looked.background)):
            low, high = (said.low, said.high) if said else (None, None)
            self._groups[uuid] = Group(folder, looked.memory, low, high)
        elif not looked.background:
            self._open.add(uuid)
        if said is None and looked.taken is None:
            self.members.pop(uuid, None)
            return
        member = self.members.setdefault(uuid, Member(looked.name, said, folder, looked.balloon))
        member.name, member.said, member.folder, member.balloon = looked.name, said, folder, looked.balloon
        member.pid = looked.pid
        member.recorded = member.recorded or looked.taken is not None

    def forget(self, uuid: str) -> None:
        """A domain is gone."""
        for each in (self.members, self.saved, self._groups, self._said):
            each.pop(uuid, None)
        self._open.discard(uuid)

    def _tell(self) -> None:
        """The hook waits for nobody where nobody gives."""
        with contextlib.suppress(OSError):
            if any(one.said for one in self.members.values()):
                (self._run_dir / GIVES).touch()
            else:
                (self._run_dir / GIVES).unlink(missing_ok=True)

    async def close(self) -> None:
        """What was taken stays so until the next idletimed: VMs keep what they have. A save goes on without us."""
        self._stop_looks()
        self.members.clear()
        self._tell()
        self._groups.clear()
        self._protect(0)

    # ---- looks

    def _wanted(self) -> bool:
        return bool(self.members or self.saved or self._protection.ours)

    def _over(self) -> None:
        self._state = State()

    async def _look(self) -> None:
        info = self._files.meminfo()
        if "MemAvailable" not in info or "MemTotal" not in info:
            return
        reserve = int(info["MemTotal"] * self._reserve)
        self._protect(info["MemTotal"] - reserve)
        host = Host(info["MemAvailable"], reserve, self._starting(), self._pressure(), self._protected(),
                    info.get("SwapFree", 0))
        taken = any(one.recorded for one in self.members.values())
        if not (memory.shortage(host) or taken or self.saved or self._state.leaving):
            self._state = State()
            return
        vms = await self._vms()
        if vms is not None:
            now = time.monotonic()
            self._unstarted = {uuid: at for uuid, at in self._unstarted.items() if now - at < memory.AGAIN_S}
            saved = [one for uuid, (_, one) in self.saved.items() if uuid not in self._unstarted]
            decision = memory.decide(self._state, host, vms, now, self._settings, saved)
            self._state = decision.state
            for act in decision.acts:
                self._begin(act)

    async def _vms(self) -> list[Vm] | None:
        """Those that can give now; None: nothing is known, so nothing is done."""
        found: dict[str, reclaim.Has] | None = await self._ask("memory of background VMs", reclaim.look, list(self.members))
        if found is None:
            return None
        vms = []
        for uuid, has in found.items():
            member = self.members.get(uuid)
            if member is None:
                continue
            member.recorded = has.was is not None or member.busy
            if member.said is not None:
                vms.append(self._vm(uuid, member, has, member.said))
            elif member.recorded and not member.busy:
                self._act(uuid, f"domain '{member.name}' has its memory back: its policy takes none", reclaim.restore, uuid)
            elif not member.recorded:
                self.forget(uuid)
        return vms

    def _vm(self, uuid: str, member: Member, has: reclaim.Has, said: Said) -> Vm:
        can = member.folder is not None and os.path.exists(f"{self._root}/sys/fs/cgroup{member.folder}/memory.reclaim")
        may_save = member.refused_s is None or time.monotonic() - member.refused_s >= memory.AGAIN_S
        return Vm(uuid, has.resident, has.target, said.low, said.high, has.was, member.balloon and has.guest, can,
                  has.persistent and may_save, self._files.swapped(member.pid, member.folder), member.balloon and not has.guest)

    def _starting(self) -> int:
        """Memory of foreground VMs whose hook waits for it; one that was killed does not wait any more, nor does the next
        process of its number."""
        total = 0
        with contextlib.suppress(OSError):
            for file in (self._run_dir / STARTING).iterdir():
                with contextlib.suppress(OSError, ValueError):
                    if Path(f"/proc/{int(file.name)}").exists():
                        total += int(file.read_text())
                    else:
                        file.unlink()
        return total

    def _pressure(self) -> float | None:
        """Of the foreground VM that has most."""
        found = [line["some"].avg10 for one in self._groups.values() if one.low is None
                 and "some" in (line := self._files.pressure("memory", one.folder))]
        return max(found, default=None)

    def _protected(self) -> bool:
        """memory.low of all foreground VMs is in force; without any the foreground is something else."""
        foreground = [one.folder for one in self._groups.values() if one.low is None]
        return bool(foreground) and not self._open and self._protection.holds(foreground)

    def _protect(self, memory_bytes: int) -> None:
        """memory.low of cgroup v2, where it is not what it should be."""
        try:
            problems = self._protection.bring(memory.protections(memory_bytes, list(self._groups.values())))
        except OSError as error:
            self._complain(FILE, f"no VM's memory is protected: {error}; remedy: give idletimed room in its run directory")
            return
        for folder, why in problems.items():
            self._complain(folder, f"memory.low of {folder} is not in force: {why}; remedy: let idletimed write below "
                                   "/sys/fs/cgroup (no ProtectControlGroups in its unit)")

    # ---- acts

    def _begin(self, act: Act) -> None:
        if act.how is How.START:
            name = self.saved.pop(act.name)[0]
            self._act(act.name, f"domain '{name}' is started again: {act.why}", reclaim.start, act.name, deed=act)
            return
        member = self.members[act.name]
        if member.busy:
            if act.how is How.SAVE:  # it is chosen anew when it has done what it does
                self._state = replace(self._state, leaving=self._state.leaving - {act.name})
            return
        words = f"domain '{member.name}': {act.how.value} {act.bytes_ // memory.MIB} MiB: {act.why}"
        if act.how is How.SAVE:
            words = f"domain '{member.name}' is saved to disk: {act.why}"
            self._act(act.name, words, reclaim.save, act.name, act.why, deed=act)
        elif act.how is How.BALLOON:
            self._act(act.name, words, reclaim.balloon, act.name, act.bytes_, deed=act, loud=not member.recorded)
            member.recorded = True
        else:
            self._act(act.name, words, reclaim.reclaim, f"{self._root}/sys/fs/cgroup{member.folder}", act.bytes_, deed=act)

    def _act(self, uuid: str, words: str, work: Callable[..., bool], *arguments: Any, deed: Act | None = None,
             loud: bool = True) -> None:
        """Steps after the first are for those who want to know more. deed: to be counted when it is done."""
        if uuid in self.members:
            self.members[uuid].busy = True
        log.log(logging.INFO if loud else logging.DEBUG, "%s", words)
        self._beside(self._carry_out(uuid, words, work, arguments, deed))

    async def _carry_out(self, uuid: str, words: str, work: Callable[..., bool], arguments: Sequence[Any],
                         deed: Act | None) -> None:
        """What did not come through is tried at the next look; who could not be saved, or started, only after a while."""
        assert self._hands is not None
        member = self.members.get(uuid)
        try:
            await self._hands.do(work, *arguments)
            self._said.pop(uuid, None)
            if deed is not None:
                self._deeds.done("memory", deed.how.value, deed.cause, deed.gives)
        except Exception as error:
            remedy = f"; it is tried again in {memory.AGAIN_S:.0f} s; remedy: virsh start" if work is reclaim.start else ""
            self._complain(uuid, f"{words}: it did not come through: {error}{remedy}")
            if member is not None:
                member.refused_s = time.monotonic() if work is reclaim.save else member.refused_s
                member.balloon = member.balloon and work is not reclaim.balloon
            if work is reclaim.start:
                self._unstarted[uuid] = time.monotonic()
            self._state = replace(self._state, leaving=self._state.leaving - {uuid})
        if member is not None:
            member.busy = False
        self._touch(uuid)
