# SPDX-License-Identifier: GPL-2.0-or-later
"""Filters that look at what the inventory says: all problems at once, each with the variable and the remedy. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable

DOCUMENTATION = r"""
name: resource_problems
short_description: What is wrong with the settings of resources
description:
  - Returns a list of sentences, each with the variable, the value and the remedy; empty when all is right.
options:
  _input:
    description: A list as in the variable host_resources.
    type: list
    elements: dict
    required: true
"""

CLASSES = ("foreground", "background", "guest")
CONTROLS = ("none", "demote")
CPU_CLASSES = ("idle", "minimal")
STATES = ("running", "stopped", "absent")
DURATION_US = {"us": 1, "ms": 1000, "s": 1_000_000, "min": 60_000_000}
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"
SIZE = r"[0-9]+(B|KiB|MiB|GiB|TiB)"
RATE = r"[0-9]+[kMG]?bit"

Problems = list[str]


def microseconds(text: Any) -> int | None:
    """'20ms' -> 20000; None where it is no number with a unit."""
    match = re.fullmatch(r"([0-9]+)(us|ms|s|min)", str(text))
    return int(match.group(1)) * DURATION_US[match.group(2)] if match else None


def _interval(where: str, value: Any) -> Problems:
    if value is None or value == "auto":
        return []
    found = microseconds(value)
    if found is None:
        return [f"{where} is '{value}': write a number with a unit, such as 20ms, 500us or 1s, or auto"]
    return [] if found <= 3_600_000_000 else [f"{where} is '{value}': more than an hour; write less"]


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
        + _matching(f"{where}.max_request", item.get("max_request"), SIZE, "a size with a unit, such as 128KiB")
        + _matching(f"{where}.max_hold", item.get("max_hold"), r"never|[0-9]+(ms|s|min)", "a time, such as 5s, or never")
        + _matching(f"{where}.uplink_rate", item.get("uplink_rate"), RATE, "bits a second with a unit, such as 950Mbit")
    )


def resource_problems(resources: list[dict[str, Any]]) -> Problems:
    """What is wrong with host_resources."""
    found = _duplicates("host_resources", [item.get("name") for item in resources])
    for index, item in enumerate(resources):
        where = f"host_resources[{index}]"
        found += _matching(f"{where}.name", item.get("name"), NAME, "a name such as sda") + _settings(where, item)
    return found


def _disk(where: str, disk: dict[str, Any]) -> Problems:
    sources = [name for name in ("file", "block", "nbd") if disk.get(name)]
    found = [] if len(sources) == 1 else [f"{where} has {len(sources)} of file, block, nbd: give it exactly one source"]
    return (
        found
        + _matching(f"{where}.target", disk.get("target"), r"vd[a-z]{1,2}", "a name such as vda")
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
    limit = policy.get("memory_soft_limit")
    return (
        _settings(where, policy)
        + _range(f"{where}.weight", policy.get("weight"), 1, 10000)
        + _choice(f"{where}.control", policy.get("control"), CONTROLS)
        + _choice(f"{where}.cpu", policy.get("cpu"), CPU_CLASSES)
        + _matching(f"{where}.memory_soft_limit", limit, SIZE, "a size with a unit, such as 512MiB")
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


def tenant_problems(
    tenants: list[dict[str, Any]], hosts: Iterable[str], resources: list[dict[str, Any]] | None = None
) -> Problems:
    """What is wrong with tenant_domains; hosts are those of the inventory, resources as in host_resources."""
    listed = sorted(hosts)
    found = _duplicates("tenant_domains", [tenant.get("name") for tenant in tenants])
    for index, tenant in enumerate(tenants):
        found += _tenant(f"tenant_domains[{index}] ({tenant.get('name')})", tenant, listed)
    return found + resource_problems(resources or [])


TENANT_DEFAULTS: dict[str, Any] = {
    "state": "running", "autostart": True, "memory": "1GiB", "cpus": 1, "disks": [], "interfaces": [], "policy": {},
}


def tenants_on(tenants: list[dict[str, Any]], host: str) -> list[dict[str, Any]]:
    """The tenants that belong on a host, with the defaults of role tenant's argument specification filled in."""
    full = ({**TENANT_DEFAULTS, **tenant} for tenant in tenants)
    return [tenant for tenant in full if tenant["host"] == host and tenant["state"] != "absent"]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """The filters by name."""
        return {
            "microseconds": microseconds, "resource_problems": resource_problems,
            "tenant_problems": tenant_problems, "tenants_on": tenants_on,
        }
