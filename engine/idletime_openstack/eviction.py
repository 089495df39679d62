# SPDX-License-Identifier: GPL-2.0-or-later
"""Who leaves a host that is not idle any more, who comes back, and why. Pure: facts of one time in, acts and a memory out.

A host is short of a resource when its background servers hold more of it than is spare. Being short for a breath is no reason,
so the rule is

    short       held > spare, for after_seconds without a pause; over again only when held <= spare - margin
    stay        as long as that pays: see pays_after()
    who         the cheapest first, by what moving it costs, until what is left fits; no one more than budget times a day
    where to    the host with most free that has room for it and margin; it is counted there at once
    nowhere     paused where it stands, or shelved, or left, by policy; back when there is room with margin for resume_seconds,
                there, or elsewhere if there is none there
    how often   one act at a time on a host, acts_per_minute over all

Lingering costs the foreground nothing, and what stays gets what is spare. It pays to move where the shortage will last for
longer than the move takes, by more the more there is to get here; and how long it will last is best told by how long it has
lasted (K. D. Ryu and J. K. Hollingsworth, Linger-Longer; here T_m / (1 - g), g: the part of what it holds that it gets).

With 40 % held, a margin of 5 and after_seconds = 120:

    spare  50  30  30  44       a minute each
    short   -  yes yes yes      44 is less than 40 + 5: not over, the clock goes on
    act     -   -   -   X       after two minutes

Room for one that comes is what is spare and promised to nobody: Placement keeps the part of one that is paused, and Nova asks.
Nothing is done about a resource whose spare time is not known, nor is anything moved there: an old gauge moves nobody.
The foreground does not depend on any of this: QEMU holds what is background. What is too much would starve; so a wrong
decision costs background work, and no decision costs that, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from .account import ANYWHERE, Account, Host, Place, Server, State, percent

DAY_SECONDS = 86400.0


class Nowhere(Enum):
    """What becomes of a server that fits on no host."""

    PAUSE = "pause"
    SHELVE = "shelve"
    LEAVE = "leave"


@dataclass(frozen=True)
class Settings:
    """Shares are of 1."""

    after_seconds: float = 120.0
    resume_seconds: float = 300.0
    margin: float = 0.05
    budget: int = 6
    acts_per_minute: float = 10.0
    nowhere: Nowhere = Nowhere.PAUSE
    cost_per_second: float = 0.0
    """Of a server's cost, what a live migration moves in a second; 0: not known, and after_seconds decide alone."""


class What(Enum):
    MOVE = "move"
    PAUSE = "pause"
    SHELVE = "shelve"
    RESUME = "resume"
    UNSHELVE = "unshelve"


LEAVES = {Nowhere.PAUSE: What.PAUSE, Nowhere.SHELVE: What.SHELVE}


@dataclass(frozen=True)
class Act:
    """One act. to: the host, of a move; of an unshelve the one that has room, though Nova chooses. why: one line."""

    what: What
    server: str
    why: str
    to: str = ""

    def __str__(self) -> str:
        return f"{self.what.value} {self.server}{f' to {self.to}' if self.to else ''}: {self.why}"


