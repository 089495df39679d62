# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders of TOML files: what is in them, where it stands, and what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import Finding, Kind, Severity
from ..policy.units import BadValue, Form

if TYPE_CHECKING:
    from ..resolve.tree import Tree

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_AT_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


@dataclass
class File:
    """One file: its text and its tables, and the findings about it. folder: a whole one that cannot be read."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    folder: bool = False

    def line(self, path: Path) -> int | None:
        """The line in which a value stands, or what it is part of."""
        return next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), None)

    def say(self, path: Path, message: str, remedy: str) -> None:
        self.findings.append(Finding(Severity.ERROR, Kind.SETTINGS, message, remedy, line=self.line(path), file=self.name))

    def values(self, path: Path, table: Any, forms: Mapping[str, Form], others: Iterable[str] = ()) -> dict[str, Any]:
        """The values of a table's keys as its forms read them; what is wrong is said. others: keys that may be there."""
        found = {}
        for key, value in table.items():
            if key in forms:
                try:
                    found[key] = forms[key].read(value)
                except BadValue as bad:
                    self.say((*path, key), f"{key} = {shown(value)} {bad}", f"write {forms[key].expected}")
            elif key not in others:
                self.say((*path, key), f"'{key}' is not known", "use " + ", ".join((*forms, *others)))
        return found


def shown(value: Any) -> str:
    """A value as people wrote it, more or less."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read(tree: Tree, folder: str) -> list[File]:
    """All *.toml of a folder in the order of their names. One that cannot be read has findings and no data; so has a folder."""
    try:
        names = tree.listed(folder)
    except OSError as error:
        file = File(folder, folder=True)
        file.say((), f"the folder cannot be read: {error.strerror}", "make it readable: until then what its files said holds")
        return [file]
    return [read_one(tree, f"{folder}/{name}") for name in names if name.endswith(".toml")]


def read_one(tree: Tree, name: str) -> File:
    """One file, likewise."""
    text = tree.whole_text(name)
    if text is None:
        file = File(name)
        file.say((), "the file cannot be read", "make it readable, or remove it")
        return file
    return of_text(name, text)


def of_text(name: str, text: str) -> File:
    """A file that says this."""
    file = File(name, text=text)
    try:
        file.data = tomllib.loads(text)
        file.lines = _lines(text)
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, a list in lists in lists
        match = _AT_LINE.search(str(error))
        line = int(match.group(1) or len(text.splitlines())) if match else None
        file.findings.append(Finding(Severity.ERROR, Kind.SETTINGS, f"it is not TOML: {_AT_LINE.sub('', str(error))}",
                                     "correct the line", line=line, file=name))
    return file


def _lines(text: str) -> dict[Path, int]:
    """Where keys and tables stand; tomllib does not tell. Text of several lines is passed over."""
    found: dict[Path, int] = {}
    table: Path = ()
    arrays: dict[Path, int] = {}
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not inside:
            if header := _HEADER.match(line):
                table = _parts(header.group(2))
                if header.group(1) == "[[":
                    arrays[table] = arrays.get(table, -1) + 1
                    table = (*table, arrays[table])
                found.setdefault(table, number)
            elif key := _KEY.match(line):
                found.setdefault((*table, *_parts(key.group(1))), number)
        for quotes in ("'''", '"""'):
            if inside in ("", quotes) and line.count(quotes) % 2:
                inside = "" if inside else quotes
    return found


def _parts(text: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


# ---- a file that becomes wrong

Kept = dict[str, str]
"""What files said when last nothing was wrong in them, by name."""

def remembered(tree: Tree) -> Kept:
    """What idletimed goes by where a file is wrong."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        said = json.loads(tree.whole_text(f"{tree.run_dir}/.state/files.json") or "{}").get("files", {})
        return {name: text for name, text in said.items() if isinstance(text, str)}
    return {}


def take(files: Iterable[File], kept: Kept | None, taken: Callable[[File, bool], object]) -> tuple[Finding, ...]:
    """Have files read in their order; what is wrong in them. kept: what somebody who looks again and again had last time,
    brought up to date: a file that has become wrong, or empty (truncated: who means that removes it), counts as it was. taken:
    reads a file, says what is wrong in it, and takes what it says where nothing is; True: it counts as it was, so others that
    say the same things otherwise by now count instead."""
    findings: list[Finding] = []
    right: Kept = {}
    for file in _with_hidden(files, kept or {}):
        before = kept.get(file.name, "") if kept is not None else ""
        if not file.text and not file.findings and of_text(file.name, before).data:
            file.say((), "the file has become empty", "write it anew, or remove it: until then what it said before holds")
        taken(file, False)
        findings += file.findings
        if file.findings and before:
            file = of_text(file.name, before)
            taken(file, True)
        if not file.findings:
            right[file.name] = file.text
    if kept is not None:
        kept.clear()
        kept.update(right)
    return tuple(findings)


def _with_hidden(files: Iterable[File], kept: Kept) -> Iterator[File]:
    """With those that are known of a folder that cannot be read."""
    for file in files:
        yield file
        for name in kept if file.folder else ():
            if os.path.dirname(name) == file.name:
                hidden = File(name)
                hidden.say((), "its folder cannot be read", "make it readable: until then what the file said holds")
                yield hidden


Stamps = tuple[tuple[str, int, int], ...]


def stamps(tree: Tree, folders: Iterable[str]) -> Stamps:
    """What changes when a file of these folders does: names, times and sizes."""
    found: list[tuple[str, int, int]] = []
    for folder in folders:
        try:
            names = tree.listed(folder)
        except OSError as error:
            found.append((folder, -1, error.errno or 0))
            continue
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(tree.root + tree.real(f"{folder}/{name}"))
                found.append((f"{folder}/{name}", status.st_mtime_ns, status.st_size))
    return tuple(found)


# ---- forms of values

def text_form(form: Form) -> Form:
    """A form of the policy's attributes, for a value of TOML: a number, true and false are read, too."""
    def read_(value: Any) -> Any:
        if isinstance(value, bool):
            return form.read("yes" if value else "no")
        if not isinstance(value, int | str):
            raise BadValue("is neither a number nor a text")
        return form.read(str(value))
    return Form(read_, form.expected)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadValue("is neither true nor false")
    return value


def _names(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str) and one for one in values):
        raise BadValue("is no text and no list of texts")
    return tuple(values)


SWITCH = Form(_switch, "true or false")
NAMES = Form(_names, 'a text, or a list such as ["a*", "b*"]')
