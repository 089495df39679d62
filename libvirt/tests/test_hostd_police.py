# SPDX-License-Identifier: GPL-2.0-or-later
"""Suspension in idletimed, with a libvirt that is played, files and a clock that are set: who is stopped, and who never."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest
from lxml import etree

from idletime.hostd import kept, stopped, usage
from idletime.hostd import police as room
from idletime.hostd.hands import Hands
from idletime.hostd.police import Police
from idletime.hostd.settings import Suspend
from idletime.hostd.settle import Looked
from idletime.hostd.usage import Access, Seen
from idletime.hostd.watched import Part, Use
from idletime.police.enforce import Choice
from idletime.police.suspend import Mode, State
from played import Domain, Host, failed, stage

RUNNING, PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED
USER = libvirt.VIR_DOMAIN_PAUSED_USER
STEP = 0.25
SUSPEND, INTERVAL = Choice(False, True, False, "suspend"), Choice(True, False, False, "interval")
ACCESS = (Access("disk", "vda", "", "", ("sda",)),)
RECORD = stopped.Record(4, "sda & more")
XML = kept.as_text(stopped.to_xml(RECORD))


class Vm(Domain):
    """A domain: does 50 requests a step while it runs."""

    NAMESPACE = stopped.NAMESPACE

    def __init__(self, name: str = "b") -> None:
        super().__init__(name)
        self.now, self.requests = (RUNNING, 1), 0
        self.acts: list[str] = []
        self.wrong: dict[str, libvirt.libvirtError] = {}

    def state(self) -> tuple[int, int]:
        return self.now

    def setMetadata(self, kind: int, element: str | None, prefix: str | None, uri: str, flags: int) -> None:
        self.do("record" if element else "clear")
        super().setMetadata(kind, element, prefix, uri, flags)

    def suspend(self) -> None:
        assert self.record is not None, "the record comes first"
        self.do("suspend")
        self.now = (PAUSED, USER)

    def resume(self) -> None:
        assert self.now[0] == PAUSED
        self.do("resume")
        self.now = (RUNNING, 1)

    def do(self, what: str) -> None:
        if what in self.wrong:
            raise self.wrong[what]
        self.acts.append(what)

    @property
    def stops(self) -> list[str]:
        acts, self.acts = self.acts, []
        return [one for one in acts if one in ("suspend", "resume")]


class World(Host):
    """A host of one processor and a disk, and its idletimed."""

    def __init__(self, root: Path, said: Suspend = Suspend()) -> None:
        super().__init__(root)
        self.vms, self.disk = {"b": Vm()}, 0
        self.parts: list[Part] = []
        self.police = self.by_hand(Police(lambda: self, said, str(root), parts=lambda: self.parts))
        self.write()

    async def end(self) -> None:
        assert self.police._hands is not None
        self.police._hands.close()

    def domainListGetStats(self, vms: list[Vm], _stats: int, _flags: int) -> list[tuple[Vm, dict[str, Any]]]:
        return [(one, {"state.state": one.now[0], "state.reason": one.now[1], "cpu.time": 0, "block.count": 1,
                       "block.0.name": "vda", "block.0.rd.reqs": one.requests}) for one in vms]

    def write(self) -> None:
        (self.root / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
        (self.root / "proc/diskstats").write_text(f"8 0 sda {self.disk} 0 0 0 0 0 0 0 0 0\n")

    def looked(self, choice: Choice | None = SUSPEND, uuid: str = "b", **more: Any) -> None:
        record = stopped.Record(0, "") if self.vms[uuid].record else None
        self.police.seen(uuid, Looked(uuid, True, choice=choice, background=choice is not None, accesses=ACCESS,
                                      stopped=record, **more))

    async def step(self, foreground: int = 0, count: int = 1) -> None:
        """A quarter of a second with so many foreground requests, then a look, and what comes of it."""
        for _ in range(count):
            self.now += STEP
            for one in self.vms.values():
                one.requests += 50 if one.now[0] == RUNNING else 0
                self.disk += 50 if one.now[0] == RUNNING else 0
            self.disk += foreground
            self.write()
            await self.police._look()
            await asyncio.gather(*self.police._acts)


Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a scene."""
    return stage(lambda: World(tmp_path), (room, usage), monkeypatch)


