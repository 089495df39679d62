# SPDX-License-Identifier: GPL-2.0-or-later
"""Filters that look at what the inventory says: all problems at once, each with the variable and the remedy. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from typing import Any, Iterable

from ansible_collections.idletime.kvm.plugins.module_utils.element import interval_problem, microseconds, policy_element

CLASSES = ("foreground", "background", "guest")
CONTROLS = ("none", "demote")
CPU_CLASSES = ("idle", "minimal")
ENFORCEMENTS = ("interval", "suspend", "rate", "auto")
JOB_CLASSES = ("foreground", "background")
STATES = ("running", "stopped", "absent")
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"
DEVICE_POLICY = ("resource", "class", "queues", "dscp")
SIZE = r"[0-9]+(B|KiB|MiB|GiB|TiB)"
TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"
RATE = r"[0-9]+[kMG]?bit"
VERSION = re.compile(r" (?:\*\*\*|   ) (\S+) (-?[0-9]+)")
SOURCE = re.compile(r"        +-?[0-9]+ (.+)")
INSTALLED = "/var/lib/dpkg/status"
LOCAL = re.compile(r"127\.|localhost\b|\[?::1\b")

Problems = list[str]


def _interval(where: str, value: Any) -> Problems:
    problem = interval_problem(value)
    return [f"{where} is '{value}': {problem}"] if problem else []


def _matching(where: str, value: Any, pattern: str, example: str) -> Problems:
    good = value is None or re.fullmatch(pattern, str(value))
    return [] if good else [f"{where} is '{value}': write {example}"]


def _choice(where: str, value: Any, choices: Iterable[str]) -> Problems:
    listed = list(choices)
    return [] if value is None or value in listed else [f"{where} is '{value}': use {', '.join(listed)}"]


def _range(where: str, value: Any, low: int, high: int) -> Problems:
    if value is None or (str(value).isdigit() and low <= int(value) <= high):
        return []
    return [f"{where} is '{value}': write a number from {low} to {high}"]


def _duplicates(where: str, names: list[Any]) -> Problems:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    return [f"{where} has '{name}' twice: give each a name of its own" for name in twice]


def _settings(where: str, item: dict[str, Any]) -> Problems:
    """What a resource and a tenant's policy have in common."""
    return (
        _interval(f"{where}.interval", item.get("interval"))
        + _range(f"{where}.budget_percent", item.get("budget_percent"), 1, 100)
        + _range(f"{where}.max_inflight", item.get("max_inflight"), 1, 64)
        + _matching(f"{where}.uplink_rate", item.get("uplink_rate"), RATE, "bits a second with a unit, such as 950Mbit")
    )


def resource_problems(resources: list[dict[str, Any]]) -> Problems:
    """What is wrong with host_resources."""
    found = _duplicates("host_resources", [item.get("name") for item in resources])
    for index, item in enumerate(resources):
        where = f"host_resources[{index}]"
        found += _matching(f"{where}.name", item.get("name"), NAME, "a name such as sda") + _settings(where, item)
    return found


RULE_KEYS = ("class", "policy", "name", "uuid", "title", "metadata")
RULE_CLASSES = (*CLASSES, "none")


def rule_problems(rules: list[dict[str, Any]], default: str = "") -> Problems:
    """What is wrong with host_rules and host_default_class, as far as can be told here: the host itself reads the whole file."""
    found = _choice("host_default_class", default or None, RULE_CLASSES)
    for index, item in enumerate(rules):
        where = f"host_rules[{index}]"
        found += [f"{where} has '{key}': use {', '.join(RULE_KEYS)}" for key in item if key not in RULE_KEYS]
        found += _choice(f"{where}.class", item.get("class"), RULE_CLASSES)
        if ("class" in item) == ("policy" in item):
            found.append(f"{where} has {'both' if 'class' in item else 'neither'} class {'and' if 'class' in item else 'nor'} policy: give it one")
    return found


def _disk(where: str, disk: dict[str, Any]) -> Problems:
    sources = [name for name in ("file", "block", "nbd") if disk.get(name)]
    found = [] if len(sources) == 1 else [f"{where} has {len(sources)} of file, block, nbd: give it exactly one source"]
    return (
        found
        + _matching(f"{where}.target", disk.get("target"), r"[sv]d[a-z]{1,2}", "a name such as vda, or sda")
        + _matching(f"{where}.resource", disk.get("resource"), NAME, "the name of a resource, auto or none")
        + _choice(f"{where}.class", disk.get("class"), CLASSES)
        + _choice(f"{where}.format", disk.get("format"), ("raw", "qcow2"))
        + _matching(f"{where}.size", disk.get("size"), SIZE, "a size with a unit, such as 10GiB")
    )


