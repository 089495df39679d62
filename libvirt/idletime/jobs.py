# SPDX-License-Identifier: GPL-2.0-or-later
"""Block jobs of a running QEMU: which of them are to be background, where, and what to send for that. Pure.

    the job is                                  what is to be done
    of a disk whose jobs are background         idletime-attach, to the resource of that disk (the source, of a copy)
    on another resource of ours                 idletime-detach; attached anew when it has left
    on a resource of ours, and not meant        idletime-detach
    on a resource of somebody else              nothing
    a migration's copy of a disk                nothing: the host waits for it
    not running yet, or not any more            nothing
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .facts import Plan
from .plan import ID_PREFIX
from .steps import Command, Have, Steps

_OF_LIBVIRT = re.compile(r"(pull|commit|copy|backup)-([^-]+)-.+")
"""What libvirt calls a job: what it does, the target of the disk, a block node."""

_OF_MIGRATION = "drive-"
_ATTACHABLE = ("running", "paused", "ready", "standby")

OLD = ("its QEMU is an earlier one of Idletime's, which cannot hold block jobs; remedy: shut the VM down and start it with the "
       "one that is installed now, or migrate it away and back")


@dataclass(frozen=True)
class Running:
    """A block job, of query-block-jobs. disk: its target; "" is not known. type: by libvirt's name, else by QEMU's. done,
    total: bytes, as far as QEMU knows now."""

    id: str
    disk: str
    type: str
    status: str
    done: int = 0
    total: int = 0

    @property
    def of_migration(self) -> bool:
        return self.id.startswith(_OF_MIGRATION)


@dataclass(frozen=True)
class JobPlan:
    """A job that is to be background on a resource (ResourcePlan.id). attachable: QEMU accepts it now."""

    id: str
    resource: str
    attachable: bool


def of_libvirt(id_: str) -> tuple[str, str]:
    """What a job does, and the target of its disk, by its id; "" is not known."""
    match = _OF_LIBVIRT.fullmatch(id_)
    return (match.group(1), match.group(2)) if match else ("", "")


def running(answer: Iterable[Mapping[str, Any]]) -> list[Running]:
    """The answer of query-block-jobs."""
    found = []
    for one in answer:
        type_, disk = of_libvirt(str(one["device"]))
        found.append(Running(str(one["device"]), disk, type_ or str(one["type"]), str(one.get("status", "running")),
                             int(one["offset"]), int(one["len"])))
    return found


def wanted(plan: Plan, there: Sequence[Running]) -> tuple[list[JobPlan], list[str]]:
    """Which of them are to be background, and what cannot be told, in words."""
    disks = {disk.target: disk.resource for disk in plan.jobs}
    only = set(disks.values())
    found, problems = [], []
    for one in there:
        if one.of_migration or (one.disk and one.disk not in disks):
            continue
        if not one.disk and len(only) > 1:
            problems.append(f"block job '{one.id}' is not held: of which disk it is cannot be told, and these are on several "
                            "resources; remedy: start it by libvirt")
        elif only:
            resource = disks[one.disk] if one.disk else min(only)
            found.append(JobPlan(one.id, resource, one.status in _ATTACHABLE))
    return found, problems


def attached(have: Have) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Of each job that is attached: its resource (id), and what query-idletime says of it."""
    return {job["id"]: (resource["id"], job) for resource in have for job in resource.get("jobs", ())}


def old(have: Have) -> bool:
    """Whether this QEMU knows resources and no jobs on them."""
    return any("jobs" not in resource for resource in have)


def steps(want: Sequence[JobPlan], have: Have) -> Steps:
    """What to send. Resources that are not there are made before."""
    there, commands, pending = attached(have), [], False
    moved = {job.id: job for job in want}
    for job in want:
        if job.id not in there and job.attachable:
            commands.append(Command("idletime-attach", {"job": job.id, "resource": job.resource, "class": "background"}))
    for id_, (resource, said) in there.items():
        if not resource.startswith(ID_PREFIX) or (id_ in moved and resource == moved[id_].resource and not said["detaching"]):
            continue
        pending = True
        if not said["detaching"]:
            commands.append(Command("idletime-detach", {"job": id_}))
    return Steps(tuple(commands), pending=pending)