def test_stopped_beside_the_foreground_and_on_after_it(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(count=8)
        assert vm.stops == [], "alone"
        await world.step(50)
        assert vm.stops == ["suspend"]
        assert stopped.record_of(vm) == stopped.Record(1, "disk sda: " + caplog.messages[0].split("disk sda: ")[1])
        await world.step(50, 4)
        assert vm.stops == ["resume"], "a probe after a second"
        await world.step(50, 5)
        assert vm.stops == ["suspend"] and stopped.record_of(vm).seconds == 2
        await world.step(0, 20)
        assert vm.stops == ["resume"] and vm.record is None
        assert world.police.members["b"].state.mode is Mode.RUNNING
        deeds = world.police._deeds
        assert {act: count for act, count in deeds.acts.items() if count} == {
            ("suspend", "stop", "disk"): 2, ("suspend", "cont", "probe"): 2}
        assert deeds.stopped_seconds == pytest.approx(1 + 2)

    play(scene)
    assert [one.split(":")[0] for one in caplog.messages] == ["domain 'b' is stopped", "domain 'b' goes on"]


def test_what_the_host_itself_writes_now_and_then_is_no_foreground(play: Play) -> None:
    """A request a step: a journal."""
    async def scene(world: World) -> None:
        world.looked()
        await world.step(1, 40)
        assert world.vms["b"].stops == []

    play(scene)


def test_work_that_is_held_is_no_foreground(play: Play) -> None:
    """A backup of any VM, which the kernel counts and libvirt does not: beside it nobody is judged by the kernel's numbers."""
    def use(work: bool, disk: str) -> Part:
        return Part("f", uses=(Use("fast", "/run/fast", "disk", "background", True, (f"/dev/{disk}",), work=work),))

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        world.parts = [use(True, "sda")]
        await world.step(50, 40)
        assert vm.stops == []
        world.parts = [use(False, "sda"), use(True, "sdb")]
        await world.step(50, 8)
        assert vm.stops[:1] == ["suspend"], "the backup is over: what there is now is foreground"

    play(scene)


def test_one_that_hangs_while_it_is_saved_keeps_nobody_stopped(play: Play) -> None:
    async def scene(world: World) -> None:
        vm, other = world.vms["b"], Vm("c")
        world.looked()
        await world.step(50, 7)
        assert vm.stops == ["suspend"]
        world.vms["c"] = other
        other.now = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_SAVE)
        world.looked(uuid="c")
        other.jobInfo = lambda: pytest.fail("libvirt would wait for its QEMU")  # type: ignore[method-assign]
        await world.step(0, 12)
        assert vm.stops == ["resume"] and other.acts == []

    play(scene)


def test_who_was_paused_by_another_stays_so(play: Play) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        vm.now = (PAUSED, USER)
        await world.step(50, 20)
        world.looked(INTERVAL)
        await world.step(50, 4)
        await world.police.close()
        assert vm.acts == [] and vm.now[0] == PAUSED

    play(scene)


def test_it_is_paused_between_look_and_act(play: Play) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.now = (PAUSED, USER)
        assert not stopped.stop(world, "b", RECORD)
        assert vm.acts == [] and vm.record is None

    play(scene)


@pytest.mark.parametrize("choice", [INTERVAL, Choice(False, False, False, "foreground")])
def test_a_policy_that_has_it_stopped_no_more(play: Play, choice: Choice) -> None:
    """It goes on; what does not come through is tried again."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(50, 7)
        assert vm.stops == ["suspend"]
        vm.wrong["resume"] = failed(libvirt.VIR_ERR_OPERATION_TIMEOUT)
        world.looked(choice)
        await world.step(50, 3)
        assert vm.now[0] == PAUSED and vm.record
        vm.wrong.clear()
        await world.step(50)
        assert vm.stops == ["resume"] and vm.record is None
        assert not world.police.members["b"].active

    play(scene)


def test_a_look_that_came_to_nothing_says_nothing(play: Play) -> None:
    """libvirtd is killed in the middle of one: whoever was stopped is so still, and goes on when the foreground has ended."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(50, 7)
        world.away = True
        world.looked(None, failed=True)
        await world.step(50, 8)
        world.away = False
        assert vm.stops == ["suspend"] and vm.record
        world.looked(None, failed=True)
        assert world.police.members["b"].meant
        await world.step(0, 12)
        assert vm.stops == ["resume"] and vm.record is None

    play(scene)


