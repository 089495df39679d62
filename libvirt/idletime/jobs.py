# SPDX-License-Identifier: GPL-2.0-or-later
"""Block jobs, NBD exports and the migration of a running QEMU: which of them are to be background, where, and what to send for
that. Pure.

    the job or export is                        what is to be done
    of a disk whose jobs are background         idletime-attach, to the resource of that disk (the source, of a copy)
    and writes to another resource now          to that, too
    on another resource of ours                 idletime-detach; attached anew when it has left
    on a resource of ours, and not meant        idletime-detach
    on a resource of somebody else              nothing
    a migration's copy of a disk                the same, and to the uplink of migrations, until it has caught up (then the
                                                switchover waits for it)
    not running yet, or not any more            nothing
    urgent, so as to be done in time            idletime-detach (police/deadline.py)

An export is of the disk whose image is the first in the chain of images that it reads: of a pull backup, the one below its
scratch file. One of the disk's own image is a migration's, into which the other host copies.

A migration need not run to be attached: QEMU holds whichever comes, from its first byte on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from .facts import Plan
from .plan import ID_PREFIX
from .police import deadline
from .police.deadline import Track
from .steps import Command, Have, Steps

_OF_LIBVIRT = re.compile(r"(pull|commit|copy|backup)-([^-]+)-.+")
"""What libvirt calls a job: what it does, the target of the disk, a block node."""

JOB, EXPORT, MIGRATION = "job", "export", "migration"
"""What idletime-attach calls them."""

NAMES = {JOB: "block job", EXPORT: "NBD export", MIGRATION: "migration"}

OUTGOING = "outgoing"
"""The id of migration in query-idletime: there is one at a time."""

_OF_MIGRATION = "drive-"
"""What libvirt calls a migration's copy of a disk: this, and the disk's alias."""

_MIGRATES = ("active", "postcopy-active", "pre-switchover", "device")
_ATTACHABLE = ("running", "paused", "ready", "standby")

_OLD = ("its QEMU is an earlier one of Idletime's, which cannot hold {}; remedy: shut the VM down and start it with the "
        "one that is installed now, or migrate it away and back")
OLD = _OLD.format("block jobs")
OLD_EXPORTS = _OLD.format("NBD exports")
OLD_MIGRATION = _OLD.format("migration")


@dataclass(frozen=True)
class Running:
    """A block job, of query-block-jobs, an NBD export, or the migration. disk: its target; "" is not known. type: by libvirt's
    name, else by QEMU's. done, total: bytes, as far as QEMU knows now."""

    id: str
    disk: str
    type: str
    status: str
    done: int = 0
    total: int = 0
    kind: str = JOB

    @property
    def of_migration(self) -> bool:
        """A migration's copy of a disk."""
        return self.kind == JOB and self.id.startswith(_OF_MIGRATION)

    @property
    def holdable(self) -> bool:
        """Whether it may be held at all."""
        return not self.of_migration or self.status == "running"


@dataclass(frozen=True)
class JobPlan:
    """A job, an export or migration that is to be background on a resource (ResourcePlan.id); a job may have several.
    attachable: QEMU accepts it now."""

    id: str
    resource: str
    attachable: bool
    kind: str = JOB

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.id


def of_libvirt(id_: str, targets: Mapping[str, str] = MappingProxyType({})) -> tuple[str, str]:
    """What a job does, and the target of its disk, by its id; "" is not known. targets: of disks, by alias."""
    if id_.startswith(_OF_MIGRATION):
        return "copy", targets.get(id_.removeprefix(_OF_MIGRATION), "")
    match = _OF_LIBVIRT.fullmatch(id_)
    return (match.group(1), match.group(2)) if match else ("", "")


def running(answer: Iterable[Mapping[str, Any]], targets: Mapping[str, str] = MappingProxyType({})) -> list[Running]:
    """The answer of query-block-jobs. targets: of disks, by alias."""
    found = []
    for one in answer:
        type_, disk = of_libvirt(id_ := str(one["device"]), targets)
        if id_.startswith(_OF_MIGRATION):
            disk = disk or id_.removeprefix(_OF_MIGRATION)
        found.append(Running(id_, disk, type_ or str(one["type"]), str(one.get("status", "running")),
                             int(one["offset"]), int(one["len"])))
    return found


def _images(image: Mapping[str, Any] | None) -> list[str]:
    """File names, from the top of a chain of images down; an ImageInfo of QMP."""
    names = []
    while image is not None:
        names.append(str(image["filename"]))
        image = image.get("backing-image")
    return names


def exports(answer: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]], blocks: Iterable[Mapping[str, Any]],
            targets: Mapping[str, str]) -> list[Running]:
    """The answers of query-block-exports, query-named-block-nodes and query-block. targets: of disks, by alias; what another
    disk is called does not matter. Without those of a migration."""
    chains = {str(one["node-name"]): _images(one["image"]) for one in nodes}
    disks = {}
    for one in blocks:
        qdev = str(one.get("qdev", ""))
        target = next((targets[part] for part in qdev.split("/") if part in targets), qdev)
        if "inserted" in one:
            disks[target] = _images(one["inserted"]["image"])
    found = []
    for one in answer:
        chain = chains.get(str(one["node-name"]), [])
        if one["type"] != "nbd" or any(chain[:1] == disk[:1] for disk in disks.values()):
            continue
        above = (target for name in chain for target, images in disks.items() if name in images)
        status = "aborting" if one["shutting-down"] else "running"
        found.append(Running(str(one["id"]), next(above, ""), EXPORT, status, kind=EXPORT))
    return found


