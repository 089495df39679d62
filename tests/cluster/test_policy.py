"""What the collection says about a wrong inventory: the exact words, without a host."""

from __future__ import annotations

import importlib.util
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from tests.cluster.place import ROLES
from tests.framework.paths import BUILD

_spec = importlib.util.spec_from_file_location("policy", ROLES.parent / "plugins" / "filter" / "policy.py")
policy = importlib.util.module_from_spec(_spec)  # type: ignore[arg-type]
_spec.loader.exec_module(policy)  # type: ignore[union-attr]

DISK = {"target": "vda", "file": "/srv/mail.img"}


def tenant(**changes: Any) -> dict[str, Any]:
    """A tenant that is right but for the changes."""
    return {"name": "mail", "host": "node1", "class": "foreground", "disks": [DISK], **changes}


BAD = [
    (tenant(**{"class": "backgroud"}), "class is 'backgroud': use foreground, background, guest"),
    (tenant(host="node9"), "host is 'node9': no host of this inventory; use one of node1, node2"),
    (tenant(policy={"interval": "20"}),
     "policy.interval is '20': write a number with a unit, such as 20ms, 500us or 1s, or auto"),
    (tenant(policy={"interval": "2h"}),
     "policy.interval is '2h': write a number with a unit, such as 20ms, 500us or 1s, or auto"),
    (tenant(policy={"interval": "61min"}), "policy.interval is '61min': more than an hour; write less"),
    (tenant(policy={"max_inflight": 65}), "policy.max_inflight is '65': write a number from 1 to 64"),
    (tenant(policy={"max_hold": "5"}), "policy.max_hold is '5': write a time, such as 5s, or never"),
    (tenant(policy={"uplink_rate": "950"}), "policy.uplink_rate is '950': write bits a second with a unit, such as 950Mbit"),
    (tenant(policy={"cpu": "lazy"}), "policy.cpu is 'lazy': use idle, minimal"),
    (tenant(memory="2048"), "memory is '2048': write a size with a unit, such as 2GiB"),
    (tenant(name="a b"), "name is 'a b': write letters, digits and ._-"),
    (tenant(state="paused"), "state is 'paused': use running, stopped, absent"),
    (tenant(disks=[{"target": "vda"}]), "disks[0] has 0 of file, block, nbd: give it exactly one source"),
    (tenant(disks=[DISK, DISK]), "disks has 'vda' twice: give each a name of its own"),
    (tenant(disks=[{**DISK, "target": "sda"}]), "disks[0].target is 'sda': write a name such as vda"),
    (tenant(interfaces=[{"mac": "52:54:00:00:00:0A", "bridge": "br0"}]),
     "interfaces[0].mac is '52:54:00:00:00:0A': write a MAC address in lower case, such as 52:54:00:00:00:01"),
]


@pytest.mark.parametrize("wrong, expected", BAD, ids=[text.split(":")[0] for _, text in BAD])
def test_a_wrong_tenant_is_named(wrong: dict[str, Any], expected: str) -> None:
    """One problem, with the variable, the value and the remedy."""
    where = f"tenant_domains[0] ({wrong['name']})."
    assert policy.tenant_problems([wrong], ["node2", "node1"]) == [where + expected]


def test_a_right_tenant_has_no_problems() -> None:
    """The tenant that the cases above change."""
    assert policy.tenant_problems([tenant()], ["node1", "node2"], [{"name": "sda", "interval": "20ms"}]) == []


def test_the_example_has_no_problems() -> None:
    """The inventory that the README lets its reader copy."""
    folder = ROLES.parents[1] / "examples" / "ansible"
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())["idletime_hosts"]["hosts"]
    variables = yaml.safe_load((folder / "group_vars" / "idletime_hosts.yml").read_text())
    assert policy.tenant_problems(variables["tenant_domains"], hosts, variables["host_resources"]) == []


def test_names_are_unique() -> None:
    """Two tenants, or two resources, of one name."""
    assert policy.tenant_problems([tenant(), tenant()], ["node1"]) == [
        "tenant_domains has 'mail' twice: give each a name of its own"]
    assert policy.resource_problems([{"name": "sda"}, {"name": "sda"}]) == [
        "host_resources has 'sda' twice: give each a name of its own"]


@pytest.mark.parametrize("text, expected", [("20ms", 20000), ("500us", 500), ("1s", 1000000), ("20", None), ("", None)])
def test_times_have_units(text: str, expected: int | None) -> None:
    """Microseconds, or None."""
    assert policy.microseconds(text) == expected


SETTINGS = [
    {},
    {"interval": "auto", "budget_percent": 3, "shadow": True, "max_inflight": 2, "max_request": "64KiB", "max_hold": "5s"},
    {"interval": "5ms", "shadow": False, "uplink_rate": "950Mbit"},
    {"shadow": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_policy_is_what_libvirt_stores(settings: dict[str, Any], tmp_path: Path) -> None:
    """What the template writes, for a tenant and for a resource, obeys the grammar of the policy and has every setting."""
    source = Environment(trim_blocks=True)
    source.filters["idletime.kvm.microseconds"] = policy.microseconds
    full = {**policy.TENANT_DEFAULTS, **tenant(policy=settings, disks=[{**DISK, "resource": "sda"}])}
    text = source.from_string((ROLES / "tenant" / "templates" / "policy.xml.j2").read_text()).render(
        tenant=full, tenant_resources=[{"name": "sda", **settings}])
    file = tmp_path / "policy.xml"
    file.write_text(text)
    schema = ROLES.parents[1] / "libvirt" / "idletime" / "schema" / "idletime-policy-1.rng"
    subprocess.run(["xmllint", "--noout", "--relaxng", str(schema), str(file)], check=True)
    words = {"auto": "auto='yes'", "5ms": "us='5000'", True: "shadow='yes'", False: "shadow='no'"}
    for name, value in settings.items():
        assert text.count(words.get(value, f"'{value}")) == 2, name


@pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir()))
def test_defaults_are_those_of_the_specification(role: str) -> None:
    """Each variable of a role is specified, and its default is the same in both files."""
    folder = ROLES / role
    options = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((folder / "defaults" / "main.yml").read_text())
    assert set(defaults) <= set(options)
    for name, value in defaults.items():
        if "default" in options[name]:
            assert value == options[name]["default"], name
    for name, option in options.items():
        assert option.get("description"), f"{name} has no description"
        assert name in defaults or option.get("required"), f"{name} has no default"


def test_what_the_archive_brings_is_removed() -> None:
    """Role guest knows each file of the agent's archive, which is for guests without dpkg."""
    removed = yaml.safe_load((ROLES / "guest" / "vars" / "main.yml").read_text())["guest_files"]
    with tarfile.open(next((BUILD / "deb").glob("idletime-agent_*.tar.gz"))) as archive:
        assert {member.name.removeprefix(".") for member in archive if not member.isdir()} == set(removed)
