# SPDX-License-Identifier: GPL-2.0-or-later
"""The policy: valid and invalid cases with exact errors; schema and parser say the same; units."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import etree

import idletime
from conftest import DATA
from idletime import policy
from idletime.errors import Kind, PolicyError
from idletime.policy import Class, DevicePolicy
from idletime.policy.grammar import CHILDREN
from idletime.policy.units import BadValue

SCHEMA = Path(idletime.__file__).parent / "schema" / "idletime-policy-1.rng"
VALID = sorted((DATA / "policy" / "valid").glob("*.xml"))
INVALID = sorted((DATA / "policy" / "invalid").glob("*.xml"))

# What a schema cannot say, or says of the domain and not of the policy.
BEYOND_SCHEMA = {
    "memory-high-below-low",
    "space-twice",
    "interval-twice",
    "disk-twice",
    "queues-backwards",
    "queues-too-high",
    "dscp-too-high",
    "rate-too-fast",
    "rate-twice",
    "hold-too-long",
    "limit-request-odd",
    "limit-request-too-large",
    "memory-too-small",
    "memory-odd",
    "two-policies",
}

NAMESPACE = "xmlns='urn:idletime:policy:1'"


@pytest.fixture(scope="session")
def schema():
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def element(path):
    root = etree.parse(str(path)).getroot()
    return root if root.tag != "domain" else root.find("metadata")[0]


@by_name(VALID)
def test_valid(path, schema):
    assert policy.parse(path.read_text()) is not None
    assert schema.validate(element(path)), schema.error_log


@by_name(INVALID)
def test_invalid(path, golden):
    with pytest.raises(PolicyError) as raised:
        policy.parse(path.read_text())
    assert raised.value.kind is Kind.SYNTAX
    assert all(finding.remedy and finding.line for finding in raised.value.findings)
    golden(path.with_suffix(".error"), f"{raised.value}\n")


@by_name([path for path in INVALID if path.stem not in BEYOND_SCHEMA])
def test_schema_refuses_it_too(path, schema):
    assert not schema.validate(element(path))


SAMPLES = [
    "",
    " ",
    "0",
    "1",
    "5",
    "64",
    "65",
    "1024",
    "10000",
    "10001",
    "3600000000",
    "3600000001",
    "-1",
    "+1",
    "1.5",
    "1e3",
    "0x10",
    "yes",
    "no",
    "auto",
    "none",
    "demote",
    "idle",
    "minimal",
    "background",
    "foreground",
    "guest",
    "never",
    "5s",
    "5ms",
    "1min",
    "5 s",
    "5S",
    "5%",
    "0%",
    "100%",
    "101%",
    "%",
    "512MiB",
    "4KiB",
    "4096B",
    "1TiB",
    "1KB",
    "2-3,6",
    "3,",
    ",3",
    "1-",
    "sda",
    "nbd-10.0.0.5",
    "-sda",
    "_x",
    "a/b",
    "a b",
    "x'y",
    "unknown",
    "1bit",
    "100kbit",
    "10Mbit",
    "1000Gbit",
    "1001Gbit",
    "0Gbit",
    "1Mbps",
    "007",
    "00",
    "52:54:00:00:00:01",
    "06:00",
    "23:59",
    "24:00",
    "12:60",
    "6:00",
    "06:00:00",
]


@pytest.mark.parametrize("name, attribute", [(name, attribute) for name in CHILDREN for attribute in CHILDREN[name]])
def test_schema_and_parser_agree(name, attribute, schema):
    """Whatever the parser accepts for an attribute the schema accepts, and the other way round."""
    base = {"interval": {"us": "1"}, "hold": {"max": "1s"}, "limit": {"inflight": "1"}, "share": {"weight": "1"},
            "uplink": {"rate": "1bit"}, "memory": {"low": "1MiB"}, "job": {"class": "background"},
            "space": {"target": "vda", "reclaim": "yes"}}
    for sample in SAMPLES:
        values = {**base.get(name, {}), attribute: sample}
        if attribute == "budget":
            values["auto"] = "yes"
        xml = etree.Element(f"{{{policy.NAMESPACE}}}policy", {"class": "guest"})
        etree.SubElement(xml, f"{{{policy.NAMESPACE}}}{name}", values)
        beyond = beyond_schema(name, attribute, sample)
        assert parses(xml) == (bool(schema.validate(xml)) and not beyond), (name, values, schema.error_log)


def beyond_schema(name, attribute, sample):
    """Numbers that the schema has no arithmetic for."""
    try:
        CHILDREN[name][attribute].read(sample)
    except BadValue as bad:
        return any(word in str(bad) for word in ("multiple", "within", "less than 1 MiB", "more than"))
    return False


def parses(xml):
    try:
        return policy.parse(etree.tostring(xml, encoding="unicode")) is not None
    except PolicyError:
        return False


def test_both_forms_of_the_schema_are_one(tmp_path):
    """The XML form is what trang made of the compact one as it is now: make -C libvirt schema."""
    compact, form = SCHEMA.with_suffix(".rnc"), SCHEMA.read_text().splitlines()
    assert hashlib.sha256(compact.read_bytes()).hexdigest() in form[1]
    trang = shutil.which("trang")
    if trang:  # Java: too large for a machine that only runs the tests
        subprocess.run([trang, str(compact), str(tmp_path / "made.rng")], check=True, timeout=60)
        assert (tmp_path / "made.rng").read_text().splitlines() == form[:1] + form[2:]


def test_values():
    found = policy.parse(f"""<policy {NAMESPACE} class='guest'>
        <interval us='500'/><interval resource='sda' auto='yes' budget='3%'/>
        <hold max='2s'/><limit request='64KiB' inflight='2'/><share resource='sda' weight='7'/>
        <disk target='vda' class='background' queues='1'/><interface dscp='1,8' resource='eth0'/>
        <memory low='1GiB'/><space target='vda' reclaim='yes'/><space target='vdb' reclaim='no'/></policy>""")
    assert found.class_ is Class.GUEST
    assert found.settings_of("sdb") == {
        "interval-us": 500,
        "max-hold-ms": 2000,
        "max-request-bytes": 65536,
        "max-inflight": 2,
    }
    assert found.settings_of("sda") == {
        "interval-us": 500,
        "max-hold-ms": 2000,
        "max-request-bytes": 65536,
        "max-inflight": 2,
        "auto": True,
        "budget-percent": 3,
        "weight": 7,
    }
    assert found.disks == (DevicePolicy("vda", "auto", Class.BACKGROUND, "1", None, 4),)
    assert found.interfaces == (DevicePolicy(None, "eth0", None, None, "1,8", 4),)
    assert found.memory == policy.Memory(1 << 30)
    assert found.space == (policy.Space("vda", 5),)


def test_no_policy():
    assert policy.parse("<domain><metadata/></domain>") is None
    assert policy.parse("<domain/>") is None


def test_a_policy_elsewhere_is_none_of_ours():
    assert policy.parse(f"<domain><devices><policy {NAMESPACE} class='guest'/></devices></domain>") is None
