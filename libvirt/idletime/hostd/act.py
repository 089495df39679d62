# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out what steps.py decides, by QMP: look, decide, send, and look again where that was not all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import jobs
from ..errors import MonitorError, Severity, printable
from ..facts import Plan
from ..police.deadline import Track
from ..qmp import UNKNOWN_COMMAND, Monitor, query
from ..steps import Command, Steps, steps

ROUNDS = 4
"""A resource that moves is left, deleted, made anew, joined."""

STOCK = ("its QEMU is stock, so nothing of it is held, and background VMs do not see it; remedy: install Idletime's "
         "qemu-system-x86, then shut the VM down and start it, or migrate it away and back")
STOCK_SEEN = "its QEMU is stock, so nothing of it is held; background VMs see it by the kernel (idletime-observer)"
STOCK_JOBS = ("its QEMU is stock, so its block jobs are not held; remedy: install Idletime's qemu-system-x86, then shut the VM "
              "down and start it, or migrate it away and back")
OLD = ("its QEMU is an earlier one of Idletime's, which cannot attach a running device; remedy: shut the VM down and "
       "start it with the one that is installed now, or migrate it away and back")


@dataclass
class Brought:
    """problems: what idletimed cannot do, in words. refused: what QEMU refused, by device or resource; worth another try.
    pending: a device has not left its resource yet. have: what query-idletime says now; None: QEMU is stock, and nothing
    was changed. exports: of each NBD export that is to be background, its disk. more_to_come: a backup has begun, and the
    exports of one in pull mode follow its jobs without an event. tracks: jobs that have a deadline."""

    problems: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    pending: bool = False
    more_to_come: bool = False
    have: list[dict[str, Any]] | None = None
    exports: dict[str, str] = field(default_factory=dict)
    tracks: dict[str, Track] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return bool(self.refused)

    @property
    def words(self) -> list[str]:
        """All that is not as it should be."""
        return [*self.problems, *(printable(f"{subject}: {text}") for subject, text in self.refused.items())]


@dataclass
class _Work:
    """Block jobs, exports and migration in one look."""

    steps: Steps = Steps()
    problems: list[str] = field(default_factory=list)
    exports: dict[str, str] = field(default_factory=dict)
    tracks: dict[str, Track] = field(default_factory=dict)


def bring(monitor: Monitor, plan: Plan, tracks: Mapping[str, Track], now: float) -> Brought:
    """Bring one QEMU to a plan. tracks: jobs that have a deadline, as of the look before; now: seconds since 1970. Raises
    MonitorError where QEMU cannot be asked at all."""
    refused: dict[str, str] = {}
    have: list[dict[str, Any]] = []
    begun: set[str] = set()
    for round_ in range(ROUNDS):
        try:
            have = query(monitor)
        except MonitorError as error:
            if error.reason != UNKNOWN_COMMAND:
                raise
            return Brought([STOCK] if plan.devices else [STOCK_JOBS] if plan.jobs else [])
        todo, work = steps(plan, have), _work(monitor, plan, have, tracks, now)
        tracks = {**tracks, **work.tracks}
        todo = Steps(todo.commands + work.steps.commands, todo.findings, todo.pending or work.steps.pending)
        if not todo.commands or refused or round_ == ROUNDS - 1:
            break
        begun |= _backups(todo.commands)
        try:
            refused = _send(monitor, todo.commands)
        except _TooOld:
            return Brought([OLD], have=have)
    ended = {subject for subject in refused if subject.startswith(_WORK) and subject not in map(_subject, todo.commands)}
    refused = {subject: text for subject, text in refused.items() if subject not in ended}
    found = [str(one) for one in todo.findings if one.severity is not Severity.NOTE] + work.problems
    more = any(one.kind == jobs.JOB and one.id in begun for one in jobs.attached(have))
    return Brought(found, refused, todo.pending or (bool(todo.commands) and not refused), more, have, work.exports, work.tracks)


def _backups(commands: tuple[Command, ...]) -> set[str]:
    """Jobs of backups that are attached."""
    found = {str(command.arguments.get("job")) for command in commands if command.name == "idletime-attach"}
    return {id_ for id_ in found if jobs.of_libvirt(id_)[0] == "backup"}


def _work(monitor: Monitor, plan: Plan, have: list[dict[str, Any]], tracks: Mapping[str, Track], now: float) -> _Work:
    """The block jobs, exports and migration that run now: QEMU is asked for these only where the plan is about them."""
    if not plan.jobs and plan.migration is None:
        return _Work(jobs.steps([], have))
    if jobs.old(have, jobs.JOB):
        return _Work(problems=[jobs.OLD])
    if plan.migration is not None and jobs.old(have, jobs.MIGRATION):
        found = _work(monitor, replace(plan, migration=None), have, tracks, now)
        return replace(found, problems=[jobs.OLD_MIGRATION, *found.problems])
    targets = {disk.alias: disk.target for disk in plan.jobs}
    exports = _exports(monitor, targets)
    problems = [jobs.OLD_EXPORTS] if exports and jobs.old(have, jobs.EXPORT) else []
    exports = [] if problems else exports
    followed = plan.migration is not None and (plan.migration.by or plan.migration.lets_go)
    moves = jobs.migration(monitor.execute("query-migrate")) if followed else []
    there = [*jobs.running(monitor.execute("query-block-jobs"), targets), *exports, *moves]
    seen = jobs.tracked(plan, there, tracks, now, jobs.diverges(have))
    want, more = jobs.wanted(plan, there, [id_ for id_, track in seen.items() if track.urgent])
    return _Work(jobs.steps(want, have), problems + more, {one.id: one.disk for one in exports if one.disk}, seen)


def _exports(monitor: Monitor, targets: Mapping[str, str]) -> list[jobs.Running]:
    """Mostly there are none, and no more is asked."""
    answer = monitor.execute("query-block-exports")
    if not answer:
        return []
    return jobs.exports(answer, monitor.execute("query-named-block-nodes"), monitor.execute("query-block"), targets)


class _TooOld(Exception):
    """QEMU does not know a command."""


def _send(monitor: Monitor, commands: tuple[Command, ...]) -> dict[str, str]:
    """What is refused for one device is no reason to leave the others. Returns the refusals in words."""
    refused: dict[str, str] = {}
    for command in commands:
        try:
            monitor.execute(command.name, dict(command.arguments))
        except MonitorError as error:
            if error.reason == UNKNOWN_COMMAND:
                raise _TooOld from error
            refused.setdefault(_subject(command), str(error))
    return refused


_WORK = tuple(f"{name} " for name in jobs.NAMES.values())


def _subject(command: Command) -> str:
    """What a command is about."""
    for kind, name in jobs.NAMES.items():
        if kind in command.arguments:
            return name if kind == jobs.MIGRATION else f"{name} {command.arguments[kind]}"
    return str(command.arguments.get("device") or command.arguments.get("id") or command.arguments.get("resource"))
