# SPDX-License-Identifier: GPL-2.0-or-later
"""Edits of a policy element: what comes out is read back; what is wrong is refused with a remedy."""

from __future__ import annotations

import pytest
from lxml import etree

from idletime import policy
from idletime.errors import PolicyError
from idletime.policy import NAMESPACE, Class, edit

BACKGROUND = edit.plain("background")
DOMAIN = f"""<domain type='kvm'>
  <name>a</name>
  <metadata><other xmlns='urn:x'/>{BACKGROUND}</metadata>
</domain>
"""


def test_class():
    assert policy.parse(BACKGROUND).class_ is Class.BACKGROUND
    assert edit.with_class(None, "guest") == edit.plain("guest")
    rich = edit.with_settings(BACKGROUND, {"weight": "5"})
    assert edit.with_class(rich, "foreground") == rich.replace("background", "foreground")


def test_who_is_not_background_has_no_deadline():
    """Else "enable" and the switch in Cockpit would write what is no policy."""
    timed = edit.with_settings(edit.plain("background"), {"by": "06:00"})
    assert 'by="06:00"' in timed and policy.parse(edit.with_class(timed, "background")).by == "06:00"
    for class_ in ("foreground", "guest"):
        assert policy.parse(edit.with_class(timed, class_)).by is None


def test_set():
    given = {
        "interval-us": "5000", "max-hold-ms": "0", "auto": "on", "budget-percent": "3", "max-request-bytes": "65536",
        "max-inflight": "2", "weight": "50", "shadow": "on", "rate-bps": "5000000",
    }  # fmt: skip
    changed = edit.with_settings(BACKGROUND, given)
    assert policy.parse(changed).settings == {
        None: {
            "interval-us": 5000, "max-hold-ms": 0, "auto": True, "budget-percent": 3, "max-request-bytes": 65536,
            "max-inflight": 2, "weight": 50, "shadow": True, "rate-bps": 5000000,
        }
    }  # fmt: skip
    assert edit.with_settings(changed, {"interval-us": "6000"}) == changed.replace('us="5000"', 'us="6000"')


def test_set_guest_processor_and_memory():
    own = edit.with_settings(BACKGROUND, {"jobs": "background"})
    assert policy.parse(own).jobs and not policy.parse(edit.with_settings(own, {"jobs": "foreground"})).jobs
    found = policy.parse(edit.with_settings(BACKGROUND, {"control": "demote", "cpu": "idle", "memory-low": "512MiB"}))
    assert (found.control, found.cpu, found.memory) == ("demote", "idle", policy.Memory(512 << 20))


def test_what_is_no_number_in_the_policy():
    text = edit.with_settings(BACKGROUND, {"rate-bps": "0", "max-hold-ms": "0", "shadow": "off"})
    assert policy.parse(text).settings == {None: {"rate-bps": 0, "max-hold-ms": 0, "shadow": False}}
    assert 'rate="unknown"' in text and 'max="never"' in text and 'shadow="no"' in text


def test_set_auto_off_drops_the_budget():
    text = edit.with_settings(BACKGROUND, {"auto": "on", "budget-percent": "3"})
    assert policy.parse(edit.with_settings(text, {"auto": "off"})).settings == {None: {"auto": False}}


def test_what_a_setting_needs_comes_with_it():
    """A budget is one of the learned interval, and only jobs that are background have a deadline; what is said stays."""
    small = edit.with_settings(BACKGROUND, {"budget-percent": "1"})
    assert policy.parse(small).settings == {None: {"auto": True, "budget-percent": 1}}
    found = policy.parse(edit.with_settings(BACKGROUND, {"jobs-by": "06:00"}))
    assert found.jobs and found.jobs_by == "06:00"
    fixed = edit.with_settings(BACKGROUND, {"interval-us": "5000"})
    with pytest.raises(PolicyError, match="without auto"):
        policy.parse(edit.with_settings(fixed, {"budget-percent": "1"}))


def test_set_takes_units_too():
    """As the policy has them; a bare number is in the unit of the property's name."""
    pairs = {
        "max-hold-ms": ("5s", "5000"),
        "max-request-bytes": ("64KiB", "65536"),
        "rate-bps": ("100Mbit", "100000000"),
        "budget-percent": ("3%", "3"),
    }
    one, other = ({"auto": "on", **{name: pair[which] for name, pair in pairs.items()}} for which in (0, 1))
    assert policy.parse(edit.with_settings(BACKGROUND, one)) == policy.parse(edit.with_settings(BACKGROUND, other))


def test_set_device():
    one = edit.with_device(BACKGROUND, "disk", "vda", {"class": "guest"})
    two = edit.with_device(one, "disk", "vda", {"queues": "1-2"})
    found = policy.parse(edit.with_device(two, "interface", None, {"dscp": "8"}))
    assert [(device.target, device.class_, device.queues) for device in found.disks] == [("vda", Class.GUEST, "1-2")]
    assert [(device.target, device.dscp) for device in found.interfaces] == [(None, "8")]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: edit.with_settings(text, {"interval": "5"}),
        lambda text: edit.with_settings(text, {"weight": "5\x01"}),
        lambda text: edit.with_device(text, "disk", "vda", {"weight": "5"}),
        lambda text: edit.with_device(text, "disk", "vda\x01", {"class": "guest"}),
        lambda text: edit.element_text("<!DOCTYPE x []>" + text),
    ],
)
def test_refused_with_a_remedy(change):
    with pytest.raises(PolicyError) as raised:
        change(BACKGROUND)
    assert raised.value.findings[0].remedy


def test_values_of_set_are_quoted():
    """A value cannot leave its attribute."""
    text = BACKGROUND
    for value in ("x' class='y\"<&", "another' class='z", 'a third" class="z'):
        text = edit.with_device(text, "disk", None, {"resource": value})
        assert etree.fromstring(text).find(".//{*}disk").attrib == {"resource": value}


def test_out_of_a_domain_and_into_one():
    assert edit.element_text(DOMAIN) == BACKGROUND
    assert edit.element_text("<domain/>") is None
    with_none = edit.in_domain(DOMAIN, None)
    assert edit.element_text(with_none) is None and "urn:x" in with_none
    guest = edit.plain("guest")
    assert [edit.element_text(edit.in_domain(xml, guest)) for xml in (DOMAIN, "<domain/>")] == [guest, guest]


def test_as_libvirt_wants_it():
    """Without a namespace: libvirt puts its own in."""
    bare = etree.fromstring(edit.for_libvirt(edit.with_settings(BACKGROUND, {"weight": "5"})))
    assert [one.tag for one in bare.iter()] == ["policy", "share"] and bare.nsmap == {}
    default = f"<policy xmlns='{NAMESPACE}' class='guest'><!-- why --><share weight='5'/></policy>"
    assert etree.fromstring(edit.for_libvirt(default)).tag == "policy"
