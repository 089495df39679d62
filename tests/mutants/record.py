"""What is known of each mutant: a JSON file each below build/mutants/state, so that a run goes on where one ended."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.framework import paths
from tests.mutants.source import Mutant

FOLDER = paths.BUILD / "mutants" / "state"

INVALID, EQUIVALENT, VALID = "does not compile", "equivalent", "compiles"
KILLED, GOLDEN, SURVIVED = "killed", "only golden", "survived"
JUDGED = (KILLED, GOLDEN, SURVIVED)


@dataclass
class Record:
    """How far a mutant is."""

    outcome: str
    code: str
    """The hash of the file's object without a mutant: another one, and the record is void."""
    object: str = ""
    """The hash of the mutant's object."""
    tests: str = ""
    """Fingerprint of the tests that did not notice it."""
    by: str = ""
    """The program that noticed it, with its stage."""
    seconds: float = 0


def _path(mutant: Mutant) -> Path:
    return FOLDER / mutant.file / f"{mutant.key}.json"


def load(mutant: Mutant, code: str, tests: str) -> Record | None:
    """What is known of it and still holds. With other tests, what was not killed only is known to compile."""
    try:
        known = json.loads(_path(mutant).read_text())["record"]
    except (FileNotFoundError, ValueError):
        return None
    record = Record(**known)
    if record.code != code:
        return None
    if record.outcome in (GOLDEN, SURVIVED) and record.tests != tests:
        return Record(VALID, code, record.object)
    return record


def save(mutant: Mutant, record: Record) -> None:
    """Keep it; a run that is killed meanwhile leaves the old file."""
    path = _path(mutant)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(json.dumps({"mutant": asdict(mutant), "record": asdict(record)}, indent=1))
    new.replace(path)
