# SPDX-License-Identifier: GPL-2.0-or-later
"""The evictor against a played Nova and Keystone over HTTP, by openstacksdk, and the real Placement with the agents' gauges."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from conftest import Server
from idletime_openstack import evict_settings, facts, settings
from idletime_openstack.agent import Agent
from idletime_openstack.compute import MARK, Compute
from idletime_openstack.evict import main
from idletime_openstack.evictor import RETRY_SECONDS, Evictor
from idletime_openstack.gauge import Gauge, Resource
from idletime_openstack.leader import Alone, Elected
from idletime_openstack.metrics import Metrics
from idletime_openstack.placement import Placement
from idletime_openstack.providers import DISK, UPLINK
from nova_played import OPERATOR, US, Nova

LOOK = 30.0


class Hosts:
    """Three compute nodes with their agents."""

    def __init__(self, placement: Server) -> None:
        self.placement = placement
        self.uuids: dict[str, str] = {}
        self.gauges: dict[str, Gauge] = {}
        self.agents: dict[str, Agent] = {}
        for number in (1, 2, 3):
            host = f"h{number}-{uuid.uuid4().hex[:6]}"
            self.uuids[host] = placement.compute(host)
            self.agents[host] = Agent(Placement(placement.adapter()), host, lambda host=host: self.gauges[host])

    def say(self, host: str, gauge: Gauge, again: bool = False) -> None:
        if again or self.gauges.get(host) != gauge:
            self.gauges[host] = gauge
            self.agents[host].look()

    def close(self) -> None:
        for host in self.agents:
            self.say(host, Gauge(), again=True)


class World:
    """They, a Nova, and a clock that only look() moves."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder, self.nova = hosts, folder, Nova(hosts.placement)
        self.now = 1000.0
        self.nova.hosts = dict(hosts.uuids)
        self.h1, self.h2, self.h3 = self.nova.hosts
        self.nova.flavor("bg.small", 1024, **{DISK: 20})
        self.nova.flavor("bg.large", 4096, **{DISK: 20})
        self.nova.flavor("m1.small", 512, **{DISK: 20})
        self.spare(0.9, 0.0, 0.0)

    def spare(self, *shares: float | None, again: bool = False) -> None:
        """Of each host's disk; None: the gauge says nothing. again: the agents look, though it is the same."""
        for host, share in zip(self.nova.hosts, shares, strict=True):
            known = Gauge((Resource("sda", "disk", True, share),))
            self.hosts.say(host, Gauge(problem="old; remedy: -") if share is None else known, again)

    def uplinks(self, *shares: float) -> None:
        """Of 1 Gbit/s each, beside idle disks."""
        for host, share in zip(self.nova.hosts, shares, strict=True):
            self.hosts.say(host, Gauge((Resource("sda", "disk", True, 0.9), Resource("eth0", "interface", True, share, 10**9))))

    def conf(self, name: str = "openstack.conf", nova: str = "", **more: object) -> str:
        lines = "".join(f"{key} = {value}\n" for key, value in {"background_flavors": "bg.*", **more}.items())
        auth = (f"auth_type = password\nauth_url = {self.nova.url}/v3\nusername = idletime\npassword = p\n"
                "project_name = admin\nuser_domain_name = Default\nproject_domain_name = Default\nregion_name = R\n")
        file = self.folder / name
        file.write_text(f"[placement]\n{auth}[nova]\n{auth}{nova}[eviction]\n{lines}")
        return str(file)

    def evictor(self, leader=None, nova: str = "", **more: object) -> Evictor:
        """By the settings of a file, as the program. Nobody lingers, unless that is what the test is about."""
        more.setdefault("migration_mib_per_second", 0)
        conf = evict_settings.load([], [self.conf(nova=nova, **more)])
        self.metrics = Metrics()
        return Evictor(Compute(evict_settings.nova(conf)), Placement(settings.keystone(conf)), leader or Alone(),
                       evict_settings.policy(conf), self.metrics, lambda: self.now, lambda: self.nova.now)

    def look(self, *evictors: Evictor, times: int = 1, seconds: float = LOOK) -> list[str]:
        """Each a while after the one before; what Nova was asked to do in them."""
        before = len(self.nova.acts)
        for _ in range(times):
            self.now += seconds
            self.nova.now += timedelta(seconds=seconds)
            for one in evictors:
                one.try_look()
        return self.nova.acts[before:]

    def close(self) -> None:
        self.nova.close()
        self.nova.stop()


