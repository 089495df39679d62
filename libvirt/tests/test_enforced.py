# SPDX-License-Identifier: GPL-2.0-or-later
"""Which policy holds a VM: by its policy, its class, and what its devices allow."""

from __future__ import annotations

import pytest
from lxml import etree

from idletime import enforced, verdict
from idletime.conf.rules import Rules
from idletime.policy import edit, parse
from idletime.resolve import Host

VIRTIO = "<disk type='file'><source file='/tmp/a'/><target dev='vda' bus='virtio'/></disk>"
SCSI = "<disk type='file'><driver cache='none'/><source file='/tmp/b'/><target dev='sda' bus='scsi'/></disk>"
VFIO = "<interface type='hostdev'><mac address='52:54:00:00:00:01'/></interface>"
VDPA = "<interface type='vdpa'><mac address='52:54:00:00:00:02'/><source dev='/dev/vhost-vdpa-0'/></interface>"


def choice(attributes, devices="", inner="<disk resource='slow'/><interface resource='up'/>", ours=True, lowered=False):
    xml = (f"<domain type='kvm'><name>a</name><metadata><policy xmlns='urn:idletime:policy:1' {attributes}>{inner}</policy>"
           f"</metadata><devices>{devices}</devices></domain>")
    found = verdict.of_domain(xml, Rules(), Host())
    made = enforced.choice_of(found.policy, found.devices, found.plan, ours, lowered)
    return made, enforced.carried_out(made, found.plan), found


@pytest.mark.parametrize("attributes, devices, interval, suspend, words", [
    ("class='background'", VIRTIO, True, False, "is held by the interval (enforce='interval')"),
    ("class='background'", VIRTIO + SCSI, True, False, "nothing holds disk sda (other)"),
    ("class='background' enforce='suspend'", VIRTIO, False, True, "is stopped as a whole"),
    ("class='background' enforce='auto'", VIRTIO, True, False, "all its devices pass QEMU (enforce='auto')"),
    ("class='background' enforce='auto'", VIRTIO + VFIO, True, True, "nothing holds: interface 52:54:00:00:00:01 (VFIO)"),
    ("class='background' enforce='auto'", VDPA, False, True, "nothing holds interface 52:54:00:00:00:02 (vhost-vdpa)"),
    ("class='background' enforce='auto'", "", False, True, "it has no device to hold"),
    ("class='foreground' enforce='suspend'", VIRTIO, False, False, "is foreground: nothing holds it"),
    ("class='guest' enforce='suspend'", VIRTIO, True, False, "enforce='suspend' stops no VM with foreground in it"),
])
def test_by_class_and_devices(attributes, devices, interval, suspend, words):
    made, plan, found = choice(attributes, devices)
    assert (made.interval, made.suspend) == (interval, suspend)
    assert words in made.why
    assert plan.devices == (() if suspend and not interval else found.plan.devices)


def test_a_device_that_is_stopped_for_is_no_problem():
    """Whose policy is the interval alone is told that nothing holds it."""
    for enforce, expected in (("interval", ["warning"]), ("auto", ["note"]), ("suspend", ["note"])):
        _, _, found = choice(f"class='background' enforce='{enforce}'", SCSI)
        assert [one.severity.value for one in found.findings] == expected


def test_stock_is_stopped():
    made, plan, _ = choice("class='background' enforce='auto'", VIRTIO, ours=False)
    assert made.suspend and not plan.devices and made.remedy == "start it with Idletime's QEMU"


def test_a_vm_that_its_guest_lowered():
    made, plan, _ = choice("class='foreground' enforce='suspend'", VIRTIO, lowered=True)
    assert made.suspend and not plan.devices


def test_foreground_with_a_background_disk_is_never_stopped():
    made, plan, _ = choice("class='foreground' enforce='suspend'", VIRTIO, "<disk resource='slow' class='background'/>")
    assert not made.suspend and made.why == "is foreground but for disk vda, which the interval holds"
    assert len(plan.devices) == 1


def test_what_the_policy_leaves_alone_is_nothing_to_hold():
    inner = "<disk resource='slow'/><interface resource='none'/>"
    made, _, _ = choice("class='background' enforce='auto'", VIRTIO + VFIO, inner)
    assert made.interval and not made.suspend


def test_by_the_command():
    text = edit.with_settings(edit.plain("background"), {"enforce": "suspend"})
    assert etree.fromstring(text).get("enforce") == "suspend" and parse(text).enforce.value == "suspend"
