# SPDX-License-Identifier: GPL-2.0-or-later
"""apply, set, mark, unmark on a domain that is made up: what is defined, what is sent, what is refused."""

from __future__ import annotations

import argparse
import re

import libvirt
import pytest

from fakes import FakeMonitor, device, resource
from idletime import change, compiler, domains, policy
from idletime.cli import commands
from idletime.domains import HostError
from idletime.errors import Exit, Kind, PolicyError
from idletime.policy import edit
from idletime.resolve import Network

BARE = """<domain type='kvm'>
  <name>vm</name>
  <memory unit='KiB'>65536</memory>
  <os>
    <type>hvm</type>
  </os>
  <devices>
    <disk type='file' device='disk'>
      <source file='/a'/>
      <target dev='vda' bus='virtio'/>
    </disk>
  </devices>
</domain>
"""
POLICY = "<p:policy xmlns:p='urn:idletime:policy:1' class='background'><p:disk resource='sda'/></p:policy>"
MARKED = edit.replaced(BARE, POLICY)


class FakeDomain:
    """A domain with persistent and live XML; either may be None."""

    def __init__(self, config, live):
        self.config, self.live = config, live
        self.defined, self.parameters = [], []

    def name(self):
        return "vm"

    def isActive(self):
        return int(self.live is not None)

    def isPersistent(self):
        return int(self.config is not None)

    def XMLDesc(self, flags):
        xml = self.config if flags & libvirt.VIR_DOMAIN_XML_INACTIVE else self.live or self.config
        if flags & libvirt.VIR_DOMAIN_XML_SECURE:
            return xml
        return re.sub(" passwd='[^']*'", "", xml)

    def setMetadata(self, kind, text, key, uri, flags):
        assert (kind, uri) == (libvirt.VIR_DOMAIN_METADATA_ELEMENT, policy.NAMESPACE)
        assert flags == libvirt.VIR_DOMAIN_AFFECT_LIVE
        whole = None if text is None else text.replace("<policy", f"<policy xmlns='{uri}'", 1)
        self.live = edit.replaced(self.live, whole)

    def setMemoryParameters(self, values, flags):
        self.parameters.append(values)

    def setSchedulerParametersFlags(self, values, flags):
        error = libvirt.libvirtError("cgroup CPU controller is not mounted")
        raise error


class FakeConnection:
    def __init__(self, domain):
        self.domain = domain

    def getType(self):
        return "QEMU"

    def defineXMLFlags(self, xml, flags):
        assert flags == libvirt.VIR_DOMAIN_DEFINE_VALIDATE
        self.domain.defined.append(xml)
        self.domain.config = xml


@pytest.fixture
def monitor(monkeypatch):
    """The QEMU of the running domain: its disk is background on sda."""
    found = FakeMonitor([resource("sda", [device("ua-idletime-vda")])])
    monkeypatch.setattr(change, "Monitor", lambda _domain: found)
    return found


def running(xml):
    """Live XML: as compiled and started."""
    return compiler.compile(xml, compiler.HostFacts()).xml


def apply(domain, edited=lambda xml: xml, live=False, config=False):
    return change.apply(FakeConnection(domain), domain, edited, live, config, "/run/idletime")


def test_config_only():
    domain = FakeDomain(MARKED, None)
    apply(domain)
    assert domain.defined == [running(MARKED)]
    apply(domain)
    assert len(domain.defined) == 1  # compiled already: not defined again


SECRET = MARKED.replace("<devices>", "<devices><graphics type='vnc' passwd='secret'/>")


def test_secrets_stay():
    """Defined again without them, a domain would lose the password of its display."""
    domain = FakeDomain(SECRET, None)
    apply(domain)
    assert len(domain.defined) == 1 and "passwd='secret'" in domain.config


def test_who_may_not_see_secrets_may_not_define():
    class Locked(FakeDomain):
        def XMLDesc(self, flags):
            if flags & libvirt.VIR_DOMAIN_XML_SECURE:
                raise libvirt.libvirtError("operation forbidden for read only access")
            return super().XMLDesc(flags)

    domain = Locked(SECRET, None)
    with pytest.raises(HostError, match="with its secrets"):
        apply(domain)
    assert domain.config == SECRET
    assert "secret" not in domains.xml_of(domain)