@dataclass(frozen=True)
class Memory:
    """Kept between decisions. Whoever loses it begins anew, and acts later."""

    short_since: Mapping[Place, float] = field(default_factory=dict)
    free: Mapping[Place, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """When how much was free, over resume_seconds."""
    disrupted: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    credit: float = 1.0
    at: float | None = None


@dataclass
class _Round:
    """One decision in the making."""

    now: float
    settings: Settings
    account: Account
    credit: float
    disrupted: dict[str, tuple[float, ...]]
    free: Mapping[Place, tuple[tuple[float, float], ...]]
    acts: list[Act] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    """Hosts that somebody leaves."""

    def best(self, server: Server, lasting: bool = False, but: Iterable[str] = ()) -> tuple[str, str] | None:
        """The host with most free that has room (lasting: has had it for resume_seconds), the first by name of equals."""
        fit = []
        for host in sorted(self.account.takes.difference(but)):
            found = self.account.fits(server, host)
            if found and (not lasting or all(self.lasted(*one) for one in zip(found[1], server.asks.values(), strict=True))):
                fit.append((-found[0], host))
        if not fit:
            return None
        share, host = min(fit)
        return host, f"{host} has {percent(-share)} free"

    def lasted(self, place: Place, amount: float) -> bool:
        """There was room for it, with margin, for resume_seconds."""
        seen = self.free.get(place, ())
        if not seen:
            return False
        need = amount + self.account.margin(place) - 1e-9
        return self.now - seen[0][0] >= self.settings.resume_seconds and all(free >= need for _, free in seen)

    def act(self, what: What, server: Server, why: str, to: str = "") -> None:
        self.acts.append(Act(what, server.uuid, why, to))
        self.credit -= 1
        if server.state is State.RUNS:
            self.disrupted[server.uuid] = (*self.disrupted.get(server.uuid, ()), self.now)
            self.account.hold(server, -1)
            self.left.add(server.host)
        if what is What.RESUME:
            self.account.hold(server, 1)
        elif to:
            self.account.arrives(server, to)


def decide(now: float, hosts: Sequence[Host], servers: Sequence[Server], settings: Settings,
           memory: Memory) -> tuple[list[Act], Memory, list[str]]:
    """What to do now, what to remember, and what could not be done, in words. now: seconds of a clock that does not go back."""
    account = Account(hosts, servers, settings.margin)
    there = {one.uuid for one in servers}
    disrupted = {uuid: kept for uuid, times in memory.disrupted.items() if uuid in there
                 and (kept := tuple(at for at in times if now - at < DAY_SECONDS))}
    short = {place: memory.short_since.get(place, now) for place in account.there
             if _is_short(account, place, place in memory.short_since)}
    free = {place: (*_lately(memory.free.get(place, ()), now - settings.resume_seconds), (now, account.free(place)))
            for place in account.there}
    round_ = _Round(now, settings, account, _credit(now, settings, memory), disrupted, free)
    for place, since in sorted(short.items(), key=lambda one: (one[1], one[0])):
        if now - since >= settings.after_seconds and place[0] not in round_.left:
            _relieve(round_, place, since, [one for one in servers if one.host == place[0]])
    _bring_back(round_, servers)
    return round_.acts, Memory(short, free, round_.disrupted, round_.credit, now), round_.notes


def _lately(seen: Sequence[tuple[float, float]], since: float) -> Sequence[tuple[float, float]]:
    """With the last one before, which says how it was then."""
    return seen[max((index for index, (at, _) in enumerate(seen) if at <= since), default=0):]


def shortage(hosts: Sequence[Host], servers: Sequence[Server], settings: Settings) -> frozenset[str]:
    """Servers of which one may have to leave, soon or now. Pure."""
    account = Account(hosts, servers, settings.margin)
    short = {place for place in account.there if _is_short(account, place, True)}
    return frozenset(one.uuid for one in servers if any((one.host, name) in short for name in one.holds))


def _is_short(account: Account, place: Place, was: bool) -> bool:
    held = account.held.get(place, 0.0)
    return held > 0 and held > account.spare(place) - (account.margin(place) if was else 0.0) + 1e-9


def _credit(now: float, settings: Settings, memory: Memory) -> float:
    """Acts that the rate allows: a bucket of one minute."""
    passed = 0.0 if memory.at is None else max(0.0, now - memory.at)
    return min(memory.credit + passed * settings.acts_per_minute / 60.0, max(1.0, settings.acts_per_minute))


def pays_after(share: float, move_seconds: float) -> float:
    """How long a host has to have been short, in seconds, for a move to pay. share: of what a server holds, that it gets there
    meanwhile; elsewhere it gets all. In paper 003's words, section 2: T_m (1 - l) / (h - l) with h = 1 - share, l = 0. Pure."""
    return move_seconds / (1 - share) if share < 1 else float("inf")


def _linger(round_: _Round, one: Server, place: Place, since: float) -> tuple[float, str]:
    """How long it is to stay yet, in seconds, and the model in words; "" where it has none."""
    if not round_.settings.cost_per_second:
        return 0.0, ""
    share = min(1.0, max(0.0, round_.account.spare(place) / round_.account.held[place]))
    move_seconds = one.cost / round_.settings.cost_per_second
    pays = pays_after(share, move_seconds)
    return pays - (round_.now - since), (f"it gets {percent(share)} of its part here, a move takes {move_seconds:.0f} s and "
                                         f"pays after {pays:.0f} s")


def _relieve(round_: _Round, place: Place, since: float, there: Sequence[Server]) -> None:
    """At most one server leaves: the next look sees what came of it."""
    if any(one.state is State.BUSY for one in there):
        return
    running = sorted((one for one in there if one.state is State.RUNS and one.holds.get(place[1], 0.0) > 0),
                     key=lambda one: (one.cost, one.uuid))
    able = [one for one in running if len(round_.disrupted.get(one.uuid, ())) < round_.settings.budget]
    why = f"{round_.account.say(place)}, for {round_.now - since:.0f} s"
    if not able:
        round_.notes.append(f"{why}: nobody leaves, as {_why_nobody(len(running), round_.settings)}")
        return
    if round_.credit < 1:
        round_.notes.append(f"{why}: later, as {round_.settings.acts_per_minute:g} acts a minute are the limit")
        return
    for one in able:
        to = round_.best(one)
        if to is None:
            continue
        left, model = _linger(round_, one, place, since)
        if left > 0:
            round_.notes.append(f"{why}: {one.uuid} stays: {model}")
        else:
            model = f"; {model}" if model else ""
            round_.act(What.MOVE, one, f"{why}; the cheapest that fits elsewhere, {to[1]}{model}", to[0])
        return
    what = LEAVES.get(round_.settings.nowhere)
    none = "its moves failed" if ANYWHERE in able[0].refused else "no other host has room"
    if what is None:
        round_.notes.append(f"{why}: {none}, and policy leaves them")
    else:
        round_.act(what, able[0], f"{why}; {none}")


def _why_nobody(running: int, settings: Settings) -> str:
    return f"each has been disrupted {settings.budget} times in 24 h" if running else "nothing can be done with who is there"


def _bring_back(round_: _Round, servers: Sequence[Server]) -> None:
    """Where there has been room for a while: in place, else elsewhere. A paused one gets nothing where it stands, and without
    room there for resume_seconds at least, so a move pays. Paused longest is not known, so the smallest first: it fits soonest.
    One a host, as the next look sees what came of it."""
    account, done = round_.account, {act.to for act in round_.acts}
    away = [one for one in servers if one.state in (State.PAUSED, State.SHELVED)]
    for one in sorted(away, key=lambda one: (max(one.asks.values(), default=0.0), one.uuid)):
        if round_.credit < 1:
            return
        places = [(one.host, name) for name in one.holds]
        fits = one.state is State.PAUSED and _is_room(round_, one, places)
        if fits and one.host not in done and all(round_.lasted(place, one.holds[place[1]]) for place in places):
            why = " and ".join(f"{percent(account.free(place) / account.there[place].full)} of {place[1]}" for place in places)
            round_.act(What.RESUME, one, f"{one.host} has {why or 'all'} free again")
            done.add(one.host)
            continue
        if fits or any(place not in account.there for place in places):
            continue
        to = round_.best(one, lasting=True, but=done)
        if to is not None:
            what = What.UNSHELVE if one.state is State.SHELVED else What.MOVE
            why = f"{to[1]} for {round_.settings.resume_seconds:.0f} s"
            round_.act(what, one, why if what is What.UNSHELVE else f"it is paused and {one.host} has no room; {why}", to[0])
            done.add(to[0])


def _is_room(round_: _Round, one: Server, places: Sequence[Place]) -> bool:
    """For a paused one where it stands, now."""
    account = round_.account
    return all(place in account.there and account.free(place) + 1e-9 >= one.holds[place[1]] + account.margin(place)
               for place in places)
