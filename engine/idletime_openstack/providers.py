# SPDX-License-Identifier: GPL-2.0-or-later
"""The gauge of a host as child resource providers of its compute node, and what Placement lacks of them. Pure.

A provider is never made smaller than what servers hold of it, as Placement lets nothing leave a provider that has promised
more than it has; and it takes nothing new then. Whoever is too much is evicted by the gauge, not by Placement.

    spare 40 %, held 10 %    total 40                 30 are free
    spare 40 %, held 60 %    total 60                 none is free
    spare  0 %, nothing held total  1, reserved 1     none is free: Placement knows no total of 0
    unknown                  as spare 0 %

Beside what may be held the provider has what the gauge says itself, which nobody holds: CUSTOM_IDLETIME_GAUGE, total all of the
resource, reserved what the foreground takes. It is missing where nothing is known, and is written anew each RENEW_SECONDS, so
that who reads it knows by its time of change how old it is.

A provider never goes: nova-compute knows its tree by heart for five minutes (resource_provider_association_refresh), asks each
provider of it for allocations, and starts no server while one of them is not found. Of a resource that is gone the provider
stays, without inventory and traits.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .gauge import Resource

DISK, UPLINK = "CUSTOM_IDLETIME_DISK_PERCENT", "CUSTOM_IDLETIME_UPLINK_KBPS"
CLASSES = (DISK, UPLINK)
GAUGE = "CUSTOM_IDLETIME_GAUGE"
RENEW_SECONDS = 60.0
TRAIT = "CUSTOM_IDLETIME_"
WHOLE = f"{TRAIT}WHOLE"
KINDS = {f"{TRAIT}DISK": DISK, f"{TRAIT}UPLINK": UPLINK}
"""Traits that say what a provider of ours is."""
_MARK = ":idletime:"
_LONGEST = 255
"""Of names of traits."""
_MOST = 0x7FFFFFFF
"""Of amounts."""


@dataclass(frozen=True)
class Provider:
    """One that should be there. spare, full: in the unit of its class; full is 0 where the gauge knows nothing."""

    name: str
    uuid: str
    class_: str
    spare: int
    traits: frozenset[str]
    full: int = 0


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
    """All inventories of a provider, by class."""

    uuid: str
    generation: int
    inventories: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class SetTraits:
    uuid: str
    generation: int
    traits: frozenset[str]


Step = Make | SetInventory | SetTraits


def prefix(host: str) -> str:
    """With which the names of our providers begin; others' children of the compute node are left alone."""
    return f"{host}{_MARK}"


def resource_of(name: str) -> str:
    """The resource of a provider of ours; "" is none of ours."""
    return name.partition(_MARK)[2]


def wanted(host: str, root: str, found: Iterable[Resource]) -> tuple[Provider, ...]:
    """root: UUID of the compute node's provider. A resource with the same name has the same UUID, whoever makes it."""
    made = []
    for one in found:
        name = prefix(host) + one.name
        class_ = DISK if one.kind == "disk" else UPLINK
        kind = next(trait for trait, of in KINDS.items() if of == class_)
        traits = {kind, trait_of(one.name), *([WHOLE] if one.whole else [])}
        full = _full(class_, one)
        made.append(Provider(name, str(uuid.uuid5(uuid.UUID(root), name)), class_, round(full * (one.steady or 0.0)),
                             frozenset(traits), 0 if one.steady is None else full))
    return tuple(made)


def trait_of(resource: str) -> str:
    """By which a flavor asks for one resource of several."""
    return f"{TRAIT}ON_{re.sub(r'[^A-Z0-9]+', '_', resource.upper())}"[:_LONGEST]


def _full(class_: str, one: Resource) -> int:
    return 100 if class_ == DISK else min((one.rate_bps or 0) // 1000, _MOST)


def inventory(spare: int, used: int) -> dict[str, float]:
    total = max(spare, used)
    return {"total": max(total, 1), "reserved": 0 if total else 1, "min_unit": 1, "max_unit": max(total, 1), "step_size": 1,
            "allocation_ratio": 1.0}


def gauge(spare: int, full: int) -> dict[str, float]:
    return {"total": full, "reserved": full - spare, "min_unit": 1, "max_unit": full, "step_size": 1, "allocation_ratio": 1.0}


def steps(want: Sequence[Provider], there: Sequence[Present], renew: bool = False) -> list[Step]:
    """What to do, in order; one change of a provider at a time, as each one brings it another generation. renew: write known
    gauges anew, though they are the same."""
    names = {one.name: one for one in there}
    found: list[Step] = []
    for one in want:
        present = names.pop(one.name, None)
        found += [Make(one.name, one.uuid)] if present is None else _change(one, present, renew)
    for present in names.values():
        found += _retire(present)
    return found


def _change(one: Provider, there: Present, renew: bool) -> list[Step]:
    if not one.traits <= there.traits or {each for each in there.traits - one.traits if each.startswith(TRAIT)}:
        kept = {each for each in there.traits if not each.startswith(TRAIT)}
        return [SetTraits(there.uuid, there.generation, one.traits | kept)]
    want = _held(there) | {one.class_: inventory(one.spare, there.used.get(one.class_, 0))}
    if one.full:
        want[GAUGE] = gauge(one.spare, one.full)
    return _differs(there, want, renew and one.full > 0)


def _retire(there: Present) -> list[Step]:
    """Of a resource that is gone: as one without spare time while servers hold some of it, then empty."""
    kept = {each for each in there.traits if not each.startswith(TRAIT)}
    if not any(there.used.values()) and kept != there.traits:
        return [SetTraits(there.uuid, there.generation, frozenset(kept))]
    return _differs(there, _held(there), False)


def _held(there: Present) -> dict[str, Mapping[str, float]]:
    """What cannot go, whatever the resource is now: servers hold some of it."""
    return {class_: inventory(0, there.used[class_]) for class_ in CLASSES if there.used.get(class_)}


def _differs(there: Present, want: Mapping[str, Mapping[str, float]], renew: bool) -> list[Step]:
    """A gauge that a flavor asked for by mistake cannot go while it is held: it grows old instead."""
    all_ = dict(want)
    if there.used.get(GAUGE) and GAUGE in there.inventories:
        all_.setdefault(GAUGE, there.inventories[GAUGE])
    same = all_.keys() == there.inventories.keys() and all(
        there.inventories[class_].get(key) == value for class_, each in all_.items() for key, value in each.items())
    return [] if same and not renew else [SetInventory(there.uuid, there.generation, all_)]
