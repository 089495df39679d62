# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains as libvirt 9.0 writes them after it was given ours: recognised as compiled already."""

from __future__ import annotations

import pytest
from lxml import etree

from idletime import compiler
from idletime.compiler.same import same

QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"


@pytest.mark.parametrize(
    "one, other, equal",
    [
        ("<a><b/><c/></a>", "<a>\n <c/><!-- x --> <b></b></a>", True),
        ("<a b='1' c='2'/>", '<a c="2" b="1"/>', True),
        ("<a><b/></a>", "<a><b/><b/></a>", False),
        ("<a><b>1</b></a>", "<a><b>2</b></a>", False),
        (
            "<cputune><vcpusched vcpus='0-1' scheduler='idle'/></cputune>",
            "<cputune><vcpusched vcpus='1' scheduler='idle'/><vcpusched vcpus='0' scheduler='idle'/></cputune>",
            True,
        ),
        (
            "<cputune><vcpusched vcpus='0-1' scheduler='idle'/></cputune>",
            "<cputune><vcpusched vcpus='0' scheduler='idle'/></cputune>",
            False,
        ),
        (
            "<d><channel type='unix'><target type='virtio' name='org.idletime.agent.0'/></channel></d>",
            "<d><channel type='unix'><source mode='bind'/><target type='virtio' name='org.idletime.agent.0'/>"
            "<address type='virtio-serial' port='1'/></channel></d>",
            True,
        ),
        (
            "<d><channel type='unix'><target type='virtio' name='other'/></channel></d>",
            "<d><channel type='unix'><source mode='bind'/><target type='virtio' name='other'/></channel></d>",
            False,
        ),
        (
            f"<d {QEMU}><qemu:arg value='a'/><qemu:env name='x'/><qemu:arg value='b'/></d>",
            f"<d {QEMU}><qemu:arg value='a'/><qemu:arg value='b'/><qemu:env name='x'/></d>",
            True,
        ),
        (
            f"<d {QEMU}><qemu:arg value='a'/><qemu:arg value='b'/></d>",
            f"<d {QEMU}><qemu:arg value='b'/><qemu:arg value='a'/></d>",
            False,
        ),
    ],
)
def test_same(one, other, equal):
    assert same(etree.fromstring(one), etree.fromstring(other)) is equal


def test_what_libvirt_has_reordered_comes_back_as_it_is():
    """libvirt puts alias before address and boot before alias; compiling that again changes no byte."""
    xml = """<domain type='kvm'><name>a</name>
  <metadata><p:policy xmlns:p='urn:idletime:policy:1' class='background'><p:disk resource='sda'/></p:policy></metadata>
  <os><type>hvm</type></os>
  <devices>
    <disk type='file' device='disk'>
      <source file='/a'/>
      <target dev='vda' bus='virtio'/>
      <address type='pci'/>
    </disk>
  </devices>
</domain>"""
    once = compiler.compile(xml, compiler.HostFacts()).xml
    alias = "      <alias name='ua-idletime-vda'/>\n"
    moved = once.replace(alias, "").replace("      <address", alias + "      <address")
    assert moved != once
    assert compiler.compile(moved, compiler.HostFacts()).xml == moved


def test_a_change_is_seen():
    once = """<domain type='kvm'><name>a</name><metadata>
  <p:policy xmlns:p='urn:idletime:policy:1' class='background'><p:disk resource='sda'/></p:policy></metadata>
  <os><type>hvm</type></os><devices><disk type='file'><source file='/a'/><target dev='vda' bus='virtio'/></disk></devices>
</domain>"""
    done = compiler.compile(once, compiler.HostFacts()).xml
    changed = done.replace("type='string' value='background'", "type='string' value='guest'")
    assert changed != done
    assert compiler.compile(changed, compiler.HostFacts()).xml == done
