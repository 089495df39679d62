# SPDX-License-Identifier: GPL-2.0-or-later
"""What a flavor asks of spare time, and how idle the hosts are, by Placement's answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .providers import CLASSES

_ASKS = re.compile(rf"^resources[a-zA-Z0-9_-]*:({'|'.join(CLASSES)})$")


def asked(extra_specs: Mapping[str, str]) -> dict[str, int]:
    """Amounts by class; nothing of what is no number, which Nova refuses itself."""
    found: dict[str, int] = {}
    for name, value in extra_specs.items():
        match = _ASKS.match(name)
        if match and str(value).isdecimal() and int(value) > 0:
            found[match[1]] = max(found.get(match[1], 0), int(value))
    return found


def idle(summaries: Mapping[str, Any], amounts: Mapping[str, int]) -> dict[str, float]:
    """By UUID of the compute node: share of the scarcest class that is free in its best provider, 0 to 1.

    An uplink's share is of the largest that any host has free, since kilobits have no natural full.
    """
    free: dict[str, dict[str, float]] = {}
    for uuid, one in summaries.items():
        root = str(one.get("root_provider_uuid") or uuid)
        for class_, counted in one.get("resources", {}).items():
            if class_ in amounts:
                left = max(0.0, float(counted["capacity"]) - float(counted["used"]))
                free.setdefault(root, {})[class_] = max(left, free.get(root, {}).get(class_, 0.0))
    most = {class_: max((each.get(class_, 0.0) for each in free.values()), default=0.0) for class_ in amounts}
    return {root: min((each.get(class_, 0.0) / (most[class_] or 1.0) for class_ in amounts), default=0.0)
            for root, each in free.items()}
