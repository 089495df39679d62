"""What judges a mutant: programs, each with the stage it belongs to."""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Protocol, Sequence

from tests.mutants.confine import Result

UNIT, SANITIZED, MACHINE, GOLDEN = "unit", "sanitized", "machine", "golden"
STAGES = (UNIT, SANITIZED, MACHINE, GOLDEN)
"""In the order in which they run. Who is only noticed by the last is "only golden", not killed."""


class SetupError(RuntimeError):
    """The tests cannot be run, or fail on the code as it is; the text says what to do."""


@dataclass(frozen=True)
class Trial:
    """One test program."""

    stage: str
    name: str
    argv: tuple[str, ...]
    version: str
    """The hash of all that it is made of, the code without a mutant included."""
    env: Mapping[str, str] = field(default_factory=dict)
    expected: Path | None = None
    """What it has to print; None: its exit status tells."""
    seconds: float = 0
    """How long it takes on the code as it is."""

    @property
    def path(self) -> str:
        """Its name, unique among all."""
        return f"{self.stage} {self.name}"

    @property
    def limit_seconds(self) -> float:
        """Beyond it a mutant hangs; generous, since the machine may be busy."""
        return 10 + 10 * self.seconds

    def noticed(self, result: Result) -> bool:
        """Whether the program tells the mutant from the code as it is."""
        return not result.passed or (self.expected is not None and result.output != self.expected.read_text())


class Bench(Protocol):
    """A set of files and of programs that test them."""

    folder: Path
    """Where it builds."""
    fingerprint: str
    """Of the programs: when it changes, what survived is run again."""

    def prepare(self) -> None:
        """Build what does not depend on the mutant, and check that the tests pass without one."""

    def files(self) -> list[str]:
        """The files that can be mutated, below qemu-patches/overlay."""

    def compile(self, file: str, text: str, target: Path) -> bool:
        """Compile `text` as that file; False where it does not compile."""

    def link(self, file: str, text: str, place: Path, stage: str) -> bool:
        """Make what a stage's programs need, with the mutant in it."""

    def trials(self, file: str) -> list[Trial]:
        """The programs that can notice a change of that file, the ones nearest to it first."""

    def env(self, place: Path, stage: str) -> dict[str, str]:
        """What tells the programs where the mutant is."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two runs would build in one folder: the second one ends with an error."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"another run is busy in {folder}: wait for its end") from None
        yield


def digest(*paths: Path) -> str:
    """The hash of the files' contents."""
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)).hexdigest()


def measured(trials: Sequence[Trial], record: Path, run: Callable[[Trial], Result]) -> list[Trial]:
    """The trials with their durations, each run once on the code as it is, where it must pass.

    `record` keeps the durations; what has another version is run again.
    """
    known: dict[str, list[Any]] = json.loads(record.read_text()) if record.exists() else {}
    missing = [trial for trial in trials if known.get(trial.path, [""])[0] != trial.version]
    if missing:
        print(f"Running {len(missing)} test programs without a mutant", flush=True)
    for trial in missing:
        begin = time.monotonic()
        result = run(trial)
        if trial.noticed(result):
            raise SetupError(f"{trial.name} ({trial.stage}) fails without a mutant: mend it first\n{result.output[-2000:]}")
        known[trial.path] = [trial.version, round(time.monotonic() - begin, 3)]
        record.write_text(json.dumps(known, indent=1))
    return [replace(trial, seconds=known[trial.path][1]) for trial in trials]


def fingerprint(trials: Sequence[Trial]) -> str:
    """Of all versions together."""
    return hashlib.sha256(" ".join(trial.version for trial in trials).encode()).hexdigest()[:16]
