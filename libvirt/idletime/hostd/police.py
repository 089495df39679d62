# SPDX-License-Identifier: GPL-2.0-or-later
"""Stops background VMs as a whole, or limits them, while the foreground needs what they use, where their policy says so.

    facts      four times a second: usage.py
    decision   police/suspend.py, for each VM (paper 004); police/windows.py, for each device (paper 003)
    act        stopped.py: a record in the domain, then virDomainSuspend; virDomainResume, then no record. rates.py: limits

Which VMs are meant, a look at a domain says (settle.py). One that came to nothing says nothing: its VM stays as it is. Whether
it is stopped by us is read from the domain at each look, so that it does not matter who was restarted meanwhile, nor which act
came through. Nothing is looked at while no VM is meant. Context: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import libvirt

from ..police import suspend
from ..police.look import Look
from ..police.suspend import Act, Decision, Mode, Sample, State
from ..police.windows import Thresholds
from . import rates, stopped, usage, watched
from .deeds import Deeds
from .hands import Hands
from .settings import Rate, Suspend
from .settle import Looked
from .usage import Access, Seen

PERIOD_SECONDS = 0.25
"""004, 4."""

REST_SECONDS = 0.05
"""Between looks on a host that is too busy for four a second."""

PATIENCE_SECONDS = 10.0
OLD_SECONDS = 5.0
"""Of a look; what was used since an older one says nothing of now."""

SIZE, MOST = 1, 32
"""Threads that look, and as many that act: a QEMU that hangs keeps one of these, and the others are looked at all the same."""

log = logging.getLogger("idletimed")


@dataclass
class Member:
    """A background VM, or one that was. meant: it is to be stopped when need be. recorded: its XML says that we stopped it, or
    may say so. stopped: seconds, by cause; cause: of this stop. limits: what its devices have, None is not known; limited: they
    are to have some when need be. busy: an act is under way. acted: when the last one ended."""

    name: str
    accesses: tuple[Access, ...] = ()
    background: bool = True
    meant: bool = False
    recorded: bool = False
    limited: bool = False
    limits: dict[str, int] | None = field(default_factory=dict)
    state: State = State()
    cause: str = ""
    stopped: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy: bool = False
    acted: float = 0.0

    @property
    def active(self) -> bool:
        return self.meant or self.recorded or self.limited or self.limits != {}


def met(state: State, seen: Seen, now: float) -> State | None:
    """The state of a VM by what libvirt says of it; None: it does not run, and it was not us. Pure."""
    if seen.paused and seen.record is not None:
        return state if state.mode is Mode.STOPPED else State(Mode.STOPPED, now, seen.record.seconds)
    if not seen.runs:
        return None
    return State(Mode.RUNNING, now) if state.mode is Mode.STOPPED else state


def settings_of(said: Suspend) -> suspend.Settings:
    """What the operator set, as the decision has it."""
    return suspend.Settings(suspend.Rule(said.rule),
                            suspend.Thresholds(cpu=said.cpu_percent / 100, device=said.device_percent / 100))


def release(connection: Any, limits: rates.Limits | None = None) -> tuple[list[str], list[str]]:
    """Let all VMs of the host go on that idletimed stopped, and lift its limits: names, and what was not possible, in words.
    Those that libvirt has to wait for, half a minute each, come last. Raises libvirtError."""
    done, problems = set(), []
    for some in _free_first(connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)):
        for names, wrong in (stopped.release(some), rates.release(some, limits)):
            done |= set(names)
            problems += wrong
    return sorted(done), problems


def _free_first(there: list[Any]) -> tuple[list[Any], list[Any]]:
    """Domains whose QEMU answers, and those that are busy with a command or do not."""
    free: list[Any] = []
    rest: list[Any] = []
    for domain in there:
        try:
            ready = domain.controlInfo()[0] == libvirt.VIR_DOMAIN_CONTROL_OK
        except libvirt.libvirtError:
            ready = False
        (free if ready else rest).append(domain)
    return free, rest


class Police:
    """connect: gives a thread its connection. root: where /proc and /sys are. touch: has a domain looked at anew. deeds: where
    what is done is counted. parts: of all VMs, background or not."""

    def __init__(self, connect: Callable[[], Any], said: Suspend, root: str = "/", rate: Rate = Rate(),
                 touch: Callable[[str], None] = lambda _uuid: None, deeds: Deeds | None = None,
                 parts: Callable[[], Iterable[watched.Part]] = tuple) -> None:
        self._deeds, self._looked, self._parts = deeds or Deeds(), 0.0, parts
        self._connect, self._settings, self._files, self._touch = connect, settings_of(said), Look(root), touch
        self._quiet_per_second = said.quiet_per_second
        self._thresholds = Thresholds(rate.high_kbytes * 1000, rate.low_kbytes * 1000, rate.limit_kbytes * 1000)
        self._rates, self._limits = rates.Rates(self._thresholds), rates.Limits()
        self.members: dict[str, Member] = {}
        self._eyes: Hands | None = None
        self._hands: Hands | None = None
        self._task: asyncio.Task[None] | None = None
        self._acts: set[asyncio.Task[None]] = set()
        self._before: usage.Usage | None = None
        self._window: tuple[Sample, ...] = ()
        self._said: dict[str, str] = {}
        self._closing = False

    # ---- who is meant

    def seen(self, uuid: str, looked: Looked) -> None:
        """A domain was looked at."""
        if not looked.active:
            self.forget(uuid)
            return
        member = self.members.get(uuid)
        if looked.choice is None and member is None and looked.stopped is not None:
            member = self.members[uuid] = Member(looked.name, meant=True)  # until a look says more
        elif looked.choice is not None:
            if member is None:
                member = self.members[uuid] = Member(looked.name)
            member.name, member.accesses, member.meant = looked.name, looked.accesses, looked.choice.suspend
            member.background, member.limited = looked.background, looked.choice.rate
        if member is not None:
            member.recorded = member.recorded or looked.stopped is not None
            if looked.limited and not member.limits:
                member.limits = None  # those of an earlier idletimed
            self._keep(uuid, member)
        self._begin()

    def _keep(self, uuid: str, member: Member) -> None:
        """Only those that count."""
        if not (member.active or member.background or member.busy):
            self.forget(uuid)

    def forget(self, uuid: str) -> None:
        """A domain is gone, or is not background. What is in its XML stays there."""
        self.members.pop(uuid, None)
        self._said.pop(uuid, None)

    def _begin(self) -> None:
        if self._task is None and not self._closing and any(one.active for one in self.members.values()):
            self._eyes = self._eyes or Hands(self._connect, SIZE, MOST)
            self._hands = self._hands or Hands(self._connect, SIZE, MOST)
            self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """All go on that we stopped: nobody would let them."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
        if self._eyes is None or self._hands is None:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._acts, return_exceptions=True), PATIENCE_SECONDS)
        try:
            done, problems = await asyncio.wait_for(self._eyes.do(release, self._limits), PATIENCE_SECONDS)
        except Exception as error:  # whatever it is, we end; virsh resume, or the next idletimed, lets them go on
            why = str(error) or type(error).__name__
            done, problems = [], [f"what was stopped stays so: {why}; remedy: idletimed --release"]
        for name in done:
            log.info("domain '%s' goes on: idletimed ends", name)
        for problem in problems:
            log.warning("%s", problem)
        self._eyes.close()
        self._hands.close()

    # ---- looks

    async def _follow(self) -> None:
        while any(one.active for one in self.members.values()):
            began = time.monotonic()
            try:
                await self._look()
            except Exception:  # whatever it is, the next look comes
                log.exception("a fault of ours; going on")
            await asyncio.sleep(max(REST_SECONDS, began + PERIOD_SECONDS - time.monotonic()))
        self._task, self._before, self._window, self._rates = None, None, (), rates.Rates(self._thresholds)

    async def _look(self) -> None:
        assert self._eyes is not None and self._hands is not None
        self._eyes.watch(time.monotonic())
        self._hands.watch(time.monotonic())
        vms, began = {uuid: one.accesses for uuid, one in self.members.items()}, time.monotonic()
        try:
            work = frozenset[str]().union(*(usage.work_of(one) for one in self._parts()))
            found = await asyncio.wait_for(self._eyes.do(usage.look, vms, self._files, work), PATIENCE_SECONDS)
        except Exception as error:  # libvirtd is away: nothing is known, so nothing is done
            self._before, self._window = None, ()
            self._complain("", f"background VMs cannot be looked at, so all stay as they are: "
                               f"{str(error) or type(error).__name__}")
            return
        self._said.pop("", None)
        self._add(found)
        now = time.monotonic()
        self._count(now)
        self._limit(found, now)
        for uuid, member in list(self.members.items()):
            if (member.meant or member.recorded) and not member.busy and member.acted < began and uuid in found.vms:
                self._one(uuid, member, found.vms[uuid], now)

    def _count(self, now: float) -> None:
        """Time that VMs were stopped since the last look."""
        seconds, self._looked = now - self._looked, now
        if seconds >= OLD_SECONDS:
            return
        for one in self.members.values():
            if one.state.mode is Mode.STOPPED:
                one.stopped[one.cause] += seconds
                self._deeds.stopped_seconds += seconds

    def stopped_seconds(self, uuid: str) -> Mapping[str, float]:
        """For how long a VM was stopped since it is known, by cause; "" is one of an earlier idletimed."""
        return self.members[uuid].stopped if uuid in self.members else {}

    def _limit(self, found: usage.Usage, now: float) -> None:
        """Limits that are not what they should be. Of who is not among the answers nothing is known."""
        there = [uuid for uuid, one in self.members.items() if one.limited and uuid in found.vms]
        want, said = self._rates.look(found.moved, now, there)
        for text in said:
            log.info("%s", text)
        for uuid, member in self.members.items():
            limits = {} if not member.limited else want.get(uuid, member.limits)
            if limits is not None and limits != member.limits and not member.busy:
                member.busy = True
                task = asyncio.create_task(self._apply(uuid, member, limits))
                self._acts.add(task)
                task.add_done_callback(self._acts.discard)

    async def _apply(self, uuid: str, member: Member, limits: dict[str, int]) -> None:
        assert self._hands is not None
        before, member.limits = member.limits, limits
        try:
            await self._hands.do(self._limits.apply, uuid, limits)
            self._said.pop(uuid, None)
            if bool(before) != bool(limits):
                self._deeds.done("rate", *(("limit", "foreground") if limits else ("lift", "idle")))
        except rates.OwnLimits as error:
            self._complain(uuid, f"domain '{member.name}': {error}")
        except Exception as error:
            member.limits = None
            self._complain(uuid, f"domain '{member.name}': limits did not come through: {error}")
        member.busy = False
        if self.members.get(uuid) is member:
            self._keep(uuid, member)
        self._touch(uuid)

    def _add(self, found: usage.Usage) -> None:
        if found.reading is None:
            return
        before, self._before = self._before, found
        if before is None or before.reading is None or found.reading.at_s - before.reading.at_s > OLD_SECONDS:
            self._window = ()
            return
        sample = usage.between(before, found, self._quiet_per_second)
        if sample is not None:
            self._window = suspend.add(self._window, sample, 2 * self._settings.aggregation_s)

    # ---- one VM

    def _one(self, uuid: str, member: Member, seen: Seen, now: float) -> None:
        state = met(member.state, seen, now)
        if not member.meant:
            why = "its policy does not have it stopped"
            self._act(uuid, member, Decision(State(Mode.RUNNING, now), Act.CONT, why, "policy"))
        elif state is None:
            member.state = State(Mode.RUNNING, now)
        elif seen.runs and (member.recorded or member.state.mode is Mode.STOPPED):
            self._act(uuid, member, Decision(state, Act.CONT))  # somebody let it go on, or an act of ours came half through
        else:
            member.state, member.recorded = state, state.mode is Mode.STOPPED
            self._decide(uuid, member, now)

    def _decide(self, uuid: str, member: Member, now: float) -> None:
        decision = suspend.decide(uuid, member.state, self._window, now, self._settings)
        if decision.act is not Act.NOTHING:
            self._act(uuid, member, decision)
            return
        if decision.state.mode is not member.state.mode:
            log.info("domain '%s' goes on: no foreground needs what it uses", member.name)
        member.state = decision.state

    def _act(self, uuid: str, member: Member, decision: Decision) -> None:
        member.busy = True
        task = asyncio.create_task(self._carry_out(uuid, member, decision))
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)

    async def _carry_out(self, uuid: str, member: Member, decision: Decision) -> None:
        """What did not come through is seen at the next look, by the record."""
        assert self._hands is not None
        stops, done = decision.act is Act.STOP, False
        try:
            if stops:
                member.recorded = True
                done = await self._hands.do(stopped.stop, uuid, stopped.Record(decision.state.length_s, decision.why))
            else:
                done = await self._hands.do(stopped.go_on, uuid)
                member.recorded = not done
            self._said.pop(uuid, None)
        except Exception as error:
            self._complain(uuid, f"domain '{member.name}': {decision.act.value} did not come through: {error}")
        member.busy, member.acted = False, time.monotonic()
        if done:
            self._tell(member, decision)
            self._deeds.done("suspend", decision.act.value, decision.cause)
            if stops and decision.cause != "peers":  # after that it is stopped for what it was before
                member.cause = decision.cause
            member.state = replace(decision.state, since_s=member.acted) if decision.why else decision.state
        if self.members.get(uuid) is member:
            self._keep(uuid, member)

    def _tell(self, member: Member, decision: Decision) -> None:
        """Probes, and stops after them, are for those who want to know more."""
        ends = Mode.RUNNING in (member.state.mode, decision.state.mode)
        log.log(logging.INFO if ends and decision.why else logging.DEBUG, "domain '%s' %s: %s", member.name,
                "is stopped" if decision.act is Act.STOP else "goes on", decision.why or "somebody let it")

    def _complain(self, uuid: str, text: str) -> None:
        """Once, until it is well again."""
        if self._said.get(uuid) != text:
            log.warning("%s", text)
        self._said[uuid] = text
