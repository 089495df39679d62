# SPDX-License-Identifier: GPL-2.0-or-later
"""The evictor where something fails or ends: itself, a move, Nova, Placement, Keystone, an election; its settings."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from conftest import Server
from idletime_openstack import evict_settings, facts
from idletime_openstack.compute import MARK, Compute
from idletime_openstack.evict import main
from idletime_openstack.evictor import RETRY_SECONDS
from idletime_openstack.leader import Alone, Elected
from nova_played import OPERATOR, Nova
from world import Hosts, World, said

# ---- killed at any moment

def test_killed_between_tag_and_pause(world):
    mine = world.nova.boot("mine", "bg.small", world.h1)
    first = world.evictor(after_seconds=0)
    world.spare(0.1, 0.0, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compute, "pause", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            world.look(first)
    assert (mine.status, mine.tags) == ("ACTIVE", {MARK})
    world.spare(0.9, 0.0, 0.0)
    world.look(world.evictor(after_seconds=0), times=3)
    assert (mine.status, mine.tags) == ("ACTIVE", set())
    world.nova.act(mine, "pause")  # of an operator: not ours
    assert world.look(world.evictor(after_seconds=0, resume_seconds=0), times=2) == []


def test_killed_after_the_act(world):
    """The next one resumes what the first paused, and does not ask again for a move that is on its way."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.0, 0.0)
    assert world.look(world.evictor(after_seconds=0)) == ["pause mine"]
    second = world.evictor(after_seconds=0, resume_seconds=60)
    world.spare(0.9, 0.0, 0.0)
    assert world.look(second, times=3) == ["unpause mine"]
    world.spare(0.1, 0.9, 0.0)
    assert world.look(second) == [f"os-migrateLive mine {world.h2}"]
    assert world.look(world.evictor(after_seconds=0), times=2) == []
    world.nova.finish()
    assert world.look(world.evictor(after_seconds=0), times=2) == [] and mine.host == world.h2


# ---- moves that fail

@pytest.mark.parametrize("how", ["at once", "later"])
def test_a_move_that_fails(world, how):
    """To h2, then to h3, then nowhere: the host is not short for longer than these need."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0)
    world.spare(0.1, 0.9, 0.8)
    world.nova.move_fails = how
    for to in (world.h2, world.h3):
        assert world.look(evictor) == [f"os-migrateLive mine {to}"]
        world.nova.finish(well=False)
    assert world.look(evictor) == ["pause mine"]
    assert mine.status == "PAUSED" and len(world.nova.claims(mine.uuid)) == 2


def test_a_move_that_nova_refuses(world):
    """No valid host: somebody else was faster. After RETRY_SECONDS it is tried again."""
    world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, nowhere="leave")
    world.spare(0.1, 0.9, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Nova, "_claim", lambda *_: False)
        assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]
    assert world.look(evictor, times=3) == []
    assert world.look(evictor, seconds=RETRY_SECONDS) == [f"os-migrateLive mine {world.h2}"]


def test_a_server_that_is_in_error(world, caplog):
    """It holds its part, and is left alone: the next one leaves."""
    world.nova.boot("a", "bg.small", world.h1)
    world.nova.boot("b", "bg.large", world.h1)
    evictor = world.evictor(after_seconds=0)
    world.spare(0.1, 0.9, 0.0)
    assert world.look(evictor) == [f"os-migrateLive a {world.h2}"]
    world.nova.finish(well=False, error=True)
    assert world.look(evictor) == [f"os-migrateLive b {world.h2}"]
    assert "is in status ERROR: it is left alone; remedy: openstack server show" in said(caplog)


def test_a_move_that_takes_too_long(world, caplog):
    """900 s: ended at the first look then, and paused at the next one."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0)
    world.spare(0.1, 0.9, 0.0)
    assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]
    assert world.look(evictor, times=2, seconds=440) == []
    assert world.look(evictor, seconds=20) == ["abort mine"]
    assert "takes 900 s, and move_seconds is 900" in said(caplog)
    assert world.look(evictor) == ["pause mine"] and mine.host == world.h1


