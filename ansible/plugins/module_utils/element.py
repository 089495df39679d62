# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy as Ansible writes it -> the policy element of domain XML, see idletime-policy(5). Pure.

Only the form is changed here. What a value may be is the business of virt-idletime, which says so with a remedy.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import quoteattr

NAMESPACE = "urn:idletime:policy:1"

DURATION_US = {"us": 1, "ms": 1000, "s": 1000000, "min": 60000000}

# Attributes of a device, as the element and as Ansible call them.
DEVICE = ("target", "resource", "class", "queues", "dscp")


def microseconds(text):
    """'20ms' -> 20000; None where it is no number with a unit."""
    match = re.fullmatch(r"([0-9]+)(us|ms|s|min)", str(text))
    return int(match.group(1)) * DURATION_US[match.group(2)] if match else None


def interval_problem(value):
    """What is wrong with an interval, or None."""
    if value is None or value == "auto":
        return None
    found = microseconds(value)
    if found is None:
        return "write a number with a unit, such as 20ms, 500us or 1s, or auto"
    return None if found <= 3600000000 else "more than an hour; write less"


def _interval(policy):
    value = policy.get("interval")
    found = {"shadow": policy.get("shadow"), "budget": _with(policy.get("budget_percent"), "%")}
    if value == "auto":
        found["auto"] = True
    elif value is not None:
        found["us"] = microseconds(value)
    return found


def _with(value, unit):
    return None if value is None else "%s%s" % (value, unit)


def _children(policy):
    """(element, attributes); an attribute without a value is left out, and so is an element without attributes."""
    yield "interval", _interval(policy)
    yield "limit", {"inflight": policy.get("max_inflight"), "request": policy.get("max_request")}
    yield "hold", {"max": policy.get("max_hold")}
    yield "uplink", {"rate": policy.get("uplink_rate")}
    for kind in ("disk", "interface"):
        for device in policy.get(kind + "s") or []:
            yield kind, dict((name, device.get(name)) for name in DEVICE)
    yield "share", {"weight": policy.get("weight")}
    yield "guest", {"control": policy.get("control")}
    yield "cpu", {"class": policy.get("cpu")}
    yield "memory", {"low": policy.get("memory_low"), "high": policy.get("memory_high")}
    yield "job", {"class": policy.get("jobs"), "by": policy.get("jobs_by")}
    for target in policy.get("scratch_disks") or []:
        yield "space", {"target": target, "reclaim": True}


def _attributes(values):
    words = dict((name, {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value))
                 for name, value in values.items() if value is not None)
    return "".join(" %s=%s" % (name, quoteattr(word)) for name, word in words.items())


def policy_element(policy):
    """The element as text, one child a line."""
    own = {"class": policy["class"], "by": policy.get("by"), "enforce": policy.get("enforce")}
    lines = ["<idletime:policy xmlns:idletime='%s'%s>" % (NAMESPACE, _attributes(own))]
    for name, values in _children(policy):
        attributes = _attributes(values)
        if attributes:
            lines.append("  <idletime:%s%s/>" % (name, attributes))
    return "\n".join([*lines, "</idletime:policy>"])
