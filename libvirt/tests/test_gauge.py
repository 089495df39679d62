# SPDX-License-Identifier: GPL-2.0-or-later
"""The gauge: from boards, an observer's page and the kernel's counters to shares of spare time. No sleep, no kernel."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime import arena
from idletime.cli.main import main
from idletime.conf.resources import Resource, Resources
from idletime.gauge import boards, kernel, said
from idletime.gauge.boards import Boards, Source
from idletime.gauge.kernel import Counted
from idletime.gauge.measure import Look, between, busy_share
from idletime.gauge.place import Place, places
from idletime.gauge.said import Gauge, Gauged
from idletime.gauge.spare import RISE_SECONDS, Smoother, Spare
from idletime.hostd.gauge import Gauges, Looker
from idletime.hostd.watched import Part, Use
from idletime.resolve.tree import Tree
from test_arena import write_arena

MS, S = 1_000_000, 1_000_000_000


def source(*moves: tuple[int, bool], busy: bool = False, whole: bool = True, key: str = "slot 0 of 1", sent: int = 0) -> Source:
    return Source(key, 0, sent, busy, tuple((at * MS, on) for at, on in moves), whole)


# ---- how busy: a time of 1000 ms

@pytest.mark.parametrize("sources, share", [
    ([], 0.0),
    ([source()], 0.0),
    ([source(busy=True)], 1.0),
    ([source((100, True), (300, False))], 0.2),
    ([source((100, True), (300, False)), source((200, True), (400, False))], 0.3),  # a union, no sum
    ([source((-500, True), (300, False))], 0.3),  # busy before the time began
    ([source((900, True))], 0.1),  # and after it ended
    ([source((-500, True), (-400, False))], 0.0),
    ([source((-500, True))], 1.0),
    ([source((600, True), (800, False), whole=False)], 0.3),  # known from 600 on: 200; of the 300 in service 100 were before
    ([source((950, True), whole=False)], 0.3),
    ([source((600, True), (800, False), whole=False), source(busy=True)], 0.4),  # 400 from 600 on, and nothing is left
    ([source((1000, True), busy=True, whole=False)], 0.3),  # nothing is covered: what was in service
    ([source((100, True), (1200, False))], 0.9),  # a time in the future counts as none
    ([source((100, True), (200, True), (300, False), (400, False))], 0.2),  # torn: said twice
])
def test_busy(sources, share):
    """The requests were in service for 300 ms, which counts for what rings do not cover."""
    assert busy_share(sources, 0, 1000 * MS, 300 * MS) == pytest.approx(share)


@given(st.lists(st.lists(st.tuples(st.integers(-5, 1500), st.booleans()), max_size=9), max_size=4), st.booleans(),
       st.integers(0, 1 << 40))
def test_any_board_gives_a_share(rings, whole, service):
    found = busy_share([source(*sorted(ring), whole=whole) for ring in rings], 0, 1000 * MS, service)
    assert 0 <= found <= 1


# ---- who says it

def test_sources_in_order():
    """Observer, else the kernel while no background runs, else slots; unknown is None and says the remedy."""
    slot, seen = source((100, True), (300, False)), source((300, True), (400, False), key="observer 1")
    counted = Counted(0, 0), Counted(500, 800)
    first = Look(0, Boards((slot,), 7, 1), seen, counted[0])
    both = between("disk", None, first, Look(1000 * MS, Boards((slot,), 9, 1), seen, counted[1]))
    assert (both.spare, both.source, both.whole) == (pytest.approx(0.7), "observer", True)
    quiet = between("disk", None, first, Look(1000 * MS, Boards((slot,), 7, 1), None, counted[1]))
    assert (quiet.spare, quiet.source, quiet.whole) == (pytest.approx(0.5), "kernel", True)
    held = between("disk", None, first, Look(1000 * MS, Boards((slot,), 8, 1), None, counted[1]))
    assert (held.spare, held.source, held.whole) == (pytest.approx(0.8), "slots", False)
    none = between("disk", None, Look(0), Look(1000 * MS))
    assert (none.spare, none.source) == (None, "")
    assert "remedy: default = \"foreground\"" in none.problem


def test_the_kernel_bounds_what_others_say():
    """An end was lost: busy all the time, says the observer; the kernel has 100 ms of all, background too."""
    stuck = source((-9, True), busy=True, key="observer 1")
    looks = [Look(at * MS, Boards((), at, 1), stuck, Counted(at // 10, at // 10, at)) for at in (0, 1000)]
    assert between("disk", None, *looks).spare == pytest.approx(0.9)
    assert between("disk", None, *looks).source == "observer"
    sent = [Look(at * S, Boards((source(sent=at * 10**9),)), None, Counted(sent_bytes=at * 10**6)) for at in (0, 1)]
    assert between("interface", 80_000_000, *sent).spare == pytest.approx(0.9)


def test_the_kernels_counters_are_upper_bounds():
    """20 requests of 0.1 ms in 20 ticks of 4 ms: 80 ms by ticks, 2 ms by the requests."""
    found = between("disk", None, Look(0, kernel=Counted()), Look(1000 * MS, kernel=Counted(80, 2)))
    assert found.spare == pytest.approx(0.998)


def test_another_observer_counts_from_zero():
    first = Look(0, Boards(), source(key="observer 1"))
    found = between("disk", None, first, Look(1000 * MS, Boards((source(busy=True),)), source(key="observer 2")))
    assert (found.source, found.spare) == ("slots", 0.0)


def test_an_uplink():
    """2 MB in 1 s of 100 Mbit/s are 16 %; one that came meanwhile counts from the next look on."""
    before = Look(0, Boards((source(sent=1_000_000),)))
    after = Look(S, Boards((source(sent=3_000_000), source(sent=9_000_000, key="slot 1 of 2"))))
    assert between("interface", 100_000_000, before, after).spare == pytest.approx(0.84)
    unknown = between("interface", None, before, after)
    assert unknown.spare is None and "remedy: say rate" in unknown.problem
    full = Look(S, kernel=Counted(sent_bytes=12_500_005))
    kernels = between("interface", 100_000_000, Look(0, kernel=Counted(sent_bytes=5)), full)
    assert (kernels.spare, kernels.source) == (0.0, "kernel")


# ---- shares

def fed(*shares: tuple[float, int], smoother: Smoother | None = None) -> Smoother:
    """Looks of 2 s: so much was free, for so many seconds."""
    smoother = smoother or Smoother()
    for share, seconds in shares:
        for _ in range(seconds // 2):
            smoother.add(share, 2.0)
    return smoother


def test_shares_of_time():
    """10 s of 0.2 after 50 s of 0.8: (50 x 0.8 + 10 x 0.2) / 60."""
    found = fed((0.8, 50), (0.2, 10)).spare
    assert (found.second, found.minute, found.hour) == (pytest.approx(0.2), pytest.approx(0.7), pytest.approx(0.7))
    assert fed((0.8, 58)).spare.hour is None


def test_nothing_steady_at_first():
    assert fed((0.8, 8)).spare.steady is None
    assert fed((0.8, 10)).spare.steady == pytest.approx(0.8)


def test_steady_falls_at_once_and_rises_late():
    """From 0.8 to 0.2: the minute is below 0.75 after 6 s (0.8 - 6 x 0.6 / 60 = 0.74)."""
    smoother = fed((0.8, 120))
    assert fed((0.2, 4), smoother=smoother).spare.steady == pytest.approx(0.8)
    assert fed((0.2, 2), smoother=smoother).spare.steady == pytest.approx(0.74)
    low = fed((0.2, 120), smoother=smoother).spare.steady
    assert low == pytest.approx(0.2, abs=0.051)
    fed((0.8, int(RISE_SECONDS)), smoother=smoother)
    assert smoother.spare.steady == low  # it was clearly higher for less than RISE_SECONDS
    assert fed((0.8, 180), smoother=smoother).spare.steady > 0.7


def test_steady_does_not_breathe():
    """A load that varies by less than the band changes nothing."""
    smoother = fed((0.6, 60))
    found = {fed((share, 2), smoother=smoother).spare.steady for share in (0.58, 0.63, 0.62, 0.57) * 60}
    assert len(found) == 1


def test_a_long_pause_is_spread():
    smoother = fed((1.0, 60))
    smoother.add(0.5, 7200)
    assert smoother.spare.hour == pytest.approx(0.5)


def test_the_forecast_is_the_better_of_two():
    """Minutes of 0 and 1 in turn: as the last hour (0.5) misses by 0.5, as the last minute by 1."""
    assert fed(*((minute % 2, 60) for minute in range(20))).spare.forecast == pytest.approx(0.5)
    assert fed((0.3, 600)).spare.forecast == pytest.approx(0.3)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 500)), max_size=40))
def test_shares_are_shares(looks):
    smoother = Smoother()
    for share, seconds in looks:
        smoother.add(share, seconds)
    found = smoother.spare
    assert all(one is None or 0 <= one <= 1 for one in (found.second, found.minute, found.hour, found.forecast, found.steady))


# ---- facts

def write_ring(folder: Path, slot: int, moves: list[tuple[int, bool]]) -> None:
    with (folder / "foreground").open("r+b") as file:
        file.seek(4096 + 1024 * 64 + slot * 4096 + 64)
        file.write(struct.pack(f"={len(moves)}Q", *(at << 1 | busy for at, busy in moves)).ljust(2048, b"\0"))


@contextlib.contextmanager
def lives(folder: Path, slot: int = 0):
    descriptor = os.open(folder / "foreground.alive", os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, 37, struct.pack("@hhqqi4x", fcntl.F_RDLCK, 0, slot, 1, 0))  # F_OFD_SETLK
        yield
    finally:
        os.close(descriptor)


def test_boards(tmp_path):
    """Slot 0 lives; its ring is written out of order, as one that was wrapped."""
    write_arena(tmp_path)
    write_ring(tmp_path, 0, [(300, False), (100, True)])
    with lives(tmp_path):
        (one,) = boards.read(str(tmp_path)).foreground
    assert one.moves == ((100, True), (300, False)) and one.whole and one.started == 7


def page(started: int = 5, in_service: int = 1, version: int = 1, head: int = 2,
         ring: Sequence[int] = (10 * MS << 1 | 1, 20 * MS << 1)) -> bytes:
    """As idletime/arena/observed.h has it."""
    first = struct.pack("=QII64s", 0x6465767265736269, version, 1, b"sda").ljust(128, b"\0")
    counts = struct.pack("=IIqQQQq", in_service, in_service, 0, started, 4096, head, 0).ljust(128, b"\0")
    return (first + counts + struct.pack(f"={len(ring)}Q", *ring)).ljust(4096, b"\0")


@contextlib.contextmanager
def observer(folder: str, content: bytes):
    """Sends a page to who connects, as idletime-observer does; ends with its connection."""
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        listener.bind(os.path.join(folder, "observer"))
        listener.listen()
        lines: list[socket.socket] = []

        def serve() -> None:
            line, _ = listener.accept()
            lines.append(line)
            socket.send_fds(line, [b"x"], [file.fileno()])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join(10)
            for line in lines:
                line.close()
    os.unlink(os.path.join(folder, "observer"))


def test_an_observer_comes_and_goes():
    with tempfile.TemporaryDirectory() as folder:
        seen = boards.Observer(folder)
        assert seen.look(30 * MS) is None
        with observer(folder, page()):
            found = seen.look(30 * MS)
            assert found == Source("observer 1", 5, 4096, True, ((10 * MS, True), (20 * MS, False)), True, 30 * MS)
            assert seen.look(30 * MS) == found  # the same connection: it counts on
        assert seen.look(30 * MS) is None
        with observer(folder, page()):
            assert seen.look(30 * MS).key == "observer 2"
        seen.close()


def test_what_an_observer_saw_since_the_last_look():
    """For a timeline: each one has a number of its own; what was lost is known by the number of the first transition."""
    with tempfile.TemporaryDirectory() as folder:
        seen = boards.Observer(folder)
        assert seen.since({}) is None
        with observer(folder, page()):
            seen.find()
            found = seen.since({})
            assert found == arena.Transitions(-1, 1, 2, 0, ((10 * MS, True), (20 * MS, False)))
            assert seen.since({-1: 2}) == arena.Transitions(-1, 1, 2, 1, ((20 * MS, False),))  # the newest once more
            assert seen.since({-1: 1}) == found
            assert seen.since({-1: 9}) == found  # it was another one
        assert seen.since({-1: 2}) is None
        with observer(folder, page()):
            seen.find()
            assert seen.since({-1: 2}).slot == -2
        seen.close()


def test_more_than_an_observer_keeps():
    ring = [(1000 + number) << 1 | (number + 1) % 2 for number in range(256)]
    found = boards.transitions(page(head=300, ring=ring), -1, {-1: 10})
    assert (found.first, len(found.all), found.head) == (44, 256, 300)
    assert found.all == tuple(sorted(found.all))


def test_an_observer_of_another_version_is_none():
    with tempfile.TemporaryDirectory() as folder, observer(folder, page(version=2)):
        assert boards.Observer(folder).look(0) is None


def host(root: Path) -> Tree:
    """sda was busy for 40 ms by ticks, its requests took 10 + 20 + 3 ms; eth0 is of 1 Gbit/s."""
    for name, text in (("block/sda/stat", "1 0 8 10 2 0 16 20 0 40 30 0 0 0 0 1 3"), ("net/eth0/statistics/tx_bytes", "777"),
                       ("net/eth0/speed", "1000"), ("net/tap0/speed", "-1")):
        file = root / "sys/class" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return Tree(str(root))


def test_the_kernels_counters(tmp_path):
    tree = host(tmp_path)
    assert kernel.read(tree, "disk", "/dev/sda") == Counted(40, 33)
    assert kernel.read(tree, "interface", "eth0") == Counted(sent_bytes=777)
    assert [kernel.read(tree, "disk", one) for one in ("/dev/sdb", "")] == [None, None]
    assert [kernel.rate_bps(tree, one) for one in ("eth0", "tap0", "eth9")] == [10**9, None, None]


def test_places(tmp_path):
    """VMs' resources, and those of resources.d with a device's name; a host without a VM has the latter."""
    tree = host(tmp_path)
    words = Resources((Resource("sda", {}, {}, None, ""), Resource("eth0", {"rate-bps": 5}, {}, None, ""),
                       Resource("array1", {}, {}, None, "")))
    assert places([], words, "/r", tree) == (Place("eth0", "/r/eth0", "interface", "eth0", 5),
                                             Place("sda", "/r/sda", "disk", "/dev/sda"))
    parts = [Part("a", uses=(Use("pool", "/r/pool", "disk", "foreground", True, ("/dev/sda", "/dev/sdb")),))]
    assert places(parts, Resources(), "/r", tree) == (Place("pool", "/r/pool", "disk"),)


def test_a_place_that_is_named_by_path_has_its_device(tmp_path):
    """A resource with a disk's name, on which a VM is by match.path: the kernel's counters, as before the VM came."""
    words = Resources((Resource("sda", {}, {"path": "/srv/*"}, None, ""),))
    parts = [Part("a", uses=(Use("sda", "/r/sda", "disk", "foreground", True, ()),))]
    assert places(parts, words, "/r", host(tmp_path)) == (Place("sda", "/r/sda", "disk", "/dev/sda"),)


# ---- all of it

def test_a_host_without_background_has_a_gauge(tmp_path, capsys):
    """No VM at all: the kernel's counters. In 2 s sda was busy for 1 s."""
    (tmp_path / "run/.state").mkdir(parents=True)
    host(tmp_path)
    run, looker, where = str(tmp_path / "run"), Looker(str(tmp_path / "run"), str(tmp_path)), [
        Place("sda", str(tmp_path / "run/sda"), "disk", "/dev/sda")]
    looker.look(where, 0, 100.0)
    (tmp_path / "sys/class/block/sda/stat").write_text("1 0 8 510 2 0 16 620 0 1040 30")  # 1,100 ms of requests
    found = looker.look(where, 2 * S, 102.0)
    assert found.resources[0].spare.second == pytest.approx(0.5)
    assert said.read(run) == found
    data = json.loads((tmp_path / "run/.state/gauge.json").read_text())
    assert (data["version"], data["at"], data["resources"][0]["spare"]["second"]) == (1, 102.0, 0.5)
    assert (tmp_path / "run/.state/gauge.json").stat().st_mode & 0o777 == 0o644
    looker.look([], 3 * S)
    assert said.read(run).resources == ()
    assert main(["--run-dir", run, "gauge"]) == 1  # of monotonic 3 s: old
    assert "old; remedy: is idletimed running?" in capsys.readouterr().out


