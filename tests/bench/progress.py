"""Live progress: a bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, TextColumn


def clock(seconds: float) -> str:
    """Minutes and seconds, e.g. 4:05."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class Progress:
    """Says what runs, how far it is and how long it still takes; `total` is the planned time in seconds."""

    def __init__(self, total_seconds: float) -> None:
        self._total = total_seconds
        self._done = 0.0
        self._begin = time.monotonic()
        self._bar: Bar | None = None
        if sys.stdout.isatty():
            self._bar = Bar(
                TextColumn("{task.percentage:3.0f} %"), BarColumn(30), TextColumn("{task.fields[left]} left"),
                TextColumn("{task.description}"), console=Console(), transient=True,
            )
            self._task = self._bar.add_task("", total=total_seconds, left=clock(total_seconds))

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def step(self, what: str) -> None:
        """A new step begins."""
        if self._bar:
            self._bar.update(self._task, description=what)
        else:
            print(f"{self._done / self._total:4.0%}  {clock(self._left())} left  {what}", flush=True)

    def at(self, done_seconds: float) -> None:
        """So much of the planned time has passed."""
        self._done = min(done_seconds, self._total)
        if self._bar:
            self._bar.update(self._task, completed=self._done, left=clock(self._left()))

    def note(self, text: str) -> None:
        """A line that stays."""
        print(text, flush=True) if self._bar is None else self._bar.console.print(text)

    def _left(self) -> float:
        """Planned rest, corrected by how the plan held so far."""
        elapsed = time.monotonic() - self._begin
        pace = elapsed / self._done if self._done > 0.1 * self._total else 1.0
        return (self._total - self._done) * pace