def test_both(monitor):
    domain = FakeDomain(MARKED, running(MARKED))
    apply(domain, lambda xml: edit.with_settings(xml, {"interval-us": "5000"}))
    assert "interval-us=5000" in domain.config
    assert monitor.resources[0]["interval-us"] == 5000
    assert policy.parse(domain.live).settings == {None: {"interval-us": 5000}}


def test_live_only_leaves_the_config(monitor):
    domain = FakeDomain(MARKED, running(MARKED))
    apply(domain, lambda xml: edit.with_class(xml, "guest"), live=True)
    assert domain.config == MARKED
    assert monitor.resources[0]["devices"][0]["class"] == "guest"
    assert policy.parse(domain.live).class_.value == "guest"


def test_the_persistent_policy_is_the_one(monitor):
    """Edited with virsh edit while the domain runs, then applied."""
    domain = FakeDomain(MARKED.replace("background", "foreground"), running(MARKED))
    apply(domain)
    assert monitor.resources[0]["devices"][0]["class"] == "foreground"


def test_mark_of_a_running_domain_without_a_policy(monitor):
    """Its disk has no resource in QEMU: the config is ready, the rest is said to need a restart."""
    monitor.resources = []
    domain = FakeDomain(BARE, BARE)
    findings = apply(domain, lambda xml: edit.replaced(xml, POLICY))
    assert [finding.kind for finding in findings] == [Kind.LIVE]
    assert "restart the domain" in findings[0].remedy
    assert domain.config == running(MARKED)


def test_remove(monitor):
    domain = FakeDomain(running(MARKED), running(MARKED))
    apply(domain, lambda xml: edit.without(compiler.decompile(xml)))
    assert domain.config == BARE
    assert monitor.resources[0]["devices"][0]["class"] == "foreground"
    assert policy.parse(domain.live) is None


@pytest.mark.parametrize("cpu, problems", [("minimal", 1), ("idle", 2)])
def test_memory_and_processor_live(monitor, cpu, problems):
    """This host gives no share; and a scheduler is set at start only."""
    text = POLICY.replace("</p:policy>", f"<p:cpu class='{cpu}'/><p:memory soft-limit='64MiB'/></p:policy>")
    domain = FakeDomain(MARKED, running(MARKED))
    findings = apply(domain, lambda xml: edit.replaced(xml, text), live=True)
    assert domain.parameters == [{"soft_limit": 65536}]
    assert [f"cpu class '{cpu}' is not in force" in str(finding) for finding in findings] == [True] * problems


@pytest.mark.parametrize(
    "domain, options, words",
    [
        (FakeDomain(MARKED, None), {"live": True}, "is not running"),
        (FakeDomain(None, MARKED), {"config": True}, "is transient"),
    ],
)
def test_what_is_not_there_is_refused(domain, options, words):
    with pytest.raises(HostError, match=words) as raised:
        apply(domain, **options)
    assert raised.value.code is Exit.FAILED and "remedy" in str(raised.value)


def test_a_wrong_policy_changes_nothing(monitor):
    domain = FakeDomain(MARKED, running(MARKED))
    before = domain.live
    with pytest.raises(PolicyError):
        apply(domain, lambda xml: edit.with_class(xml, "idle"))
    assert (domain.config, domain.live, domain.defined, monitor.sent) == (MARKED, before, [], [])


def test_lookups_of_a_real_driver():
    """libvirt's test driver has a network and a pool."""
    found = domains.HostLookup(domains.connect("test:///default", read_only=True))
    assert found.network("default") == Network("nat", "virbr0")
    assert found.network("nosuch") is None
    assert found.volume("nosuch", "a") is None
    assert domains.LateLookup("test:///no/such/file").network("default") is None


def test_mark_names_resources():
    """What cannot be found out is named on the command line: the first policy needs no file."""
    options = argparse.Namespace(disk=["vda=slow", "all=none"], interface=["52:54:00:00:00:01=eth0"])
    found = policy.parse(commands._with_class(options, "background")(BARE))
    assert [(one.target, one.resource) for one in found.disks] == [("vda", "slow"), (None, "none")]
    assert [(one.target, one.resource) for one in found.interfaces] == [("52:54:00:00:00:01", "eth0")]
    assert found.class_.value == "background"
