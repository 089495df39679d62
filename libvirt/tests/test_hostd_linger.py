# SPDX-License-Identifier: GPL-2.0-or-later
"""Linger or migrate in idletimed: a libvirt, other hosts and a clock that are played, and a command in the place of ours."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from idletime import state
from idletime.hostd import linger as room
from idletime.hostd import peers
from idletime.hostd.linger import Linger
from idletime.hostd.settings import Migrate, Settings
from idletime.hostd.settle import Looked
from idletime.police.enforce import Choice
from idletime.police.linger import Place
from idletime.policy import Class, Policy
from played import LIVE, Domain, Host, failed, stage

CHOICE = Choice(True, False, False, "")
FREE, AWAY = "qemu+ssh://free/system", "qemu+ssh://away/system"
SAID = Settings(uri="qemu:///here", migrate=Migrate(f"{AWAY} {FREE}"))


class Vm(Domain):
    """A domain of one vCPU that wants all of a processor, and gets `share` of it; another is not plugged in."""

    NAMESPACE = peers.NAMESPACE

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.share, self.ran, self.waited, self.dirty, self.asked, self.more = 1.0, 0.0, 0.0, 0, 0, ""

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_RUNNING, 1]

    def startDirtyRateCalc(self, _seconds: int, _flags: int) -> None:
        self.asked += 1

    def XMLDesc(self) -> str:
        return f"<domain><memory unit='KiB'>1000000</memory>{self.more}</domain>"

    def stats(self) -> dict[str, Any]:
        return {"vcpu.maximum": 2, "vcpu.0.time": int(self.ran * 1e9), "vcpu.0.delay": int(self.waited * 1e9),
                "balloon.rss": 500_000, "balloon.current": 1_000_000, "dirtyrate.megabytes_per_second": self.dirty,
                "dirtyrate.calc_status": libvirt.VIR_DOMAIN_DIRTYRATE_MEASURED}


class World(Host):
    """This host, its idletimed, and what others say of themselves. status: what the command ends with; None: it does not."""

    def __init__(self, root: Path, said: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        said = replace(said, run_dir=str(root))
        state.write_daemon(said.run_dir, (), said.uri, "1")
        self.vms = {"b": Vm("b")}
        self.idle = 0.1
        self.places: dict[str, Any] = {AWAY: failed(libvirt.VIR_ERR_RPC, "no route"), FREE: Place(FREE, 1.0, 1 << 40)}
        self.stopped: dict[str, float] = {}
        self.commands: list[list[str]] = []
        self.status: int | None = 0
        self.linger = self.by_hand(Linger(lambda: self, said, self.touched.append, lambda _uuid: self.stopped))
        monkeypatch.setattr(peers, "here", lambda _connection: Place("", self.idle, 0))
        monkeypatch.setattr(peers, "place", self.place)
        monkeypatch.setattr(peers, "time", SimpleNamespace(sleep=lambda _seconds: None))
        run = asyncio.create_subprocess_exec

        async def spawn(*argv: str, **more: Any) -> Any:
            self.commands.append(list(argv))
            ends = f"import sys; print('why', file=sys.stderr); sys.exit({self.status})"
            return await run(sys.executable, "-c", "import signal; signal.pause()" if self.status is None else ends, **more)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)

    def place(self, _connection: Any, uri: str) -> Place | None:
        found = self.places[uri]
        if isinstance(found, threading.Event):
            found.wait(20)
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def domainListGetStats(self, vms: list[Vm], _stats: int, _flags: int) -> list[tuple[Vm, dict[str, Any]]]:
        return [(one, one.stats()) for one in vms]

    async def end(self) -> None:
        await self.linger.close()

    def looked(self, uuid: str = "b", class_: Class = Class.BACKGROUND, background: bool = True, active: bool = True) -> None:
        self.linger.seen(uuid, Looked(uuid, active, policy=Policy(class_), choice=CHOICE, background=background))

    async def step(self, seconds: int = 2) -> None:
        """Time passes, with a look every two seconds and what comes of it, but for a command that does not end."""
        for _ in range(seconds // 2):
            self.now += 2
            for one in self.vms.values():
                one.ran, one.waited = one.ran + 2 * one.share, one.waited + 2 * (1 - one.share)
            await self.linger._look()
            while self.linger._acts and self.linger._moving is None:
                await asyncio.wait(self.linger._acts, timeout=0.05)


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Play:
    """Run a scene."""
    caplog.set_level("INFO")

    def run(scene: Callable[[World], Awaitable[None]], said: Settings = SAID) -> None:
        async def with_clock(world: World) -> None:
            monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: world.now, time=lambda: 1e9 + world.now))
            await scene(world)

        stage(lambda: World(tmp_path, said, monkeypatch), (), monkeypatch)(with_clock)

    return run


def test_it_stays_then_moves(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """512 MB at 100 MB/s are 5 s; with half of what it wants here and all there it goes after 10 s."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(60)
        assert not caplog.messages
        vm.share = 0.5
        await world.step(8)
        assert not world.commands
        await world.step(20)
        await asyncio.gather(*world.linger._acts)  # its end
        (command,) = world.commands
        assert command[1:] == ["-m", "idletime", "--connect", "qemu:///here", "--run-dir", str(world.root),
                               "migrate", "b", FREE, "--idle", "--json"]
        assert vm.records[LIVE].startswith("<moved at=\"10000") and world.touched == ["b"]
        assert world.linger._deeds.acts["migrate", "move", "processor"] == 1

    play(scene)
    assert caplog.messages[0] == f"nobody is sent to {AWAY}: no route"
    stays, moves, runs = caplog.messages[1:4]
    assert stays.startswith("domain 'b' stays: it does ") and " pays after " in stays
    assert moves.startswith(f"domain 'b' moves to {FREE}: it does 50% of what it would alone, with 1.0 processors, and would ")
    assert "a move takes 5 s (512 MB at 100 MB/s, of which it writes 0.0) and pays after 10 s" in moves
    assert runs == f"domain 'b' runs at {FREE}"


