# SPDX-License-Identifier: GPL-2.0-or-later
"""Which resources the gauge looks at: those that VMs use, and those of resources.d that bear the name of a disk or an
interface of this host, so that a host without a VM has a gauge, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ..conf.resources import Resources
from ..facts import DISK, INTERFACE
from ..hostd.watched import Part
from ..resolve import block, net
from ..resolve.tree import Tree
from . import kernel


@dataclass(frozen=True)
class Place:
    """A resource. path: of its arena. device: /dev/sda or eth0, "" where it is none or several. rate_bps: of an uplink, None is
    unknown."""

    resource: str
    path: str
    kind: str
    device: str = ""
    rate_bps: int | None = None


def places(parts: Iterable[Part], said: Resources, run_dir: str, tree: Tree) -> tuple[Place, ...]:
    """By name."""
    kinds: dict[str, tuple[str, str]] = {}
    devices: dict[str, set[str]] = {}
    for use in (use for part in parts for use in part.uses):
        kinds.setdefault(use.resource, (use.kind, use.path))
        devices.setdefault(use.resource, set()).update(use.host)
    for one in said.all:
        found = _device(tree, one.name)
        if found is None:
            continue
        kinds.setdefault(one.name, (found[0], os.path.join(run_dir, one.name)))
        # What a VM uses by match.path or match.source has no device of its own: the name says it, as where no VM is.
        if not devices.get(one.name):
            devices[one.name] = {found[1]}
    rates = {one.name: one.settings.get("rate-bps") for one in said.all}
    made = []
    for name, (kind, path) in sorted(kinds.items()):
        device = next(iter(devices[name])) if len(devices[name]) == 1 else ""
        rate = None if kind == DISK else int(rates.get(name) or 0) or kernel.rate_bps(tree, device)
        made.append(Place(name, path, kind, device, rate))
    return tuple(made)


def _device(tree: Tree, name: str) -> tuple[str, str] | None:
    """Kind and device that a name is of."""
    if "/" in name:
        return None
    if tree.exists(f"{block.CLASS}/{name}"):
        return DISK, f"/dev/{name}"
    return (INTERFACE, name) if tree.exists(f"{net.CLASS}/{name}") else None
