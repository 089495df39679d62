# SPDX-License-Identifier: GPL-2.0-or-later
"""Pace, queue, agents, settings, arenas: time is virtual, nothing sleeps."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.devices import channel_of
from idletime.facts import Plan
from idletime.hostd import arena, daemon, guests, pace, rights, waiting
from idletime.hostd import settings as settings_room
from idletime.hostd.protocol import State, Wish
from idletime.hostd.settings import Qmp, Settings
from idletime.hostd.settle import Looked
from idletime.policy import Class, Control, Policy
from idletime.resolve.tree import Tree
from idletime.xmltree import read

# ---- pace


def test_burst_then_rate() -> None:
    """The burst is 128 KiB; then 16 KiB a second: 8 KiB of debt are paid in half a second."""
    one = pace.Pace(0.0)
    one.charge(0.0, pace.BURST)
    assert one.wait_seconds(0.0) == 0
    one.charge(0.0, 8192)
    assert one.wait_seconds(0.0) == 0.5
    assert one.wait_seconds(0.25) == 0.25
    assert one.wait_seconds(1000.0) == 0 and one.credit == pace.BURST


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 4096), st.integers(0, 2048)), min_size=1, max_size=60))
def test_no_guest_gets_more_than_its_rate(reads: list[tuple[float, int, int]]) -> None:
    """Bytes and lines read up to any time: at most burst + rate x time + one read."""
    now, cost, one = 0.0, 0.0, pace.Pace(0.0)
    for pause, data, lines in reads:
        now += max(pause, one.wait_seconds(now))
        assert cost <= pace.BURST + pace.RATE * now + 1
        step = data + lines * pace.LINE_COST
        one.charge(now, step)
        cost += step


def test_every_line_costs() -> None:
    assert [pace.line_cost(line) for line in (b"{}", b"x" * 4000, None)] == [2046, 0, 2048]


# ---- the queue of domains


def test_a_thousand_events_are_one_look() -> None:
    queue = waiting.Queue()
    for _ in range(1000):
        queue.touch("a", 0.0)
    assert queue.take(0.0) == "a"
    for _ in range(1000):
        queue.touch("a", 0.1)
    assert queue.take(0.2) is None, "it is being settled"
    queue.done("a", 0.3, True)
    assert queue.take(0.3) == "a", "what happened meanwhile is looked at"
    queue.done("a", 0.4, True)
    assert queue.take(99.0) is None


def test_first_come_first_served() -> None:
    queue = waiting.Queue()
    for number, uuid in enumerate("cab"):
        queue.touch(uuid, float(number))
    queue.touch("c", 5.0)
    assert [queue.take(9.0) for _ in range(4)] == ["c", "a", "b", None]


def test_failures_wait_longer_each_time() -> None:
    """2, 4, 8, ... 60 s; an event does not wait."""
    queue, now, waits = waiting.Queue(), 0.0, []
    queue.touch("a", now)
    for _ in range(7):
        assert queue.take(now) == "a"
        queue.done("a", now, False)
        waits.append(queue.wait_seconds(now))
        now += waits[-1] or 0
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    queue.touch("a", now)
    queue.take(now)
    queue.done("a", now, False)
    queue.touch("a", now + 1)
    assert queue.wait_seconds(now + 1) == 0


def test_what_happened_meanwhile_is_looked_at_first() -> None:
    """A domain that was gone when it was looked at, and of which something was heard since, is not forgotten."""
    queue = waiting.Queue()
    queue.touch("a", 0)
    queue.take(0)
    queue.touch("a", 1)
    queue.done("a", 1, True)
    queue.forget("a")
    assert queue.take(1) == "a"
    queue.done("a", 1, True)
    queue.forget("a")
    assert queue.known() == set()


# ---- agents


def agent(wish: Wish = Wish(), running: bool = True) -> guests.Agent:
    policy = Policy(Class.FOREGROUND, control=Control.DEMOTE)
    grant = rights.Grant(Plan(), wish.background)
    return guests.Agent("host-1", 0.0, Looked("d", True, running, policy, (), grant, wish))


def test_a_repeated_state_is_answered_at_once() -> None:
    one = agent(Wish(True))
    assert not one.hear(State("s", 1, Wish(True)), 10.0)
    assert one.answers == ("s", 1)
    assert one.hear(State("s", 2, Wish()), 20.0) and one.asked == Wish()
    assert one.hear(State("s", 2, Wish()), 21.0), "it is not settled yet, so there is no answer yet"
    one.see(agent().looked or Looked("d"), Wish())
    assert one.asked is None and not one.hear(State("s", 3, Wish()), 22.0)


def test_a_newer_wish_is_not_lost_while_the_last_is_settled() -> None:
    one = agent()
    one.hear(State("s", 1, Wish(True)), 0.0)
    asked = one.asked
    one.hear(State("s", 2, Wish()), 0.1)
    one.see(agent(Wish(True)).looked or Looked("d"), asked)
    assert one.asked == Wish() and one.answers is None, "nor is it said to be answered"
    one.see(agent().looked or Looked("d"), Wish())
    assert one.asked is None and one.answers == ("s", 2)


def test_silence() -> None:
    """90 s, of which only those count in which the VM ran."""
    one = agent(Wish(True))
    assert not one.tick(90.0, 85.0)
    assert one.tick(90.1, 90.0) and one.asked == Wish()
    paused = agent(Wish(True), running=False)
    for now in range(5, 500, 5):
        assert not paused.tick(float(now), now - 5.0)
    paused.see(agent(Wish(True)).looked or Looked("d"), None)
    assert not paused.tick(580.0, 575.0) and paused.tick(590.0, 585.0), "it slept for 495 s"
    assert not agent().tick(1000.0, 995.0), "it asked for nothing"


def test_channel_path() -> None:
    xml = ("<domain><devices><channel type='unix'><source path='/a'/><target name='x'/></channel>"
           "<channel type='unix'><source path='/b'/><target name='org.idletime.agent.0'/></channel></devices></domain>")
    assert channel_of(read(xml)) == "/b"
    assert channel_of(read(xml.replace("agent", "other"))) == ""


# ---- settings


@pytest.mark.parametrize("text, complaint", [
    ("on-misfits = 'warn'", "there is no setting 'on-misfits'; use uri, strict"),
    ("run_dir = '/x'", "there is no setting 'run_dir'; use uri, strict, owner, run-dir"),
    ("strict = 'yes'", "strict is 'yes': it must be of type bool, true or false"),
    ("qmp = 1", "qmp is 1: write [qmp] above its settings"),
    ("[qmp]\nsocket = 'x'", "there is no setting 'qmp.socket'; use sockets, name, look-seconds"),
    ("[qmp]\nname = '('", "qmp.name is '(': missing )"),
    ("[qmp]\nname = 'a'", "qmp.name is 'a': put what is the name into parentheses"),
    ("[qmp]\nlook-seconds = 1", "qmp.look-seconds is 1: use 2 to 86400"),
    ("uri = 1", "uri is 1: it must be of type str"),
    ("resync-seconds = true", "resync-seconds is True: it must be of type int"),
    ("resync-seconds = 1", "resync-seconds is 1: use 10 to 86400"),
    ("[suspend]\nrule = 'never'", "suspend.rule is 'never': use eii or ipd"),
    ("[suspend]\ncpu-percent = 101", "suspend.cpu-percent is 101: use 0 to 100"),
    ("[migrate]\nto = 'host2'", "migrate.to has 'host2': use URIs of libvirt, such as qemu+ssh://host2/system"),
    ("[migrate]\nagain-seconds = 0", "migrate.again-seconds is 0: use 1 to 86400"),
    ("uri", "idletimed.toml: "),
])
def test_wrong_settings(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "idletimed.toml"
    file.write_text(text)
    with pytest.raises(settings_room.SettingsError) as error:
        settings_room.load(file)
    assert complaint in str(error.value)


def test_settings_of_earlier_versions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An upgrade does not end the daemon."""
    file = tmp_path / "idletimed.toml"
    file.write_text("on-misfit = 'refuse'\ncompile-on-define = true\nowner = 'root'\n")
    assert settings_room.load(file) == Settings(owner="root")
    assert "on-misfit is no setting any more; remedy: remove the line" in caplog.text


