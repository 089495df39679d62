# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's resources: those that domains use, and those whose arena is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from . import arena
from .status import DomainStatus


@dataclass(frozen=True)
class HostResource:
    """One resource. arena: whether its boards can be read; then foreground and background count participants."""

    name: str
    path: str
    arena: bool
    foreground: int | None
    background: int | None
    domains: tuple[str, ...]
    trail: tuple[str, ...]
    problem: str | None = None


def resources(found: Sequence[DomainStatus], run_dir: str) -> list[HostResource]:
    """All resources that a domain's policy names or that have an arena below run_dir, by name."""
    paths = {resource.name: resource.path for one in found for resource in one.resources}
    paths.update({name: os.path.join(run_dir, name) for name in _arenas(run_dir) if name not in paths})
    return [_one(name, path, found) for name, path in sorted(paths.items())]


def _arenas(run_dir: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(run_dir) if
                os.path.lexists(os.path.join(entry.path, "foreground"))]
    except OSError:
        return []


def _one(name: str, path: str, found: Sequence[DomainStatus]) -> HostResource:
    using = [(one.name, resource) for one in found for resource in one.resources if resource.name == name]
    trail = next((resource.trail for _, resource in using if resource.trail), ())
    names = tuple(sorted({domain for domain, _ in using}))
    try:
        seen = arena.read(path)
    except arena.ArenaError as error:
        return HostResource(name, path, False, None, None, names, trail, str(error))
    return HostResource(name, path, True, len(seen.foreground), len(seen.background), names, trail)
