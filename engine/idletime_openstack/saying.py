# SPDX-License-Identifier: GPL-2.0-or-later
"""Says in the log what is wrong once, and once that it is well again."""

from __future__ import annotations

import logging


class Saying:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: dict[str, str] = {}

    def say(self, what: str, problem: str) -> None:
        """problem: "" is none."""
        if problem and self._said.get(what) != problem:
            self._log.warning("%s", problem)
        if not problem and self._said.get(what):
            self._log.info("%s is well again", what)
        self._said[what] = problem
