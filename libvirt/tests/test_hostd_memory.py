# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory in idletimed, with a libvirt that is played, files and a clock that are set: who gives, and that it comes back."""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest
from lxml import etree

from idletime.conf.rules import Rules
from idletime.hostd import alive, hook, reclaim, stopped
from idletime.hostd import memory as room
from idletime.hostd.memory import GIVES, STARTING, Memory
from idletime.hostd.protect import FILE, Protection
from idletime.hostd.settings import Settings
from idletime.hostd.settle import Looked
from idletime.police.enforce import Choice
from idletime.police.look import Look
from idletime.police.memory import Act, How
from idletime.policy import Class, Policy
from idletime.policy import Memory as Said
from played import CONFIG, LIVE, Domain, Host, failed, stage

MIB = 1 << 20
TOTAL, RESERVE = 2000, 100
CHOICE = Choice(True, False, False, "")
V2 = "0::/machine.slice/{}.scope/libvirt/emulator\n"


class Vm(Domain):
    """A domain whose guest gives what is asked for until the next look, unless it hangs. Sizes are MiB."""

    NAMESPACE = reclaim.NAMESPACE

    def __init__(self, world: World, name: str = "b", has: int = 200) -> None:
        super().__init__(name)
        self.world, self.has, self.target, self.image = world, has, has, False
        self.acts: list[str] = []
        self.hangs, self.wrong, self.job = False, "", libvirt.VIR_DOMAIN_JOB_NONE

    def hasManagedSaveImage(self) -> bool:
        return self.image

    def jobInfo(self) -> list[int]:
        return [self.job]

    def info(self) -> list[int]:
        return [1, 0, int(self.target * 1024)]

    def do(self, what: str) -> None:
        if what.split()[0] == self.wrong:
            raise failed(libvirt.VIR_ERR_OPERATION_FAILED, "it cannot")
        self.acts.append(what)

    def setMemoryFlags(self, kib: int, flags: int) -> None:
        assert flags == LIVE and LIVE in self.records, "the record comes first"
        self.do(f"balloon {kib // 1024}")
        self.target = kib // 1024

    def managedSave(self, flags: int) -> None:
        assert CONFIG in self.records, "the record comes first"
        self.saved_with = flags
        self.do("save")
        self.world.available += self.has
        self.run, self.image = 0, True

    def create(self) -> None:
        assert CONFIG not in self.records
        self.do("start")
        self.world.available -= self.has
        self.run, self.image = 2, False

    def step(self) -> None:
        if not self.hangs and self.run:
            now = min(self.has, self.target) if self.target < self.has else self.has
            self.world.available += self.has - now
            self.has = now


class World(Host):
    """A host of 2,000 MiB, 100 of which are to be free, and its idletimed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.available, self.swap, self.asked = 500, 0, 0
        self.vms = {"b": Vm(self)}
        (root / "run").mkdir()
        self.memory = self.made()

    def made(self) -> Memory:
        return self.by_hand(Memory(lambda: self, Settings(run_dir=str(self.root / "run")), self.touched.append, str(self.root)))

    async def end(self) -> None:
        await self.memory.close()

    def domainListGetStats(self, vms: list[Vm], _stats: int, _flags: int) -> list[tuple[Vm, dict[str, Any]]]:
        self.asked += 1
        return [(one, {"state.state": libvirt.VIR_DOMAIN_RUNNING, "balloon.current": one.target * 1024,
                       "balloon.rss": one.has * 1024}) for one in vms]

    def looked(self, uuid: str = "b", policy: Policy | None = None, **more: Any) -> None:
        """idletimed has looked at a domain."""
        vm = self.vms[uuid]
        if not vm.isActive():
            self.memory.seen(uuid, Looked(uuid, saved=reclaim.saved_of(vm)))
            return
        policy = policy or Policy(Class.BACKGROUND, memory=Said(100 * MIB))
        taken = reclaim.Record(0) if LIVE in vm.records else None
        self.memory.seen(uuid, Looked(uuid, True, policy=policy, choice=CHOICE, background=policy.class_ is Class.BACKGROUND,
                                      balloon=True, taken=taken, memory=vm.has * MIB, **more))

    async def step(self, count: int = 1) -> None:
        """A second passes, then a look, and what comes of it."""
        for _ in range(count):
            self.now += 1
            for one in self.vms.values():
                one.step()
            (self.root / "proc/meminfo").write_text(f"MemTotal: {TOTAL * 1024} kB\nMemAvailable: {self.available * 1024} kB\n"
                                                    f"SwapFree: {self.swap * 1024} kB\n")
            await self.memory._look()
            await asyncio.gather(*self.memory._acts)


Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a scene."""
    return stage(lambda: World(tmp_path), (room,), monkeypatch)


