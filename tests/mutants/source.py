"""C source as mutation needs it, and the mutants of a file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from universalmutator import mutator

RULES = Path(__file__).parent / "c.rules"

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
_GOES_ON = re.compile(r"(?:&&|\|\||[-+*/%&|^=?,(]|<<|>>|\s:)$")


@dataclass(frozen=True)
class Mutant:
    """One change of one statement: `before` and `after` are whole statements on one line each."""

    file: str
    """Below qemu-patches/overlay."""
    line: int
    """Where the statement differs, counted from 1."""
    before: str
    after: str
    rule: str
    row: int
    """The statement's index in `flatten(text)`."""

    @property
    def key(self) -> str:
        """A name that is the same as long as the statement and its place are."""
        text = "\0".join((self.file, str(self.row), self.before, self.after))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_comments(text: str) -> str:
    """The text with comments blanked; lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return _TOKEN.sub(blank, text)


def _unfinished(statement: str, following: str) -> bool:
    """Whether a statement goes on in the next line."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', statement)
    if not bare.strip() or bare.lstrip().startswith("#") or not following.strip() or following.lstrip().startswith("#"):
        return False
    depth = sum(bare.count(c) for c in "([") - sum(bare.count(c) for c in ")]")
    return depth > 0 or (bool(_GOES_ON.search(bare)) and not bare.endswith((",", "*/")))


def flatten(text: str) -> list[str]:
    """The lines without comments, each statement on its first line and its other lines empty."""
    lines = [line.rstrip() for line in without_comments(text).split("\n")]
    row = 0
    while row < len(lines):
        end = row + 1
        while end < len(lines) and _unfinished(lines[row], lines[end]):
            lines[row] += " " + lines[end].strip()
            lines[end] = ""
            end += 1
        row = end
    return lines


def _line_of(original: list[str], row: int, before: str, after: str) -> int:
    """The line of the original text that holds the first difference."""
    at = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), 0)
    length = len(original[row])
    while at > length and row + 1 < len(original):
        row += 1
        length += 1 + len(original[row].strip())
    return row + 1


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    lines = flatten(text)
    original = [line.rstrip() for line in without_comments(text).split("\n")]
    with contextlib.redirect_stdout(io.StringIO()):
        found = mutator.mutants_regexp([line + "\n" for line in lines], [str(RULES)], ignorePatterns=[],
                                       ignoreStringOnly=True)
    result = []
    for number, after, rule, _ in found:
        row, changed = number - 1, after.rstrip("\n")
        result.append(Mutant(file, _line_of(original, row, lines[row], changed), lines[row], changed, rule[0], row))
    return result


def mutated(text: str, mutant: Mutant) -> str:
    """The flattened text with the mutant in it."""
    lines = flatten(text)
    assert lines[mutant.row] == mutant.before
    lines[mutant.row] = mutant.after
    return "\n".join(lines)
