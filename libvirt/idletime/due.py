# SPDX-License-Identifier: GPL-2.0-or-later
"""When a background VM becomes foreground, kept in its running domain: metadata urn:idletime:due:1 of the live XML.

There it survives a restart of libvirtd and of idletimed, a save and a migration, and ends with the domain. What work a VM does,
and how much is left of it, nobody but its guest knows: so until its deadline it is background, and from then on foreground.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from lxml import etree

from .police import deadline
from .xmltree import Element

NAMESPACE, PREFIX = "urn:idletime:due:1", "idletimed"


@dataclass(frozen=True)
class Due:
    """at: seconds since 1970. by: the time of day that it was made of."""

    at: float
    by: str


def of_domain(live: Element) -> Due | None:
    """The record that is in a domain's XML; nobody but idletimed writes it, so what does not make sense counts as none."""
    element = live.find(f"./metadata/{{{NAMESPACE}}}due")
    if element is not None:
        with contextlib.suppress(ValueError):
            return Due(float(element.get("at", "")), element.get("by", ""))
    return None


def to_xml(due: Due) -> Element:
    """The element, without a prefix."""
    return etree.Element("due", {"at": f"{due.at:.0f}", "by": due.by})


def after(before: Due | None, by: str | None, now: float) -> Due | None:
    """What is to be on record of a domain whose policy says `by`. now: seconds since 1970."""
    if by is None:
        return None
    if before is not None and before.by == by:
        return before
    return Due(deadline.deadline_after(now, by), by)


def is_over(due: Due | None, by: str | None, now: float) -> bool:
    """Whether a domain's deadline has passed; one of another time of day does not count."""
    return due is not None and due.by == by and now >= due.at
