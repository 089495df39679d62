"""Whose the processors are where both guests want them: what an operator can set, for one run.

A policy such as SCHED_IDLE of the background's threads is not among them. It counts within a group of the scheduler
only, and a VM is a group of its own: its cgroup under libvirt, its session under autogroup.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Iterable

from tests.report.netresults import FIRST, IDLE, WEIGHT
from tests.testbed.namespace import NamespaceError

ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""cgroup v1, and v2."""

WEIGHTS = {"cpu.shares": ("1024", "2"), "cpu.weight": ("100", "1")}
"""The usual one and the least, of v1 and v2."""


def _set_policy(pids: Iterable[int], policy: int, priority: int) -> None:
    """Of all threads; new ones inherit it."""
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))


class Processors:
    """A context manager; the cgroup of the background's processes is made when it is needed, and removed at the end.

    By then they have to be gone.
    """

    def __init__(self) -> None:
        self._group: Path | None = None

    def __enter__(self) -> Processors:
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._group:
            self._group.rmdir()

    def assign(self, way: str, foreground: Iterable[int], background: Iterable[int]) -> None:
        """From now on these processes have the processors in one of `netresults.WAYS`."""
        _set_policy(foreground, *((os.SCHED_FIFO, 1) if way == FIRST else (os.SCHED_OTHER, 0)))
        if way in (WEIGHT, IDLE):
            self._group = self._group or _new_group()
        if self._group:
            for pid in background:
                (self._group / "cgroup.procs").write_text(str(pid))
            _configure(self._group, way)


def _new_group() -> Path:
    """Below the root group, where this machine lets us."""
    for root in ROOTS:
        group = root / f"idletime-bench-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / "cpu.idle").exists():
            return group
        group.rmdir()
    raise NamespaceError("no cgroup with cpu.idle for the background: run this as root, on Linux 5.15 or newer, where "
                         f"one of {', '.join(map(str, ROOTS))} is writable and passes on the controller cpu")


def _configure(group: Path, way: str) -> None:
    """An idle group has no weight that could be set: so that first."""
    (group / "cpu.idle").write_text("0")
    name = next(name for name in WEIGHTS if (group / name).exists())
    (group / name).write_text(WEIGHTS[name][way == WEIGHT])
    (group / "cpu.idle").write_text(str(int(way == IDLE)))