def _interface(where: str, interface: dict[str, Any]) -> Problems:
    sources = [name for name in ("bridge", "network") if interface.get(name)]
    found = [] if len(sources) == 1 else [f"{where} has {len(sources)} of bridge, network: give it exactly one source"]
    return (
        found
        + _matching(f"{where}.mac", interface.get("mac"), MAC, "a MAC address in lower case, such as 52:54:00:00:00:01")
        + _matching(f"{where}.resource", interface.get("resource"), NAME, "the name of a resource, auto or none")
        + _choice(f"{where}.class", interface.get("class"), CLASSES)
    )


def _policy(where: str, policy: dict[str, Any]) -> Problems:
    return (
        _settings(where, policy)
        + _matching(f"{where}.max_request", policy.get("max_request"), SIZE, "a size with a unit, such as 128KiB")
        + _matching(f"{where}.max_hold", policy.get("max_hold"), r"never|[0-9]+(ms|s|min)", "a time, such as 5s, or never")
        + _range(f"{where}.weight", policy.get("weight"), 1, 10000)
        + _choice(f"{where}.control", policy.get("control"), CONTROLS)
        + _choice(f"{where}.cpu", policy.get("cpu"), CPU_CLASSES)
        + _matching(f"{where}.memory_low", policy.get("memory_low"), SIZE, "a size with a unit, such as 512MiB")
        + _matching(f"{where}.memory_high", policy.get("memory_high"), SIZE, "a size with a unit, such as 512MiB")
        + _choice(f"{where}.enforce", policy.get("enforce"), ENFORCEMENTS)
        + _matching(f"{where}.by", policy.get("by"), TIME, 'a time of day in quotes, such as "06:00"')
        + _choice(f"{where}.jobs", policy.get("jobs"), JOB_CLASSES)
        + _matching(f"{where}.jobs_by", policy.get("jobs_by"), TIME, 'a time of day in quotes, such as "06:00"')
    )


def _tenant(where: str, tenant: dict[str, Any], hosts: list[str]) -> Problems:
    found = _matching(f"{where}.name", tenant.get("name"), NAME, "letters, digits and ._-")
    if tenant.get("host") not in hosts:
        listed = ", ".join(hosts)
        found.append(f"{where}.host is '{tenant.get('host')}': no host of this inventory; use one of {listed}")
    found += _choice(f"{where}.class", tenant.get("class", ""), CLASSES)
    found += _choice(f"{where}.state", tenant.get("state"), STATES)
    found += _matching(f"{where}.memory", tenant.get("memory"), SIZE, "a size with a unit, such as 2GiB")
    found += _range(f"{where}.cpus", tenant.get("cpus"), 1, 1024)
    disks, interfaces = tenant.get("disks") or [], tenant.get("interfaces") or []
    for index, disk in enumerate(disks):
        found += _disk(f"{where}.disks[{index}]", disk)
    for index, interface in enumerate(interfaces):
        found += _interface(f"{where}.interfaces[{index}]", interface)
    found += _duplicates(f"{where}.disks", [disk.get("target") for disk in disks])
    return found + _policy(f"{where}.policy", tenant.get("policy") or {})


def _places(tenant: dict[str, Any]) -> list[str]:
    """The disks of a tenant, each in words. The same path on two hosts may be two files, and an address of a host itself too."""
    host, found = tenant.get("host"), []
    for disk in tenant.get("disks") or []:
        found += [f"{kind} '{posixpath.normpath(str(disk[kind]))}' on {host}" for kind in ("file", "block") if disk.get(kind)]
        if isinstance(nbd := disk.get("nbd"), dict):
            server = f"{nbd.get('address')}:{nbd.get('port', 10809)}"
            here = f" on {host}" if LOCAL.match(server) else ""
            found.append(f"nbd '{nbd.get('name')}' of {server}{here}")
    return found


def _shared(tenants: list[dict[str, Any]]) -> Problems:
    """Disks and MAC addresses that several tenants have: a copied entry in which they were not changed."""
    names: dict[str, set[str]] = {}
    for tenant in tenants:
        if tenant.get("state") != "absent":
            macs = [f"MAC address {mac}" for one in tenant.get("interfaces") or [] if (mac := one.get("mac"))]
            for what in _places(tenant) + macs:
                names.setdefault(what, set()).add(str(tenant.get("name")))
    return [f"tenant_domains has {what} in {', '.join(sorted(whose))}: give each its own"
            for what, whose in names.items() if len(whose) > 1]


def tenant_problems(tenants: list[dict[str, Any]], hosts: Iterable[str]) -> Problems:
    """What is wrong with tenant_domains; hosts are those of the inventory."""
    listed = sorted(hosts)
    found = _duplicates("tenant_domains", [tenant.get("name") for tenant in tenants])
    for index, tenant in enumerate(tenants):
        found += _tenant(f"tenant_domains[{index}] ({tenant.get('name')})", tenant, listed)
    return found + _shared(tenants)


TENANT_DEFAULTS: dict[str, Any] = {
    "state": "running", "autostart": True, "memory": "1GiB", "cpus": 1, "disks": [], "interfaces": [], "policy": {},
}