def test_it_gives_down_to_its_minimum_and_has_it_back(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """60 MiB are missing for seven seconds: a step of 16 at a look. A minute later there are 300 more."""
    caplog.set_level("INFO")

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(3)
        assert world.asked == 0 and vm.acts == [], "nothing is short, nobody is asked"
        world.available = RESERVE - 60
        await world.step()
        assert vm.acts == ["balloon 184"] and world.touched == ["b"]
        await world.step(7)
        assert vm.acts[-1] == "balloon 140" and world.available == RESERVE
        assert reclaim.record_of(vm) == reclaim.Record(200 * MIB, least=140 * MIB)
        world.available += 300
        await world.step(50)
        assert vm.target == 140
        acts = world.memory._deeds.acts
        assert acts["memory", "balloon", "reserve"] == 4 and acts["memory", "balloon", "calm"] == 0
        assert world.memory._deeds.taken["memory", "balloon"] == 60 * MIB
        await world.step(10)
        assert vm.target == 200 and reclaim.record_of(vm) is None and acts["memory", "balloon", "calm"] > 0
        await world.step(2)
        asked = world.asked
        await world.step(5)
        assert world.asked == asked, "all is as it was"

    play(scene)
    assert [one.split(":")[0] for one in caplog.messages] == ["domain 'b'"]


def test_short_at_one_look_only(play: Play) -> None:
    """What was asked at the last look that was short comes back like the rest, though no look since has seen it."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        world.available = RESERVE - 16
        await world.step()
        assert vm.target == 184
        world.available = 400
        await world.step(61)
        assert vm.target == 200 and not vm.records

    play(scene)


def test_a_restart_in_between(play: Play) -> None:
    """What the balloon had is read from the domain."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        world.available = RESERVE - 50
        await world.step(8)
        assert vm.target == 150
        await world.memory.close()
        world.memory = world.made()
        world.looked()
        world.available = 400
        await world.step(61)
        assert vm.target == 200 and not vm.records

    play(scene)


@pytest.mark.parametrize("policy", [Policy(Class.FOREGROUND, memory=Said(1)), Policy(Class.BACKGROUND)])
def test_promoted_or_without_a_minimum(play: Play, policy: Policy) -> None:
    """It has its memory back at once, however short that is; the next look finds nothing more to do."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        world.available = 0
        await world.step(8)
        world.looked(policy=policy)
        await world.step()
        assert vm.target == 200 and not vm.records
        await world.step()
        assert not world.memory.members

    play(scene)


def test_the_last_resort(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Its guest does not obey: after the stated time it is saved; a minute after there is room again it is started."""
    caplog.set_level("INFO")

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.hangs = True
        world.looked()
        world.available = RESERVE - 60
        await world.step(10)
        assert "save" not in vm.acts
        await world.step()
        assert vm.acts[-1] == "save" and not vm.isActive()
        world.looked()
        assert world.memory.saved and not world.memory.members
        await world.step(60)
        assert vm.acts[-1] == "save", "140 MiB are free, and it had 200"
        world.available += 200
        await world.step(2)
        assert vm.acts[-1] == "start" and CONFIG not in vm.records
        await world.step(61)
        assert vm.acts.count("start") == 1

    play(scene)
    assert [text for text in caplog.messages if "saved" in text] == [
        "domain 'b' is saved to disk: the foreground is short of 60 MiB, and 10 s were not enough to get it"]
    assert "domain 'b' is started again: nothing was short for 60 s" in caplog.messages


def test_a_start_that_fails_is_tried_again(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        assert reclaim.save(world, "b", "memory")
        vm.wrong = "start"
        world.looked()
        for _ in range(62):
            await world.step()
            world.looked()
        (problem,) = caplog.messages
        assert "it cannot; it is tried again in 300 s; remedy: virsh start" in problem
        assert vm.image and world.memory.saved
        vm.wrong = ""
        await world.step(280)
        assert not vm.isActive()
        await world.step(30)
        assert vm.acts == ["save", "start"] and CONFIG not in vm.records

    play(scene)


def test_a_save_that_an_operator_ends_is_not_begun_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        calls: list[int] = []

        def save(flags: int) -> None:
            calls.append(flags)
            raise failed(libvirt.VIR_ERR_OPERATION_ABORTED, "save job: canceled by client")

        monkeypatch.setattr(world.vms["b"], "managedSave", save)
        with pytest.raises(libvirt.libvirtError, match="canceled"):
            reclaim.save(world, "b", "memory")
        assert len(calls) == 1 and CONFIG not in world.vms["b"].records

    play(scene)


@pytest.mark.parametrize("record", [None, stopped.Record(1, "disk sda")])
def test_who_is_stopped_and_saved_runs_when_it_is_started(play: Play, record: stopped.Record | None,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """One that idletimed stopped would stay paused else, one that its operator paused is left so."""
    monkeypatch.setattr(stopped, "record_of", lambda _domain: record)

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        assert reclaim.save(world, "b", "memory")
        assert bool(vm.saved_with & libvirt.VIR_DOMAIN_SAVE_RUNNING) is (record is not None)

    play(scene)


def test_who_cannot_be_saved_is_told_once_and_stays(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Five minutes later it is tried again: what was in the way, such as a migration, may have ended."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.hangs, vm.wrong = True, "save"
        world.looked()
        world.available = RESERVE - 60
        await world.step(20)
        assert vm.isActive() and CONFIG not in vm.records
        (problem,) = caplog.messages
        assert "is saved to disk" in problem and "it did not come through: it cannot" in problem
        vm.wrong = ""
        await world.step(280)
        assert vm.isActive()
        await world.step(20)
        assert vm.acts[-1] == "save"

    play(scene)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("folder", [None, "/machine.slice/b.scope"])
def test_what_is_in_swap_is_in_use(play: Play, folder: str | None) -> None:
    """Of the VM's group, or else of its QEMU."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.target = 400
        (world.root / "proc/7").mkdir()
        (world.root / "proc/7/status").write_text(f"Name: qemu\nVmRSS: 1 kB\nVmSwap: {150 * 1024} kB\n")
        if folder:
            where = world.root / f"sys/fs/cgroup{folder}"
            where.mkdir(parents=True)
            (where / "memory.swap.current").write_text(str(160 * MIB))
            (where.parents[1] / "cgroup.controllers").touch()
            (world.root / "proc/7/cgroup").write_text(V2.format("b"))
        world.looked(pid=7)
        world.available = RESERVE - 16
        await world.step()
        assert vm.acts == ["balloon 344" if folder else "balloon 334"]

    play(scene)


def test_an_operator_starts_what_was_saved(play: Play) -> None:
    """Then that is forgotten; so it is where the image was removed. One that is being saved is not yet."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        record = reclaim.Record(1, 1, "short", int(time.time()))
        reclaim._keep(vm, record, CONFIG)
        assert reclaim.saved_of(vm) is None and vm.records
        vm.run, vm.image = 0, True
        assert reclaim.saved_of(vm) == record
        vm.run = 2
        assert reclaim.saved_of(vm) is None and not vm.records
        reclaim._keep(vm, record, CONFIG)
        vm.run, vm.image = 0, False
        assert reclaim.saved_of(vm) is None and not vm.records

    play(scene)


def test_a_save_that_came_to_nothing(play: Play) -> None:
    """As where libvirtd was restarted meanwhile: what its operator saves later is not ours to start."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        reclaim._keep(vm, reclaim.Record(1, 1, "short", int(time.time() - reclaim.BEGINS_SECONDS)), CONFIG)
        vm.job = libvirt.VIR_DOMAIN_JOB_UNBOUNDED
        assert reclaim.saved_of(vm) is None and vm.records
        vm.job = libvirt.VIR_DOMAIN_JOB_NONE
        assert reclaim.saved_of(vm) is None and not vm.records

    play(scene)


def test_chosen_while_it_does_something_else(play: Play) -> None:
    """Then it is not on its way: it is chosen anew."""
    async def scene(world: World) -> None:
        world.looked()
        world.memory.members["b"].busy = True
        world.memory._state = replace(world.memory._state, leaving=frozenset({"b"}))
        world.memory._begin(Act("b", How.SAVE, 1, "short"))
        assert not world.memory._state.leaving and not world.vms["b"].acts

    play(scene)


def test_what_an_operator_gives_more_is_left(play: Play) -> None:
    """Neither at calm nor at the next shortage is it taken back to what it had before."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        for asked, acts in ((250, []), (390, []), (190, ["balloon 190"])):
            vm.acts.clear()
            reclaim._keep(vm, reclaim.Record(200 * MIB, above=int(time.time() - reclaim.INFLATES_SECONDS)))
            vm.target = 400
            assert reclaim.balloon(world, "b", asked * MIB) and vm.acts == acts
            assert (reclaim.record_of(vm) == reclaim.Record(400 * MIB, least=190 * MIB)) == bool(acts)

    play(scene)


def test_a_guest_that_was_reset(play: Play) -> None:
    """Its balloon is empty until it has filled it again: what it had before is still what it is to have back."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        reclaim._keep(vm, reclaim.Record(200 * MIB, least=100 * MIB))
        vm.target = 400
        for asked in (90, 150, 200):
            assert reclaim.balloon(world, "b", asked * MIB) and vm.acts == []
        assert reclaim.restore(world, "b") and vm.acts == []
        vm.target = 100
        assert reclaim.balloon(world, "b", 90 * MIB)
        assert (vm.target, reclaim.record_of(vm)) == (90, reclaim.Record(200 * MIB, least=90 * MIB))
        assert reclaim.restore(world, "b") and vm.target == 200 and reclaim.record_of(vm) is None

    play(scene)


def test_what_an_operator_makes_smaller_is_left(play: Play) -> None:
    """Smaller than idletimed ever asked for: it is not raised again. What a guest has not given yet is no such thing."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        for now, asked, target, left in ((90, 150, 90, None), (90, 200, 90, None),
                                         (90, 80, 80, reclaim.Record(90 * MIB, least=80 * MIB)),
                                         (100, 200, 200, None), (99.5, 200, 200, None),
                                         (140, 120, 120, reclaim.Record(200 * MIB, least=100 * MIB)),
                                         (140, 95, 95, reclaim.Record(200 * MIB, least=95 * MIB))):
            reclaim._keep(vm, reclaim.Record(200 * MIB, least=100 * MIB))
            vm.target = now
            assert reclaim.balloon(world, "b", asked * MIB)
            assert (vm.target, reclaim.record_of(vm)) == (target, left), now
        reclaim._keep(vm, reclaim.Record(200 * MIB, least=100 * MIB))
        vm.target = 60
        assert reclaim.restore(world, "b") and vm.target == 60 and reclaim.record_of(vm) is None

    play(scene)


def test_libvirt_is_away(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        world.looked()
        world.available, world.away = 0, True
        await world.step(20)
        assert world.vms["b"].acts == []
        world.away = False
        await world.step()
        assert world.vms["b"].acts != []

    play(scene)
    assert caplog.messages == ["memory of background VMs cannot be looked at: the line is cut"]


def test_cgroups_of_version_2(play: Play) -> None:
    """memory.low of all, and of the slice; reclaimed of who has no balloon; taken back when the last one has gone."""
    async def scene(world: World) -> None:
        folder = world.root / "sys/fs/cgroup/machine.slice"
        for pid, name in ((7, "b"), (8, "f")):
            (folder / f"{name}.scope").mkdir(parents=True)
            (folder / f"{name}.scope/memory.reclaim").touch()
            (world.root / f"proc/{pid}").mkdir()
            (world.root / f"proc/{pid}/cgroup").write_text(V2.format(name))
        (world.root / "sys/fs/cgroup/cgroup.controllers").touch()
        (folder / "f.scope/memory.pressure").write_text("some avg10=5.00 avg60=0 avg300=0 total=1\n")
        world.vms["f"] = Vm(world, "f", 1900)

        def lows() -> list[int]:
            files = ("b.scope/memory.low", "f.scope/memory.low", "memory.low")
            return [int((folder / name).read_text()) // MIB for name in files]

        world.looked(policy=Policy(Class.BACKGROUND, memory=Said(100 * MIB, 150 * MIB)), pid=7)
        world.looked("f", policy=Policy(Class.FOREGROUND), pid=8)
        world.memory.members["b"].balloon = False
        await world.step()
        assert lows() == [100, 1750, 1850], "of 1,900: 150 may be background's"
        assert (folder / "b.scope/memory.reclaim").read_text() == str(16 * MIB), "the foreground waits for memory"
        assert (folder / "f.scope/memory.reclaim").read_text() == ""
        (folder / "f.scope/memory.pressure").write_text("some avg10=0.00 avg60=0 avg300=0 total=1\n")
        world.available = 0
        (folder / "b.scope/memory.reclaim").write_text("")
        await world.step()
        assert (folder / "b.scope/memory.reclaim").read_text() != "", "there is no swap"
        world.swap = 2000
        (folder / "b.scope/memory.reclaim").write_text("")
        await world.step()
        assert (folder / "b.scope/memory.reclaim").read_text() == "", "the kernel takes it when it has to"
        world.vms["g"] = Vm(world, "g", 1)
        world.looked("g", policy=Policy(Class.FOREGROUND))
        await world.step()
        assert (folder / "b.scope/memory.reclaim").read_text() != "", "a foreground VM has no cgroup: nothing protects it"
        world.memory.forget("g")
        world.memory.forget("b")
        await world.step()
        assert lows() == [0, 0, 0]

    play(scene)


def low_of(root: Path, folder: str) -> Path:
    file = root / "sys/fs/cgroup" / folder / "memory.low"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def test_what_others_write_to_memory_low(tmp_path: Path) -> None:
    """The file says what is in force. The kernel rounds down to pages."""
    (tmp_path / "run").mkdir()
    low, protection = low_of(tmp_path, "a"), Protection(str(tmp_path), tmp_path / "run")
    low.write_text("0\n")
    for others in ("0\n", "max\n", "4096\n"):
        low.write_text(others)
        assert protection.bring({"/a": MIB + 9}) == {} and low.read_text() == str(MIB + 9) and protection.holds(["/a"])
    low.write_text(f"{MIB}\n")
    assert protection.bring({"/a": MIB + 9}) == {} and low.read_text() == f"{MIB}\n" and protection.holds(["/a"])
    low.unlink()
    assert protection.bring({"/a": MIB + 9}) == {} and not low.exists() and not protection.holds(["/a"]), "it has just ended"
    low.mkdir()
    assert protection.bring({"/a": MIB + 9, "/nowhere/x": 1}).keys() == {"/nowhere/x"}


def test_a_killed_idletimed_leaves_no_protection(tmp_path: Path) -> None:
    """The next one, and --release, take back what nobody wants any more, and nothing of others."""
    (tmp_path / "run").mkdir()
    ours, theirs, gone = low_of(tmp_path, "a"), low_of(tmp_path, "b"), low_of(tmp_path, "c")
    ours.write_text("0\n"), theirs.write_text("4096\n"), gone.write_text("0\n")
    Protection(str(tmp_path), tmp_path / "run").bring({"/a": 65536, "/c": 65536})
    gone.unlink()
    following = Protection(str(tmp_path), tmp_path / "run")
    assert following.ours == {"/a", "/c"} and following.bring({}) == {}
    assert (ours.read_text(), theirs.read_text(), gone.exists()) == ("0", "4096\n", False)
    assert not (tmp_path / "run" / FILE).exists() and not following.ours


def test_the_kernel_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """EAGAIN says that less was found; what has a buffer would ask again when it is closed."""
    class Kernel(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> None:
            asked.append(bytes(data))

    asked: list[bytes] = []
    monkeypatch.setattr(reclaim, "open", lambda _path, _mode, buffering: Kernel() if buffering == 0 else None, raising=False)
    assert reclaim.reclaim(None, "/nowhere", 7) and asked == [b"7"]


# ---- a VM that is about to start

def test_a_foreground_that_is_about_to_start(play: Play) -> None:
    """Its hook says so, and waits until it is there. Who was killed meanwhile does not wait any more."""
    options = Settings()

    async def scene(world: World) -> None:
        files, run = Look(str(world.root)), world.root / "run"
        here = replace(options, run_dir=str(run))
        xml = "<domain type='kvm'><name>f</name><memory unit='KiB'>102400</memory></domain>"
        world.looked()
        world.available = RESERVE + 60
        await world.step()
        assert world.vms["b"].acts == [] and (run / GIVES).exists()

        def wait(_seconds: float) -> None:
            """A tenth of a second: the loop looks each second."""
            assert (run / STARTING / str(os.getpid())).read_text() == str(100 * MIB)
            waits.append(1)
            if len(waits) % 10 == 0:
                asyncio.run_coroutine_threadsafe(world.step(), loop).result(10)

        waits: list[int] = []
        loop = asyncio.get_running_loop()
        assert hook.make_room(xml, here, Rules(), files, wait) == 0, "no idletimed is alive"
        descriptor = alive.hold(str(run))
        assert descriptor is not None
        took = await asyncio.to_thread(hook.make_room, xml, here, Rules(), files, wait)
        assert 1 < took < 10 and world.available >= RESERVE + 100
        assert list((run / STARTING).iterdir()) == []
        background = "<metadata><policy xmlns='urn:idletime:policy:1' class='background'/></metadata>"
        assert hook.make_room(xml.replace("<name>", background + "<name>"), here, Rules(), files) == 0
        huge = "<memoryBacking><hugepages/></memoryBacking>"
        assert hook._bytes(xml, Rules()) == 100 * MIB and hook._bytes(xml.replace("<name>", huge + "<name>"), Rules()) == 0
        os.close(descriptor)
        (run / STARTING / "999999999").write_text(str(900 * MIB))
        (run / STARTING / "x").write_text("y")
        assert world.memory._starting() == 0 and not (run / STARTING / "999999999").exists()
        world.memory.forget("b")
        world.memory._tell()
        assert not (run / GIVES).exists()

    play(scene)


def test_what_stands_in_a_record() -> None:
    for text in ("<memory/>", "<memory bytes='-1' run='x'/>", "<memory bytes='٣'/>"):
        assert reclaim._record(etree.fromstring(text)) == reclaim.Record(0)
