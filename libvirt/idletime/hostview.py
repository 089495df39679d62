# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's resources: those that domains use, those whose arena is there, those of resources.d."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from . import arena
from .conf.resources import Resource, Resources
from .observed import ObserverState
from .status import DomainStatus


@dataclass(frozen=True)
class HostResource:
    """One resource. arena: whether its boards can be read; then foreground and background count participants. generations: of
    its arena that are in use; where there are two, or one that this program does not read, problem says so. said: where
    resources.d speaks of it (file and line), with what settings; None if it does not. One that is said, and that no
    domain uses and has no arena, may be a slip in its name. observer: what idletimed says of its observer; None where nobody
    is background on it.
    """

    name: str
    path: str
    arena: bool
    foreground: int | None
    background: int | None
    domains: tuple[str, ...]
    trail: tuple[str, ...]
    said: str | None = None
    settings: Mapping[str, int | bool] = field(default_factory=dict)
    observe: bool | None = None
    problem: str | None = None
    generations: tuple[int, ...] = ()
    observer: ObserverState | None = None


def resources(found: Sequence[DomainStatus], run_dir: str, said: Resources = Resources(),
              observers: Mapping[str, ObserverState] = MappingProxyType({})) -> list[HostResource]:
    """All resources that a domain's policy names, that have an arena below run_dir, or that the host's files name."""
    paths = {resource.name: resource.path for one in found for resource in one.resources}
    paths.update({name: os.path.join(run_dir, name) for name in _arenas(run_dir) if name not in paths})
    paths.update({one.name: os.path.join(run_dir, one.name) for one in said.all if one.name not in paths})
    words = {one.name: one for one in said.all}
    return [replace(_with_words(_one(name, path, found), words.get(name)), observer=observers.get(name))
            for name, path in sorted(paths.items())]


def _with_words(one: HostResource, said: Resource | None) -> HostResource:
    if said is None:
        return one
    return replace(one, said=said.place, settings=said.settings, observe=said.observe)


def _arenas(run_dir: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(run_dir) if
                os.path.lexists(os.path.join(entry.path, "foreground")) or arena.generations(entry.path)]
    except OSError:
        return []


def _one(name: str, path: str, found: Sequence[DomainStatus]) -> HostResource:
    using = [(one.name, resource) for one in found for resource in one.resources if resource.name == name]
    trail = next((resource.trail for _, resource in using if resource.trail), ())
    names = tuple(sorted({domain for domain, _ in using}))
    used = arena.generations(path)
    try:
        seen = arena.read(path)
    except arena.ArenaError as error:
        problem = _shared(used) or str(error)
        return HostResource(name, path, False, None, None, names, trail, problem=problem, generations=used)
    return HostResource(name, path, True, len(seen.foreground), len(seen.background), names, trail,
                        problem=_shared(used), generations=used)


def _shared(generations: tuple[int, ...]) -> str | None:
    """What is not counted, and what that means."""
    others = ", ".join(str(one) for one in generations if one != arena.ABI)
    if not others:
        return None
    if arena.ABI not in generations:
        return (f"its arena is of generation {others}, this program reads {arena.ABI}; remedy: install the idletime-host of "
                "that QEMU")
    return (f"QEMUs of generation {others} use it too, and are not counted: background of one generation does not wait for "
            "foreground of the other; remedy: virt-idletime doctor names the domains to start anew or migrate")