def migration(answer: Mapping[str, Any]) -> list[Running]:
    """The answer of query-migrate: the migration that runs, if one does. total grows while the guest writes."""
    if answer.get("status") not in _MIGRATES:
        return []
    parts = [answer[part] for part in ("ram", "disk") if part in answer]
    done = sum(int(one["transferred"]) for one in parts)
    return [Running(OUTGOING, "", MIGRATION, "running", done, done + sum(int(one["remaining"]) for one in parts), MIGRATION)]


def tracked(plan: Plan, there: Sequence[Running], before: Mapping[str, Track], now: float,
            diverges: bool = False) -> dict[str, Track]:
    """Jobs and migrations that have a deadline, by id: each as it was at its last look, or from now on; and a migration that is
    let go, as it would not end. diverges: QEMU says so of it. now: seconds since 1970."""
    by = {disk.target: disk.by for disk in plan.jobs}
    only = next(iter(by.values()), "") if len(set(by.values())) == 1 else ""
    found = {}
    for one in there:
        track = before.get(one.id)
        if track is not None and one.done < track.done:  # another job of that name
            track = None
        let_go = False
        if one.kind == MIGRATION and plan.migration is not None:
            when = plan.migration.by
            let_go = plan.migration.lets_go and (diverges or (track is not None and track.let_go))
        else:
            when = by.get(one.disk, "" if one.disk else only)
        if (when or let_go) and one.holdable and one.status in _ATTACHABLE:
            track = replace(track or deadline.begun(now, one.done, when), let_go=let_go)
            found[one.id] = deadline.decide(deadline.due(track, when), now, one.done, one.total)
    return found


def diverges(have: Have) -> bool:
    """Whether QEMU says of the migration that it does not end at its pace."""
    return any(one.said.get("diverges", False) for one in attached(have) if one.kind == MIGRATION)


def wanted(plan: Plan, there: Sequence[Running], urgent: Collection[str] = ()) -> tuple[list[JobPlan], list[str]]:
    """Which of them are to be background, and what cannot be told, in words. urgent: ids of jobs that have to be done."""
    disks = {disk.target: disk for disk in plan.jobs}
    only = {disk.resource for disk in plan.jobs}
    found: list[JobPlan] = []
    problems: list[str] = []
    uplink = [plan.migration.resource] if plan.migration is not None and OUTGOING not in urgent else []
    found += [JobPlan(OUTGOING, resource, True, MIGRATION) for resource in uplink]
    for one in there:
        if one.kind == MIGRATION or not one.holdable or one.id in urgent or (one.disk and one.disk not in disks):
            continue
        if not one.disk and len(only) > 1:
            problems.append(f"{NAMES[one.kind]} '{one.id}' is not held: of which disk it is cannot be told, and these are on "
                            "several resources; remedy: start it by libvirt")
        elif only:
            resources = [disks[one.disk].resource if one.disk else min(only)]
            resources += disks[one.disk].also if one.disk and one.kind == JOB else ()
            resources += uplink if one.of_migration else []
            found += [JobPlan(one.id, resource, one.status in _ATTACHABLE, one.kind) for resource in resources]
    return found, problems


@dataclass(frozen=True)
class Attached:
    """A job, export or migration on a resource (its id). said: what query-idletime says of it there."""

    kind: str
    id: str
    resource: str
    said: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.id


def attached(have: Have) -> list[Attached]:
    """All that is attached and no device."""
    return [Attached(kind, one["id"], resource["id"], one) for resource in have for kind in NAMES
            for one in resource.get(f"{kind}s", ())]


def old(have: Have, kind: str) -> bool:
    """Whether this QEMU knows resources, and nothing of this kind on them."""
    return any(f"{kind}s" not in resource for resource in have)


def _said(key: tuple[str, str]) -> dict[str, str | bool]:
    """As QEMU's commands say it."""
    kind, id_ = key
    return {kind: True if kind == MIGRATION else id_}


def steps(want: Sequence[JobPlan], have: Have) -> Steps:
    """What to send. Resources that are not there are made before."""
    there: dict[tuple[str, str], list[Attached]] = {}
    meant: dict[tuple[str, str], set[str]] = {}
    for is_ in attached(have):
        there.setdefault(is_.key, []).append(is_)
    for one in want:
        meant.setdefault(one.key, set()).add(one.resource)
    commands, leaving = [], [key for key, on in there.items() if _leaves(on, meant.get(key, set()))]
    for one in want:
        may_join = all(each.resource.startswith(ID_PREFIX) and each.resource != one.resource for each in there.get(one.key, []))
        if one.attachable and one.key not in leaving and may_join:
            commands.append(Command("idletime-attach", {**_said(one.key), "resource": one.resource, "class": "background"}))
    for key in leaving:
        if not any(each.said["detaching"] for each in there[key]):
            commands.append(Command("idletime-detach", _said(key)))
    return Steps(tuple(commands), pending=bool(leaving))


def _leaves(on: Sequence[Attached], meant: Collection[str]) -> bool:
    """Whether something leaves all that it is on: that is how it leaves one of them. Not what somebody else has attached."""
    return all(one.resource.startswith(ID_PREFIX) for one in on) and \
        any(one.said["detaching"] or one.resource not in meant for one in on)
