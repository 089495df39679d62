# SPDX-License-Identifier: GPL-2.0-or-later
"""The examples compile to what lies beside them (on the host of data/hosts/rack.tree), and libvirt accepts both."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from idletime import policy
from test_compile import by_name, compiled, read, validate

EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "examples/libvirt").glob("*.xml")
    if not path.name.endswith(".out.xml")
)


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


@by_name(EXAMPLES)
def test_output_lies_beside(path, host, lookup, golden):
    golden(path.with_suffix(".out.xml"), compiled(read(path), host("rack"), lookup).xml)


@pytest.mark.schema
@by_name(EXAMPLES)
def test_libvirts_schema(path):
    validate(path, "domain")
    validate(path.with_suffix(".out.xml"), "domain")


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
