# SPDX-License-Identifier: GPL-2.0-or-later
"""Ways to share a fleet between foreground and background, each played over the same day. Pure.

    static     hosts of its own for the background. Each host's foreground moves as a whole, once, first fit by its peak, where
               the sum is above 70 % for 1 % of the day at most; the day is known in advance
    cap        background spread evenly, cut to a fixed share of each disk (I/O throttling), beside the foreground
    idletime   placed once by the gauge of the first minutes, held by Idletime
    at once    the same, moved as soon as a host is short, and paused where none has room (immediate eviction)
    paused     the same, never moved: paused while its host is short
    evicting   the same, moved and paused by eviction.decide(), two minutes after a host became short
    lingering  the same, moved when that pays (Linger-Longer)
    oracle     servers are where spare time is, each minute, at once, for nothing; held by Idletime
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from idletime.gauge.spare import Smoother
from idletime_openstack.account import Host, Resource, Server, State
from idletime_openstack.eviction import Act, Memory, Settings, What, decide

from .day import Day
from .model import Fleet, Sums, response, shared

TARGET = 0.7
"""How busy an operator lets the foreground's hosts become."""
SETTLE_MINUTES = 5
DISK = "disk"


@dataclass
class Played:
    """sums: of the day. work: of each minute. reasons: of all acts, in order, with the minute."""

    sums: Sums = field(default_factory=Sums)
    work: list[float] = field(default_factory=list)
    reasons: list[tuple[int, str]] = field(default_factory=list)

    def minute(self, work: float) -> None:
        self.work.append(work)
        self.sums.work += work


def static(day: Day, fleet: Fleet) -> Played:
    packed = pack(day)
    played = Played()
    for minute in day:
        together = [sum(minute[index] for index in group) for group in packed]
        for group, busy in zip(packed, together, strict=True):
            for index in group:
                played.sums.foreground(minute[index], response(busy))
        played.minute(min(float(fleet.hosts - len(packed)), fleet.servers * fleet.most))
    return played


def pack(day: Day) -> list[list[int]]:
    """Which hosts' foreground shares a host."""
    columns = [[minute[index] for minute in day] for index in range(len(day[0]))]
    found: list[tuple[list[int], list[float]]] = []
    for index in sorted(range(len(columns)), key=lambda one: (-_peak(columns[one]), one)):
        for group, total in found:
            both = [mine + theirs for mine, theirs in zip(columns[index], total, strict=True)]
            if _peak(both) <= TARGET:
                group.append(index)
                total[:] = both
                break
        else:
            found.append(([index], list(columns[index])))
    return [group for group, _ in found]