@pytest.fixture(scope="module")
def hosts(real_placement):
    hosts = Hosts(real_placement)
    yield hosts
    hosts.close()


@pytest.fixture
def world(hosts, tmp_path, caplog):
    caplog.set_level(logging.INFO, "idletime-openstack-evict")
    world = World(hosts, tmp_path)
    yield world
    world.close()


def said(caplog) -> str:
    return "\n".join(one.getMessage() for one in caplog.records if one.name == "idletime-openstack-evict")


# ---- who leaves, and when

def test_the_cheapest_leaves_within_the_stated_time(world, caplog):
    """40 are held, 30 spare. Looks each 30 s, after_seconds 120: short at the first; at the fifth, 120 s later, one leaves."""
    large, small = world.nova.boot("large", "bg.large", world.h1), world.nova.boot("small", "bg.small", world.h1)
    evictor = world.evictor()
    world.spare(0.3, 0.5, 0.8)
    assert world.look(evictor, times=4) == []
    assert world.look(evictor) == [f"os-migrateLive small {world.h3}"]
    assert (f"move {small.uuid} to {world.h3}: {world.h1} has 30% of sda spare and holds 40%, for 120 s; the cheapest that "
            f"fits elsewhere, {world.h3} has 80% free") in said(caplog)
    assert world.look(evictor, times=3) == []  # it is on its way
    world.nova.finish()
    assert world.look(evictor, times=3, seconds=100) == []
    assert (small.host, large.host) == (world.h3, world.h1)


def test_a_server_stays_as_long_as_that_pays(world, caplog):
    """4096 MiB at 16 MiB/s are 256 s; it gets a quarter of its part, a move pays after 341 s, at the thirteenth look. The note
    is said once."""
    mine = world.nova.boot("mine", "bg.large", world.h1)
    evictor = world.evictor(migration_mib_per_second=16)
    world.spare(0.05, 0.5, 0.8)
    assert world.look(evictor, times=12) == []
    assert said(caplog).count(f"{mine.uuid} stays: it gets 25% of its part here, a move takes 256 s and pays after 341 s") == 1
    assert world.look(evictor) == [f"os-migrateLive mine {world.h3}"]


def test_only_background_is_touched(world):
    """m1.small asks for spare time, too, and would be cheaper; no flavor of background_flavors is its."""
    world.nova.boot("other", "m1.small", world.h1)
    world.nova.boot("mine", "bg.large", world.h1)
    evictor = world.evictor(after_seconds=0)
    world.spare(0.1, 0.9, 0.0)
    assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]
    world.nova.finish()
    assert world.look(evictor, times=2, seconds=200) == []


def test_a_project_may_be_background(world):
    project = "c" * 32
    world.nova.boot("a", "m1.small", world.h1, project)
    world.nova.boot("b", "m1.small", world.h1)
    world.nova.boot("c", "bg.small", world.h1)
    world.spare(0.1, 0.9, 0.0)
    evictor = world.evictor(after_seconds=0, background_flavors="", background_projects=project)
    assert world.look(evictor, times=3) == [f"os-migrateLive a {world.h2}"]


def test_an_uplink_is_held_as_well(world):
    """Of 1 Gbit/s 100 Mbit/s are spare, 200 are asked; the other hosts' uplinks have room, the disks too."""
    world.nova.flavor("bg.net", 256, **{DISK: 10, UPLINK: 200_000})
    world.uplinks(0.9, 0.1, 0.1)
    world.nova.boot("net", "bg.net", world.h1)
    world.uplinks(0.1, 0.1, 0.3)
    assert world.look(world.evictor(after_seconds=0)) == [f"os-migrateLive net {world.h3}"]


