"""What the collection says about a wrong inventory: the exact words, without a host."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import inventory
from tests.cluster.place import COLLECTIONS, ROLES

inventory.link_collection()
sys.path.insert(0, str(COLLECTIONS))
policy = importlib.import_module("ansible_collections.idletime.kvm.plugins.filter.inventory")
module = importlib.import_module("ansible_collections.idletime.kvm.plugins.modules.policy")

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
    (tenant(disks=[{**DISK, "target": "hda"}]), "disks[0].target is 'hda': write a name such as vda, or sda"),
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
    assert policy.tenant_problems([tenant()], ["node1", "node2"]) == []


def test_the_example_has_no_problems() -> None:
    """The inventory that the README lets its reader copy."""
    folder = ROLES.parents[1] / "examples" / "ansible"
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())["idletime_hosts"]["hosts"]
    variables = yaml.safe_load((folder / "group_vars" / "idletime_hosts.yml").read_text())
    assert policy.tenant_problems(variables["tenant_domains"], hosts) == []
    assert policy.resource_problems(variables["host_resources"]) == []


def test_names_are_unique() -> None:
    """Two tenants, or two resources, of one name."""
    assert policy.tenant_problems([tenant(), tenant()], ["node1"]) == [
        "tenant_domains has 'mail' twice: give each a name of its own"]
    assert policy.resource_problems([{"name": "sda"}, {"name": "sda"}]) == [
        "host_resources has 'sda' twice: give each a name of its own"]


NBD = {"target": "vdb", "nbd": {"name": "x", "address": "192.0.2.1"}}
INNER = {"target": "vdb", "nbd": {"name": "x", "address": "127.0.0.1", "port": 10810}}
NIC = {"mac": "52:54:00:00:00:01", "bridge": "br0"}


@pytest.mark.parametrize("ours, theirs, said", [
    ({}, {}, ["file '/srv/mail.img' on node1"]),
    ({"disks": [{"target": "vda", "block": "/dev//sdb"}]}, {"disks": [{"target": "sda", "block": "/dev/sdb"}]},
     ["block '/dev/sdb' on node1"]),
    ({"disks": [NBD]}, {"disks": [NBD], "host": "node2"}, ["nbd 'x' of 192.0.2.1:10809"]),
    ({"disks": [], "interfaces": [NIC]}, {"disks": [], "interfaces": [NIC], "host": "node2"}, ["MAC address 52:54:00:00:00:01"]),
    ({}, {"host": "node2"}, []),
    ({"disks": [INNER]}, {"disks": [INNER], "host": "node2"}, []),
    ({}, {"state": "absent"}, []),
])
def test_no_two_tenants_have_a_disk_or_an_address(ours: dict[str, Any], theirs: dict[str, Any], said: list[str]) -> None:
    """A copied entry in which only the name was changed. A path of another host is another file, and so is its own server."""
    found = policy.tenant_problems([tenant(**ours), tenant(name="copy", **theirs)], ["node1", "node2"])
    assert found == [f"tenant_domains has {what} in copy, mail: give each its own" for what in said]


@pytest.mark.parametrize("text, expected", [("20ms", 20000), ("500us", 500), ("1s", 1000000), ("20", None), ("", None)])
def test_times_have_units(text: str, expected: int | None) -> None:
    """Microseconds, or None."""
    assert policy.microseconds(text) == expected


SETTINGS = [
    {},
    {"interval": "auto", "budget_percent": 3, "shadow": True, "max_inflight": 2, "max_request": "64KiB", "max_hold": "5s"},
    {"interval": "5ms", "shadow": False, "uplink_rate": "950Mbit"},
    {"shadow": True, "control": "demote", "cpu": "idle", "memory_low": "256MiB", "memory_high": "512MiB", "weight": 50},
    {"by": "05:00", "enforce": "suspend", "jobs": "background", "jobs_by": "06:00"},
]


def valid(element: str, folder: Path) -> None:
    """It obeys the grammar of the policy."""
    file = folder / "policy.xml"
    file.write_text(element)
    schema = ROLES.parents[1] / "libvirt" / "idletime" / "schema" / "idletime-policy-1.rng"
    subprocess.run(["xmllint", "--noout", "--relaxng", str(schema), str(file)], check=True)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_policy_is_what_libvirt_stores(settings: dict[str, Any], tmp_path: Path) -> None:
    """What a tenant's policy comes to obeys the grammar and has every setting."""
    full = {**policy.TENANT_DEFAULTS, **tenant(**{"class": "background"}, policy=settings, disks=[{**DISK, "resource": "sda", "queues": "2-3"}])}
    text = policy.policy_element(policy.tenant_policy(full))
    valid(text, tmp_path)
    assert '<idletime:disk target="vda" resource="sda" queues="2-3"/>' in text
    words = {"auto": 'auto="yes"', "5ms": 'us="5000"', True: 'shadow="yes"', False: 'shadow="no"', 3: 'budget="3%"',
             "background": '<idletime:job class="background"'}
    for name, value in settings.items():
        assert text.count(words.get(value, f'"{value}"')) == 1, name


