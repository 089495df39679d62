# SPDX-License-Identifier: GPL-2.0-or-later
"""What a running QEMU lacks, and that it comes to it, from any state, and then has nothing to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from fakes import FakeQemu, device, resource, stock
from idletime.errors import MonitorError
from idletime.facts import DevicePlan, Plan, ResourcePlan, Unresolved
from idletime.hostd import act
from idletime.policy import Class
from idletime.steps import steps


def plan(class_=Class.BACKGROUND, queues="", alias="virtio-disk0", dscp=None, kind="disk", name="sda", **properties):
    names = {key.replace("_", "-"): value for key, value in properties.items()} or {"auto": False}
    return Plan(
        (ResourcePlan(f"idletime-{name}", name, f"/run/idletime/{name}", names),),
        (DevicePlan(kind, "vda", alias, f"idletime-{name}", class_, queues, dscp),),
    )


def commands(want, have):
    return [(one.name, dict(one.arguments)) for one in steps(want, have).commands]


def test_nothing_to_do():
    assert steps(plan(), [resource("sda", [device("virtio-disk0")])]).nothing
    assert steps(Plan(), []).nothing


def test_a_running_device_is_attached():
    assert commands(plan(queues="1", auto=True), []) == [
        ("object-add", {"qom-type": "idletime-resource", "id": "idletime-sda", "path": "/run/idletime/sda", "auto": True}),
        ("idletime-attach", {"device": "virtio-disk0", "resource": "idletime-sda", "class": "background",
                             "background-queues": "1"}),
    ]  # fmt: skip
    there = [resource("sda", [])]
    assert commands(plan(kind="interface", dscp="1,8", interval_us=5000, max_inflight=2), there)[1:] == [
        ("idletime-attach", {"device": "virtio-disk0", "resource": "idletime-sda", "class": "background", "dscp": "1,8"})
    ]


def test_class_and_queues():
    have = [resource("sda", [device("virtio-disk0", "foreground", "3")])]
    assert commands(plan(), have) == [
        ("idletime-set", {"device": "virtio-disk0", "class": "background", "background-queues": ""})
    ]


@pytest.mark.parametrize("has, wants, changed", [
    ("1", None, False), ("1", "1", False), ("8-10", "10,8,9", False),
    ("1", "1,8", True), ("8,10", None, True), ("8-10", "8,10", True),
])
def test_code_points(has, wants, changed):
    """They cannot be changed in place: the NIC leaves, and is attached anew with the others. Taken out of a policy, they
    are the standard's."""
    want = plan(Class.GUEST, alias="net0", kind="interface", dscp=wants, interval_us=5000, max_inflight=2)
    qemu = FakeQemu([resource("sda", [device("net0", "guest", dscp=has)], interval_us=5000, max_inflight=2)])
    brought = act.bring(qemu, want, {}, 0.0)
    assert qemu.changes == (["idletime-detach net0", "idletime-attach net0"] if changed else [])
    assert not brought.words and steps(want, qemu.execute("query-idletime")).nothing


def test_properties_of_the_resource():
    """What the policy says, and QEMU's default where it has stopped saying something."""
    have = [resource("sda", [device("virtio-disk0")], interval_us=7, max_inflight=4)]
    assert commands(plan(interval_us=5000, weight=50), have) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 5000, "max-inflight": 1, "weight": 50})
    ]


def test_a_resource_with_a_job_stays():
    """QEMU would refuse to delete it; when the job has ended it goes."""
    have = resource("sda", [])
    assert commands(Plan(), [{**have, "jobs": [{"id": "b0"}]}]) == []
    assert commands(Plan(), [{**have, "jobs": []}]) == [("object-del", {"id": "idletime-sda"})]


def test_an_interval_that_is_not_named_any_more_is_learned():
    """So QEMU does where nobody names one from the start; a named one ends it."""
    have = [resource("sda", [device("virtio-disk0")], interval_us=7)]
    assert commands(plan(auto=True, budget_percent=3), have) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 20000, "auto": True})
    ]
    assert commands(plan(interval_us=7), [{**have[0], "auto": True}]) == [
        ("idletime-set", {"resource": "idletime-sda", "auto": False})
    ]
    assert commands(plan(weight=100), [{**have[0], "auto": True}]) == []


def test_an_uplink_has_defaults_of_its_own():
    want = plan(kind="interface", alias="net0")
    assert commands(want, [resource("sda", [device("net0")], interval_us=5000, max_inflight=2)]) == []
    assert commands(want, [resource("sda", [device("net0")], interval_us=1000, max_inflight=1)]) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 5000, "max-inflight": 2})
    ]


def test_what_qemu_learns_is_left_alone():
    """With auto the interval in force is the learned one, and so is a cap that nobody set."""
    have = [{**resource("sda", [device("virtio-disk0")], interval_us=777, max_inflight=3), "auto": True}]
    assert commands(plan(auto=True, interval_us=500), have) == []
    fixed = [{**resource("sda", [device("virtio-disk0")], interval_us=80000), "auto": False}]
    assert commands(plan(auto=True, interval_us=500), fixed) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 500, "auto": True})
    ]
    assert commands(plan(auto=True, max_inflight=2, budget_percent=4), have) == [
        ("idletime-set", {"resource": "idletime-sda", "max-inflight": 2, "budget-percent": 4})
    ]


def test_what_is_not_resolved_keeps_what_it_has():
    """A route that is gone for a moment is no reason to let a background device go, nor to touch it."""
    gone = Unresolved("disk", "vda", "virtio-disk0", "no default route", "wait")
    assert steps(Plan(unresolved=(gone,)), [resource("sda", [device("virtio-disk0")])]).nothing


