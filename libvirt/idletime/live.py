# SPDX-License-Identifier: GPL-2.0-or-later
"""What a running domain lacks: a pure difference, and the act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .compiler.result import Plan
from .errors import Finding
from .qmp import Monitor


@dataclass(frozen=True)
class Command:
    """One QMP command."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class LivePlan:
    """commands, in order; findings (Kind.LIVE): what needs a restart of the domain, or a detach and attach."""

    commands: tuple[Command, ...]
    findings: tuple[Finding, ...]


def difference(want: Plan, have: Sequence[Mapping[str, Any]]) -> LivePlan:
    """What to send so that a running domain has what the plan wants. have: what query-idletime returned. Pure.

    No commands when nothing differs. A device without a resource cannot get one live: a finding says so.
    """
    raise NotImplementedError


def apply(monitor: Monitor, want: Plan) -> tuple[Finding, ...]:
    """Query, difference, send. Returns the findings of difference(). Raises MonitorError on the first refusal;
    what was sent before it stays."""
    raise NotImplementedError