def test_what_is_unknown_begins_anew(tmp_path):
    """An arena's last foreground VM leaves: what was known is said for 10 s, and then not any more."""
    (tmp_path / ".state").mkdir()
    arena = tmp_path / "nbd"
    write_arena(arena)
    looker, where = Looker(str(tmp_path), str(tmp_path)), [Place("nbd", str(arena), "disk")]
    with lives(arena):
        for second in range(0, 14, 2):
            found = looker.look(where, second * S)
        assert found.resources[0].spare.steady == 1.0 and not found.resources[0].whole
    known = found.resources[0].spare
    for second in (14, 22):
        found = looker.look(where, second * S)
        assert found.resources[0].spare == known and "remedy" in found.resources[0].problem
    found = looker.look(where, 24 * S)
    assert found.resources[0].spare == Spare() and "remedy" in found.resources[0].problem


def test_lines():
    one = Gauged("sda", "disk", "/dev/sda", "slots", False, Spare(0.1, 0.2))
    assert said.lines(Gauge(0, 0, (one,)), 1.0) == [
        "sda: spare second 10%, minute 20% (by slots, of what passes Idletime's QEMUs only)"]
    assert said.lines(None) == ["the gauge says nothing; remedy: is idletimed running?"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 2}', '{"version": 1, "at": 1, "monotonic": 1, "resources": [3]}'])
def test_a_file_that_cannot_be_read_is_none(tmp_path, text):
    (tmp_path / ".state").mkdir()
    (tmp_path / ".state/gauge.json").write_text(text)
    assert said.read(str(tmp_path)) is None


def test_a_look_that_fails_is_said_once_and_the_next_one_comes(tmp_path, caplog, monkeypatch):
    """There is no folder to write to; then there is."""
    monkeypatch.setattr("idletime.hostd.gauge.LOOK_SECONDS", 0)
    looks = []

    async def run() -> None:
        done = asyncio.Event()

        def find() -> tuple[Place, ...]:
            looks.append(1)
            if len(looks) == 3:
                (tmp_path / ".state").mkdir()
            if len(looks) == 5:
                loop.call_soon_threadsafe(done.set)
            return ()

        loop = asyncio.get_running_loop()
        gauges = Gauges(str(tmp_path), lambda: find)
        await asyncio.wait_for(done.wait(), 30)
        await gauges.close()

    asyncio.run(run())
    assert said.read(str(tmp_path)) is not None
    assert len([one for one in caplog.messages if "the gauge says nothing" in one]) == 1
