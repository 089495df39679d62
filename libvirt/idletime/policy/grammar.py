# SPDX-License-Identifier: GPL-2.0-or-later
"""Which elements and attributes the policy has: the table behind the parser. The schema says the same (tested)."""

from __future__ import annotations

from collections.abc import Mapping

from . import units
from .units import Form

POLICY: Mapping[str, Form] = {"class": units.CLASS, "by": units.TIME, "enforce": units.ENFORCE}

CHILDREN: Mapping[str, Mapping[str, Form]] = {
    "interval": {"us": units.INTERVAL, "auto": units.one_of("yes", "no"), "budget": units.BUDGET,
                 "shadow": units.one_of("yes", "no"), "resource": units.RESOURCE},
    "disk": {"target": units.TARGET, "resource": units.RESOURCE, "class": units.CLASS, "queues": units.QUEUES},
    "interface": {"target": units.TARGET, "resource": units.RESOURCE, "class": units.CLASS, "queues": units.QUEUES,
                  "dscp": units.DSCP},
    "hold": {"max": units.DURATION, "resource": units.RESOURCE},
    "limit": {"inflight": units.number(1, 64, "a whole number of requests"), "request": units.REQUEST,
              "resource": units.RESOURCE},
    "share": {"weight": units.number(1, 10000, "a whole number"), "resource": units.RESOURCE},
    "uplink": {"rate": units.RATE, "resource": units.RESOURCE},
    "guest": {"control": units.one_of("none", "demote")},
    "cpu": {"class": units.one_of("idle", "minimal")},
    "memory": {"low": units.MEMORY, "high": units.MEMORY},
    "job": {"class": units.one_of("background", "foreground"), "by": units.TIME,
            "diverging": units.one_of("wait", "foreground")},
    "space": {"target": units.TARGET, "reclaim": units.one_of("yes", "no")},
}

# Attributes without which an element says nothing: one of each tuple must be there.
REQUIRED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "policy": (("class",),),
    "interval": (("us", "auto", "shadow", "budget"),),  # budget alone: what it lacks is said elsewhere
    "hold": (("max",),),
    "limit": (("inflight", "request"),),
    "share": (("weight",),),
    "uplink": (("rate",),),
    "guest": (("control",),),
    "cpu": (("class",),),
    "memory": (("low",),),
    "job": (("class",),),
    "space": (("target",), ("reclaim",)),
}

# Attributes of earlier versions: what to write instead.
GONE: Mapping[tuple[str, str], str] = {
    ("memory", "soft-limit"): "write high='{0}' for it, and low='...' for what the domain keeps at least: "
                              "<memory low='...' high='{0}'/>",
}

# What tells several elements of one name apart; an element that is not here may stand once.
KEYS: Mapping[str, str] = {"interval": "resource", "hold": "resource", "limit": "resource", "share": "resource",
                           "uplink": "resource", "disk": "target", "interface": "target", "space": "target"}

# Attribute -> property of idletime-resource.
SETTINGS: Mapping[tuple[str, str], str] = {
    ("interval", "us"): "interval-us",
    ("interval", "auto"): "auto",
    ("interval", "budget"): "budget-percent",
    ("interval", "shadow"): "shadow",
    ("hold", "max"): "max-hold-ms",
    ("limit", "inflight"): "max-inflight",
    ("limit", "request"): "max-request-bytes",
    ("share", "weight"): "weight",
    ("uplink", "rate"): "rate-bps",
}

# Properties that are on or off; in the policy yes or no.
SWITCHES = ("auto", "shadow")
