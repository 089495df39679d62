# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading an arena that is written here byte by byte, as idletime/arena/arena.h lays it out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from pathlib import Path

import pytest

from idletime import arena

NOW = 10_000_000_000  # ns


def write_arena(path: Path, abi: int = 3, magic: int = 0x656D6974656C6469) -> None:
    """Foreground: slot 0 idle since 4 ms, slot 1 (3 in service). Background: slot 0 waits. Slots 2 and 1: nobody's."""
    path.mkdir(exist_ok=True)
    header = struct.Struct("=QIIIIQQ")
    foreground = bytearray(header.pack(magic, abi, 1, 1024, 3, 0, 0).ljust(4096, b"\0"))
    for slot, (in_service, last) in enumerate([(0, NOW - 4_000_000), (3, NOW - 1), (1, NOW)]):
        foreground += struct.pack("=IIqQQQ", in_service, 100 + slot, last, 7 + slot, 0, 0).ljust(64, b"\0")
    foreground = foreground.ljust(4096 + 1024 * 64, b"\0")
    for label in (b"web/vda", b"db/\xff\x1b[31m", b"dead/vda"):
        foreground += label.ljust(4096, b"\0")
    background = bytearray(header.pack(magic, abi, 2, 1024, 2, 0, 0).ljust(8192, b"\0"))
    for slot in (0, 1):
        background += struct.pack("=IIQqQqQI", 1, 0, 0, 0, 9 + slot, 0, 0, 50).ljust(64, b"\0")
    (path / "foreground").write_bytes(foreground)
    (path / "background").write_bytes(background)
    for name in ("foreground", "background"):
        (path / f"{name}.lock").touch()
        (path / f"{name}.alive").touch()


@pytest.fixture
def slots(tmp_path):
    """An arena whose foreground slots 0 and 1 and background slot 0 are owned by a living participant: us."""
    write_arena(tmp_path)
    opened = []
    for name, indices in (("foreground", (0, 1)), ("background", (0,))):
        descriptor = os.open(tmp_path / f"{name}.alive", os.O_RDWR)
        opened.append(descriptor)
        for index in indices:
            fcntl.fcntl(descriptor, 37, struct.pack("@hhqqi4x", fcntl.F_RDLCK, 0, index, 1, 0))  # F_OFD_SETLK
    yield tmp_path
    for descriptor in opened:
        os.close(descriptor)


def test_living_participants(slots):
    seen = arena.read(str(slots), NOW)
    assert [(one.label, one.pid, one.in_service, one.idle_us, one.requests) for one in seen.foreground] == [
        ("web/vda", 100, 0, 4000, 7),
        ("db/\ufffd?[31m", 101, 3, None, 8),
    ]
    assert seen.background == (arena.Background(True, 50, 9),)
    assert seen.interval_left_us(20000) is None  # foreground is in service


@contextlib.contextmanager
def lives(folder, name="background"):
    """Somebody has a slot of the arena in a folder."""
    descriptor = os.open(folder / f"{name}.alive", os.O_RDWR)
    fcntl.fcntl(descriptor, 37, struct.pack("@hhqqi4x", fcntl.F_RDLCK, 0, 5, 1, 0))
    try:
        yield
    finally:
        os.close(descriptor)


def test_generations(tmp_path):
    """Those of which somebody lives; as QEMU's idletime_generation_others() finds them, with our own."""
    assert arena.generations(str(tmp_path / "none")) == ()
    write_arena(tmp_path)
    write_arena(tmp_path / "abi-4", abi=4)
    (tmp_path / "abi-5").mkdir()  # nobody made boards
    assert arena.generations(str(tmp_path)) == ()
    with lives(tmp_path):
        assert arena.generations(str(tmp_path)) == (3,)
        with lives(tmp_path / "abi-4", "foreground"):
            assert arena.generations(str(tmp_path)) == (3, 4)
            (tmp_path / "abi-4/foreground").write_bytes(b"")  # no board
            assert arena.generations(str(tmp_path)) == (3,)