def test_an_interface_is_named_by_its_address(tmp_path: Path) -> None:
    """A tenant's interfaces have no name but their MAC address."""
    full = {**policy.TENANT_DEFAULTS, **tenant(interfaces=[
        {"mac": "52:54:00:00:00:01", "bridge": "br0", "class": "guest", "dscp": "1,8"}])}
    text = policy.policy_element(policy.tenant_policy(full))
    valid(text, tmp_path)
    assert '<idletime:interface target="52:54:00:00:00:01" class="guest" dscp="1,8"/>' in text


def test_scratch_disks_are_one_element_each(tmp_path: Path) -> None:
    """And none where there are none."""
    full = {**policy.TENANT_DEFAULTS, **tenant(policy={"scratch_disks": ["vdb", "vdc"]})}
    text = policy.policy_element(policy.tenant_policy(full))
    valid(text, tmp_path)
    assert '<idletime:space target="vdb" reclaim="yes"/>' in text and '<idletime:space target="vdc" reclaim="yes"/>' in text


def test_resources_become_a_file_of_the_host() -> None:
    """As idletimed-rules(5) wants it; the file is TOML, whatever the strings are."""
    data = policy.resources_file([
        {"name": "disk0", "interval": "20ms", "match": {"host": "127.0.0.1:*"}},
        {"name": "eth0.5", "interval": "auto", "budget_percent": 10, "max_inflight": 8, "uplink_rate": "1Gbit"}])
    assert data == {"disk0": {"interval-us": 20000, "match": {"host": "127.0.0.1:*"}},
                    "eth0.5": {"auto": True, "budget": "10%", "max-inflight": 8, "rate": "1Gbit"}}
    assert tomllib.loads(policy.to_toml(data)) == data


def test_rules_become_a_file_of_the_host() -> None:
    """Switches, numbers, lists, text of several lines, tables in tables."""
    data = {"default": "foreground", "strict": False, "seconds": 3, "namespaces": {"my": "urn:my"},
            "rule": [{"name": ["ci-*", 'a"b\\'], "class": "background"},
                     {"policy": "<policy>\n</policy>", "metadata": [{"xpath": "a/@b", "value": ["x"]}, {"xpath": "c"}]}]}
    assert tomllib.loads(policy.to_toml(data)) == data
    assert tomllib.loads(policy.to_toml({})) == {}


POLICY = """\
qemu-system-x86:
  Installed: 1:10.0+idletime5
  Candidate: 1:10.0+idletime5
  Version table:
 *** 1:10.0+idletime5 100
        100 /var/lib/dpkg/status
     1:10.0.2+ds-1~bpo12+1 100
        100 http://deb.debian.org/debian bookworm-backports/main amd64 Packages
     1:7.2+dfsg-7+deb12u16 500
        500 http://deb.debian.org/debian-security bookworm-security/main amd64 Packages
     1:7.2+dfsg-7+deb12u15 500
        500 http://deb.debian.org/debian bookworm/main amd64 Packages
qemu-utils:
  Installed: 1:7.2+dfsg
  Candidate: 1:7.2+dfsg
  Version table:
 *** 1:7.2+dfsg 500
        500 file:/srv Packages
        100 /var/lib/dpkg/status
seabios:
  Installed: 1.16.3
  Candidate: 1.16.3
  Version table:
 *** 1.16.3 -1
        100 /var/lib/dpkg/status
     1.16.2 990
        990 http://deb.debian.org/debian bookworm/main amd64 Packages
qemu-mine:
  Installed: 3
  Candidate: 3
  Version table:
 *** 3 100
        100 /var/lib/dpkg/status
"""


