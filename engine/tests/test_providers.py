# SPDX-License-Identifier: GPL-2.0-or-later
"""From the gauge to what Placement should have, and what it lacks. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import write_gauge
from idletime_openstack import gauge
from idletime_openstack.agent import unknown
from idletime_openstack.candidates import asked, idle
from idletime_openstack.gauge import Gauge, Resource
from idletime_openstack.providers import (
    DISK,
    GAUGE,
    UPLINK,
    Make,
    Present,
    SetInventory,
    SetTraits,
    inventory,
    resource_of,
    steps,
    trait_of,
    wanted,
)

ROOT = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
SDA = Resource("sda", "disk", True, 0.4)


SPARE_40 = {"total": 100, "reserved": 60, "min_unit": 1, "max_unit": 100, "step_size": 1, "allocation_ratio": 1.0}


def present(class_=DISK, total=40, used=0, said=SPARE_40, **more) -> Present:
    want = wanted("h", ROOT, [SDA])[0]
    return Present(want.name, want.uuid, 7, {class_: inventory(total, 0) | {"x": 1}, **({GAUGE: said} if said else {})},
                   more.pop("traits", want.traits), more.pop("held", {class_: used} if used else {}), **more)


def test_what_a_host_has():
    disk, uplink = wanted("h", ROOT, [SDA, Resource("eth0", "interface", False, 0.25, 10**9)])
    assert (disk.name, disk.class_, disk.spare, disk.full) == ("h:idletime:sda", DISK, 40, 100)
    assert (resource_of(disk.name), resource_of("h:neutron:sda")) == ("sda", "")
    assert disk.traits == {"CUSTOM_IDLETIME_DISK", "CUSTOM_IDLETIME_WHOLE", "CUSTOM_IDLETIME_ON_SDA"}
    assert (uplink.class_, uplink.spare, uplink.full) == (UPLINK, 250_000, 1_000_000)
    assert "CUSTOM_IDLETIME_WHOLE" not in uplink.traits
    assert disk.uuid == wanted("h", ROOT, [SDA])[0].uuid != wanted("h2", ROOT, [SDA])[0].uuid


@pytest.mark.parametrize("spare, used, total, free", [
    (40, 10, 40, 30), (40, 60, 60, 0), (0, 0, 1, 0), (0, 5, 5, 0), (100, 0, 100, 100)])
def test_never_less_than_is_held(spare, used, total, free):
    """As at the head of providers.py."""
    found = inventory(spare, used)
    assert found["total"] == total and found["total"] - found["reserved"] - used == free


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_inventory_is_one_that_placement_takes(spare, used):
    found = inventory(spare, used)
    assert 1 <= found["max_unit"] <= found["total"] and 0 <= found["reserved"] <= found["total"]


def test_steps():
    want = wanted("h", ROOT, [SDA])
    assert steps(want, [present()]) == []
    assert steps(want, []) == [Make("h:idletime:sda", want[0].uuid)]
    assert steps(want, [present(total=41)]) == [SetInventory(want[0].uuid, 7, {DISK: inventory(40, 0), GAUGE: SPARE_40})]
    assert steps(want, [present(total=41, used=60)]) == [
        SetInventory(want[0].uuid, 7, {DISK: inventory(60, 0), GAUGE: SPARE_40})]
    assert steps(want, [present(traits=frozenset({"CUSTOM_MINE", "CUSTOM_IDLETIME_ON_OLD"}))]) == [
        SetTraits(want[0].uuid, 7, want[0].traits | {"CUSTOM_MINE"})]


def test_a_resource_that_is_gone():
    """Empty when nobody holds any of it; until then it takes nothing new. It stays: Nova asks for it."""
    there = present()
    (bare,) = steps([], [there])
    assert isinstance(bare, SetTraits) and not bare.traits
    (empty,) = steps([], [replace(there, traits=bare.traits)])
    assert empty == SetInventory(there.uuid, 7, {})
    assert steps([], [replace(there, traits=bare.traits, inventories={})]) == []
    assert unknown("h", [replace(there, traits=bare.traits, inventories={})], Gauge(problem="old")) == ()
    assert steps([], [present(used=10)]) == [SetInventory(there.uuid, 7, {DISK: inventory(0, 10)})]
    assert steps([], [present(total=10, used=10, said=None)]) == []


def test_a_resource_of_another_kind():
    """What is held of the old one stays, since Placement takes no other answer; it takes nothing new."""
    want = wanted("h", ROOT, [SDA])
    there = present(UPLINK, 40, 5, traits=want[0].traits)
    assert steps(want, [there]) == [
        SetInventory(there.uuid, 7, {UPLINK: inventory(0, 5), DISK: inventory(40, 0), GAUGE: SPARE_40})]
    assert DISK in steps(want, [replace(there, used={})])[0].inventories


def test_the_gauge_itself():
    """As it is, whatever is held; written anew when it is time; gone where nothing is known, unless a flavor asked for it."""
    want = wanted("h", ROOT, [SDA])
    same = SetInventory(want[0].uuid, 7, {DISK: inventory(40, 0), GAUGE: SPARE_40})
    assert steps(want, [present()], renew=True) == [same]
    assert steps(want, [present(said=SPARE_40 | {"reserved": 50})]) == [same]
    nothing = wanted("h", ROOT, [Resource("sda", "disk", True, None)])
    assert steps(nothing, [present()], renew=True) == [SetInventory(want[0].uuid, 7, {DISK: inventory(0, 0)})]
    assert steps(nothing, [present(total=0, said=None)], renew=True) == []
    assert steps(nothing, [present(total=0, held={GAUGE: 5})]) == []


def test_without_a_gauge_nothing_is_free():
    (one,) = unknown("h", [present()], Gauge(problem="old"))
    assert one == Resource("sda", "disk", False, None)
    assert steps(wanted("h", ROOT, [one]), [present()])[0].traits >= {"CUSTOM_IDLETIME_DISK"}
    assert unknown("h", [present()], Gauge()) == ()


@pytest.mark.parametrize("name, trait", [("sda", "SDA"), ("vg0/lv-1", "VG0_LV_1"), ("x" * 300, "X" * 300)])
def test_traits_fit(name, trait):
    assert trait_of(name) == f"CUSTOM_IDLETIME_ON_{trait}"[:255]


# ---- the file

def test_the_gauge_of_idletimed(tmp_path):
    file = write_gauge(tmp_path / "g.json", 100.0, sda=0.4, eth0=None)
    assert gauge.read(file, 103.0) == Gauge((SDA, Resource("eth0", "interface", True, None, 10**9)))
    assert "is 20 s old; remedy: is idletimed running?" in gauge.read(file, 120.0).problem
    assert "remedy" in gauge.read(file, 50.0).problem  # of before a reboot


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"version": 2}', '{"version": 1, "monotonic": "x"}',
                                  '{"version": 1, "monotonic": 1, "resources": [{"resource": 3}]}'])
def test_a_file_that_is_wrong_says_why(tmp_path, text):
    (tmp_path / "g.json").write_text(text)
    found = gauge.read(tmp_path / "g.json", 1.0)
    assert found.resources == () and "remedy: " in found.problem
    assert "remedy: " in gauge.read(tmp_path / "none", 1.0).problem


# ---- what a flavor asks, and who is idle

def test_what_a_flavor_asks():
    specs = {f"resources:{DISK}": "10", f"resources_a:{UPLINK}": "500", "hw:cpu_policy": "shared", "resources:VCPU": "1"}
    assert asked(specs) == {DISK: 10, UPLINK: 500}
    assert asked({f"resources:{DISK}": "0"}) == asked({f"resources:{DISK}": "many"}) == asked({}) == {}


def test_who_is_idle():
    """a: 30 of 100 free on its best disk; b: 60. Of uplinks a has the most. The scarcest counts."""
    def of(root, class_, capacity, used=0):
        return {"resources": {class_: {"capacity": capacity, "used": used}}, "root_provider_uuid": root}
    found = {"1": of("a", DISK, 40, 10), "2": of("a", DISK, 5), "3": of("b", DISK, 60), "4": of("a", UPLINK, 800),
             "5": of("b", UPLINK, 200), "a": of("a", "VCPU", 8)}
    assert idle(found, {DISK: 1}) == {"a": 0.5, "b": 1.0}
    assert idle(found, {DISK: 1, UPLINK: 1}) == {"a": 0.5, "b": 0.25}
    assert idle({}, {DISK: 1}) == {}