def test_sockets(tmp_path: Path) -> None:
    file = tmp_path / "idletimed.toml"
    file.write_text("uri = ''\n[qmp]\nsockets = '/run/*.qmp'\nname = '([^/]+)[.]qmp$'\n")
    assert settings_room.load(file) == Settings(uri="", qmp=Qmp("/run/*.qmp", "([^/]+)[.]qmp$"))


def test_settings(tmp_path: Path) -> None:
    assert settings_room.load(tmp_path / "none") == Settings()
    shipped = Path(__file__).parents[1] / "etc" / "idletimed.toml"
    assert settings_room.load(shipped) == Settings(), "the shipped file shows the defaults"


# ---- arenas

ME = arena.Owner(os.getuid(), os.getgid())


def test_make_an_arena(tmp_path: Path) -> None:
    path = tmp_path / "run" / "sda"
    labelled: list[Path] = []
    assert arena.make(str(path), ME, labelled.append)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750 and stat.S_IMODE(path.parent.stat().st_mode) == 0o711
    assert labelled == [path]
    path.chmod(0o2775)
    assert not arena.make(str(path), ME, labelled.append)
    assert stat.S_IMODE(path.stat().st_mode) == 0o2775, "an operator's rights stay"


def test_an_arena_that_somebody_removed_is_missed(tmp_path: Path) -> None:
    """Its folder is no longer among those that are there; links, files and a folder that cannot be read are none."""
    assert arena.make(str(tmp_path / "sda"), ME)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("sda")
    assert arena.present(tmp_path) == {"sda"}
    (tmp_path / "sda").rmdir()
    assert arena.present(tmp_path) == frozenset() == arena.present(tmp_path / "none")


