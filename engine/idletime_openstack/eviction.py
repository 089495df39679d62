# SPDX-License-Identifier: GPL-2.0-or-later
"""Who leaves a host that is not idle any more, who comes back, and why. Pure: facts of one time in, acts and a memory out.

A host is short when its background servers hold more than it has spare. Being short for a breath is no reason, so the rule is

    short       held > spare, for after_seconds without a pause; over again only when held <= spare - margin
    who         the cheapest first, by what moving it costs, until what is left fits; no one more than budget times a day
    where to    the host with most free that has room for it and margin; it is counted there at once
    nowhere     paused where it stands (or left, by policy); resumed when there is room with margin for resume_seconds
    how often   one act at a time on a host, acts_per_minute over all

With 40 % held, a margin of 5 and after_seconds = 120:

    spare  50  30  30  44       a minute each
    short   -  yes yes yes      44 is less than 40 + 5: not over, the clock goes on
    act     -   -   -   X       after two minutes

Nothing is done about a host whose spare time is not known, nor is anything moved there: an old gauge moves nobody.
The foreground does not depend on any of this: QEMU holds what is background. What is too much would starve; so a wrong
decision costs background work, and no decision costs that, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

DAY_SECONDS = 86400.0


class Nowhere(Enum):
    """What becomes of a server that fits on no host."""

    PAUSE = "pause"
    LEAVE = "leave"


class State(Enum):
    RUNS = "runs"
    PAUSED = "paused"
    """By us. One that its owner has paused is none of our business, and no fact here."""
    BUSY = "busy"
    """Something is being done with it: it holds its part, and is left alone."""


@dataclass(frozen=True)
class Settings:
    """Shares are of 1."""

    after_seconds: float = 120.0
    resume_seconds: float = 300.0
    margin: float = 0.05
    budget: int = 6
    acts_per_minute: float = 10.0
    nowhere: Nowhere = Nowhere.PAUSE


@dataclass(frozen=True)
class Host:
    """spare: steady share by its gauge; None is unknown."""

    name: str
    spare: float | None


@dataclass(frozen=True)
class Server:
    """A background server. holds: what its flavor asks. cost: of a disruption, in any unit that is the same for all, such as
    mebibytes of memory."""

    uuid: str
    host: str
    holds: float
    cost: float
    state: State = State.RUNS


class What(Enum):
    MOVE = "move"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True)
class Act:
    """One act. to: the host, of a move. why: one line."""

    what: What
    server: str
    why: str
    to: str = ""

    def __str__(self) -> str:
        return f"{self.what.value} {self.server}{f' to {self.to}' if self.to else ''}: {self.why}"


@dataclass(frozen=True)
class Memory:
    """Kept between decisions. Whoever loses it begins anew, and acts later."""

    short_since: Mapping[str, float] = field(default_factory=dict)
    roomy_since: Mapping[str, float] = field(default_factory=dict)
    disrupted: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    credit: float = 1.0
    at: float | None = None


@dataclass
class _Round:
    """One decision in the making."""

    now: float
    settings: Settings
    spare: dict[str, float]
    held: dict[str, float]
    credit: float
    disrupted: dict[str, tuple[float, ...]]
    acts: list[Act] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def free(self, host: str) -> float:
        return self.spare[host] - self.held.get(host, 0.0)

    def best(self, server: Server) -> str | None:
        """The host with most free that has room; the first by name of equals."""
        need = server.holds + self.settings.margin
        fit = sorted((-self.free(host), host) for host in self.spare if host != server.host and self.free(host) >= need)
        return fit[0][1] if fit else None

    def act(self, what: What, server: Server, why: str, to: str = "") -> None:
        self.acts.append(Act(what, server.uuid, why, to))
        self.credit -= 1
        if server.state is State.RUNS:
            self.disrupted[server.uuid] = (*self.disrupted.get(server.uuid, ()), self.now)
            self.held[server.host] -= server.holds
        if what is not What.PAUSE:
            host = to or server.host
            self.held[host] = self.held.get(host, 0.0) + server.holds


def decide(now: float, hosts: Sequence[Host], servers: Sequence[Server], settings: Settings,
           memory: Memory) -> tuple[list[Act], Memory, list[str]]:
    """What to do now, what to remember, and what could not be done, in words. now: seconds of a clock that does not go back."""
    held: dict[str, float] = {}
    for one in servers:
        if one.state is not State.PAUSED:
            held[one.host] = held.get(one.host, 0.0) + one.holds
    there = {one.uuid for one in servers}
    disrupted = {uuid: kept for uuid, times in memory.disrupted.items() if uuid in there
                 and (kept := tuple(at for at in times if now - at < DAY_SECONDS))}
    spare = {one.name: one.spare for one in hosts if one.spare is not None}
    short = {host: memory.short_since.get(host, now) for host in spare
             if _is_short(spare[host], held.get(host, 0.0), host in memory.short_since, settings)}
    round_ = _Round(now, settings, spare, held, _credit(now, settings, memory), disrupted)
    before = dict(held)
    for host, since in sorted(short.items(), key=lambda one: (one[1], one[0])):
        if now - since >= settings.after_seconds:
            _relieve(round_, host, since, [one for one in servers if one.host == host])
    roomy = {host: memory.roomy_since.get(host, now) for host in spare if host not in short
             and spare[host] - before.get(host, 0.0) >= settings.margin}
    _bring_back(round_, roomy, short, servers)
    return round_.acts, Memory(short, roomy, round_.disrupted, round_.credit, now), round_.notes


def _is_short(spare: float, held: float, was: bool, settings: Settings) -> bool:
    return held > 0 and held > spare - (settings.margin if was else 0.0) + 1e-9


def _credit(now: float, settings: Settings, memory: Memory) -> float:
    """Acts that the rate allows: a bucket of one minute."""
    passed = 0.0 if memory.at is None else max(0.0, now - memory.at)
    return min(memory.credit + passed * settings.acts_per_minute / 60.0, max(1.0, settings.acts_per_minute))


def _relieve(round_: _Round, host: str, since: float, there: Sequence[Server]) -> None:
    """At most one server leaves: the next look sees what came of it."""
    if any(one.state is State.BUSY for one in there):
        return
    running = sorted((one for one in there if one.state is State.RUNS), key=lambda one: (one.cost, one.uuid))
    able = [one for one in running if len(round_.disrupted.get(one.uuid, ())) < round_.settings.budget]
    why = (f"{host} has {_percent(round_.spare[host])} spare and holds {_percent(round_.held[host])}, "
           f"for {round_.now - since:.0f} s")
    if not able:
        round_.notes.append(f"{why}: nobody leaves, as each has been disrupted {round_.settings.budget} times in 24 h")
        return
    if round_.credit < 1:
        round_.notes.append(f"{why}: later, as {round_.settings.acts_per_minute:g} acts a minute are the limit")
        return
    for one in able:
        to = round_.best(one)
        if to is not None:
            room = f"{to} has {_percent(round_.free(to))} free"
            round_.act(What.MOVE, one, f"{why}; the cheapest that fits elsewhere, {room}", to)
            return
    if round_.settings.nowhere is Nowhere.PAUSE:
        round_.act(What.PAUSE, able[0], f"{why}; no other host has room")
    else:
        round_.notes.append(f"{why}: no other host has room, and policy leaves them")


def _bring_back(round_: _Round, roomy: Mapping[str, float], short: Mapping[str, float], servers: Sequence[Server]) -> None:
    """Where there has been room for a while: in place, else elsewhere. Paused longest is not known, so the smallest first:
    it fits soonest."""
    acted = {act.server for act in round_.acts}
    done = {act.to for act in round_.acts}
    settings = round_.settings
    for one in sorted((one for one in servers if one.state is State.PAUSED), key=lambda one: (one.holds, one.uuid)):
        if round_.credit < 1:
            return
        if one.uuid in acted:
            continue
        fit = [host for host, since in roomy.items() if host not in done and round_.now - since >= settings.resume_seconds
               and round_.free(host) >= one.holds + settings.margin]
        if one.host in fit:
            round_.act(What.RESUME, one, f"{one.host} has {_percent(round_.free(one.host))} free again")
            done.add(one.host)
        elif fit and one.host in short:
            to = min(fit, key=lambda host: (-round_.free(host), host))
            room = f"{to} has {_percent(round_.free(to))} free"
            round_.act(What.MOVE, one, f"it is paused and {one.host} stays short; {room}", to)
            done.add(to)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