def test_room_is_what_nobody_was_promised(world):
    """h2 has 40 spare, and a stopped server there was promised 20 of it: 20 are left, with the margin too few."""
    idle = world.nova.boot("idle", "bg.small", world.h1)
    world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.9, 0.4, 0.0)
    stopped = world.nova.boot("stopped", "bg.small", world.h2)
    world.nova.act(stopped, "stop")
    world.nova.act(idle, "stop")
    world.spare(0.1, 0.4, 0.0)
    assert world.look(world.evictor(after_seconds=0)) == ["pause mine"]


# ---- no host fits

def test_nowhere_to_go_and_back(world, caplog):
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=60, resume_seconds=120)
    world.spare(0.1, 0.0, 0.1)
    assert world.look(evictor, times=3) == ["pause mine"]
    assert (mine.status, mine.tags) == ("PAUSED", {MARK})
    assert f"pause {mine.uuid}: {world.h1} has 10% of sda spare and holds 20%, for 60 s; no other host has room" in said(caplog)
    assert world.look(evictor, times=3, seconds=200) == []
    world.spare(0.8, 0.0, 0.0)
    assert world.look(evictor, times=4) == []
    assert world.look(evictor) == ["unpause mine"]
    assert f"resume {mine.uuid}: {world.h1} has 80% of sda free again" in said(caplog)
    world.look(evictor)
    assert (mine.status, mine.tags) == ("ACTIVE", set())


def test_a_paused_one_goes_where_there_is_room(world):
    """Its host stays busy, and another one has been idle for a minute."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, resume_seconds=60)
    world.spare(0.1, 0.0, 0.0)
    assert world.look(evictor) == ["pause mine"]
    world.spare(0.1, 0.9, 0.0)
    assert world.look(evictor, times=2) == []
    assert world.look(evictor) == [f"os-migrateLive mine {world.h2}"]
    world.nova.finish()
    assert (mine.host, mine.status) == (world.h2, "PAUSED")
    assert world.look(evictor) == ["unpause mine"]


def test_shelved_and_back(world):
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, resume_seconds=60, nowhere="shelve")
    world.spare(0.1, 0.0, 0.0)
    assert world.look(evictor) == ["shelve mine"]
    assert world.look(evictor, times=3) == []
    world.nova.finish()
    assert (mine.status, mine.host, world.nova.claims(mine.uuid)) == ("SHELVED_OFFLOADED", "", {})
    assert world.look(evictor, times=2, seconds=100) == []
    world.spare(0.1, 0.9, 0.0, again=True)
    assert world.look(evictor, times=2) == []
    assert world.look(evictor) == ["unshelve mine"]
    world.nova.finish()
    world.look(evictor)
    assert (mine.status, mine.host, mine.tags) == ("ACTIVE", world.h2, set())


def test_policy_may_leave_them(world, caplog):
    world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.0, 0.0)
    assert world.look(world.evictor(after_seconds=0, nowhere="leave"), times=3) == []
    assert said(caplog).count("no other host has room, and policy leaves them") == 1


# ---- what others did

def test_an_operators_pause_is_left_alone(world):
    theirs = world.nova.boot("theirs", "bg.small", world.h1)
    world.nova.act(theirs, "pause")
    world.spare(0.9, 0.9, 0.9)
    assert world.look(world.evictor(after_seconds=0, resume_seconds=0), times=3, seconds=200) == []
    assert theirs.status == "PAUSED"


def test_a_pause_of_an_operator_after_ours_is_left_alone(world, caplog):
    """Ours was undone and done again by somebody else between two looks: the tag is still there, the pause is not ours."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, resume_seconds=0)
    world.spare(0.1, 0.0, 0.0)
    assert world.look(evictor) == ["pause mine"]
    world.nova.act(mine, "unpause")
    world.nova.act(mine, "pause")
    world.spare(0.9, 0.0, 0.0)
    assert world.look(evictor, times=3, seconds=400) == []
    assert (mine.status, mine.tags) == ("PAUSED", set())
    assert "somebody else did it since; it is left alone" in said(caplog)


