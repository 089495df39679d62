# SPDX-License-Identifier: GPL-2.0-or-later
"""How the search for a resource may end without one. Pure."""

from __future__ import annotations

NAME_IT = "find out which one it is"


class Unresolved(Exception):
    """There should be a resource and it is not known which: why, and what to do. apart: as in Resolution, whichever it is."""

    def __init__(self, problem: str, remedy: str = NAME_IT, apart: str = ""):
        self.problem, self.remedy, self.apart = problem, remedy, apart
        super().__init__(problem)


class NoResource(Exception):
    """There is nothing to share, and so nothing to hold: an image in memory, a network without an uplink."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)
