# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out what steps.py decides, by QMP: look, decide, send, and look again where that was not all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import jobs
from ..errors import MonitorError, Severity
from ..facts import Plan
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
    was changed."""

    problems: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    pending: bool = False
    have: list[dict[str, Any]] | None = None

    @property
    def failed(self) -> bool:
        return bool(self.refused)

    @property
    def words(self) -> list[str]:
        """All that is not as it should be."""
        return [*self.problems, *(f"{subject}: {text}" for subject, text in self.refused.items())]


def bring(monitor: Monitor, plan: Plan) -> Brought:
    """Bring one QEMU to a plan. Raises MonitorError where QEMU cannot be asked at all."""
    refused: dict[str, str] = {}
    have: list[dict[str, Any]] = []
    for round_ in range(ROUNDS):
        try:
            have = query(monitor)
        except MonitorError as error:
            if error.reason != UNKNOWN_COMMAND:
                raise
            return Brought([STOCK] if plan.devices else [STOCK_JOBS] if plan.jobs else [])
        todo, problems = _todo(monitor, plan, have)
        if not todo.commands or refused or round_ == ROUNDS - 1:
            break
        try:
            refused = _send(monitor, todo.commands)
        except _TooOld:
            return Brought([OLD], have=have)
    ended = {subject for subject in refused if subject.startswith(_JOB) and subject not in map(_subject, todo.commands)}
    refused = {subject: text for subject, text in refused.items() if subject not in ended}
    found = [str(one) for one in todo.findings if one.severity is not Severity.NOTE] + problems
    return Brought(found, refused, todo.pending or (bool(todo.commands) and not refused), have)


def _todo(monitor: Monitor, plan: Plan, have: list[dict[str, Any]]) -> tuple[Steps, list[str]]:
    """Devices first, then the block jobs that run now: QEMU is asked for these only where the plan is about them."""
    todo = steps(plan, have)
    if plan.jobs and jobs.old(have):
        return todo, [jobs.OLD]
    want, problems = jobs.wanted(plan, jobs.running(monitor.execute("query-block-jobs"))) if plan.jobs else ([], [])
    more = jobs.steps(want, have)
    return Steps(todo.commands + more.commands, todo.findings, todo.pending or more.pending), problems


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


_JOB = "block job "


def _subject(command: Command) -> str:
    """What a command is about."""
    if "job" in command.arguments:
        return f"{_JOB}{command.arguments['job']}"
    return str(command.arguments.get("device") or command.arguments.get("id") or command.arguments.get("resource"))