def test_others_moves_are_theirs_but_nobody_waits_for_ever(world):
    theirs = world.nova.boot("theirs", "bg.small", world.h1)
    world.nova.boot("mine", "bg.large", world.h1)
    world.spare(0.9, 0.9, 0.9)
    world.nova._migrate(theirs, world.h3, OPERATOR)
    world.spare(0.1, 0.9, 0.2)
    evictor = world.evictor(after_seconds=0, busy_seconds=1800)
    assert world.look(evictor, times=3, seconds=900) == []  # seen first at the first of these
    assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]


# ---- Nova, Placement, Keystone

@pytest.mark.parametrize("what, fault, text", [
    ("GET /v2.1/servers/detail", 500, "nothing is done: Nova: servers by"),
    ("GET /v2.1/os-hypervisors/detail", 503, "remedy: see the log of nova-api"),
    ("GET /v2.1/flavors/detail", 403, "remedy: give the user of [nova] the role admin"),
    ("GET /v2.1/os-migrations", 406, "remedy: Nova of Train or later is needed"),
    ("GET /v2.1/servers/detail", "garbage", "remedy: "),
    ("GET /v2.1/os-hypervisors/detail", "hang", "remedy: do Keystone and Nova run, and is [nova] right?"),
])
def test_a_nova_that_is_not_well(world, caplog, what, fault, text):
    """Nothing is done, said once with the remedy; at the next look all is well."""
    world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, nova="timeout = 1\n")
    world.spare(0.1, 0.9, 0.0)
    world.nova.faults.extend([(what, fault)] * 2)
    assert world.look(evictor, times=2) == []
    assert said(caplog).count("nothing is done: Nova") == 1 and text in said(caplog)
    assert b"idletime_eviction_well 0.0" in generate_latest(world.metrics.registry)
    assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]
    assert "nova is well again" in said(caplog)
    assert b"idletime_eviction_well 1.0" in generate_latest(world.metrics.registry)


def test_a_keystone_that_is_not_there(world, caplog):
    world.nova.faults.append(("POST /v3/auth/tokens", 503))
    world.nova.faults.append(("POST /v3/auth/tokens", 401))
    evictor = world.evictor(after_seconds=0)
    assert not evictor.try_look() and not evictor.try_look() and evictor.try_look()
    assert said(caplog).count("remedy: do Keystone and Nova run, and is [nova] right?") + said(caplog).count(
        "remedy: correct user and password in [nova]") == 2


def test_facts_of_different_times_are_none(world, caplog):
    """Each answer takes 0.4 s, and all have to come within 5 s of a clock that runs here: by a stepped clock."""
    world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, facts_seconds=60)
    world.spare(0.1, 0.9, 0.0)
    asked = Compute.nodes

    def slow(self):
        world.now += 61
        return asked(self)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compute, "nodes", slow)
        assert world.look(evictor) == []
    assert "have not said all within 60 s" in said(caplog)
    assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]


@pytest.mark.parametrize("fault", [500, 400, 409, "hang"])
def test_an_act_that_is_refused(world, caplog, fault):
    """It is let be for a while (409: at the second time), and the next one leaves."""
    world.nova.boot("a", "bg.small", world.h1)
    world.nova.boot("b", "bg.large", world.h1)
    evictor = world.evictor(after_seconds=0, nova="timeout = 1\n")
    world.spare(0.1, 0.9, 0.0)
    world.nova.hang_seconds = 1.5
    world.nova.faults.extend([("os-migrateLive", fault)] * (2 if fault == 409 else 1))
    found = world.look(evictor, times=3)
    if fault == "hang":  # Nova did it all the same: nobody asks twice
        assert found == [f"os-migrateLive a {world.h2}"]
    else:
        assert found == [f"os-migrateLive b {world.h2}"]
        assert "failed" in said(caplog) or "changed meanwhile" in said(caplog)


