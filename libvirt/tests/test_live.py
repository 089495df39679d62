# SPDX-License-Identifier: GPL-2.0-or-later
"""What a running domain lacks: pure differences, and that applying them leaves none."""

from __future__ import annotations

import pytest

from fakes import DeadMonitor, FakeMonitor, device, resource
from idletime import live
from idletime.compiler import DevicePlan, Plan, ResourcePlan
from idletime.compiler.result import Unresolved
from idletime.errors import Kind, MonitorError, Severity
from idletime.policy import Class


def plan(class_=Class.BACKGROUND, queues="", alias="ua-idletime-vda", **properties):
    names = {key.replace("_", "-"): value for key, value in properties.items()}
    return Plan(
        (ResourcePlan("idletime-sda", "sda", "/run/idletime/sda", names),),
        (DevicePlan("disk", "vda", alias, "idletime-sda", class_, queues),),
    )


def commands(want, have):
    return [(command.name, dict(command.arguments)) for command in live.difference(want, have).commands]


def test_nothing_to_do():
    found = live.difference(plan(), [resource("sda", [device("ua-idletime-vda")])])
    assert not found.commands and not found.findings


def test_properties_of_the_resource():
    """What the policy says, and QEMU's default where it has stopped saying something."""
    have = [resource("sda", [device("ua-idletime-vda")], interval_us=7, max_inflight=4)]
    assert commands(plan(interval_us=5000, weight=50), have) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 5000, "max-inflight": 1, "weight": 50})
    ]


def test_what_is_not_resolved_keeps_what_it_has():
    """A route that is gone for a moment is no reason to let a background device go, nor to touch it."""
    gone = Unresolved("disk", "vda", "ua-idletime-vda", "no default route", "wait")
    found = live.difference(Plan(unresolved=(gone,)), [resource("sda", [device("ua-idletime-vda")])])
    assert not found.commands and not found.findings


def test_an_uplink_has_defaults_of_its_own():
    nic = DevicePlan("interface", "52:54:00:00:00:01", "net0", "idletime-sda", Class.BACKGROUND)
    want = Plan(plan().resources, (nic,))
    assert commands(want, [resource("sda", [device("net0")], interval_us=5000, max_inflight=2)]) == []
    assert commands(want, [resource("sda", [device("net0")], interval_us=1000, max_inflight=1)]) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 5000, "max-inflight": 2})
    ]


def test_what_qemu_learns_is_left_alone():
    """With auto the interval in force is the learned one, and so is a cap that nobody set."""
    have = [{**resource("sda", [device("ua-idletime-vda")], interval_us=777, max_inflight=3), "auto": True,
             "budget-percent": 5}]  # fmt: skip
    assert commands(plan(auto=True, interval_us=500), have) == []
    old = [resource("sda", [device("ua-idletime-vda")])]  # a QEMU that cannot learn: asked, so that it refuses
    assert commands(plan(auto=True), old) == [("idletime-set", {"resource": "idletime-sda", "auto": True})]
    fixed = [{**resource("sda", [device("ua-idletime-vda")], interval_us=80000), "auto": False}]
    assert commands(plan(auto=True, interval_us=500), fixed) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 500, "auto": True})
    ]
    assert commands(plan(auto=True, max_inflight=2, budget_percent=3), have) == [
        ("idletime-set", {"resource": "idletime-sda", "max-inflight": 2, "budget-percent": 3})
    ]
    assert commands(plan(), have) == [
        ("idletime-set", {"resource": "idletime-sda", "interval-us": 20000, "max-inflight": 1, "auto": False})
    ]


def test_shadow_and_rate():
    """Both are set live, and go back to QEMU's defaults when the policy stops saying them."""
    have = [{**resource("sda", [device("ua-idletime-vda")]), "shadow": False}]
    assert commands(plan(shadow=True, rate_bps=10**8), have) == [
        ("idletime-set", {"resource": "idletime-sda", "rate-bps": 10**8, "shadow": True})
    ]
    have = [{**resource("sda", [device("ua-idletime-vda")], rate_bps=10**8), "shadow": True}]
    assert commands(plan(), have) == [
        ("idletime-set", {"resource": "idletime-sda", "rate-bps": 0, "shadow": False})
    ]


def test_class_and_queues():
    have = [resource("sda", [device("ua-idletime-vda", "foreground", "3")])]
    assert commands(plan(Class.GUEST, "1-2"), have) == [
        ("idletime-set", {"device": "ua-idletime-vda", "class": "guest", "background-queues": "1-2"})
    ]


@pytest.mark.parametrize(
    "have, words",
    [
        ([], "runs without a resource (the policy wants 'idletime-sda')"),
        (
            [resource("sdb", [device("ua-idletime-vda")])],
            "runs on resource 'idletime-sdb' (the policy wants 'idletime-sda')",
        ),
    ],
)
def test_what_needs_a_restart_is_said(have, words):
    found = live.difference(plan(), have)
    assert not found.commands
    assert [(finding.kind, finding.severity) for finding in found.findings] == [(Kind.LIVE, Severity.WARNING)]
    assert words in str(found.findings[0]) and "restart the domain" in found.findings[0].remedy


def test_a_device_that_the_policy_has_left_becomes_foreground():
    """It cannot leave its resource; as foreground nothing of it is held."""
    have = [resource("sda", [device("ua-idletime-vda"), device("ua-idletime-vdb", "background", "1")])]
    assert commands(plan(), have) == [
        ("idletime-set", {"device": "ua-idletime-vdb", "class": "foreground", "background-queues": ""})
    ]
    assert commands(Plan(), have)[0][1]["device"] == "ua-idletime-vda"


def test_resources_of_others_are_left_alone():
    have = [{**resource("", [device("mine")]), "id": "mine"}]
    found = live.difference(Plan(), have)
    assert not found.commands and not found.findings


def test_apply_leaves_no_difference():
    monitor = FakeMonitor([resource("sda", [device("ua-idletime-vda", "guest", "1")], weight=7)])
    want = plan(interval_us=1, max_hold_ms=9)
    assert live.apply(monitor, want) == ()
    assert not live.difference(want, monitor.query()).commands
    assert monitor.sent == ["query-idletime", "idletime-set", "idletime-set", "query-idletime"]


def test_refusals_are_errors():
    with pytest.raises(MonitorError) as raised:
        FakeMonitor([]).command("idletime-set", device="nosuch", class_="background")
    assert "QEMU refused idletime-set" in str(raised.value)
    with pytest.raises(MonitorError) as raised:
        DeadMonitor(None).query()
    assert raised.value.reason == "CommandNotFound"
