# SPDX-License-Identifier: GPL-2.0-or-later
"""Who hangs keeps nobody waiting for long, and is not asked twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from idletime.patience import Patience


def hangs(free: threading.Event) -> Callable[[], bool]:
    return partial(free.wait, 60)


def test_all_answer() -> None:
    assert Patience(at_once=2).ask({number: partial(pow, number, 2) for number in range(20)}) == {n: n * n for n in range(20)}
    assert Patience().ask({}) == {}


def test_who_hangs_is_left_out() -> None:
    """One place is left for the others; where none is, nothing is asked, so that more do not pile up."""
    free, patience = threading.Event(), Patience(1.0, 2)
    calls: dict[str, Callable[[], bool | int]] = {"a": hangs(free), "b": partial(int, 3), "c": partial(int, 4)}
    for _ in range(2):
        assert patience.ask(calls) == {"b": 3, "c": 4} and patience.late == {"a"}
    assert patience.ask({"d": hangs(free), "e": partial(int, 5)}) == {} and patience.late == {"a", "d"}
    assert patience.ask({"e": partial(int, 5)}) == {}
    free.set()
    while patience.late:
        time.sleep(0.01)
    assert patience.ask(calls) == {"a": True, "b": 3, "c": 4} and not patience.late


def test_errors_are_handed_over() -> None:
    with pytest.raises(ZeroDivisionError):
        Patience().ask({"a": lambda: 1 // 0})
