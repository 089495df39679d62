"""Results that a benchmark can go on with: one JSON line a run, named by a key; runs that are there are not run again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, Protocol, Sequence, TypeVar

from tests.bench.progress import Progress


class Run(Protocol):
    """One run of a plan."""

    @property
    def key(self) -> str:
        """Unique in the plan."""

    @property
    def title(self) -> str:
        """What a person reads while it runs."""


AnyRun = TypeVar("AnyRun", bound=Run)


class ResultsFile:
    """JSON lines; those of kind "run" have a key."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def write(self, kind: str, **line: Any) -> None:
        """Append one line."""
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, **line}) + "\n")

    def missing(self, plan: Sequence[AnyRun]) -> list[AnyRun]:
        """The runs of the plan that the file lacks; those that were skipped are tried again."""
        done = {line["key"] for line in self._lines() if line["kind"] == "run"}
        return [run for run in plan if run.key not in done]

    def conditions(self, name: str) -> set[Any]:
        """What its runs were made under, by this name; None where that was not written."""
        return {line.get(name) for line in self._lines() if line["kind"] == "conditions"}

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


def work_off(
    runs: Sequence[AnyRun], seconds_of: Callable[[AnyRun], float], work: Callable[[AnyRun], None], limit_seconds: float = float("inf"),
) -> None:
    """Do the runs one after the other, with progress; none begins that would end later than `limit_seconds` from now."""
    begin, done = time.monotonic(), 0.0
    with Progress(sum(map(seconds_of, runs))) as progress:
        for number, run in enumerate(runs):
            if time.monotonic() - begin + seconds_of(run) > limit_seconds:
                progress.note(f"{len(runs) - number} of {len(runs)} runs are left for the next time")
                break
            progress.step(f"run {number + 1} of {len(runs)}: {run.title}")
            work(run)
            done += seconds_of(run)
            progress.at(done)
