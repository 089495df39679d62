# SPDX-License-Identifier: GPL-2.0-or-later
"""What a minute of a host brings and costs. Pure.

The foreground's response time on a disk that is busy for a share u is taken as that of one server with a queue (M/M/1): in
proportion to 1 / (1 - u). With background in its way it is 1 / (1 - u - b). Idletime's background costs what the budget allows
and gets a part of what is left; both are measured: docs/results/README.md, "auto, budget 3 %", 62 % of what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FULL = 0.97
"""A queue that grows without end grows for a minute only: 33 times the service time at most."""


@dataclass(frozen=True)
class Fleet:
    """servers: background ones, the same on each way. holds: what their flavor asks. most: what one can use of a disk.
    cost_per_second: of a server's cost, 1 to 8, what a migration moves; a whole minute is lost at least."""

    hosts: int = 100
    servers: int = 200
    holds: float = 0.2
    most: float = 0.5
    usable: float = 0.62
    slowdown: float = 0.03
    cap: float = 0.2
    cost_per_second: float = 0.05

    def move_minutes(self, cost: float) -> int:
        return max(1, math.ceil(cost / self.cost_per_second / 60))


@dataclass
class Sums:
    """Of a day. work: disk-minutes of background work. delay, requests: the foreground's, in service times. slow: host-minutes
    in which foreground took more than twice as long as alone."""

    work: float = 0.0
    delay: float = 0.0
    alone: float = 0.0
    slow: int = 0
    moves: int = 0
    pauses: int = 0

    def foreground(self, busy: float, now: float) -> None:
        """A minute of a host: busy by its own foreground; now: its response time, in service times."""
        self.delay += busy * now
        self.alone += busy * response(busy)
        self.slow += busy > 0 and now > 2 * response(busy)

    @property
    def cost(self) -> float:
        """By how much the mean foreground request took longer than alone."""
        return self.delay / self.alone - 1 if self.alone else 0.0


def response(busy: float) -> float:
    """In service times."""
    return 1 / (1 - min(busy, FULL))


def shared(available: float, running: int, fleet: Fleet) -> float:
    """What the background servers of a host use of what there is."""
    return min(max(available, 0.0), running * fleet.most)