def test_what_a_tenant_resumes_is_marked_no_more(world):
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=600)
    mine.tags.add(MARK)
    world.look(evictor)
    assert mine.tags == {MARK}  # another leader's pause may be on its way
    world.look(evictor, times=2)
    assert mine.tags == set() and world.nova.acts == []


def test_the_mark_of_one_that_is_paused_meanwhile_stays(world, caplog):
    """By another leader, as this one was stopped between its facts and its act."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=600)
    mine.tags.add(MARK)
    world.look(evictor, times=2)
    asked = Compute.server

    def paused(self, server):
        mine.status = "PAUSED"
        return asked(self, server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compute, "server", paused)
        world.look(evictor)
    assert mine.tags == {MARK} and "unmark" in said(caplog) and "it is PAUSED" in said(caplog)


def test_a_long_look_is_no_hanging_one(world, monkeypatch):
    """systemd hears of it between what it asks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(world.folder / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(world.folder / "notify"))
        world.look(world.evictor())
        systemd.settimeout(1)
        assert {systemd.recv(64) for _ in range(4)} == {b"WATCHDOG=1"}


def test_a_server_that_changes_meanwhile(world, caplog):
    """Its owner stops it between the look and the act."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0)
    world.spare(0.1, 0.9, 0.0)
    asked = Compute.server

    def stopped(self, server):
        world.nova.act(mine, "stop")
        return asked(self, server)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compute, "server", stopped)
        assert world.look(evictor) == []
    assert "has changed meanwhile: it was ACTIVE" in said(caplog)
    assert world.look(evictor, times=2) == []


# ---- how often

def test_a_budget_that_nova_remembers(world, caplog):
    """Two disruptions a day; done before this evictor began, by us. Those of others do not count."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    other = world.nova.boot("other", "bg.large", world.h1)
    for _ in range(2):
        world.nova._done(mine, "live-migration", US)
        world.nova._done(other, "live-migration", OPERATOR)
    world.nova.now += timedelta(hours=1)
    world.spare(0.3, 0.9, 0.0)
    evictor = world.evictor(after_seconds=0, disruptions=2)
    assert world.look(evictor) == [f"os-migrateLive other {world.h2}"]
    world.nova.finish()
    world.spare(0.1, 0.9, 0.0)
    assert world.look(evictor, times=2) == []
    assert "nobody leaves, as each has been disrupted 2 times in 24 h" in said(caplog)
    assert world.look(evictor, seconds=24 * 3600) == [f"os-migrateLive mine {world.h2}"]


def test_a_rate_over_all_hosts(world):
    """Two hosts are short at once, one act a minute: looks at 0, 30, 60 s."""
    world.spare(0.9, 0.9, 0.0)
    world.nova.boot("a", "bg.small", world.h1)
    world.nova.boot("b", "bg.small", world.h2)
    world.spare(0.1, 0.1, 0.9)
    evictor = world.evictor(after_seconds=0, acts_per_minute=1)
    assert [len(world.look(evictor)) for _ in range(4)] == [1, 0, 1, 0]


def test_dry_run(world, caplog):
    mine = world.nova.boot("mine", "bg.small", world.h1)
    mine.tags.add(MARK)
    world.spare(0.1, 0.9, 0.0)
    assert world.look(world.evictor(after_seconds=60, dry_run=True), times=5) == []
    assert said(caplog).count(f"dry run, would move {mine.uuid} to {world.h2}: {world.h1} has 10% of sda spare") == 1
    assert not any(one.startswith(("PUT", "DELETE")) for one in world.nova.asked) and mine.tags == {MARK}


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