def test_what_is_no_arena(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(arena.ArenaError, match="is no directory"):
            arena.make(str(tmp_path / name), ME)
    for path in ("relative", f"{tmp_path}/../x"):
        with pytest.raises(arena.ArenaError, match="absolute, without"):
            arena.make(path, ME)
    assert not (tmp_path.parent / "x").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="gives a directory away, which needs root")
def test_an_arena_for_somebody_else(tmp_path: Path) -> None:
    arena.make(str(tmp_path / "sda"), arena.Owner(65534, 65534))
    status = (tmp_path / "sda").stat()
    assert (status.st_uid, status.st_gid) == (65534, 65534)


def test_owner() -> None:
    def libvirts() -> Any:
        return read("<capabilities><host><secmodel><model>selinux</model></secmodel><secmodel><model>dac</model>"
                    "<baselabel type='kvm'>+64055:+5</baselabel></secmodel></host></capabilities>")

    labelled = read("<domain><seclabel model='dac'><label>+64055:+107</label></seclabel></domain>")
    assert arena.owner_of_domain(labelled, "", libvirts) == arena.Owner(64055, 107)
    assert arena.owner_of_domain(labelled, "root:root", libvirts) == arena.Owner(0, 0)
    assert arena.owner_of_domain(read("<domain/>"), "", libvirts) == arena.Owner(64055, 5)
    with pytest.raises(ValueError, match="nobody-there"):
        arena.owner_of("nobody-there:root")


# ---- the tick


def test_a_fault_does_not_end_the_tick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The next one comes, and the fault is in the log."""
    monkeypatch.setattr(daemon, "TICK_SECONDS", 0)
    ticks: list[float] = []
    enough = asyncio.Event()

    def fail(now: float, _last: float) -> None:
        ticks.append(now)
        if len(ticks) == 3:
            enough.set()
        raise RuntimeError("a bug")

    async def work() -> None:
        one = daemon.Daemon.__new__(daemon.Daemon)
        one.loop, one.settings = asyncio.get_running_loop(), Settings()
        monkeypatch.setattr(one, "_look_around", fail)
        ticker = asyncio.create_task(one._tick())
        await asyncio.wait_for(enough.wait(), 20)
        ticker.cancel()

    asyncio.run(work())
    assert len(ticks) >= 3 and "RuntimeError: a bug" in caplog.text


# ---- what the operator wrote


def test_wrong_files_are_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each mistake is said when it is new; one that was mended and made again is new."""
    folder = tmp_path / "etc/idletime/rules.d"
    folder.mkdir(parents=True)
    monkeypatch.setattr(daemon, "Tree", lambda _root: Tree(str(tmp_path)))
    one = daemon.Daemon.__new__(daemon.Daemon)
    one.wrong, one.kept_rules, one.kept_resources, one.settings = (), {}, {}, Settings(run_dir=str(tmp_path / "run"))
    for text, said in (("x = 1", 1), ("x = 1", 0), ("", 0), ("x = 1", 1)):
        (folder / "a.toml").write_text(text)
        caplog.clear()
        one._read_files()
        assert len(caplog.messages) == said
    assert "rules.d/a.toml line 1: 'x' is not known" in caplog.text
