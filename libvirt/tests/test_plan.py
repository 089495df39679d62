# SPDX-License-Identifier: GPL-2.0-or-later
"""From domain XML to the plan, on golden domains of the host in data/hosts/rack.tree: who joins what, and what is left out."""

from __future__ import annotations

import pytest

from conftest import DATA
from idletime import verdict
from idletime.conf import rules
from idletime.errors import Kind, PolicyError, Severity
from idletime.policy import Class, Policy
from idletime.resolve import Host

CASES = sorted((DATA / "plan").glob("*.xml"))

DEFAULT = rules.Rules(default=Policy(Class.FOREGROUND), default_place="a.toml line 1")
DOMAIN = """<domain type='{type}'><name>d</name><metadata>{policy}</metadata><devices>
<disk type='file' device='disk'><source file='/var/lib/libvirt/images/web.qcow2'/><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>
<disk type='file' device='disk'><driver cache='none'/><source file='/srv/link.img'/><target dev='sdb' bus='sata'/></disk>
</devices></domain>"""
BACKGROUND = "<p:policy xmlns:p='urn:idletime:policy:1' class='background'>{}</p:policy>"
ON_SDA = BACKGROUND.format("<p:disk resource='sda'/>")


def lines(found: verdict.Verdict) -> str:
    """A verdict as text: the decision, the plan, the findings."""
    text = [str(found.decision)]
    for one in found.plan.resources:
        settings = ", ".join(f"{name}={value}" for name, value in one.properties.items())
        text.append(f"resource {one.name} at {one.path}: {settings}")
    for each in found.plan.devices:
        more = "".join(f", {name} {value}" for name, value in (("queues", each.queues), ("dscp", each.dscp)) if value)
        text.append(f"{each.kind} {each.target} ({each.alias or 'does not run'}): {each.class_.value} on "
                    f"{each.resource.removeprefix('idletime-')}{more}")
    text += [f"block jobs of disk {disk.target}: background on {disk.resource.removeprefix('idletime-')}"
             for disk in found.plan.jobs]
    if found.plan.migration is not None:
        text.append(f"migration: background on {found.plan.migration.resource.removeprefix('idletime-')}")
    return "\n".join([*text, *map(str, found.findings), ""])


@pytest.fixture
def judge(host, lookup):
    def judged(xml: str, known: rules.Rules = DEFAULT, running: bool = False) -> verdict.Verdict:
        return verdict.of_domain(xml, known, Host(host("rack"), lookup), running=running)

    return judged


def test_there_are_enough_domains():
    assert len(CASES) >= 35


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path, judge, golden):
    golden(path.with_suffix(".plan"), lines(judge(path.read_bytes().decode())))


def test_one_device_by_two_names(judge):
    """The first counts, and it is said; nobody's slip stops a VM that runs."""
    its = BACKGROUND.format("<p:interface target='52:54:00:aa:bb:cc' resource='a'/>"
                            "<p:interface target='52:54:00:AA:BB:CC' resource='b'/>")
    xml = DOMAIN.format(type="kvm", policy=its).replace(
        "</devices>", "<interface type='bridge'><mac address='52:54:00:aa:bb:cc'/><source bridge='br0'/><model type='virtio'/>"
                      "</interface></devices>")
    for running, severity in ((False, Severity.ERROR), (True, Severity.WARNING)):
        twice = [one for one in judge(xml, running=running).findings if "which counts" in one.message]
        assert [one.severity for one in twice] == [severity]


def test_nobody_set_an_interval(judge):
    """It is learned; the operator's word for the resource wins over that, and the domain's over both."""
    (found,) = judge(DOMAIN.format(type="kvm", policy=BACKGROUND.format(""))).plan.resources
    assert found.properties == {"auto": True, "budget-percent": 3}
    own = BACKGROUND.format("<p:interval us='7'/>")
    (found,) = judge(DOMAIN.format(type="kvm", policy=own)).plan.resources
    assert found.properties == {"interval-us": 7}


def test_what_is_no_matter_of_a_foreground_is_a_note(judge):
    """A disk on another bus is not held; for a foreground that is as ever, for a background it is worth a word."""
    plain = judge(DOMAIN.format(type="kvm", policy=""))
    assert [one.target for one in plain.plan.devices] == ["vda"]
    assert [one.severity for one in plain.findings if "sdb" in str(one)] == [Severity.NOTE]
    marked = judge(DOMAIN.format(type="kvm", policy=BACKGROUND.format("")))
    assert [one.severity for one in marked.findings if "sdb" in str(one)] == [Severity.WARNING]


@pytest.mark.parametrize("type_, driver, said", [
    ("file", "", "default"), ("block", "cache='writeback'", "writeback"), ("volume", "cache='unsafe'", "unsafe"),
    ("file", "cache='none'", None), ("block", "cache='directsync'", None), ("network", "cache='writeback'", None)])
def test_a_background_disk_that_fills_the_page_cache(judge, type_, driver, said):
    """A note in `check`: it is held all the same. Of a foreground disk it is nobody's matter."""
    xml = (f"<domain type='kvm'><metadata>{ON_SDA}</metadata><devices>"
           f"<disk type='{type_}'><driver {driver}/><source/><target dev='vda' bus='virtio'/></disk></devices></domain>")
    notes = [one for one in judge(xml).findings if "page cache" in one.message]
    assert [(one.severity, one.remedy) for one in notes] == ([(Severity.NOTE, "<driver cache='none'/>")] if said else [])
    assert all(f"cache='{said}'" in one.message for one in notes)
    assert not [one for one in judge(xml.replace("background", "foreground")).findings if "page cache" in one.message]


def test_nothing_without_a_policy_and_a_default(judge):
    found = judge(DOMAIN.format(type="kvm", policy=""), rules.Rules())
    assert found.policy is None and found.plan.devices == () and found.findings == ()


def test_what_does_not_fit_is_left_out_and_the_rest_is_in_force(judge):
    """An error in a definition, a warning while it runs: a device may have been plugged out."""
    xml = DOMAIN.format(type="kvm", policy=BACKGROUND.format("<p:disk target='vdz'/>"))
    for running, severity in ((False, Severity.ERROR), (True, Severity.WARNING)):
        found = judge(xml, running=running)
        assert [one.target for one in found.plan.devices] == ["vda"]
        assert [one.severity for one in found.findings if "vdz" in str(one)] == [severity]


def test_other_hypervisors(judge):
    """A policy there is a mistake; the default is not for them."""
    with pytest.raises(PolicyError, match="is not QEMU") as error:
        judge(DOMAIN.format(type="lxc", policy=BACKGROUND.format("")))
    assert error.value.kind is Kind.FIT
    assert judge(DOMAIN.format(type="lxc", policy="")).policy is None


@pytest.mark.parametrize("xml, words", [
    ("<network><name>n</name></network>", "is a 'network', not a domain"),
    ("<domain", "not well-formed XML"),
    ("<!DOCTYPE domain [<!ENTITY a 'b'>]><domain type='kvm'/>", "document type"),
])
def test_no_domain(judge, xml, words):
    with pytest.raises(PolicyError, match=words):
        judge(xml)
