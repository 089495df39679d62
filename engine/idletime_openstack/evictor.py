# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out eviction.decide(): facts of Placement and Nova, a pure decision, acts; all anew at each look.

What has to outlive this program is in Nova. A server that we pause or shelve gets the tag idletime-evicted before, and loses it
when it is seen running again; whether it was we who paused it last is read from the list of its actions, before it is resumed.
Disruptions of the last day are read there, too, and failed moves from Nova's migrations. So it may be killed at any moment:

    after the tag, before the pause      the server runs and has a tag: the tag goes
    after the pause                      it is paused, tagged, and the pause is ours: it comes back when there is room
    after a migration was asked for      it is busy; then it is elsewhere, or the failure is among the migrations
    after the resume, before the tag     it runs and has a tag: the tag goes

Only the times since when hosts are short or roomy are lost; whoever begins anew acts later. Nothing is waited for. When Nova,
Placement, Keystone or the election does not answer, or too late for facts of one time, nothing is done, and that is said.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from .account import State
from .compute import Background, Changed, Compute, ComputeError, Migration, Seen, Unanswered, by_us, disruptions
from .eviction import DAY_SECONDS, Act, Memory, Settings, What, decide, shortage
from .facts import UNDERWAY, Facts, facts, state_of
from .leader import Leader, LeaderError
from .metrics import Metrics
from .notify import notify
from .placement import Child, Placement, PlacementError
from .saying import Saying

log = logging.getLogger("idletime-openstack-evict")

RETRY_SECONDS = 600.0
"""A move that failed, or an act that was refused, is not tried again before: what was wrong then hardly is right at once."""

UNSURE_SECONDS = 60.0
"""Nova has taken a request by then, or lost it: as long as its own clients wait for an answer."""

ENDABLE = ("queued", "preparing", "running")
"""Migrations that Nova can end."""


class TooSlow(Exception):
    """The facts are not of one time."""


@dataclass(frozen=True)
class Policy:
    """What the operator chose. Seconds: a look's facts may be facts_seconds apart; a migration of ours that takes longer than
    move_seconds is ended; whoever is busy for longer than busy_seconds is not waited for."""

    background: Background
    eviction: Settings = Settings()
    dry_run: bool = False
    move_seconds: float = 900.0
    busy_seconds: float = 1800.0
    facts_seconds: float = 60.0


