# SPDX-License-Identifier: GPL-2.0-or-later
"""What Placement and Nova say, as eviction sees it. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idletime_openstack.account import ANYWHERE, State
from idletime_openstack.compute import Background, Done, Migration, Node, Seen, by_us, disruptions
from idletime_openstack.facts import facts, refused, state_of
from idletime_openstack.placement import Child
from idletime_openstack.providers import DISK

NODES = {"root-1": Node("h1", True, True), "root-2": Node("h2", True, True)}
SEEN = Seen("s", "mine", "h1", "ACTIVE", "", "bg.small", "p", 1024, False, {f"resources:{DISK}": "20"})
SDA = Child("root-1", "h1:idletime:sda", DISK, 30, 100, 5.0, {"s": 20, "other": 10})
SDB = Child("root-2", "h2:idletime:sdb", DISK, 90, 100, 5.0, {})
MOVE = Migration(1, "m", "s", "running", "h2", "us", 10.0)


def test_hosts_and_servers():
    """other is no background server: it counts as promised."""
    found = facts([SDA, SDB], NODES, [SEEN], [])
    h1, h2 = found.hosts
    assert (h1.name, h1.resources["sda"].spare, h1.resources["sda"].promised, h1.resources["sda"].full) == ("h1", 30, 30, 100)
    assert (h2.name, list(h2.resources)) == ("h2", ["sdb"])
    (one,) = found.servers
    assert (one.uuid, one.host, one.cost, one.state) == ("s", "h1", 1024, State.RUNS)
    assert (one.holds, one.asks) == ({"sda": 20}, {DISK: 20})
    assert found.notes == {}


def test_on_its_way_it_holds_at_both():
    """At the source in the name of the migration."""
    source, target = replace(SDA, used={"m": 20}), replace(SDB, used={"s": 20})
    (one,) = facts([source, target], NODES, [replace(SEEN, status="MIGRATING")], [MOVE]).servers
    assert (one.state, one.holds) == (State.BUSY, {"sda": 20})


@pytest.mark.parametrize("child, nodes, text", [
    (replace(SDA, age=200.0), NODES, "its gauge is older than three minutes"),
    (replace(SDA, age=float("inf")), NODES, "its gauge is of an unknown age"),
    (replace(SDA, spare=None, full=None), NODES, "nothing is done with it; remedy: virt-idletime gauge on h1"),
    (SDA, {"root-1": Node("h1", False, False)}, "nova-compute on h1 is down"),
])
def test_what_is_unknown(child, nodes, text):
    found = facts([child], nodes, [SEEN], [])
    assert found.hosts[0].resources["sda"].spare is None and text in found.notes["h1:idletime:sda"]


def test_a_node_that_nova_does_not_know():
    found = facts([SDA], {}, [SEEN], [])
    assert found.hosts == () and "Nova has no compute node root-1" in found.notes["h1:idletime:sda"]


@pytest.mark.parametrize("status, task, host, marked, state", [
    ("ACTIVE", "", "h1", False, State.RUNS), ("ACTIVE", "rebooting", "h1", False, State.BUSY),
    ("MIGRATING", "migrating", "h1", False, State.BUSY), ("VERIFY_RESIZE", "", "h1", False, State.BUSY),
    ("BUILD", "scheduling", "", False, None), ("ERROR", "", "h1", False, State.STUCK), ("ERROR", "", "", False, None),
    ("PAUSED", "", "h1", True, State.PAUSED), ("PAUSED", "", "h1", False, None), ("SHUTOFF", "", "h1", True, None),
    ("SUSPENDED", "", "h1", False, None), ("SHELVED_OFFLOADED", "", "", True, State.SHELVED),
    ("SHELVED_OFFLOADED", "", "", False, None), ("SHELVED", "", "h1", True, State.PAUSED),
    ("SHELVED_OFFLOADED", "unshelving", "", True, None), ("DELETED", "", "h1", False, None)])
def test_states(status, task, host, marked, state):
    assert state_of(replace(SEEN, status=status, task=task, host=host, marked=marked)) is state


def test_one_that_is_shelved_asks_what_its_flavor_does():
    (one,) = facts([SDA], NODES, [replace(SEEN, uuid="t", status="SHELVED_OFFLOADED", host="", marked=True)], []).servers
    assert (one.state, one.host, one.holds, one.asks) == (State.SHELVED, "", {}, {DISK: 20})


def test_who_cannot_be_acted_on():
    """One that runs is there, and nobody waits for it; one that is paused stays so."""
    stuck = frozenset({"s"})
    assert facts([SDA], NODES, [SEEN], [], stuck).servers[0].state is State.STUCK
    assert facts([SDA], NODES, [replace(SEEN, status="PAUSED", marked=True)], [], stuck).servers == ()


def test_who_holds_nothing_need_not_leave():
    assert facts([SDA], NODES, [replace(SEEN, uuid="none")], []).servers == ()


@pytest.mark.parametrize("failed, hosts", [
    ([], set()), ([("running", "h2")], set()), ([("error", "h2")], {"h2"}), ([("failed", "h2"), ("error", "h2")], {"h2"}),
    ([("error", "h2"), ("error", "h3")], {"h2", "h3", ANYWHERE}), ([("error", "")], {"", ANYWHERE}),
    ([("cancelled", "h2")], {"h2", ANYWHERE})])
def test_hosts_that_refused(failed, hosts):
    moves = [replace(MOVE, status=status, to=to) for status, to in failed]
    assert refused(SEEN, [*moves, replace(MOVE, server="other", status="error", to="h9")]) == hosts


def test_who_is_background():
    assert SEEN in Background(("m1.*", "bg.*")) and SEEN in Background((), frozenset({"p"}))
    assert SEEN not in Background(("bg",), frozenset({"q"})) and SEEN not in Background()


def test_who_did_it():
    done = [Done("pause", "operator", 5.0), Done("unpause", "operator", 6.0), Done("pause", "us", 90.0),
            Done("shelve", "us", 100.0)]
    assert not by_us(done, "pause", "us") and by_us(done[1:], "pause", "us") and not by_us([], "pause", "us")
    assert by_us(done, "pause", "")  # Keystone does not say who we are: the tag has to do
    assert disruptions(done, "us", 95.0) == [90.0] and disruptions(done, "", 1000.0) == [5.0, 90.0, 100.0]
