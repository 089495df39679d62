# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain XML -> Policy."""

from __future__ import annotations

from .model import Policy


def parse(xml: str) -> Policy | None:
    """The policy of a domain, or of a bare policy element; None if the domain has none. Pure.

    Raises PolicyError (Kind.SYNTAX) with every finding: line, element, value, remedy.
    """
    raise NotImplementedError