def test_the_next_idletimed_knows_who_stopped_it(play: Play) -> None:
    """Even where its first look at the VM came to nothing; but not where the policy says otherwise."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.now, vm.record = (PAUSED, USER), XML
        world.looked(None, failed=True)
        await world.step(0)
        assert vm.stops == [] and world.police.members["b"].state == State(Mode.STOPPED, world.now, 4)
        await world.step(0, 17)
        assert vm.stops == ["resume"] and vm.record is None
        vm.now, vm.record = (PAUSED, USER), XML
        world.police.forget("b")
        world.looked(INTERVAL)
        await world.step(0)
        assert vm.stops == ["resume"] and vm.record is None

    play(scene)


def test_a_stop_that_came_half_through(play: Play) -> None:
    """The record is there and the VM runs: it is taken out, so that nobody's pause is taken for ours later."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.wrong["suspend"] = failed(libvirt.VIR_ERR_RPC)
        world.looked()
        await world.step(50, 6)
        assert vm.record and vm.now[0] == RUNNING
        vm.wrong.clear()
        await world.step(0)
        assert vm.record is None and vm.stops == []

    play(scene)


def test_an_answer_that_was_lost(play: Play) -> None:
    """It was stopped, and we were not told."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(50, 4)
        stop = vm.suspend

        def half() -> None:
            stop()
            raise failed(libvirt.VIR_ERR_RPC)

        vm.suspend = half  # type: ignore[method-assign]
        await world.step(50, 3)
        assert vm.stops == ["suspend"] and world.police.members["b"].state.mode is Mode.STOPPED
        await world.step(0, 12)
        assert vm.stops == ["resume"] and vm.record is None

    play(scene)


def test_somebody_lets_it_go_on(play: Play) -> None:
    """No record is left behind, and it is judged anew."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(50, 7)
        vm.now = (RUNNING, 1)
        await world.step(0, 2)
        assert vm.record is None and world.police.members["b"].state.mode is Mode.RUNNING

    play(scene)


def test_all_go_on_when_idletimed_ends(play: Play) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(50, 7)
        world.police._task = None
        await world.police.close()
        assert vm.stops == ["suspend", "resume"] and vm.record is None

    play(scene)


@pytest.mark.parametrize("reason, done", [
    (libvirt.VIR_DOMAIN_PAUSED_IOERROR, False), (libvirt.VIR_DOMAIN_PAUSED_MIGRATION, False),
    (libvirt.VIR_DOMAIN_PAUSED_UNKNOWN, True)])