def test_a_placement_that_is_not_there(tmp_path, caplog):
    own = Server(tmp_path)
    own.start()
    world = World(Hosts(own), tmp_path)
    caplog.set_level(logging.INFO, "idletime-openstack-evict")
    try:
        evictor = world.evictor(after_seconds=0)
        assert evictor.try_look()
        own.stop()
        assert not evictor.try_look() and not evictor.try_look()
        assert said(caplog).count("remedy: does Placement run, and is [placement] right?") == 1
        own.start()
        assert evictor.try_look() and "placement is well again" in said(caplog)
    finally:
        world.close()
        own.stop()


def test_an_old_gauge_moves_nobody(world, caplog, monkeypatch):
    world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.9, 0.0)
    monkeypatch.setattr(facts, "STALE_SECONDS", -1.0)
    assert world.look(world.evictor(after_seconds=0), times=3) == []
    assert ("its gauge is older than three minutes; nothing is done with it; remedy: does idletime-openstack run on "
            f"{world.h1}") in said(caplog)


def test_a_gauge_that_is_unknown_moves_nobody(world, caplog):
    """Neither away from there, nor to there; one that is paused there stays so, which is said."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, resume_seconds=0)
    world.spare(0.1, None, 0.0)
    assert world.look(evictor) == ["pause mine"]
    world.spare(None, 0.0, 0.0)
    assert world.look(evictor, times=3) == []
    assert f"server {mine.uuid} stays paused: the gauge of {world.h1} is unknown" in said(caplog)


def test_a_host_whose_nova_is_down(world, caplog):
    """Nobody can leave it, and nobody comes; disabled: nobody comes, who is there leaves."""
    world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0)
    world.nova.down = {world.h1}
    world.spare(0.1, 0.9, 0.8)
    assert world.look(evictor, times=3) == []
    assert f"nova-compute on {world.h1} is down" in said(caplog)
    world.nova.down, world.nova.disabled = set(), {world.h2}
    assert world.look(evictor) == [f"os-migrateLive mine {world.h3}"]


def test_metrics(world):
    world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.9, None)
    world.look(world.evictor(after_seconds=0))
    text = generate_latest(world.metrics.registry).decode()
    for line in ("idletime_eviction_leads 1.0", 'idletime_eviction_acts_total{act="move",result="done"} 1.0',
                 "idletime_eviction_hosts_short 1.0", 'idletime_eviction_servers{state="runs"} 1.0',
                 'idletime_eviction_servers{state="paused"} 0.0'):
        assert line in text
    assert float(text.partition("\nidletime_eviction_resources_unknown ")[2].split()[0]) >= 1


# ---- several

def test_one_of_two_acts(world, caplog):
    world.nova.boot("mine", "bg.small", world.h1)
    url = f"file://{world.folder}/lock"
    first, second = Elected(url, "first"), Elected(url, "second")
    evictors = [world.evictor(one, after_seconds=60) for one in (first, second)]
    world.spare(0.1, 0.9, 0.0)
    assert world.look(*evictors, times=2) == []
    first.stop()
    assert world.look(evictors[1], times=2) == []  # begins anew
    assert world.look(evictors[1], evictors[0], times=2) == [f"os-migrateLive mine {world.h2}"]
    assert b"idletime_eviction_leads 1.0" in generate_latest(world.metrics.registry)
    second.stop()


def test_who_loses_the_lead_does_not_act(world, caplog):
    """Between decision and act."""
    class Lost(Alone):
        asked = 0

        def leads(self) -> bool:
            self.asked += 1
            return self.asked == 1
    world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.9, 0.0)
    assert world.look(world.evictor(Lost(), after_seconds=0)) == []
    assert "another evictor leads now, and decides about: move" in said(caplog)


@pytest.mark.parametrize("url, text", [
    ("nonsense", "remedy: a URL of tooz"), ("nothing://x", "remedy: a URL of tooz"),
    ("file:///proc/nobody/may", "remedy: does it run?")])
def test_an_election_that_does_not_work(world, caplog, url, text):
    world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.9, 0.0)
    assert world.look(world.evictor(Elected(url), after_seconds=0), times=3) == []
    assert said(caplog).count("[eviction] coordination") == 1 and text in said(caplog)


# ---- the program

def run(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "idletime_openstack.evict", *arguments], stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})


def wait(what, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def test_the_programs_are_killed_and_one_goes_on(world):
    """Two; the one that leads is killed in the middle of its pause, after Nova did it; the other one resumes it."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.0, 0.0)
    more = {"after_seconds": 2, "resume_seconds": 2, "look_seconds": 2, "coordination": f"file://{world.folder}/lock"}
    world.nova.hang_seconds = 3
    world.nova.faults.append(('{"pause": null}', "hang"))
    file = world.conf(**more)
    first = run("--config-file", file)
    second = None
    try:
        wait(lambda: mine.tags == {MARK})
        second = run("--config-file", file)
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        wait(lambda: mine.status == "PAUSED")
        world.spare(0.9, 0.0, 0.0)
        wait(lambda: mine.status == "ACTIVE" and not mine.tags)
        assert world.nova.acts == ["pause mine", "unpause mine"]
        second.terminate()
        assert second.wait(15) == 0 and second.stderr is not None
        assert "resume" in second.stderr.read()
    finally:
        for one in (first, second):
            if one is not None and one.poll() is None:
                one.kill()
                one.wait(10)