def tenants_on(tenants: list[dict[str, Any]], host: str) -> list[dict[str, Any]]:
    """The tenants that belong on a host, with the defaults of role tenant's argument specification filled in."""
    full = ({**TENANT_DEFAULTS, **tenant} for tenant in tenants)
    return [tenant for tenant in full if tenant["host"] == host and tenant["state"] != "absent"]


def tenant_policy(tenant: dict[str, Any]) -> dict[str, Any]:
    """The policy of a tenant, as options of the module idletime.kvm.policy."""
    interfaces = [{"target": one["mac"], **{key: one[key] for key in DEVICE_POLICY if key in one}} for one in tenant["interfaces"]]
    disks = [{"target": one["target"], **{key: one[key] for key in DEVICE_POLICY if key in one}} for one in tenant["disks"]]
    return {"class": tenant["class"], "disks": disks, "interfaces": interfaces, **tenant["policy"]}


RESOURCE_KEYS = {"budget_percent": "budget", "max_inflight": "max-inflight", "uplink_rate": "rate", "match": "match"}


def resources_file(resources: list[dict[str, Any]]) -> dict[str, Any]:
    """host_resources as the data of a file of /etc/idletime/resources.d, see idletimed-rules(5)."""
    return {item["name"]: _resource(item) for item in resources}


def _resource(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if item.get("interval") == "auto":
        found["auto"] = True
    elif item.get("interval") is not None:
        found["interval-us"] = microseconds(item["interval"])
    found.update({name: item[key] for key, name in RESOURCE_KEYS.items() if item.get(key) is not None})
    if "budget" in found:
        found["budget"] = f"{found['budget']}%"
    return found


def to_toml(data: dict[str, Any]) -> str:
    """Data as TOML: values, then a table for each dictionary and an entry of an array of tables for each one of a list."""
    lines = [_pair(key, value) for key, value in data.items() if not _tables(value)]
    for key, value in data.items():
        for table in _tables(value):
            head = f"[{_key(key)}]" if isinstance(value, dict) else f"[[{_key(key)}]]"
            lines += ["", head, *(_pair(name, each) for name, each in table.items())]
    return "\n".join(lines).strip("\n") + "\n"


def _tables(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value]
    return value if isinstance(value, list) and value and all(isinstance(one, dict) for one in value) else []


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _pair(key: str, value: Any) -> str:
    return f"{_key(key)} = {_value(value)}"


def _value(value: Any) -> str:
    """JSON's strings, numbers, switches and lists are TOML's; inner dictionaries are inline tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_pair(key, each) for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value if isinstance(value, (bool, int, float)) else str(value))


def packages_elsewhere(installed: list[str], offered: list[str]) -> list[str]:
    """Installed packages that no source of apt has in their version, as NAME=VERSION of what apt would install of what sources
    have: the first of the highest priority, so not that of backports.

    installed: lines "NAME VERSION" of dpkg-query; offered: lines of `apt-cache policy`, the highest version first.
    """
    found: dict[str, dict[str, int]] = {}
    name = version = ""
    for line in offered:
        if line and not line[0].isspace():
            name, version = line.rstrip(":"), ""
        elif match := VERSION.fullmatch(line):
            version, priority = match[1], int(match[2])
        elif version and (match := SOURCE.fullmatch(line)) and match[1] != INSTALLED:
            found.setdefault(name, {})[version] = priority
    pairs = (line.split() for line in installed)
    return [f"{name}={max(there, key=lambda one: there[one])}" for name, version in pairs
            if (there := found.get(name)) and version not in there]


def held_domains(answers: list[dict[str, Any]]) -> list[str]:
    """Domains of which QEMU may hold something, each with what. answers: results of asking them by query-idletime."""
    return [f"{one['item']} ({why})" for one in answers if (why := _held(one))]


def _held(answer: dict[str, Any]) -> str:
    """What is held; a stock QEMU knows no such command, and holds nothing."""
    try:
        resources = json.loads(answer["stdout"]).get("return", [])
    except ValueError:
        return f"its QEMU does not answer: {answer['stderr'].strip() or 'for 40 s'}"
    devices = [one["device"] for resource in resources for one in resource["devices"]
               if one["class"] != "foreground" or one["background-queues"]]
    work = [one["id"] for resource in resources for kind in ("jobs", "exports", "migrations") for one in resource.get(kind, [])]
    return f"background: {', '.join(devices + work)}" if devices or work else ""


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """The filters by name."""
        return {
            "held_domains": held_domains, "microseconds": microseconds, "packages_elsewhere": packages_elsewhere,
            "policy_element": policy_element, "resource_problems": resource_problems, "resources_file": resources_file,
            "rule_problems": rule_problems,
            "tenant_policy": tenant_policy, "tenant_problems": tenant_problems, "tenants_on": tenants_on, "to_toml": to_toml,
        }
