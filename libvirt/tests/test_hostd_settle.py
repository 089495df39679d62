# SPDX-License-Identifier: GPL-2.0-or-later
"""Settling the persistent XML, with a libvirt that is played: what is defined, how often, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import libvirt
import pytest

from idletime.hostd.protocol import Wish
from idletime.hostd.settings import Settings
from idletime.hostd.settle import Looked, Memory, settle

RAW = """<domain type='kvm'><name>d</name>
<metadata><idletime:policy xmlns:idletime='urn:idletime:policy:1' class='background'>
<idletime:disk target='vda' resource='{resource}'/></idletime:policy></metadata>
<devices><emulator>/bin/false</emulator>
<disk type='file' device='disk'><source file='/nowhere'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


class Libvirt:
    """One persistent domain that does not run. keep: what libvirt makes of XML that is defined."""

    def __init__(self, xml: str, keep: Callable[[str], str] = lambda xml: xml) -> None:
        self.xml, self.keep, self.defined = xml, keep, 0

    def lookupByUUIDString(self, _uuid: str) -> Libvirt:
        return self

    def defineXMLFlags(self, xml: str, _flags: int) -> Libvirt:
        self.defined += 1
        self.xml = self.keep(xml)
        return self

    def name(self) -> str:
        return "d"

    def isPersistent(self) -> bool:
        return True

    def isActive(self) -> bool:
        return False

    def XMLDesc(self, _flags: int) -> str:
        return self.xml


@pytest.fixture
def look(tmp_path: Path) -> Callable[[Libvirt], Looked]:
    """Settle it, as one idletimed does all the time."""
    memory = Memory()
    settings = Settings(run_dir=str(tmp_path / "run"), owner="0:0")

    def once(host: Libvirt) -> Looked:
        result = settle(host, "uuid", Wish(), settings, memory)
        assert result is not None
        return result

    return once


def raw(resource: str = "sda") -> str:
    return RAW.format(resource=resource)


def test_defined_once(look: Callable[[Libvirt], Looked]) -> None:
    host = Libvirt(raw())
    for _ in range(3):
        assert look(host).problems == ()
    assert host.defined == 1 and "idletime-resource" in host.xml


def test_the_same_raw_xml_again_and_again(look: Callable[[Libvirt], Looked]) -> None:
    """Whether it was seen compiled in between or not: Ansible defines the same XML at each run."""
    host = Libvirt(raw())
    for number in range(1, 6):
        host.xml = raw()
        assert look(host).problems == ()
        assert host.defined == number and "idletime-resource" in host.xml


def test_a_libvirt_that_keeps_changing_it(look: Callable[[Libvirt], Looked]) -> None:
    """It is told, and not fought; another policy is another try."""
    host = Libvirt(raw(), keep=lambda xml: xml.replace("<name>d</name>", "<name>d</name><title>libvirt's</title>")
                   .replace("virtio-blk-device.idletime=", "virtio-blk-device.idletime=x"))
    look(host)
    for _ in range(3):
        assert "libvirt does not keep what was compiled" in look(host).problems[0]
    assert host.defined == 1
    host.xml = raw("sdb")
    look(host)
    assert host.defined == 2


def test_somebody_defines_it_in_that_moment(look: Callable[[Libvirt], Looked]) -> None:
    """The raw XML of another one that comes in between is not taken for libvirt's doing."""
    host = Libvirt(raw(), keep=lambda _xml: raw())
    look(host)
    host.keep = lambda xml: xml
    assert look(host).problems == ()
    assert "idletime-resource" in host.xml


def test_somebody_defines_it_while_it_is_compiled(look: Callable[[Libvirt], Looked]) -> None:
    """The newer definition is not replaced by the older one; it is looked at again."""

    class Racing(Libvirt):
        reads = 0

        def XMLDesc(self, flags: int) -> str:
            self.reads += 1
            if self.reads == 2:
                self.xml = raw("sdb")
            return super().XMLDesc(flags)

    host = Racing(raw())
    assert look(host).failed and host.defined == 0
    assert not look(host).failed and "idletime-sdb" in host.xml


def test_an_undefined_domain_does_not_come_back(look: Callable[[Libvirt], Looked], tmp_path: Path) -> None:
    class Gone(Libvirt):
        reads = 0

        def XMLDesc(self, flags: int) -> str:
            self.reads += 1
            if self.reads == 2:
                raise libvirt.libvirtError("Domain not found")
            return super().XMLDesc(flags)

    host = Gone(raw())
    assert look(host).failed and host.defined == 0


def test_a_wrong_policy_is_said_and_left(look: Callable[[Libvirt], Looked]) -> None:
    host = Libvirt(raw().replace("target='vda' resource", "target='vdz' resource"))
    looked = look(host)
    assert "the domain has no such disk" in looked.problems[0] and not looked.failed
    assert host.defined == 0