def test_who_waits_for_something_else_is_not_resumed(reason: int, done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    vm = Vm()
    vm.now, vm.record = (PAUSED, reason), XML
    monkeypatch.setattr(vm, "jobInfo", lambda: [libvirt.VIR_DOMAIN_JOB_UNBOUNDED])
    assert stopped._go_on(vm) is done and (vm.record is None) is done


@pytest.mark.parametrize("reason", [libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_SAVE])
def test_one_that_we_stopped_and_somebody_saved_goes_on_when_it_is_restored(reason: int, play: Play) -> None:
    """libvirt restores a VM that was paused as one that a migration paused, and no job is under way."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.now, vm.record = (PAUSED, reason), XML
        world.looked()
        await world.step(0, 20)
        assert vm.stops == ["resume"] and vm.record is None

    play(scene)


def test_one_that_comes_in_is_left_to_its_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[int]:
        raise failed(libvirt.VIR_ERR_OPERATION_INVALID, "only on the source host")

    vm = Vm()
    vm.now, vm.record = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION), XML
    monkeypatch.setattr(vm, "jobInfo", refused)
    assert not stopped._go_on(vm) and vm.record


def test_a_suspend_that_is_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an idletimed that has ended: QEMU pauses only when it answers."""
    vm, keep = Vm(), stopped._keep
    vm.record = XML

    def late(domain: Any, record: stopped.Record | None) -> None:
        keep(domain, record)
        if record is not None:
            vm.now = (PAUSED, USER)
    monkeypatch.setattr(stopped, "_keep", late)
    assert stopped._go_on(vm) and vm.record is None and vm.now[0] == RUNNING


def test_release() -> None:
    """Names, and what was not possible, each with its remedy."""
    ours, another, bad = Vm("ours"), Vm("another"), Vm("bad")
    ours.now, ours.record = (PAUSED, USER), XML
    another.now = (PAUSED, USER)
    bad.now, bad.record, bad.wrong = (PAUSED, USER), XML, {"resume": failed(1, "refused")}
    problem = "domain 'bad': refused; remedy: try again, or virsh resume bad"
    assert stopped.release([ours, another, bad]) == (["ours"], [problem])
    assert another.acts == [] and another.now[0] == PAUSED


def test_those_that_do_not_answer_are_released_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt waits half a minute for each; the others do not wait for that."""
    order: list[str] = []
    there = [Vm(name) for name in ("hangs", "well", "gone")]
    for vm in there:
        vm.now, vm.record = (PAUSED, USER), XML
        monkeypatch.setattr(vm, "resume", lambda name=vm.called: order.append(name))
    monkeypatch.setattr(there[0], "controlInfo", lambda: [libvirt.VIR_DOMAIN_CONTROL_OCCUPIED, 0, 60000])

    def lost() -> list[int]:
        raise failed(libvirt.VIR_ERR_NO_DOMAIN)

    monkeypatch.setattr(there[2], "controlInfo", lost)
    host = SimpleNamespace(listAllDomains=lambda _flags: there)
    assert room.release(host) == (["gone", "hangs", "well"], [])
    assert order == ["well", "hangs", "gone"]


def test_looks_do_not_wait_for_acts_that_hang(play: Play) -> None:
    """As many as there are threads that act."""
    async def scene(world: World) -> None:
        hanging, police = threading.Event(), world.police
        police._hands = Hands(lambda: world, 1, 1)
        world.looked()
        await world.step()
        held = police._hands.do(lambda _connection: hanging.wait(20))
        world.now += STEP
        await asyncio.wait_for(police._look(), 5)
        assert police._before is not None and police._before.reading is not None
        assert police._before.reading.at_s == world.now, "nothing is known"
        hanging.set()
        await held

    play(scene)


@pytest.mark.parametrize("text, record", [
    (XML, RECORD), ("<stopped seconds='x' why='a'/>", stopped.Record(0, "a")),
    ("<stopped seconds='nan'/>", stopped.Record(0, "")), ("<stopped seconds='1e9'/>", stopped.Record(3600, ""))])
def test_records(text: str, record: stopped.Record) -> None:
    element = etree.fromstring(text)
    element.tag = f"{{{stopped.NAMESPACE}}}stopped"
    domain, metadata = etree.Element("domain"), etree.Element("metadata")
    domain.append(metadata)
    assert stopped.of_domain(domain) is None
    metadata.append(element)
    assert stopped.of_domain(domain) == record


@pytest.mark.parametrize("mode, seen, then", [
    (Mode.RUNNING, Seen(runs=True), Mode.RUNNING), (Mode.STOPPED, Seen(runs=True), Mode.RUNNING),
    (Mode.PROBING, Seen(runs=True), Mode.PROBING), (Mode.RUNNING, Seen(paused=True), None),
    (Mode.STOPPED, Seen(paused=True), None), (Mode.STOPPED, Seen(), None),
    (Mode.PROBING, Seen(paused=True, record=RECORD), Mode.STOPPED),
    (Mode.STOPPED, Seen(paused=True, record=RECORD), Mode.STOPPED)])
def test_met(mode: Mode, seen: Seen, then: Mode | None) -> None:
    state = room.met(State(mode, 1), seen, 2)
    assert (state and state.mode) == then
