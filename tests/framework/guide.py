"""The commands of a page, as a test runs them: fenced blocks of sh are run, those of toml that name a file are written there.

    <!-- not run: why -->           before a block: it is left out
    <!-- may end with 1 -->         before a block: this exit status is good, too
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^( *)```(\w*)\s*$")
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
MAY_END = re.compile(r"<!-- may end with (\d+) -->")
FILE = re.compile(r"^# (/etc/idletime/\S+)$")


@dataclass(frozen=True)
class Command:
    """One line of a block of sh."""

    line: str
    text: str
    statuses: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class File:
    """A block of toml whose first line is a comment with a path."""

    path: str
    text: str


@dataclass
class _Block:
    language: str
    indent: int
    comment: str
    number: int
    lines: list[str] = field(default_factory=list)


def _blocks(page: str) -> list[_Block]:
    """All fenced blocks, each with the last line of text before it."""
    result: list[_Block] = []
    inside, comment = False, ""
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and not inside:
            result.append(_Block(fence[2], len(fence[1]), comment, number))
            inside = True
        elif fence:
            inside, comment = False, ""
        elif inside:
            result[-1].lines.append(line[result[-1].indent:])
        elif line.strip():
            comment = line.strip()
    return result


def _commands(block: _Block) -> list[Command]:
    found = MAY_END.match(block.comment)
    statuses = frozenset({0, *([int(found[1])] if found else [])})
    return [Command(f"line {block.number + place}", line.strip(), statuses)
            for place, line in enumerate(block.lines, 1) if line.strip() and not line.strip().startswith("#")]


def steps(page: str) -> list[Command | File]:
    """What a test does, in the order of the page."""
    result: list[Command | File] = []
    for block in _blocks(page):
        if NOT_RUN.match(block.comment):
            continue
        if block.language == "sh":
            result += _commands(block)
        elif block.language == "toml" and block.lines and (found := FILE.match(block.lines[0])):
            result.append(File(found[1], "\n".join(block.lines) + "\n"))
    return result