def test_our_place_beside_an_older_build(slots):
    """One that knew no generations has the path; ours is below it then, and is what we read."""
    assert arena.place(str(slots)) == str(slots)
    write_arena(slots / "abi-3")
    assert arena.place(str(slots)) == str(slots / "abi-3")
    write_arena(slots, abi=2)
    assert arena.read(str(slots), NOW) == arena.Arena((), ())  # of abi-3, where nobody lives
    assert arena.generations(str(slots)) == (2,)
    (slots / "abi-3/foreground").unlink()
    with pytest.raises(arena.ArenaError, match="version 2, this program reads 3"):
        arena.read(str(slots), NOW)


def test_nobody_lives(tmp_path):
    write_arena(tmp_path)
    assert arena.read(str(tmp_path), NOW) == arena.Arena((), ())


def test_without_the_lock_files_all_are_shown(tmp_path):
    """Who may read the boards only cannot know who lives: also the participants of slot 2 and 1, whose owners died."""
    write_arena(tmp_path)
    for name in ("foreground", "background"):
        (tmp_path / f"{name}.alive").unlink()
    seen = arena.read(str(tmp_path), NOW)
    assert [one.label for one in seen.foreground] == ["web/vda", "db/\ufffd?[31m", "dead/vda"]
    assert [one.requests for one in seen.background] == [9, 10]


@pytest.mark.parametrize("interval, left", [(20000, 16000), (4000, 0), (1000, 0), (0, 0)])
def test_interval_left(interval, left):
    """Idle for 4 ms: of 20 ms, 16 are left."""
    seen = arena.Arena((arena.Foreground("a", 1, 0, 4000, 1), arena.Foreground("b", 2, 0, 9000, 1)), ())
    assert seen.interval_left_us(interval) == left
    assert arena.Arena((), ()).interval_left_us(interval) == 0


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda path: path.unlink(), "cannot open"),
        (lambda path: path.write_bytes(b""), "too short"),
        (lambda path: path.write_bytes(b"x" * 9000), "is not a board"),
        (
            lambda path: path.write_bytes(struct.pack("=QIIIIQQ", arena.MAGIC, 2, 1, 0, 0, 0, 0)),
            "version 2, this program reads 3",
        ),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "cannot open"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "too short"),
        (lambda path: (path.unlink(), path.mkdir()), "too short"),
    ],
)
def test_damage(tmp_path, damage, words):
    write_arena(tmp_path)
    damage(tmp_path / "foreground")
    with pytest.raises(arena.ArenaError, match=words):
        arena.read(str(tmp_path), NOW)


def test_truncated_behind_the_header(tmp_path):
    write_arena(tmp_path)
    os.truncate(tmp_path / "foreground", 4096 + 70)
    assert arena.read(str(tmp_path), NOW).foreground == ()


def test_layout_is_that_of_the_header_file():
    """The constants here and in QEMU's header must change together."""
    header = Path(__file__).parents[2] / "qemu-patches/overlay/idletime/arena/arena.h"
    text = header.read_text()
    constants = dict(re.findall(r"#define IDLETIME_(\w+)\s+(0x\w+|\d+)", text))
    assert int(constants["ARENA_ABI"]) == arena.ABI
    assert int(constants["ARENA_MAGIC"].rstrip("UL"), 16) == arena.MAGIC
    assert (
        int(constants["SLOTS"]),
        int(constants["LABEL_BYTES"]),
        int(constants["PAGE_BYTES"]),
        int(constants["LINE_BYTES"]),
    ) == (arena._SLOTS, arena._LABEL, arena._PAGE, arena._LINE)
    for struct_, fields in (
        ("IdletimeFgLine", ["in_service", "pid", "last_ns", "started", "bytes", "ring_head"]),
        (
            "IdletimeBgLine",
            ["waiting", "wake", "vtime_ns", "interval_ns", "started", "due_ns", "cost_ns", "weight"],
        ),
    ):
        body = re.search(rf"struct {struct_} \{{(.*?)\}}", text, re.S).group(1)
        assert re.findall(r"int\d+_t (\w+);", body)[: len(fields)] == fields  # what was added since stands behind