def test_somebody_elses_resource():
    """Given on the command line of QEMU: said, and left."""
    have = [{**resource("sda", [device("virtio-disk0")]), "id": "disk0", "path": "/elsewhere"}]
    found = steps(plan(), have)
    assert [one.name for one in found.commands] == ["object-add"]
    assert "disk target='vda': is on resource 'disk0'" in str(found.findings[0])
    assert steps(Plan(), have).nothing


# ---- until nothing differs


def brought(qemu: FakeQemu, want: Plan) -> act.Brought:
    return act.bring(qemu, want, {}, 0.0)


def test_in_force_and_then_nothing():
    qemu = FakeQemu(there=["virtio-disk0"])
    assert brought(qemu, plan()).problems == []
    assert qemu.state == {"virtio-disk0": ("sda", "background", "")}
    assert qemu.changes == ["object-add idletime-sda", "idletime-attach virtio-disk0"]
    assert not brought(qemu, plan()).failed and qemu.changes == []


def test_taken_out():
    """Detached, and the resource that nobody uses any more is gone."""
    qemu = FakeQemu([resource("sda", [device("virtio-disk0")])])
    assert brought(qemu, Plan()) == act.Brought(have=[])
    assert qemu.changes == ["idletime-detach virtio-disk0", "object-del idletime-sda"]


def test_another_resource_when_the_held_have_left():
    """A device that holds requests leaves by and by: until then it is not asked twice, and nothing is in its way."""
    qemu = FakeQemu([resource("sda", [device("virtio-disk0", held=3)])], busy=["virtio-disk0"])
    first = brought(qemu, plan(name="sdb"))
    assert first.pending and not first.failed and not first.problems
    assert qemu.changes == ["object-add idletime-sdb", "idletime-detach virtio-disk0"]
    assert brought(qemu, plan(name="sdb")).pending and qemu.changes == []
    qemu.left()
    assert not brought(qemu, plan(name="sdb")).pending
    assert qemu.changes == ["idletime-attach virtio-disk0", "object-del idletime-sda"]


def test_wanted_again_while_it_leaves():
    qemu = FakeQemu([resource("sda", [device("virtio-disk0", detaching=True)])], busy=["virtio-disk0"])
    assert brought(qemu, plan()).pending and qemu.changes == []
    qemu.left()
    assert brought(qemu, plan()).problems == [] and qemu.changes == ["idletime-attach virtio-disk0"]


def test_another_run_dir():
    """An arena elsewhere is another object of the same name."""
    qemu = FakeQemu([{**resource("sda", [device("virtio-disk0")]), "path": "/run/before/sda"}])
    assert brought(qemu, plan()) .problems == []
    assert not brought(qemu, plan()).pending
    assert (qemu.resources["idletime-sda"]["path"], qemu.state) == (
        "/run/idletime/sda", {"virtio-disk0": ("sda", "background", "")})  # fmt: skip


def test_one_that_cannot_keeps_no_other_from_it():
    two = Plan(plan().resources, (*plan().devices, *plan(alias="virtio-disk1").devices))
    qemu = FakeQemu(there=["virtio-disk0", "virtio-disk1"], refused=["virtio-disk0"])
    found = brought(qemu, two)
    assert found.failed and found.words[0].startswith("virtio-disk0: QEMU refused idletime-attach")
    assert list(qemu.state) == ["virtio-disk1"]


def test_a_stock_qemu_is_said_and_left():
    qemu = stock()
    assert brought(qemu, plan()).problems == [act.STOCK] and brought(qemu, plan()).have is None
    assert brought(qemu, Plan()).problems == [] and qemu.changes == []


def test_an_earlier_qemu_of_ours():
    qemu = FakeQemu(there=["virtio-disk0"], unknown=["idletime-attach", "idletime-detach"])
    found = brought(qemu, plan())
    assert found.problems == [act.OLD] and not found.failed


def test_a_qemu_that_does_not_answer():
    class Hanging(FakeQemu):
        def execute(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
            raise MonitorError("libvirt refused a monitor command: cannot acquire state change lock")

    with pytest.raises(MonitorError):
        brought(Hanging(), plan())


NAMES = st.sampled_from(["sda", "sdb", "nvme0"])
SETTINGS = st.sampled_from([{}, {"auto": False}, {"interval-us": 7}, {"auto": True, "budget-percent": 3}])
ALIASES = ["virtio-disk0", "virtio-disk1", "net0"]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    on = draw(st.dictionaries(st.sampled_from(ALIASES), st.tuples(NAMES, st.sampled_from(list(Class)))))
    resources = tuple(
        ResourcePlan(f"idletime-{name}", name, f"/run/{draw(st.sampled_from('ab'))}/{name}", draw(SETTINGS))
        for name in sorted({name for name, _ in on.values()})
    )
    return Plan(resources, tuple(
        DevicePlan("interface" if alias == "net0" else "disk", alias, alias, f"idletime-{name}", class_)
        for alias, (name, class_) in on.items()))


@given(st.lists(plans(), min_size=1, max_size=4), st.sets(st.sampled_from(ALIASES)))
def test_from_any_state_to_any_plan(wants: list[Plan], busy: set[str]) -> None:
    """Each plan after the other: when what is held has left, QEMU has just what the last one says, and no more is sent."""
    qemu = FakeQemu(there=ALIASES, busy=busy)
    for want in wants:
        for _ in range(3):
            assert not brought(qemu, want).failed
            qemu.left()
        assert qemu.state == {one.alias: (one.resource.removeprefix("idletime-"), one.class_.value, "") for one in want.devices}
        assert {one.id: one.path for one in want.resources} == {id_: one["path"] for id_, one in qemu.resources.items()}
        qemu.changes  # noqa: B018  read to be forgotten
        assert steps(want, qemu.do_query_idletime({})).nothing
        qemu.busy = set(busy)