def test_once(world, caplog, capsys):
    assert main(["--config-file", world.conf(), "--once", "--dry-run"]) == 0
    world.nova.faults.append(("GET /v2.1/flavors/detail", 500))
    assert main(["--config-file", world.conf(), "--once"]) == 1
    assert "remedy: see the log of nova-api" in caplog.text


@pytest.mark.parametrize("eviction, text", [
    ("", "background_flavors and background_projects are empty"),
    ("background_projects = tenants\n", "background_projects has 'tenants', which is no UUID; remedy: openstack project show"),
    ("background_flavors = bg.*\nnowhere = away\n", "nowhere"),
    ("background_flavors = bg.*\nafter_seconds = soon\n", "after_seconds"),
    ("background_flavors = bg.*\nmargin_percent = 80\n", "margin_percent"),
    ("background_flavors = bg.*\nacts_per_minute = 0\n", "acts_per_minute"),
    ("background_flavors = bg.*\ndry-run = true\n", "[eviction] has 'dry-run', which is no setting; remedy: correct it"),
    ("background_flavors = bg.*\ndryrun = true\n", "[eviction] has 'dryrun'"),
    ("background_flavors = bg.*\ncoordination = redis://:pa$word@h\n", "[eviction] coordination: "),
    ("background_flavors = bg.*\nmetrics_address = 192.0.2.1\nmetrics_port = 9\n",
     "metrics_address '192.0.2.1', metrics_port 9"),
])
def test_wrong_settings(world, capsys, eviction, text):
    file = Path(world.conf())
    file.write_text(file.read_text().partition("[eviction]")[0] + "[eviction]\n" + eviction)
    assert main(["--config-file", str(file), "--once"]) == 2
    error = capsys.readouterr().err
    assert text in error and "remedy: " in error


def test_wrong_users(world, capsys):
    file = Path(world.conf())
    text = file.read_text().partition("[nova]")[2]
    for given, said_ in (("[nova]\n[eviction]\nbackground_flavors = bg.*\n", "[nova] auth_type is not set"),
                         ("[nova]" + text.replace("auth_type = password", "auth_type = passwrd"), "[nova]: "),
                         ("[nova]" + text, "[placement] auth_type is not set")):
        file.write_text(given)
        assert main(["--config-file", str(file), "--once"]) == 2
        error = capsys.readouterr().err
        assert said_ in error and "remedy: " in error


def test_the_settings_that_are_shipped(tmp_path):
    """Each has its line, with its default; [nova] is an example."""
    text = (Path(__file__).parents[1] / "etc/openstack.conf").read_text().partition("[eviction]")[2].partition("#[nova]")[0]
    lines = [one[1:] for one in text.splitlines() if one.startswith("#") and " =" in one and "# " not in one]
    file = tmp_path / "openstack.conf"
    file.write_text("[eviction]\n" + "\n".join(lines))
    there = {one.partition(" =")[0] for one in lines}
    assert there == {one.name for one in evict_settings.OPTIONS}
    conf = evict_settings.load([], [str(file)])
    assert all(conf.eviction[one.name] == one.default for one in evict_settings.OPTIONS)
