# SPDX-License-Identifier: GPL-2.0-or-later
"""VMs that no libvirt has started, for the command: what idletimed said of them last, and what their QEMUs answer now."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase

from . import observed, state, status
from .conf.rules import Decision, Facts, Rules, decide
from .errors import MonitorError
from .facts import RUN_DIR
from .qmp import SocketMonitor, query
from .status import DomainStatus

SECONDS = 1.0
"""QEMU serves one client of a socket at a time: who finds another one there shows idletimed's last figures."""

_AT_ONCE = 8
_CHANGED = ("a file below /etc/idletime was changed, and idletimed has not looked since; remedy: look again in some seconds, "
            "and at 'journalctl -u idletimed'")


def there(run_dir: str) -> list[state.DomainState]:
    """All whose socket is there."""
    return [one for one in state.vms(run_dir) if os.path.exists(one.socket)]


def named(run_dir: str, word: str) -> list[state.DomainState]:
    """Those that a name, a glob or a UUID fits; a name is taken for no glob where it is one."""
    found = there(run_dir)
    return [one for one in found if one.name == word] or [
        one for one in found if fnmatchcase(one.name, word) or one.uuid == word.lower()]


def statuses(found: list[state.DomainState], known: Rules, numbers: bool, run_dir: str = RUN_DIR) -> list[DomainStatus]:
    """One that keeps its line busy keeps no other waiting."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda one: sample(one, known, numbers, run_dir), found))


def decision(said: state.DomainState, known: Rules) -> Decision:
    """Who a VM is: it has no title and no metadata."""
    return decide(Facts(said.name, said.uuid, ""), None, known)


def sample(said: state.DomainState, known: Rules, numbers: bool, run_dir: str = RUN_DIR) -> DomainStatus:
    """The status of one. numbers: ask QEMU."""
    who, runs = decision(said, known), "running"
    facts = status.by_said(who, said)
    if who.class_ != said.class_:
        facts.problems.append(_CHANGED)
        facts.left_out = True
        facts.said = replace(said, in_force=False)
    if numbers:
        with contextlib.suppress(MonitorError), SocketMonitor(said.socket, SECONDS) as monitor:
            said_so = monitor.execute("query-status")
            runs = str(said_so.get("status", runs)) if isinstance(said_so, dict) else runs
            facts.query = query(monitor) if said.query is not None else None
            facts.old = False
    facts.observers = observed.read(run_dir)
    return status.build(said.name, said.uuid, runs, False, facts)