def test_the_distributions_packages_come_back() -> None:
    """What no source has in the version that is installed is replaced by what apt would take of what sources have, which is not
    backports'; the rest stays."""
    installed = ["qemu-system-x86 1:10.0+idletime5", "qemu-utils 1:7.2+dfsg", "seabios 1.16.3", "qemu-mine 3"]
    assert policy.packages_elsewhere(installed, POLICY.splitlines()) == [
        "qemu-system-x86=1:7.2+dfsg-7+deb12u16", "seabios=1.16.2"]


def test_the_evictors_settings_are_its_programs() -> None:
    """What role nova takes for a setting."""
    names = re.findall(r"cfg[.]\w+Opt\(\"(\w+)\"", (ROLES.parents[1] / "engine/idletime_openstack/evict_settings.py").read_text())
    known = yaml.safe_load((ROLES / "nova/vars/main.yml").read_text())["nova_eviction_settings"]
    assert ["background_flavors", *known] == [name for name in names if name != "dry-run"]


def told(name: str, output: str, error: str = "") -> dict[str, Any]:
    """What came of asking a domain's QEMU."""
    return {"item": name, "stdout": output, "stderr": error}


def resource(class_: str, queues: str = "", **work: Any) -> str:
    """A QEMU's answer, with one device."""
    device = {"device": "virtio-disk0", "class": class_, "background-queues": queues}
    return json.dumps({"return": [{"id": "r", "devices": [device], **work}], "id": "libvirt-3"})


def test_what_may_be_held_is_named() -> None:
    """Background devices, queues and jobs, and who does not answer; a stock QEMU and a foreground device hold nothing."""
    free = [told("stock", '{"id":"libvirt-1","error":{"class":"CommandNotFound","desc":"..."}}\n'),
            told("left", '{"return":[],"id":"libvirt-2"}'), told("front", resource("foreground", jobs=[], exports=[], migrations=[]))]
    assert policy.held_domains(free) == []
    assert policy.held_domains([
        *free, told("a", resource("background")), told("b", resource("guest")), told("c", resource("foreground", "2-3")),
        told("d", resource("foreground", jobs=[{"id": "backup-vda"}])), told("e", "", "error: Timed out\n"), told("f", "")]) == [
        "a (background: virtio-disk0)", "b (background: virtio-disk0)", "c (background: virtio-disk0)",
        "d (background: backup-vda)", "e (its QEMU does not answer: error: Timed out)", "f (its QEMU does not answer: for 40 s)"]


PARAMS = {"name": ["ci-*", "-x"], "uri": None, "wait": True}


def test_the_module_calls_the_hosts_command() -> None:
    """Names cannot be taken for options; check mode asks only."""
    assert module.words("virt-idletime", "mark", PARAMS, False) == [
        "virt-idletime", "mark", "--json", "--policy", "/proc/self/fd/0", "--", "ci-*", "-x"]
    assert module.words("v", "unmark", {**PARAMS, "wait": False, "uri": "test:///default"}, True) == [
        "v", "--connect", "test:///default", "unmark", "--json", "--dry-run", "--no-wait", "--", "ci-*", "-x"]


def answer(name: str, changed: bool, before: str | None, after: str | None) -> dict[str, Any]:
    """What the command says of a domain."""
    return {"name": name, "uuid": f"uuid-{name}", "changed": changed, "class": "none", "in_force": True, "devices": [],
            "when": "now", "problems": [], "policy_before": before, "policy_after": after}


def test_the_module_merges_what_two_commands_say() -> None:
    """unmark takes away what disable then does not find; a domain of the other kind only disable changes."""
    found = module.merged([answer("b", True, "<policy/>", None), answer("b", False, None, None), answer("a", True, "<p/>", None)])
    assert [(one["name"], one["changed"], one["policy_before"]) for one in found] == [("a", True, "<p/>"), ("b", True, "<policy/>")]
    result = module.results(found)
    assert result["changed"] and result["diff"][1] == {
        "before_header": "b", "after_header": "b", "before": "<policy/>\n", "after": ""}
    assert module.results([answer("a", False, "<p/>", "<p/>")])["diff"] == []


def test_the_modules_documentation_is_its_specification() -> None:
    """Each option is described, and nothing else is."""
    options = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert set(options) == set(module.arguments())
    assert set(module.POLICY_OPTIONS) == set(options) - {"name", "state", "wait", "uri"}


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
