# SPDX-License-Identifier: GPL-2.0-or-later
"""The gauge of a host as child resource providers of its compute node, and what Placement lacks of them. Pure.

A provider is never made smaller than what servers hold of it, as Placement lets nothing leave a provider that has promised
more than it has; and it takes nothing new then. Whoever is too much is evicted by the gauge, not by Placement.

    spare 40 %, held 10 %    total 40                 30 are free
    spare 40 %, held 60 %    total 60                 none is free
    spare  0 %, nothing held total  1, reserved 1     none is free: Placement knows no total of 0
    unknown                  as spare 0 %
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .gauge import Resource

DISK, UPLINK = "CUSTOM_IDLETIME_DISK_PERCENT", "CUSTOM_IDLETIME_UPLINK_KBPS"
CLASSES = (DISK, UPLINK)
TRAIT = "CUSTOM_IDLETIME_"
WHOLE = f"{TRAIT}WHOLE"
_LONGEST = 255
"""Of names of traits."""
_MOST = 0x7FFFFFFF
"""Of amounts."""


@dataclass(frozen=True)
class Provider:
    """One that should be there. spare: in the unit of its class."""

    name: str
    uuid: str
    class_: str
    spare: int
    traits: frozenset[str]


@dataclass(frozen=True)
class Present:
    """One that is there. used: what allocations hold of its class; other: that they hold of other classes too."""

    name: str
    uuid: str
    generation: int
    inventories: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    used: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Make:
    """Make a provider; inventory and traits come at the next look."""

    name: str
    uuid: str


@dataclass(frozen=True)
class SetInventory:
    uuid: str
    generation: int
    class_: str
    inventory: Mapping[str, float]


@dataclass(frozen=True)
class SetTraits:
    uuid: str
    generation: int
    traits: frozenset[str]


@dataclass(frozen=True)
class Remove:
    """Of a resource that is there no more, and of which nobody holds anything."""

    name: str
    uuid: str


Step = Make | SetInventory | SetTraits | Remove


def prefix(host: str) -> str:
    """With which the names of our providers begin; others' children of the compute node are left alone."""
    return f"{host}:idletime:"


def wanted(host: str, root: str, found: Iterable[Resource]) -> tuple[Provider, ...]:
    """root: UUID of the compute node's provider. A resource with the same name has the same UUID, whoever makes it."""
    made = []
    for one in found:
        name = prefix(host) + one.name
        class_ = DISK if one.kind == "disk" else UPLINK
        traits = {f"{TRAIT}{'DISK' if class_ == DISK else 'UPLINK'}", trait_of(one.name), *([WHOLE] if one.whole else [])}
        made.append(Provider(name, str(uuid.uuid5(uuid.UUID(root), name)), class_, _spare(class_, one), frozenset(traits)))
    return tuple(made)


def trait_of(resource: str) -> str:
    """By which a flavor asks for one resource of several."""
    return f"{TRAIT}ON_{re.sub(r'[^A-Z0-9]+', '_', resource.upper())}"[:_LONGEST]


def _spare(class_: str, one: Resource) -> int:
    if one.steady is None:
        return 0
    if class_ == DISK:
        return round(100 * one.steady)
    return min(round(one.steady * (one.rate_bps or 0) / 1000), _MOST)


def inventory(spare: int, used: int) -> dict[str, float]:
    total = max(spare, used)
    return {"total": max(total, 1), "reserved": 0 if total else 1, "min_unit": 1, "max_unit": max(total, 1), "step_size": 1,
            "allocation_ratio": 1.0}


def steps(want: Sequence[Provider], there: Sequence[Present]) -> list[Step]:
    """What to do, in order; one change of a provider at a time, as each one brings it another generation."""
    names = {one.name: one for one in there}
    found: list[Step] = []
    for one in want:
        present = names.pop(one.name, None)
        found += [Make(one.name, one.uuid)] if present is None else _change(one, present)
    for present in names.values():
        found += _retire(present)
    return found


def _change(one: Provider, there: Present) -> list[Step]:
    if not one.traits <= there.traits or {each for each in there.traits - one.traits if each.startswith(TRAIT)}:
        kept = {each for each in there.traits if not each.startswith(TRAIT)}
        return [SetTraits(there.uuid, there.generation, one.traits | kept)]
    return _differs(there, one.class_, inventory(one.spare, there.used.get(one.class_, 0)))


def _retire(there: Present) -> list[Step]:
    """Of a resource that is gone: as one without spare time while servers hold some of it."""
    if not any(there.used.values()):
        return [Remove(there.name, there.uuid)]
    return [step for class_ in CLASSES if there.used.get(class_) for step in
            _differs(there, class_, inventory(0, there.used[class_]))]


def _differs(there: Present, class_: str, want: Mapping[str, float]) -> list[Step]:
    now = there.inventories.get(class_, {})
    same = all(now.get(key) == value for key, value in want.items())
    return [] if same else [SetInventory(there.uuid, there.generation, class_, want)]
