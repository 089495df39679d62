# SPDX-License-Identifier: GPL-2.0-or-later
"""The examples come to what lies beside them (on the host of data/hosts/rack.tree), and libvirt accepts them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import etree

from idletime import policy, verdict
from idletime.conf.rules import Rules, decide_xml, load
from idletime.resolve import Host
from idletime.resolve.tree import Tree
from test_plan import lines

EXAMPLES = sorted((Path(__file__).parents[2] / "examples/libvirt").glob("*.xml"))


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


@by_name(EXAMPLES)
def test_output_lies_beside(path, host, lookup, golden):
    found = verdict.of_domain(path.read_text(), Rules(), Host(host("rack"), lookup), running=False)
    golden(path.with_suffix(".plan"), lines(found))


@pytest.mark.schema
@by_name(EXAMPLES)
def test_libvirts_schema(path):
    program = shutil.which("virt-xml-validate")
    assert program, "virt-xml-validate is missing: run 'make deps'"
    done = subprocess.run([program, str(path), "domain"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "xml",
    [
        "<domain type='kvm'><name>a</name><devices/></domain>",
        "<domain type='kvm'><name>a</name><metadata><x xmlns='urn:x'/></metadata></domain>",
        "<domain type='kvm'><name>a</name><metadata><policy xmlns='urn:idletime:policy:1' class='background'/></metadata>"
        "</domain>",
    ],
)
def test_stylesheet(xml):
    """The stylesheet adds the policy wherever there is none, and loses nothing."""
    sheet = etree.XSLT(etree.parse(str(EXAMPLES[0].parent / "idletime.xsl")))
    done = str(sheet(etree.fromstring(xml)))
    assert policy.parse(done) is not None
    assert policy.parse(done).class_.value == "background"
    assert done.count("<name>a</name>") == 1
    assert ("urn:x" in done) == ("urn:x" in xml)


@pytest.mark.parametrize("flavor, class_", [("bg.small", "background"), ("b1.medium", "foreground")])
def test_the_rule_for_openstack(tmp_path, flavor, class_):
    """Of a server as Nova writes it, without a policy of its own."""
    folder = tmp_path / "etc/idletime/rules.d"
    folder.mkdir(parents=True)
    root = Path(__file__).parents[2]
    shutil.copy(root / "engine/etc/50-openstack.toml", folder)
    known = load(Tree(str(tmp_path)))
    server = etree.parse(str(root / "libvirt/tests/data/plan/nova.xml"))
    for own in server.findall("metadata/{urn:idletime:policy:1}policy"):
        own.getparent().remove(own)
    server.find(".//{*}flavor").set("name", flavor)
    found = decide_xml(etree.tostring(server, encoding="unicode"), known)
    assert not known.findings and found.class_ == class_
