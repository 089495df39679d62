# SPDX-License-Identifier: GPL-2.0-or-later
"""/etc/idletime/resources.d: the settings of this host's resources, and names for what cannot be found out.

    [group-sda]                     # a name as 'virt-idletime resources' shows it
    interval-us = 5000              # or: auto = true, budget = "3%"

    [array1]                        # several LUNs of one array are one resource
    max-inflight = 8
    idle-class = "background"       # for its observer: what has the I/O priority class idle is no foreground
    match.path = "/dev/disk/by-id/wwn-0x600a0980*"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ..errors import Finding
from ..policy import units
from ..policy.model import AUTO, NONE
from ..policy.units import BadValue
from .files import NAMES, SWITCH, File, Kept, read, remembered, take, text_form

if TYPE_CHECKING:
    from ..resolve.tree import Tree

FOLDER = "/etc/idletime/resources.d"

_SETTINGS = {
    "interval-us": ("interval-us", text_form(units.INTERVAL)),
    "auto": ("auto", SWITCH),
    "budget": ("budget-percent", text_form(units.BUDGET)),
    "max-inflight": ("max-inflight", text_form(units.number(1, 64, "a whole number of requests"))),
    "rate": ("rate-bps", text_form(units.RATE)),
}
"""Key -> property of idletime-resource, form."""

_OBSERVER = {"observe": SWITCH, "idle-class": text_form(units.one_of("foreground", "background"))}

_MATCH = dict.fromkeys(("path", "device", "bridge", "network", "pool", "host"), NAMES)


@dataclass(frozen=True)
class Identity:
    """By what a source may be matched: by each kind of match, the names that it has."""

    path: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    bridge: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resource:
    """What an operator said of one resource. settings by QEMU's names. observe: whether foreground that passes QEMU by is
    to be looked for on it; None unsaid. idle_class: whether requests of the I/O priority class idle are background for an
    observer. place: file and line."""

    name: str
    settings: Mapping[str, int | bool]
    match: Mapping[str, tuple[str, ...]]
    observe: bool | None
    place: str
    idle_class: bool = False

    def is_(self, identity: Identity) -> bool:
        """Whether this is the resource of a source: one glob that fits is enough."""
        return any(fnmatchcase(name, glob) for kind, globs in self.match.items() for glob in globs
                   for name in getattr(identity, kind))


@dataclass(frozen=True)
class Resources:
    """All of them, in order; findings: what is wrong, in files that were left out."""

    all: tuple[Resource, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def names_any(self) -> bool:
        """Whether any of them matches sources."""
        return any(one.match for one in self.all)

    def named(self, identity: Identity) -> Resource | None:
        """The first whose match fits."""
        return next((one for one in self.all if one.is_(identity)), None)

    @property
    def settings(self) -> Mapping[str, Mapping[str, int | bool]]:
        return {one.name: one.settings for one in self.all if one.settings}


@dataclass
class _Reader:
    found: dict[str, Resource] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)  # of those, what a file said before it became wrong: others may say it anew

    def file(self, file: File, before: bool) -> None:
        """Of files.take()."""
        mine = [self._resource(file, name, table) for name, table in file.data.items() if not (before and name in self.found)]
        if not file.findings:
            names = {one.name for one in mine if one}
            self.found.update({one.name: one for one in mine if one})
            self.kept = self.kept | names if before else self.kept - names

    def _resource(self, file: File, name: str, table: Any) -> Resource | None:
        self._check(file, name, table)
        if not isinstance(table, dict):
            return None
        forms = {key: form for key, (_, form) in _SETTINGS.items()}
        values = file.values((name,), table, {**forms, **_OBSERVER}, ["match"])
        if "budget" in values and not values.get("auto"):
            file.say((name, "budget"), f"budget = '{table['budget']}' without auto", "add auto = true, or remove budget")
        match = table.get("match", {})
        if not isinstance(match, dict):
            file.say((name, "match"), "match is no table", f"write such as match.path = ..., with {', '.join(_MATCH)}")
            match = {}
        observe, idle = values.pop("observe", None), values.pop("idle-class", "foreground")
        if observe is False and idle == "background":
            file.say((name, "idle-class"), f"idle-class = '{idle}' with observe = false",
                     "remove one of them: only an observer tells classes")
        return Resource(name, {_SETTINGS[key][0]: value for key, value in values.items()},
                        file.values((name, "match"), match, _MATCH), observe, f"{file.name} line {file.line((name,))}",
                        idle == "background")

    def _check(self, file: File, name: str, table: Any) -> None:
        try:
            units.RESOURCE.read(name)
            if name in (AUTO, NONE):
                raise BadValue("cannot be the name of a resource")
        except BadValue as bad:
            file.say((name,), f"'{name}' {bad}", f"write {units.RESOURCE.expected}".replace("'auto', 'none', or ", ""))
        if not isinstance(table, dict):
            file.say((name,), f"'{name}' is no table",
                     f"write [RESOURCE] above it, with {', '.join((*_SETTINGS, *_OBSERVER))}, match")
        if name in self.found and name not in self.kept:
            file.say((name,), f"resource '{name}' is said before, in {self.found[name].place}", "keep one of them")


def load(tree: Tree, kept: Kept | None = None) -> Resources:
    """What the host's files say. Never raises. kept: as of files.take(); None: as idletimed has them."""
    return of_files(read(tree, FOLDER), remembered(tree) if kept is None else kept)


def of_files(files: Iterable[File], kept: Kept | None = None) -> Resources:
    """The same of these, in their order."""
    reader = _Reader()
    findings = take(files, kept, reader.file)
    return Resources(tuple(reader.found.values()), findings)


def links_of(tree: Tree, names: Iterable[str]) -> tuple[str, ...]:
    """The paths by which these block devices are known: /dev/sda, /dev/disk/by-id/..., /dev/mapper/..."""
    wanted = {f"/dev/{name}" for name in names}
    folders = ["/dev/mapper", *(f"/dev/disk/{by}" for by in tree.names("/dev/disk"))]
    links = (f"{folder}/{name}" for folder in folders for name in tree.names(folder))
    return (*sorted(wanted), *(link for link in links if wanted and tree.real(link) in wanted))
