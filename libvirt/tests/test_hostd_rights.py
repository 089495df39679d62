# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest gets of what it asks for. It can only be lowered: that is checked for every wish."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.devices import devices_of
from idletime.facts import DevicePlan, Plan
from idletime.hostd import protocol, rights, wish
from idletime.hostd.protocol import QueueWish, Wish
from idletime.policy import Class, Control, Policy
from idletime.xmltree import read

DEMOTE = Policy(Class.FOREGROUND, control=Control.DEMOTE)
DISK = DevicePlan("disk", "vda", "ua-idletime-vda", "idletime-sda", Class.FOREGROUND, "1")
MIXED = DevicePlan("disk", "vdb", "virtio-disk1", "idletime-sdb", Class.GUEST)
PLAN = Plan((), (DISK, MIXED))

XML = """<domain type='kvm'><vcpu>4</vcpu><devices>
<disk type='file' device='disk'><source file='/a'/><target dev='vda' bus='virtio'/><serial>root</serial>
  <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x1'/></disk>
<disk type='file' device='disk'><driver queues='2'/><source file='/b'/><target dev='vdb' bus='virtio'/>
  <serial>root</serial></disk>
<disk type='file' device='disk'><source file='/c'/><target dev='vdc' bus='virtio'/></disk>
<interface type='bridge'><mac address='52:54:00:AA:00:01'/><source bridge='br0'/><model type='virtio'/></interface>
</devices></domain>"""
THERE = rights.devices(devices_of(read(XML)), PLAN)


def queue(queues: str, **device: str) -> QueueWish:
    return QueueWish(device, queues)


def test_devices() -> None:
    assert [dict(device.names) for device in THERE] == [
        {"target": "vda", "serial": "root", "pci": "0000:02:00.1"}, {"target": "vdb", "serial": "root"},
        {"target": "vdc"}, {"mac": "52:54:00:aa:00:01"}]
    assert [device.queues for device in THERE] == [4, 2, 4, 1]
    assert [device.plan for device in THERE] == [DISK, MIXED, None, None]


def test_nothing_asked_nothing_changed() -> None:
    assert rights.grant(DEMOTE, PLAN, THERE, Wish()) == rights.Grant(PLAN)


def test_the_whole_vm() -> None:
    granted = rights.grant(DEMOTE, PLAN, THERE, Wish(True))
    assert [device.class_ for device in granted.plan.devices] == [Class.BACKGROUND, Class.BACKGROUND]
    assert granted.background and granted.refused == ()


def test_queues_are_added_to_the_policys() -> None:
    granted = rights.grant(DEMOTE, PLAN, THERE, Wish(False, (queue("2-3,0", target="vda"),)))
    assert granted.plan.devices[0].queues == "0-3"
    assert granted.plan.devices[0].class_ is Class.FOREGROUND


@pytest.mark.parametrize("policy", [None, Policy(Class.FOREGROUND)])
def test_no_right(policy: Policy | None) -> None:
    granted = rights.grant(policy, PLAN, THERE, Wish(True, (queue("0", target="vda"),)))
    assert granted.plan == PLAN and not granted.background and not granted.queues
    assert [(refusal.code, refusal.entry is None) for refusal in granted.refused] == [
        ("control-none", True), ("control-none", False)]


@pytest.mark.parametrize("entry, code", [
    (queue("0", target="vdz"), "unknown-device"),
    (queue("0", serial="root"), "ambiguous-device"),
    (queue("0", serial="none", target="vdz"), "unknown-device"),
    (queue("4", target="vda"), "no-such-queue"),
    (queue("0-9999", target="vda"), "invalid"),
    (queue("3-2", target="vda"), "invalid"),
    (queue("x", target="vda"), "invalid"),
    (queue(" 1", target="vda"), "invalid"),
    (queue("²", target="vda"), "invalid"),
    (queue("0", target="vdc"), "not-scheduled"),
    (queue("0", mac="52:54:00:AA:00:01"), "not-scheduled"),
    (queue("0"), "invalid"),
    (queue("0", kernel="vda"), "invalid"),
])
def test_refusals(entry: QueueWish, code: str) -> None:
    granted = rights.grant(DEMOTE, PLAN, THERE, Wish(True, (entry,)))
    assert [refusal.code for refusal in granted.refused] == [code]
    assert granted.background, "the class is granted for itself"


def test_a_device_named_twice() -> None:
    entries = (queue("0", target="vdb"), queue("1", target="vdb"))
    granted = rights.grant(DEMOTE, PLAN, THERE, Wish(False, entries))
    assert [refusal.code for refusal in granted.refused] == ["invalid", "invalid"]
    assert granted.plan == PLAN


NAMES = st.dictionaries(st.sampled_from([*protocol.NAMES, "kernel"]),
                        st.sampled_from(["vda", "vdb", "vdc", "root", "0000:02:00.1", "52:54:00:aa:00:01", ""]),
                        max_size=3)
LISTS = st.sampled_from(["", "0", "1", "0-1", "1,3", "9", "a", "3-1", "0-3"])
WISHES = st.builds(Wish, st.booleans(), st.lists(st.builds(QueueWish, NAMES, LISTS), max_size=4).map(tuple))
ORDER = {Class.FOREGROUND: 0, Class.GUEST: 1, Class.BACKGROUND: 2}


def numbers(queues: str) -> frozenset[int]:
    """Of a list that is one."""
    found = rights.numbers_of(queues)
    assert found is not None
    return found


@given(WISHES, st.sampled_from(Control))
def test_a_guest_can_only_be_lowered(asked: Wish, control: Control) -> None:
    """No device is higher than the policy has it; each part of the wish is either granted or refused, not both."""
    granted = rights.grant(Policy(Class.FOREGROUND, control=control), PLAN, THERE, asked)
    for before, after in zip(PLAN.devices, granted.plan.devices, strict=False):
        assert ORDER[after.class_] >= ORDER[before.class_]
        assert numbers(after.queues) >= numbers(before.queues)
        assert (after.alias, after.resource) == (before.alias, before.resource)
    parts = [*granted.queues, *(refusal.entry for refusal in granted.refused if refusal.entry)]
    assert sorted(map(repr, parts)) == sorted(map(repr, asked.queues))
    assert granted.background == (asked.background and control is Control.DEMOTE)
    message = rights.message("host-1", "0", DEMOTE, granted, THERE, ("a", 1), True)
    said = json.loads(protocol.encode(message))["granted"]["class"]
    assert said == ("background" if granted.background else "foreground")


@given(WISHES)
def test_a_wish_on_record(asked: Wish) -> None:
    """What is written into the domain comes back, as libvirt puts it: with a namespace on each element."""
    body = wish.to_xml(asked).replace("<wish", f"<wish xmlns='{wish.NAMESPACE}'", 1)
    back = wish.of_domain(read(f"<domain><metadata>{body}</metadata></domain>"))
    kept = tuple(QueueWish({name: value for name, value in entry.device.items() if value}, entry.queues)
                 for entry in asked.queues)
    assert back == Wish(asked.background, kept)


@given(st.frozensets(st.integers(0, 1023), max_size=30))
def test_queue_lists(numbers: frozenset[int]) -> None:
    assert rights.numbers_of(rights.queue_list(numbers)) == numbers
