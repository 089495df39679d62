# SPDX-License-Identifier: GPL-2.0-or-later
"""Which domains a command is for: names, UUIDs and globs against the domains that there are. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .errors import Exit, IdletimeError

_NEAR = 5  # names that an error lists: what fits into a line


class NoSuchDomain(IdletimeError):
    """No domain fits."""

    code = Exit.NO_DOMAIN


@dataclass(frozen=True)
class Named:
    """A domain by all that it may be called. id: of its run, None if it does not run."""

    name: str
    uuid: str
    id: int | None = None


def select(there: Sequence[Named], words: Sequence[str], everything: bool = False,
           excepted: Sequence[str] = ()) -> list[Named]:
    """The domains that any of the words is for, or all, without those excepted; in the order of their names.

    A word is a name, a UUID, the id of a run, or a glob of names or UUIDs. What is a name is not taken for a glob. Raises
    NoSuchDomain for a word that no domain fits, also among those excepted: it is a slip.
    """
    chosen = set(there) if everything else {one for word in words for one in _of(there, word)}
    chosen -= {one for word in excepted for one in _of(there, word)}
    return sorted(chosen, key=lambda one: one.name)


def _of(there: Sequence[Named], word: str) -> list[Named]:
    ways: tuple[Callable[[Named], bool], ...] = (
        lambda one: one.name == word,
        lambda one: one.uuid == word.lower(),
        lambda one: one.id is not None and str(one.id) == word,
        lambda one: fnmatchcase(one.name, word) or fnmatchcase(one.uuid, word.lower()),
    )
    for way in ways:
        if found := [one for one in there if way(one)]:
            return found
    raise NoSuchDomain(_none(there, word))


def _none(there: Sequence[Named], word: str) -> str:
    names = sorted(one.name for one in there)
    if not names:
        return f"there is no domain '{word}': this host has none; remedy: --connect URI chooses another host"
    if any(letter in word for letter in "*?["):
        what, near = f"no domain fits '{word}'", names[:_NEAR]
    else:
        what, near = f"there is no domain '{word}'", _near(names, word)
    more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
    return f"{what}; remedy: use one of {', '.join(near)}{more} ('virt-idletime list --all' names all), or --connect URI"


def _near(names: Sequence[str], word: str) -> list[str]:
    """Names like the word, else the first ones."""
    lower = {name.lower(): name for name in names}
    found = [lower[one] for one in difflib.get_close_matches(word.lower(), lower, n=_NEAR)]
    found += [name for name in names if name not in found and (word.lower() in name.lower())]
    return found[:_NEAR] or list(names[:_NEAR])