class Evictor:
    """clock: seconds that do not go back; wall: UTC."""

    def __init__(self, compute: Compute, placement: Placement, leader: Leader, policy: Policy, metrics: Metrics | None = None,
                 clock: Callable[[], float] = time.monotonic, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._compute, self._placement, self._leader, self._policy = compute, placement, leader, policy
        self._clock, self._wall = clock, wall
        self._metrics = metrics or Metrics()
        self._saying = Saying(log)
        self._noted: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        """What another leader may have changed meanwhile."""
        self._led = False
        self._memory = Memory()
        self._known: set[str] = set()
        self._busy_since: dict[str, float] = {}
        self._failed: dict[str, float] = {}
        self._unsure: dict[str, float] = {}
        self._marked: dict[str, float] = {}
        self._back: set[str] = set()
        self._changed: set[str] = set()
        self._foreign: set[str] = set()
        self._unshelved: dict[str, float] = {}
        self._refused: list[tuple[float, Migration]] = []
        self._user: str | None = None
        self._dry: set[str] = set()

    def try_look(self) -> bool:
        """A look; what goes wrong is said once, and the next look comes."""
        try:
            leads = self._leader.leads()
            self._saying.say("election", "")
            self._lead(leads)
            if leads:
                self._look()
        except (ComputeError, PlacementError, TooSlow, LeaderError) as error:
            what = {PlacementError: "placement", LeaderError: "election"}.get(type(error), "nova")
            return self._over(what, f"nothing is done: {error}")
        except Exception as error:  # whatever it is, the next look comes
            log.debug("a fault of ours", exc_info=True)
            return self._over("look", f"nothing is done: a fault of ours: {type(error).__name__}: {error}")
        for what in ("placement", "nova", "look"):
            self._saying.say(what, "")
        return self._over("", "")

    def _over(self, what: str, problem: str) -> bool:
        if what:
            self._saying.say(what, problem)
        if what == "election":
            self._lead(False)
        self._metrics.looked(self._led, problem)
        return not problem

    def _lead(self, leads: bool) -> None:
        if leads and not self._led:
            self._forget()
            log.info("leads: begins anew")
        elif self._led and not leads:
            log.info("does not lead any more: another evictor acts")
            self._forget()
        self._led = leads

    # ---- facts

    def _look(self) -> None:
        began = self._clock()

        def between() -> None:
            notify(WATCHDOG="1")  # a large cloud takes its time; one request that hangs is another thing
            if self._clock() - began > self._policy.facts_seconds:
                raise TooSlow(f"Nova and Placement have not said all within {self._policy.facts_seconds:.0f} s, so they are "
                              "not of one time; remedy: see their logs, or set facts_seconds in [eviction]")

        if self._user is None:
            self._user = self._compute.user()
        children = list(self._placement.everywhere(between))
        between()
        nodes = self._compute.nodes()
        between()
        seen = self._compute.servers(self._policy.background)
        between()
        wall = self._wall()
        migrations = self._compute.migrations(wall, wall - timedelta(seconds=RETRY_SECONDS))
        migrations += self._migrating(seen.values(), migrations, wall, between)
        between()
        self._see_unshelved(seen)
        self._refused = [one for one in self._refused if self._clock() - one[0] < RETRY_SECONDS]
        refused = [one for _, one in self._refused]
        found = facts(children, nodes, seen.values(), [*migrations, *refused], self._stuck(seen.values()),
                      self._unsure_now())
        self._back &= seen.keys()
        self._changed &= seen.keys()
        self._foreign &= seen.keys()
        self._learn(found, wall, between)
        between()
        self._end_slow(migrations, seen)
        self._clear(seen.values())
        self._act(found, seen, children, began)

    def _migrating(self, seen: Iterable[Seen], known: Iterable[Migration], wall: datetime,
                   between: Callable[[], None]) -> list[Migration]:
        """Those that have not changed for long."""
        there = {one.server for one in known if one.status in UNDERWAY}
        found = []
        for one in seen:
            if one.status == "MIGRATING" and one.uuid not in there:
                between()
                try:
                    found += self._compute.underway(one.uuid, wall)
                except Changed as error:
                    log.debug("%s", error)  # it has arrived, or is gone
        return found

    def _stuck(self, seen: Iterable[Seen]) -> frozenset[str]:
        """Busy for too long, or an act was refused a while ago."""
        now = self._clock()
        busy = {one.uuid for one in seen if state_of(one) is State.BUSY}
        self._busy_since = {uuid: self._busy_since.get(uuid, now) for uuid in busy}
        self._failed = {uuid: at for uuid, at in self._failed.items() if now - at < RETRY_SECONDS}
        slow = {uuid for uuid, since in self._busy_since.items() if now - since > self._policy.busy_seconds}
        return frozenset(slow | self._failed.keys())

    def _see_unshelved(self, seen: dict[str, Seen]) -> None:
        """Nova takes an unshelve, and finds out later that it cannot: then it is others' turn."""
        for uuid, asked in list(self._unshelved.items()):
            one = seen.get(uuid)
            if one is not None and one.task:
                continue
            del self._unshelved[uuid]
            if one is not None and state_of(one) is State.SHELVED:
                self._failed[uuid] = self._clock()
                log.warning("unshelve %s failed: Nova took it %.0f s ago, and it is shelved still; not tried again for %.0f s; "
                            "remedy: openstack server event list %s", uuid, self._clock() - asked, RETRY_SECONDS, uuid)

    def _unsure_now(self) -> Set[str]:
        """Nova did not say whether it does what was asked of these."""
        now = self._clock()
        self._unsure = {uuid: at for uuid, at in self._unsure.items() if now - at < UNSURE_SECONDS}
        return self._unsure.keys()

    def _learn(self, found: Facts, wall: datetime, between: Callable[[], None]) -> None:
        """What was done today with those that may have to leave: before this program began, or by another leader."""
        disrupted = dict(self._memory.disrupted)
        self._known &= {one.uuid for one in found.servers}  # of who is away for one look, decide() forgets it
        for uuid in sorted(shortage(found.hosts, found.servers, self._policy.eviction) - self._known):
            between()
            try:
                ages = disruptions(self._compute.actions(uuid, wall), self._user or "", DAY_SECONDS)
            except Changed as error:
                log.debug("%s", error)  # it is gone
                continue
            disrupted[uuid] = tuple(sorted(self._clock() - age for age in ages))
            self._known.add(uuid)
        self._memory = replace(self._memory, disrupted=disrupted)

    # ---- acts

    def _end_slow(self, migrations: Iterable[Migration], seen: dict[str, Seen]) -> None:
        """Migrations of ours that take too long: the server may be paused then, and its host is not short for ever."""
        for one in migrations:
            if one.status not in ENDABLE or one.age < self._policy.move_seconds or one.user != self._user \
                    or one.server not in seen or one.server in self._failed:
                continue
            self._do("end", one.server, lambda one=one: self._compute.abort(one),  # type: ignore[misc]
                     f"end the migration of {one.server} to {one.to}: it takes {one.age:.0f} s, and move_seconds is "
                     f"{self._policy.move_seconds:.0f}")

    def _clear(self, seen: Iterable[Seen]) -> None:
        """Marks of those that run. A leader that was killed may have asked Nova for a pause that is still to come: without its
        mark nobody would end that."""
        now = self._clock()
        there = {one.uuid for one in seen if one.marked and state_of(one) is State.RUNS}
        self._marked = {uuid: self._marked.get(uuid, now) for uuid in there}
        for uuid in sorted(there):
            if uuid in self._back or now - self._marked[uuid] >= UNSURE_SECONDS:
                self._do("unmark", uuid, lambda uuid=uuid: self._unmark(uuid), f"unmark {uuid}: it runs")  # type: ignore[misc]

    def _unmark(self, server: str) -> None:
        """Raises ComputeError; Changed if it runs no more: it may be another leader's then."""
        if state_of(now := self._compute.server(server)) is not State.RUNS:
            raise Changed(f"it is {now.status} on {now.host} {now.task}".rstrip())
        self._compute.unmark(server)

    def _act(self, found: Facts, seen: dict[str, Seen], children: list[Child], began: float) -> None:
        before = self._memory
        acts, after, notes = decide(self._clock(), found.hosts, found.servers, self._policy.eviction, before)
        self._memory = after
        self._note([*found.notes.values(), *notes, *self._unknown(found), *self._nothing(seen, children)])
        self._metrics.facts(found, after, self._policy.eviction, children)
        if self._policy.dry_run:
            self._memory = replace(after, disrupted=before.disrupted, credit=self._policy.eviction.acts_per_minute)
            self._dry &= {_key(act) for act in acts}
        for act in acts:
            if self._policy.dry_run:
                self._say_dry(act)
            elif self._clock() - began > 2 * self._policy.facts_seconds:
                log.info("later, as Nova is slow: %s", act)
                self._take_back(act, before)
            elif not self._do(act.what.value, act.server, lambda act=act: self._carry_out(act, seen[act.server]), act):  # type: ignore[misc]
                self._take_back(act, before)

    def _say_dry(self, act: Act) -> None:
        if _key(act) not in self._dry:
            log.info("dry run, would %s", act)
            self._metrics.acted(act.what.value, "dry")
        self._dry.add(_key(act))

    def _take_back(self, act: Act, before: Memory) -> None:
        """It came to nothing, and disrupted nobody."""
        self._memory = replace(self._memory, disrupted={
            **self._memory.disrupted, act.server: before.disrupted.get(act.server, ())})
        self._known.discard(act.server)  # if it did after all, Nova knows

    def _unknown(self, found: Facts) -> list[str]:
        """Paused ones that no gauge brings back."""
        silent = {one.name for one in found.hosts if any(each.spare is None for each in one.resources.values())}
        return [f"server {one.uuid} stays {one.state.value}: the gauge of {one.host} is unknown" for one in found.servers
                if one.state is State.PAUSED and one.host in silent]

    def _nothing(self, seen: dict[str, Seen], children: list[Child]) -> list[str]:
        who = self._policy.background
        return ([] if seen else [f"Nova has no server of flavors {', '.join(who.flavors) or '-'} and projects "
                                 f"{', '.join(sorted(who.projects)) or '-'}: there is nobody to evict"]) + (
            [] if children else ["Placement knows no gauge of any compute node: nobody is evicted; remedy: does "
                                 "idletime-openstack run there?"])

    def _do(self, what: str, server: str, act: Callable[[], None], said: object) -> bool:
        """said: the act, with its reason."""
        if self._policy.dry_run:
            return False
        if not self._leader.leads():
            raise LeaderError(f"another evictor leads now, and decides about: {said}")
        log.info("%s", said)
        return self._try(what, server, act, said.to if isinstance(said, Act) and said.what is What.MOVE else "")

    def _try(self, what: str, server: str, act: Callable[[], None], to: str = "") -> bool:
        """to: of a move, the host; if that is refused it is another host's turn, or the server is paused."""
        notify(WATCHDOG="1")
        try:
            act()
        except Changed as error:
            log.info("%s %s: not done, as it has changed meanwhile: %s", what, server, error)
            self._metrics.acted(what, "changed")
            if server in self._changed:  # at the second time it is no chance
                self._failed[server] = self._clock()
            self._changed ^= {server}
        except Unanswered as error:
            self._metrics.acted(what, "failed")
            self._unsure[server] = self._clock()
            log.warning("%s %s: %s; whether it is done shows within %.0f s: until then its host is let be", what, server,
                        error, UNSURE_SECONDS)
        except ComputeError as error:
            self._metrics.acted(what, "failed")
            if to:
                self._refused.append((self._clock(), Migration(0, "", server, "error", to, "", 0.0)))
            else:
                self._failed[server] = self._clock()
            log.warning("%s %s failed: %s; not tried again for %.0f s", what, server, error, RETRY_SECONDS)
        else:
            self._metrics.acted(what, "done")
            self._changed.discard(server)
            return True
        return False

    def _carry_out(self, act: Act, before: Seen) -> None:
        """Raises ComputeError; Changed if the server is not as the decision saw it."""
        now = self._compute.server(act.server)
        if (now.host, now.status, state_of(now)) != (before.host, before.status, state_of(before)):
            raise Changed(f"it was {before.status} on {before.host}, and is {now.status} on {now.host} {now.task}".rstrip())
        match act.what:
            case What.MOVE:
                self._own(act.server, now)
                self._compute.move(act.server, act.to)
            case What.PAUSE | What.SHELVE:
                self._back.discard(act.server)
                self._compute.mark(act.server)
                (self._compute.pause if act.what is What.PAUSE else self._compute.shelve)(act.server)
            case What.RESUME | What.UNSHELVE:
                self._bring_back(act.server, now)

    def _own(self, server: str, now: Seen) -> None:
        """Raises Changed if the server was paused or shelved by somebody else. Its mark stays until it runs: it tells whoever
        looks for what was evicted, also where the evictor had another user then."""
        what = {"PAUSED": "pause", "SHELVED": "shelve", "SHELVED_OFFLOADED": "shelve"}.get(now.status)
        if what is None or by_us(done := self._compute.actions(server, self._wall()), what, self._user or ""):
            return
        self._failed[server] = self._clock()
        if server not in self._foreign:
            who = next((one.user for one in done if one.action == what), "")
            log.warning("server %s (%s) stays as it is: the last %s was by user %s, and the evictor is %s; remedy, if nobody "
                        "wants it so: openstack server un%s %s", server, now.name, what, who or "-", self._user, what, server)
        self._foreign.add(server)
        raise Changed("somebody else did it since; it is left alone")

    def _bring_back(self, server: str, now: Seen) -> None:
        self._own(server, now)
        if now.status == "PAUSED":
            self._compute.resume(server)
        else:
            self._compute.unshelve(server)
            self._unshelved[server] = self._clock()
        self._back.add(server)

    def _note(self, notes: list[str]) -> None:
        """Each once, whatever its numbers; anew after it was over."""
        keys = {re.sub(r"\b\d+(?=%| s\b)", "N", one): one for one in notes}
        for key, one in keys.items():
            if key not in self._noted:
                log.info("%s", one)
        self._noted = set(keys)


def _key(act: Act) -> str:
    return f"{act.what.value} {act.server} {act.to}"
