# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts, their resources and background servers at one time, and the sums over them: what is held, promised, free. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

ANYWHERE = "*"
"""Among the hosts that refused a server: all do."""


class State(Enum):
    RUNS = "runs"
    PAUSED = "paused"
    """By us. One that its owner has paused is none of our business, and no fact here."""
    SHELVED = "shelved"
    """By us, and on no host."""
    BUSY = "busy"
    """Something is being done with it: it holds its part, is left alone, and its host's next act waits for it."""
    STUCK = "stuck"
    """It holds its part, and nothing can be done with it: nobody waits for it."""


@dataclass(frozen=True)
class Resource:
    """A disk or an uplink of a host. spare: steady, by its gauge; None is unknown. promised: to all servers, also those that do
    not run. full: all of it, in the same unit; the margin is of this."""

    kind: str
    spare: float | None
    promised: float = 0.0
    full: float = 1.0


@dataclass(frozen=True)
class Host:
    """resources: by name. takes: whether it takes servers."""

    name: str
    resources: Mapping[str, Resource]
    takes: bool = True


@dataclass(frozen=True)
class Server:
    """A background server. holds: of the resources of its host; asks: of any host, by kind. cost: of a disruption, in any unit
    that is the same for all, such as mebibytes of memory. refused: hosts to which a move failed a while ago."""

    uuid: str
    host: str
    holds: Mapping[str, float]
    asks: Mapping[str, float]
    cost: float
    state: State = State.RUNS
    refused: frozenset[str] = frozenset()


Place = tuple[str, str]
"""A host and one of its resources."""


class Account:
    """What is held, promised and free, now and after the acts that are decided."""

    def __init__(self, hosts: Iterable[Host], servers: Iterable[Server], margin: float) -> None:
        self.there = {(one.name, name): each for one in hosts for name, each in one.resources.items() if each.spare is not None}
        self._of: dict[tuple[str, str], list[Place]] = {}
        for place, each in self.there.items():
            self._of.setdefault((place[0], each.kind), []).append(place)
        self.takes = {one.name for one in hosts if one.takes}
        self._margin = margin
        self.promised = {place: each.promised for place, each in self.there.items()}
        self.held: dict[Place, float] = {}
        for one in servers:
            if one.state not in (State.PAUSED, State.SHELVED):
                self.hold(one, 1)
        for place, held in self.held.items():
            self.promised[place] = max(self.promised.get(place, 0.0), held)

    def hold(self, server: Server, sign: int) -> None:
        """It runs on its host, or does so no more."""
        for name, amount in server.holds.items():
            place = server.host, name
            self.held[place] = self.held.get(place, 0.0) + sign * amount

    def arrives(self, server: Server, host: str) -> None:
        for kind, amount in server.asks.items():
            best = self._best(host, kind)
            if best is not None:
                self.held[best] = self.held.get(best, 0.0) + amount
                self.promised[best] += amount

    def spare(self, place: Place) -> float:
        return self.there[place].spare or 0.0

    def margin(self, place: Place) -> float:
        return self._margin * self.there[place].full

    def free(self, place: Place) -> float:
        """Of what is spare, that nobody uses who runs."""
        return self.spare(place) - self.held.get(place, 0.0)

    def room(self, place: Place) -> float:
        """For one that comes."""
        return self.spare(place) - max(self.promised[place], self.held.get(place, 0.0))

    def _best(self, host: str, kind: str) -> Place | None:
        """Of a host's disks, or uplinks, the one with most room."""
        fit = self._of.get((host, kind))
        return max(fit, key=lambda place: (self.room(place), place)) if fit else None

    def fits(self, server: Server, host: str) -> tuple[float, list[Place]] | None:
        """The scarcest share that is free there, and where it would be; None: it does not fit."""
        if host not in self.takes or host == server.host or server.refused & {host, ANYWHERE} or not server.asks:
            return None
        found = []
        for kind, amount in server.asks.items():
            place = self._best(host, kind)
            if place is None or self.room(place) + 1e-9 < amount + self.margin(place):
                return None
            found.append(place)
        return min(self.room(place) / self.there[place].full for place in found), found

    def say(self, place: Place) -> str:
        full, (host, name) = self.there[place].full, place
        return f"{host} has {percent(self.spare(place) / full)} of {name} spare and holds {percent(self.held[place] / full)}"


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"
