# SPDX-License-Identifier: GPL-2.0-or-later
"""What QEMU may answer: of another form than it should be it is nobody's, whoever has it in his hands."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

import fakes
from idletime.errors import MonitorError
from idletime.hostd.act import Brought
from idletime.qmp import query

RIGHT = [{**fakes.resource("sda", [fakes.device("net0", dscp="8")]), "jobs": [fakes.job("backup-vda-x")],
          "learned": {"service-us": 5, "spare": {"second": 0.5}}, "state": "idle", "interval-us": 5, "collisions": 1}]


class Said:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def execute(self, _name: str, _arguments: Any = None) -> Any:
        return self.answer


def test_a_right_answer() -> None:
    assert query(Said(RIGHT)) == RIGHT
    may = ("jobs", "learned", "state", "interval-us", "collisions")
    bare = [{key: value for key, value in RIGHT[0].items() if key not in may}]
    assert query(Said(bare)) == bare


DEVICE = (0, "devices", 0)


@pytest.mark.parametrize("path, value", [
    ((), {}), ((0,), []), ((0, "id"), 1), ((0, "devices"), {}), ((*DEVICE, "held"), "1"), ((*DEVICE, "held"), True),
    ((*DEVICE, "background-queues"), None), ((*DEVICE, "background-queues"), "0-3000000000"),
    ((*DEVICE, "dscp"), "0-3000000000"), ((*DEVICE, "dscp"), 8), ((*DEVICE, "promotions"), {"flush": "1"}),
    ((0, "learned"), [1]), ((0, "learned", "spare"), 1), ((0, "learned", "spare", "second"), "x"),
    ((0, "learned", "service-us"), "x"), ((0, "collisions"), "x"), ((0, "collision-cost-us"), 1.5), ((0, "interval-us"), "x"),
    ((0, "state"), 1), ((0, "observer"), []), ((0, "generation"), "x"), ((0, "other-generations"), ["x"]),
    ((0, "jobs", 0, "hold", "bins"), [1]), ((0, "jobs"), [1]), ((0, "interval-us"), 1 << 64), ((0, "interval-us"), -1),
    ((0, "rate-bps"), math.inf), ((0, "held"), 10 ** 400), ((0, "shadow"), "x"), ((0, "observer"), {"state": 1}),
    ((0, "learned", "service-us"), math.nan), ((0, "learned", "service-us"), 1e300), ((*DEVICE, "held"), 1 << 64),
    ((*DEVICE, "promotions"), {"flush": 1 << 64}), ((*DEVICE, "seen"), 1),
])
def test_a_wrong_one(path: tuple[Any, ...], value: Any) -> None:
    answer: Any = {"": copy.deepcopy(RIGHT)}
    inner = answer
    for part in ("", *path)[:-1]:
        inner = inner[part]
    inner[("", *path)[-1]] = value
    with pytest.raises(MonitorError, match="another form"):
        query(Said(answer[""]))


def test_what_has_to_be_there() -> None:
    for name in ("background-queues", "class", "device", "foreground"):
        answer = copy.deepcopy(RIGHT)
        del answer[0]["devices"][0][name]
        with pytest.raises(MonitorError):
            query(Said(answer))


def test_what_qemu_calls_its_devices_is_nothing_that_a_terminal_obeys() -> None:
    (words,) = Brought(refused={"\x1b]0;mine\x07\x1b[2J": "it is busy"}).words
    assert words.isprintable() and words.endswith("it is busy")
