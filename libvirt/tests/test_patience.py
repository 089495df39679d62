# SPDX-License-Identifier: GPL-2.0-or-later
"""Who hangs keeps nobody waiting for long, and is not asked twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from idletime.domains import HostError
from idletime.errors import Exit
from idletime.patience import MOST, Patience

Call = Callable[[Any], Any]


class Line:
    """A connection."""

    def __init__(self) -> None:
        self.alive, self.closed = True, False

    def isAlive(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.closed = True


def hangs(free: threading.Event) -> Call:
    return lambda _: free.wait(60)


def says(value: int) -> Call:
    return lambda _: value


def test_all_answer() -> None:
    """Connections are used again, while they live."""
    made: list[Line] = []

    def connect() -> Line:
        made.append(Line())
        return made[-1]

    patience = Patience(connect, at_once=1)
    for _ in range(2):
        assert patience.ask({number: says(number ** 2) for number in range(20)}) == {n: n * n for n in range(20)}
        while not patience._spare:
            time.sleep(0.01)
    assert len(made) == 1
    made[0].alive = False
    assert patience.ask({"a": says(1)}) == {"a": 1} and len(made) == 2 and made[0].closed
    assert patience.ask({}) == {}


def test_who_hangs_is_left_out() -> None:
    """Others take the places; each has a connection of its own. Who hangs still is not asked again."""
    free, patience = threading.Event(), Patience(Line, 1.0, 2)
    calls: dict[str, Call] = {"a": hangs(free), "b": hangs(free), "c": says(3), "d": says(4)}
    for _ in range(2):
        assert patience.ask(calls) == {"c": 3, "d": 4} and patience.late == {"a", "b"}
    free.set()
    while patience.late:
        time.sleep(0.01)
    assert patience.ask(calls) == {"a": True, "b": True, "c": 3, "d": 4}


def test_so_many_may_hang() -> None:
    free, patience = threading.Event(), Patience(Line, 0.3, MOST)
    assert patience.ask({number: hangs(free) for number in range(2 * MOST)}) == {}
    assert len(patience.late) == MOST and patience.ask({"a": says(1)}) == {}
    free.set()


def test_errors_are_handed_over() -> None:
    def refused() -> None:
        raise HostError("no line", Exit.FAILED)

    with pytest.raises(ZeroDivisionError):
        Patience(Line).ask({"a": lambda _: 1 // 0})
    with pytest.raises(HostError, match="no line"):
        Patience(refused).ask({"a": says(1)})
