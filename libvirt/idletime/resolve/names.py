# SPDX-License-Identifier: GPL-2.0-or-later
"""Names of resources. A name is a file name and part of an object id in QEMU: letters, digits, ".", "_", "-". Pure."""

from __future__ import annotations

import hashlib
import re

MAX = 63


def resource_name(*parts: str) -> str:
    """The parts joined by "-"; what a name cannot have becomes "_". A long one ends in a hash of the whole."""
    text = "-".join(part for part in parts if part)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("_.-") or "unnamed"
    if len(name) <= MAX and name == text.strip("_.-"):
        return name
    if len(name) <= MAX - 9:
        return name
    return f"{name[:MAX - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
