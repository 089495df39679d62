# SPDX-License-Identifier: GPL-2.0-or-later
"""Scratch disks in idletimed: a libvirt and a clock that are played, real files and locks. Who is dropped, and who never is."""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from idletime.hostd import overlay, stopped
from idletime.hostd import space as room
from idletime.hostd.settings import Settings
from idletime.hostd.settings import Space as Said
from idletime.police import space
from idletime.resolve import qcow2
from idletime.scratch import Unfit
from idletime.xmltree import read
from overlays import MARK, MIB, Play, World, image, scenes, xml


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    return scenes(tmp_path, monkeypatch)


# ---- what is done

def test_a_trim_is_enough(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.freed = 20
        world.looked()
        world.others = 60
        await world.step()
        assert vm.acts == []
        world.others = 67
        await world.step(600)
        assert vm.acts == ["trim"]
        for _ in range(40):
            await world.step()
        assert vm.acts == ["trim"] and vm.isActive() and not vm.records

    play(scene)
    (text,) = caplog.messages
    assert text.startswith("domain 'b' trims its disks: ") and text.endswith("MiB are free, below the low-water mark of 5")


def test_a_guest_that_says_it_has_trimmed(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """What counts is what is free: after half a minute the largest is dropped, and no other. It is not started again."""
    caplog.set_level("INFO")

    async def scene(world: World) -> None:
        vm, small = world.vms["b"], world.add("c", 10)
        before = os.stat(vm.file)
        world.looked()
        world.others = 57
        for _ in range(15):
            await world.step()
        assert vm.acts == ["trim"] and small.acts == ["trim"]
        await world.step()
        assert vm.acts == ["trim", "destroy"] and vm.empty and not vm.isActive() and world.touched == ["b"]
        after = os.stat(vm.file)
        assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
        record = overlay.record_of(vm)
        assert record is not None and record.done and str(record).startswith("scratch disk vda was dropped: ")
        world.looked()
        for _ in range(20):
            await world.step()
        assert vm.acts == ["trim", "destroy"] and small.acts == ["trim"] and not small.empty
        deeds = world.space._deeds
        assert (deeds.acts["space", "trim", "low-water"], deeds.acts["space", "drop", "low-water"]) == (2, 1)
        assert 29 << 20 < deeds.taken["space", "drop"] < 31 << 20

    play(scene)
    assert sum("is stopped, and its scratch disk dropped (vda)" in text for text in caplog.messages) == 1


def test_an_agent_that_hangs(play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is not waited for, and keeps nothing else waiting: the next look drops."""
    monkeypatch.setattr(room.space, "TRIM_S", 0.05)

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.hangs = threading.Event()
        world.looked()
        world.others = 67
        await world.step(0.01)
        assert vm.acts == ["trim"] and vm.isActive()
        await world.step(0.01)
        assert vm.acts == ["trim", "destroy"] and vm.empty
        vm.freed = 0
        vm.hangs.set()

    play(scene)
    assert ["trims its disks" in text and "no answer" in text for text in caplog.messages] == [True]


def test_an_agent_that_fails(play: Play) -> None:
    """It is not waited for then; at a shortage five minutes later it is asked again."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.wrong = True
        vm.job, world.others = 1, 67
        world.looked()
        for _ in range(3):
            await world.step()
        assert vm.acts == ["trim"]
        vm.wrong, vm.freed, world.others = False, 20, 0
        await world.step(space.AGAIN_S)
        world.others = 67
        await world.step()
        assert vm.acts == ["trim", "trim"] and vm.isActive()

    play(scene)


STOPPED = stopped.Record(16, "sda")


def test_who_idletimed_has_stopped_is_trimmed_when_it_goes_on(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait for that, none keeps a thread: those that run are trimmed meanwhile."""
    monkeypatch.setattr(overlay.stopped, "record_of", lambda vm: STOPPED if vm.paused else None)
    monkeypatch.setattr(room, "POLL_SECONDS", 0.001)

    async def scene(world: World) -> None:
        stops = [world.add(name, 1) for name in "stuvwx"]
        for vm in stops:
            vm.paused = True
        world.looked(*"stuvwxb")
        world.others = 60
        world.now += 2
        await world.space._look()
        while not world.vms["b"].acts:
            await asyncio.sleep(0.001)
        assert [vm.acts for vm in stops] == [[]] * 6
        for vm in stops:
            vm.paused = False
        await world.acts()
        assert [vm.acts for vm in world.vms.values()] == [["trim"]] * 7

    play(scene)


@pytest.mark.parametrize("ours, said", [(True, "idletimed has had it stopped for 0 s"), (False, "domain is not running")])
def test_who_stays_stopped_is_not_waited_for(play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
                                             ours: bool, said: str) -> None:
    """By idletimed longer than it does that; by its operator."""
    monkeypatch.setattr(room, "STOPPED_SECONDS", 0.01)
    monkeypatch.setattr(room, "POLL_SECONDS", 0.001)

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        world.others = 67
        vm.paused = True
        monkeypatch.setattr(overlay, "_agent", lambda *_rest: True)
        monkeypatch.setattr(overlay.stopped, "record_of", lambda _domain: STOPPED if ours else None)
        await world.step(0.01)
        assert vm.acts == []
        await world.step(0.01)
        assert vm.acts == ["destroy"] and vm.empty

    play(scene)
    assert sum("trims its disks" in text and said in text for text in caplog.messages) == 1


@pytest.mark.parametrize("ours", [True, False])
def test_a_stopped_vm_has_an_agent_if_it_goes_on(play: Play, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    monkeypatch.setattr(overlay.stopped, "record_of", lambda _domain: STOPPED if ours else None)

    async def scene(world: World) -> None:
        world.vms["b"].paused = True
        assert overlay._agent(world, "b") is ours

    play(scene)


def test_what_hinders_may_end(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Such as a migration. It is tried again after five minutes; that it was not possible is told once."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.job, world.others = 1, 100
        world.looked()
        world.space.members["b"].deaf_until_s = math.inf
        for _ in range(3):
            await world.step(299)
            await world.step(2)
        assert vm.acts == []
        vm.job = 0
        await world.step(299)
        assert vm.acts == ["destroy"]

    play(scene)
    assert len(caplog.messages) == 1


def test_ended_while_it_drops(play: Play) -> None:
    """An idletimed that is told to end does not leave half of an image."""
    async def scene(world: World) -> None:
        vm, begun, waits = world.vms["b"], threading.Event(), threading.Event()
        vm.after_destroy = lambda: (begun.set(), waits.wait(20))[0]
        world.looked()
        world.space.members["b"].deaf_until_s = math.inf
        world.others = 67
        await world.space._look()
        await asyncio.to_thread(begun.wait, 20)
        closing = asyncio.create_task(world.space.close())
        await asyncio.sleep(0)
        assert not closing.done() and not vm.empty
        waits.set()
        await closing
        assert vm.empty and 'done="yes"' in str(vm.record)

    play(scene)


def test_space_that_does_not_last(play: Play) -> None:
    """It falls by 10 MiB a second: there is no time for a trim."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        world.others = 45
        await world.step()
        world.others = 66
        await world.step()
        assert vm.acts == ["destroy"]

    play(scene)


def test_zero_percent_is_never(play: Play) -> None:
    async def scene(world: World) -> None:
        world.space._low = Settings(space=Said(low_percent=0)).space.low_percent / 100
        world.looked()
        assert not world.space.members

    play(scene)


def test_enough_is_free_by_the_time_it_is_dropped(play: Play) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        assert not overlay.drop(world, "b", os.stat(vm.file).st_dev, 0.05, "short", str(world.root))
        assert vm.acts == [] and not vm.records
        world.others = 67
        assert overlay.drop(world, "b", os.stat(vm.file).st_dev, 0.05, "short", str(world.root))
        assert vm.acts == ["destroy"] and vm.empty

    play(scene)


# ---- what is never dropped

def _swapped(world: World) -> None:
    """Somebody who may write the folder puts another file in its place, of the same kind."""
    os.rename(world.vms["b"].file, world.root / "away")
    world.vms["b"].file.write_bytes(image() + b"y" * MIB)


def _linked(world: World) -> None:
    os.rename(world.vms["b"].file, world.root / "away")
    os.symlink(world.root / "away", world.vms["b"].file)


def _another(world: World) -> None:
    """The same disk of another domain, by another way to it."""
    os.symlink(world.root, world.root / "way")
    world.add("other", 0).config = xml(str(world.root / "way/b.qcow2"), "other", "")
    world.vms["other"].end()


def _below(world: World) -> None:
    """It is below the overlay of a domain that is shut off."""
    other = world.add("other", 0)
    other.file.write_bytes(image(str(world.vms["b"].file), "qcow2"))
    other.config = xml(str(other.file), "other", "")
    other.end()


def _set(name: str, value: Any) -> Callable[[World], None]:
    return lambda world: setattr(world.vms["b"], name, value)


def _content(**what: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        with world.vms["b"].file.open("r+b") as file:
            file.write(image(**what)[:1024])
    return change


def _persistent(mark: str = MARK, **more: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.vms["b"].config = xml(str(world.vms["b"].file), "b", mark, **more)
    return change


AGAINST: dict[str, tuple[Callable[[World], Any], str]] = {
    "swapped": (_swapped, "is not locked by its QEMU"),
    "hard link": (lambda world: os.link(world.vms["b"].file, world.root / "second"), "has 2 names"),
    "another's": (_another, "is used by domain 'other' as well"),
    "backing": (_below, "is used by domain 'other' as well"),
    "snapshots": (_set("snapshots", 1), "has snapshots"),
    "transient": (_set("persistent", False), "is transient"),
    "commit": (_set("block_job", {"type": 2, "cur": 1, "end": 9}), "a block job of "),
    "migration": (_set("job", 1), "a job of it is under way"),
    "managed save": (_set("image", True), "has a managed save"),
    "unmarked": (_persistent(""), "does not mark the same disks"),
    "promoted": (_persistent(class_="foreground"), "does not mark the same disks"),
    "read-only": (_persistent(disk="<readonly/>"), "does not mark the same disks"),
    "no overlay": (_content(backing=""), "names no backing file"),
    "no format": (_content(format_=""), "names no format"),
    "internal snapshot": (_content(snapshots=2), "has 2 snapshots"),
    "data file": (_content(incompatible=qcow2.DATA_FILE), "external data file"),
}


@pytest.mark.parametrize("name", AGAINST)
def test_never(play: Play, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """It goes on, nothing of any file is lost, and that is told once; an untouched one is dropped in its place."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked("b")
        world.space.members["b"].deaf_until_s = math.inf
        AGAINST[name][0](world)
        files = {file: file.read_bytes() for file in world.root.glob("*") if file.is_file()}
        world.others = 100
        for _ in range(5):
            await world.step()
        assert vm.acts == [] and vm.isActive() and not vm.records
        assert {file: file.read_bytes() for file in files} == files
        second = world.add("second", 5)
        world.looked("second")
        world.space.members["second"].deaf_until_s = math.inf
        await world.step()
        assert second.acts == ["destroy"] and second.empty

    play(scene)
    (problem,) = caplog.messages
    assert problem.startswith("domain 'b' is stopped") and "it did not come through: " in problem
    assert AGAINST[name][1] in problem and "; remedy: " in problem


def test_a_link_in_its_place(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """It has no blocks, so it is not chosen; and it would not be followed."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        _linked(world)
        world.others = 100
        await world.step()
        with pytest.raises(Unfit, match="cannot be written: Too many levels of symbolic links"):
            overlay.drop(world, "b", os.stat(vm.file).st_dev, 0.05, "short", str(world.root))
        assert vm.acts == [] and len((world.root / "away").read_bytes()) > 30 * MIB

    play(scene)
    assert caplog.messages == []


def test_used_by_another_process_when_it_has_ended(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Such as a VM without libvirt that has waited for it: its file stays as it is, and the record says so."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        before, other = vm.file.read_bytes(), os.open(vm.file, os.O_RDWR)
        vm.after_destroy = lambda: fcntl.fcntl(other, fcntl.F_OFD_SETLK, overlay._flock(fcntl.F_RDLCK))
        world.others = 67
        with pytest.raises(Unfit, match="is used by another process"):
            overlay.drop(world, "b", os.stat(vm.file).st_dev, 0.05, "short", str(world.root))
        assert vm.file.read_bytes() == before
        record = overlay.record_of(vm)
        assert record is not None and not record.done
        os.close(other)

    play(scene)


# ---- idletimed is killed in the middle

def test_killed_before_the_file_was_emptied(play: Play) -> None:
    """The next one does it, once."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        status = os.stat(vm.file)
        vm.end()
        overlay._keep(vm, overlay.Record(1, {"vda": f"{status.st_dev}:{status.st_ino}"}, "short", at=int(time.time())))
        world.looked()
        await world.acts()
        assert vm.empty and 'done="yes"' in str(vm.record)
        vm.file.write_bytes(image() + b"new")
        world.looked()
        await world.acts()
        assert not vm.empty, "what came later is not ours"

    play(scene)


def test_killed_and_run_since(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """While no idletimed ran: what it has written is kept."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        status = os.stat(vm.file)
        vm.end()
        at = int(status.st_mtime) - 1000
        overlay._keep(vm, overlay.Record(1, {"vda": f"{status.st_dev}:{status.st_ino}"}, "short", at=at))
        world.looked()
        await world.acts()
        assert not vm.empty

    play(scene)
    assert "it has run and written since" in caplog.text


@pytest.mark.parametrize("left", [b"", b"\0" * 4096 + b"z" * 4096], ids=["cut", "no header"])
def test_killed_while_it_was_written(play: Play, monkeypatch: pytest.MonkeyPatch, left: bytes) -> None:
    """What kind of image it was is in the record."""
    asked: list[qcow2.Image] = []
    monkeypatch.setattr(overlay, "fresh", lambda one, _folder: (asked.append(one), image())[1])

    async def scene(world: World) -> None:
        vm = world.vms["b"]

        def killed() -> None:
            vm.file.write_bytes(left)
            raise KeyboardInterrupt

        vm.after_destroy, world.others = killed, 67
        with pytest.raises(KeyboardInterrupt):
            overlay.drop(world, "b", os.stat(vm.file).st_dev, 0.05, "short", str(world.root))
        world.looked()
        await world.acts()
        assert vm.empty and 'done="yes"' in str(vm.record)

    play(scene)
    assert asked == [qcow2.Image(3, 1 << 30, 1 << 16, "/base", "raw")] * 2


@pytest.mark.parametrize("change", [_swapped, _linked, _another, _below, _persistent("")],
                         ids=["swapped", "symlink", "another", "backing", "unmarked"])
def test_killed_and_changed_meanwhile(play: Play, caplog: pytest.LogCaptureFixture, change: Callable[[World], None]) -> None:
    """Then nothing is emptied, and it is told once."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        status = os.stat(vm.file)
        vm.end()
        overlay._keep(vm, overlay.Record(1, {"vda": f"{status.st_dev}:{status.st_ino}"}, "short", at=int(time.time())))
        change(world)
        files = {file: file.read_bytes() for file in world.root.glob("*") if file.is_file()}
        for _ in range(3):
            world.looked("b")
            await world.acts()
        assert {file: file.read_bytes() for file in files} == files

    play(scene)
    (problem,) = caplog.messages
    assert "it did not come through" in problem


def test_killed_before_the_vm_was_stopped(play: Play) -> None:
    """It runs, so nothing was dropped; a later run forgets as well."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        for run in (1, 7):
            overlay._keep(vm, overlay.Record(run, {"vda": "1:1"}, "short"))
            world.looked()
            await world.acts()
            assert not vm.records and vm.isActive() and not vm.empty

    play(scene)


def test_what_stands_in_a_record() -> None:
    """Whatever it is, it is read; and what we write is read as it was."""
    for text in ("<space/>", "<space run='x' done='maybe'><disk/><disk target='vda' size='-1' zstd='٣'/></space>"):
        record = overlay._record(read(text))
        assert (record.run, record.done) == (0, False)
    kept: list[str] = []
    domain = SimpleNamespace(setMetadata=lambda _kind, text, *_rest: kept.append(text))
    image_ = qcow2.Image(3, 5, 512, "a & b", "raw", 1, 16, 1, False, 0, True)
    record = overlay.Record(7, {"vda": "1:2", "vdb": "1:3"}, "it is 'short'", True, {"vda": image_, "vdb": image_}, 9)
    overlay._keep(domain, record)
    assert overlay._record(read(kept[0])) == record