def test_a_short_episode(play: Play) -> None:
    async def scene(world: World) -> None:
        world.looked()
        for _ in range(5):
            await world.step(30)
            world.vms["b"].share = 0.5
            await world.step(6)
            world.vms["b"].share = 1.0
        assert not world.commands

    play(scene)


def test_who_came_rests(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """It was sent here: the record came with it."""
    async def scene(world: World) -> None:
        world.vms["b"].record = f"<moved at='{1e9 + world.now - 500:.0f}'/>"
        world.places.clear()  # nobody is asked
        world.vms["b"].share = 0.5
        world.looked()
        await world.step(90)
        assert not world.commands and world.vms["b"].asked == 0
        assert sum("it was moved, or was to be, less than 600 s ago" in text for text in caplog.messages) == 1
        assert "less than 600 s ago" in state.linger(str(world.root), "b")
        world.looked(active=False)
        await world.step()
        assert state.linger(str(world.root), "b") == ""
        world.looked()
        world.places[FREE] = Place(FREE, 1.0, 1 << 40)
        await world.step(40)
        assert len(world.commands) == 1

    play(scene)


@pytest.mark.parametrize("record", ["<moved/>", "<moved at='x'/>", "<moved at='nan'/>", "<moved at='1e300'/>"])
def test_a_record_that_says_nothing(play: Play, record: str) -> None:
    async def scene(world: World) -> None:
        world.vms["b"].record, world.vms["b"].share = record, 0.5
        world.looked()
        await world.step(60)
        assert len(world.commands) == 1

    play(scene)


def test_a_move_that_fails(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """It stays where it is, and is tried again after again-seconds."""
    async def scene(world: World) -> None:
        world.status, world.vms["b"].share = 1, 0.5
        world.looked()
        await world.step(300)
        assert len(world.commands) == 1
        await world.step(500)
        assert len(world.commands) == 2

    play(scene)
    assert f"domain 'b' could not be moved to {FREE}: why" in caplog.messages


def test_dry_run(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        world.vms["b"].share = 0.5
        world.looked()
        await world.step(300)
        assert not world.commands and not world.vms["b"].records
        assert state.linger(str(world.root), "b").startswith(f"would move to {FREE} (dry-run): it does 50%")
        world.vms["b"].share = 1.0
        await world.step(60)
        assert state.linger(str(world.root), "b") == ""

    play(scene, replace(SAID, migrate=replace(SAID.migrate, dry_run=True)))
    assert sum(f"domain 'b' would move to {FREE} (dry-run): it does 50%" in text for text in caplog.messages) == 1


@pytest.mark.parametrize(("class_", "background", "active"), [
    (Class.FOREGROUND, False, True), (Class.FOREGROUND, True, True), (Class.BACKGROUND, True, False)])
def test_who_is_not_meant(play: Play, class_: Class, background: bool, active: bool) -> None:
    """Foreground, one that only its guest has lowered, one that does not run."""
    async def scene(world: World) -> None:
        world.vms["b"].share = 0.1
        world.looked("b", class_, background, active)
        await world.step(300)
        assert not world.linger.members and not world.commands

    play(scene)


def test_nowhere(play: Play) -> None:
    async def scene(world: World) -> None:
        world.looked()
        assert not world.linger.members

    play(scene, Settings())


def test_a_host_that_is_named_twice(play: Play) -> None:
    async def scene(world: World) -> None:
        world.vms["b"].share = 0.1
        world.looked()
        await world.step(300)
        assert len(world.commands) == 1

    play(scene, replace(SAID, migrate=replace(SAID.migrate, to=f"{FREE} {FREE}")))


def test_this_host_is_among_them(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """The same list may be on all hosts."""
    async def scene(world: World) -> None:
        world.places[FREE] = None
        world.vms["b"].share = 0.1
        world.looked()
        await world.step(300)
        assert not world.commands and world.vms["b"].asked == 0

    play(scene)
    assert any("no other host has 976 MiB of memory" in text for text in caplog.messages)


def test_stopped_for_the_processors(play: Play) -> None:
    """It wants what it wanted before; what it was stopped for otherwise is no reason to go."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(20)
        vm.share = 0.0
        for cause in ("disk", "processor"):
            assert not world.commands
            for _ in range(30):
                vm.waited -= 2  # it is stopped, so it does not wait
                world.stopped[cause] = world.stopped.get(cause, 0.0) + 2
                await world.step()
        assert len(world.commands) == 1

    play(scene)


def test_libvirtd_is_away(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        world.vms["b"].share = 0.5
        world.looked()
        await world.step(4)
        world.away = True
        await world.step(100)
        assert not world.commands
        world.away = False
        await world.step(30)
        assert len(world.commands) == 1

    play(scene)
    assert sum("cannot be looked at" in text for text in caplog.messages) == 1


def test_a_host_that_hangs(play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked once, and keeps nobody from another one."""
    monkeypatch.setattr(room, "ASK_SECONDS", 0.2)
    asked: list[str] = []

    async def scene(world: World) -> None:
        world.places[AWAY] = threading.Event()
        place = peers.place
        monkeypatch.setattr(peers, "place", lambda connection, uri: (asked.append(uri), place(connection, uri))[1])
        world.vms["b"].share = 0.5
        world.looked()
        await world.step(40)
        assert len(world.commands) == 1
        world.places[AWAY].set()

    play(scene)
    assert asked.count(AWAY) == 1 and asked.count(FREE) > 1
    assert f"nobody is sent to {AWAY}: no answer" in caplog.messages


def test_a_limit_of_its_own(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """A quota, or a pinned vCPU: it would go along."""
    async def scene(world: World) -> None:
        world.idle, world.vms["b"].share = 1.0, 0.5
        world.looked()
        await world.step(300)
        assert not world.commands

    play(scene)
    assert any("but 1.0 processors are idle here: it has a limit of its own" in text for text in caplog.messages)


@pytest.mark.parametrize(("disk", "said", "moves"), [
    ("<disk type='block'><target dev='vda'/></disk>", SAID, 0),
    ("<disk type='block'><target dev='vda'/></disk>", replace(SAID, migrate=replace(SAID.migrate, block_disks=True)), 1),
    ("<disk type='block'><target dev='vda'/><shareable/></disk>", SAID, 1),
    ("<disk type='block'><target dev='sr0'/><readonly/></disk>", SAID, 1),
    ("<disk type='file'><target dev='vda'/></disk>", SAID, 1),
])
def test_a_block_device(play: Play, caplog: pytest.LogCaptureFixture, disk: str, said: Settings, moves: int) -> None:
    """Another host's of the same name may be another VM's."""
    async def scene(world: World) -> None:
        world.vms["b"].more, world.vms["b"].share = f"<devices>{disk}</devices>", 0.5
        world.looked()
        await world.step(60)
        assert len(world.commands) == moves

    play(scene, said)
    said_so = any("its disk vda is a block device" in text and "remedy: block-disks = true" in text for text in caplog.messages)
    assert said_so == (not moves)


def test_its_memory_is_huge_pages(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """These are not resident to the kernel: all of it is sent."""
    async def scene(world: World) -> None:
        world.vms["b"].more, world.vms["b"].share = "<memoryBacking><hugepages/></memoryBacking>", 0.5
        world.looked()
        await world.step(60)

    play(scene)
    assert any("a move takes 10 s (1024 MB at 100 MB/s" in text for text in caplog.messages)


@pytest.mark.parametrize("when", ["note", "command"])
def test_it_ends_while_one_moves(play: Play, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The command is interrupted, which ends the migration; it is waited for. One that has not begun does not begin."""
    hangs = threading.Event()

    async def scene(world: World) -> None:
        world.status, world.vms["b"].share = None, 0.5
        world.looked()
        if when == "note":
            monkeypatch.setattr(peers, "note", lambda *_: hangs.wait(20))
            for _ in range(20):
                world.now += 2
                world.vms["b"].ran, world.vms["b"].waited = world.vms["b"].ran + 1, world.vms["b"].waited + 1
                await world.linger._look()
                await asyncio.sleep(0.05)
        else:
            await world.step(60)
        began = time.monotonic()
        await world.linger.close()
        hangs.set()
        await asyncio.sleep(0.1)
        assert world.linger._moving is None and time.monotonic() - began < 15
        assert len(world.commands) == (when == "command"), "one at a time, and none after the end"

    play(scene)


@pytest.mark.parametrize("deaf", [False, True])
def test_it_does_not_end(play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, deaf: bool) -> None:
    """Idle time is not enough, or the command hangs: it does not keep others from moving for ever."""
    monkeypatch.setattr(room, "LEAST_SECONDS", 0.05)
    monkeypatch.setattr(room, "TIMES", 0)
    monkeypatch.setattr(room, "END_SECONDS", 0.2)
    if deaf:
        monkeypatch.setattr(room, "_interrupt", lambda _process: None)

    async def scene(world: World) -> None:
        world.status, world.vms["b"].share = None, 0.5
        world.looked()
        await world.step(60)
        await asyncio.wait_for(asyncio.gather(*world.linger._acts), 20)
        assert world.linger._moving is None

    play(scene)
    (text,) = [text for text in caplog.messages if f"domain 'b' could not be moved to {FREE}: " in text]
    assert ("--set jobs=foreground" in text) is deaf
