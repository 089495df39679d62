# SPDX-License-Identifier: GPL-2.0-or-later
"""The evictor against a played Nova and Keystone over HTTP, by openstacksdk, and the real Placement with the agents' gauges."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from idletime_openstack.compute import MARK, Compute
from idletime_openstack.providers import DISK, UPLINK
from nova_played import OPERATOR, US
from world import said

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


def test_one_that_cannot_be_unshelved_keeps_nobody_away(world, caplog):
    """Nova takes the request, and finds no host later. It is tried again after ten minutes."""
    world.nova.flavor("bg.tiny", 512, **{DISK: 10})
    small, large = world.nova.boot("a", "bg.tiny", world.h1), world.nova.boot("b", "bg.large", world.h1)
    evictor = world.evictor(after_seconds=0, resume_seconds=60, nowhere="shelve")
    world.spare(0.0, 0.0, 0.0)
    for _ in range(4):
        world.look(evictor)
        world.nova.finish()
    assert (small.status, large.status) == ("SHELVED_OFFLOADED", "SHELVED_OFFLOADED")
    world.nova.homeless = {small.uuid}
    world.spare(0.0, 0.9, 0.0, again=True)
    done = []
    for _ in range(12):
        done += world.look(evictor)
        world.nova.finish()
    assert done == ["unshelve a", "unshelve b"] and large.status == "ACTIVE"
    assert f"remedy: openstack server event list {small.uuid}" in said(caplog)
    world.nova.homeless = set()
    world.look(evictor, times=20)
    world.nova.finish()
    assert small.status == "ACTIVE"


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
    world.spare(0.1, 0.9, 0.0)
    assert world.look(evictor, times=6, seconds=400) == [], "nor is it moved"
    assert (mine.status, mine.tags) == ("PAUSED", {MARK})
    assert "somebody else did it since; it is left alone" in said(caplog)
    assert said(caplog).count(f"remedy, if nobody wants it so: openstack server unpause {mine.uuid}") == 1


@pytest.mark.parametrize(("globs", "hidden"), [("bg.large", ""), ("bg.*", "bg.small")])
def test_who_is_no_background_any_more_is_brought_back(world, globs, hidden):
    """It was paused when it was: then the setting named other flavors, or Nova's administrator deleted this one."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    world.spare(0.1, 0.0, 0.0)
    assert world.look(world.evictor(after_seconds=0)) == ["pause mine"]
    world.nova.hidden = {hidden}
    evictor = world.evictor(after_seconds=0, resume_seconds=60, background_flavors=globs)
    world.spare(0.9, 0.0, 0.0)
    assert world.look(evictor, times=6) == ["unpause mine"]
    world.spare(0.0, 0.0, 0.0)
    assert world.look(evictor, times=6) == [] and mine.tags == set(), "and is not evicted"


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


def test_a_budget_of_one_that_is_stopped_for_a_while(world):
    """Its owner stops and starts it: what was done with it today still counts."""
    mine = world.nova.boot("mine", "bg.small", world.h1)
    evictor = world.evictor(after_seconds=0, resume_seconds=0, disruptions=1)
    world.spare(0.1, 0.0, 0.0)
    assert world.look(evictor) == ["pause mine"]
    world.spare(0.9, 0.0, 0.0)
    assert "unpause mine" in world.look(evictor, times=3)
    world.spare(0.1, 0.0, 0.0)
    world.nova.act(mine, "stop")
    world.look(evictor)
    world.nova.act(mine, "start")
    assert world.look(evictor, times=3) == []


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