def _peak(column: Sequence[float]) -> float:
    """What it is above of for 1 % of the time."""
    return sorted(column)[-1 - len(column) // 100]


def cap(day: Day, fleet: Fleet) -> Played:
    played = Played()
    running = [fleet.servers // fleet.hosts + (index < fleet.servers % fleet.hosts) for index in range(fleet.hosts)]
    for minute in day:
        work = 0.0
        for busy, there in zip(minute, running, strict=True):
            used = min(fleet.cap, there * fleet.most, 1 - busy)
            work += used
            played.sums.foreground(busy, response(busy + used))
        played.minute(work)
    return played


def oracle(day: Day, fleet: Fleet) -> Played:
    played = Played()
    for minute in day:
        rooms = [fleet.usable * (1 - busy) for busy in minute]
        work = min(sum(rooms), fleet.servers * fleet.most)
        part = work / sum(rooms) if sum(rooms) else 0.0
        for busy in minute:
            played.sums.foreground(busy, response(busy) * (1 + fleet.slowdown * part))
        played.minute(work)
    return played


def idletime(day: Day, fleet: Fleet) -> Played:
    return _held(day, fleet, None)


def evicting(day: Day, fleet: Fleet, settings: Settings | None = None) -> Played:
    return _held(day, fleet, settings or Settings())


def at_once(day: Day, fleet: Fleet) -> Played:
    return _held(day, fleet, Settings(after_seconds=0, budget=1000))


def paused(day: Day, fleet: Fleet) -> Played:
    return _held(day, fleet, Settings(after_seconds=0, budget=1000), moves=False)


def lingering(day: Day, fleet: Fleet) -> Played:
    return _held(day, fleet, Settings(cost_per_second=fleet.cost_per_second))


WAYS: dict[str, Callable[[Day, Fleet], Played]] = {
    "static": static, "cap": cap, "idletime": idletime, "paused": paused, "at once": at_once, "evicting": evicting,
    "lingering": lingering, "oracle": oracle}


def _held(day: Day, fleet: Fleet, settings: Settings | None, moves: bool = True) -> Played:
    """Hosts have gauges; servers are placed when these know something, by most free, as the weigher does."""
    played, memory = Played(), Memory(credit=1.0)
    servers: dict[str, Server] = {}
    busy_until: dict[str, int] = {}
    for now, (minute, hosts) in enumerate(zip(day, _gauged(day), strict=True)):
        if now == SETTLE_MINUTES:
            servers = _place(hosts, fleet)
        elif settings is not None and servers:
            seen = [replace(one, state=State.BUSY) if busy_until.get(one.uuid, 0) > now else one for one in servers.values()]
            there = hosts if moves else [replace(host, takes=False) for host in hosts]
            acts, memory, _ = decide(now * 60.0, there, seen, settings, memory)
            for act in acts:
                _carry_out(act, servers, played, now)
                if act.what is What.MOVE:
                    busy_until[act.server] = now + fleet.move_minutes(servers[act.server].cost)
        _work(played, minute, fleet, [one for one in servers.values() if one.state is State.RUNS and
                                      busy_until.get(one.uuid, 0) <= now])
    return played


@lru_cache(maxsize=1)
def _gauged(day: Day) -> list[list[Host]]:
    """What the hosts' gauges say after each minute; the same for all ways."""
    gauges, found = [Smoother() for _ in day[0]], []
    for minute in day:
        for gauge, busy in zip(gauges, minute, strict=True):
            gauge.add(1 - busy, 60.0)
        found.append([Host(f"host-{index:03}", {DISK: Resource(DISK, gauge.spare.steady)})
                      for index, gauge in enumerate(gauges)])
    return found


def _place(hosts: Sequence[Host], fleet: Fleet) -> dict[str, Server]:
    """One after another where most is free, while it fits."""
    free = {one.name: one.resources[DISK].spare or 0.0 for one in hosts}
    servers = {}
    for index in range(fleet.servers):
        host = max(sorted(free), key=lambda name: free[name])
        if free[host] < fleet.holds:
            break
        free[host] -= fleet.holds
        uuid = f"server-{index:04}"
        servers[uuid] = Server(uuid, host, {DISK: fleet.holds}, {DISK: fleet.holds}, cost=1 + index % 8)
    return servers


def _carry_out(act: Act, servers: dict[str, Server], played: Played, now: int) -> None:
    one = servers[act.server]
    played.reasons.append((now, str(act)))
    if act.what is What.MOVE:
        played.sums.moves += 1
        servers[act.server] = replace(one, host=act.to)
    else:
        played.sums.pauses += act.what is What.PAUSE
        servers[act.server] = replace(one, state=State.PAUSED if act.what is What.PAUSE else State.RUNS)


def _work(played: Played, minute: Sequence[float], fleet: Fleet, running: Sequence[Server]) -> None:
    count: dict[str, int] = {}
    for one in running:
        count[one.host] = count.get(one.host, 0) + 1
    work = 0.0
    for index, busy in enumerate(minute):
        room = fleet.usable * (1 - busy)
        used = shared(room, count.get(f"host-{index:03}", 0), fleet)
        work += used
        played.sums.foreground(busy, response(busy) * (1 + fleet.slowdown * (used / room if room else 0.0)))
    played.minute(work)
