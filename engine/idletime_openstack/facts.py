# SPDX-License-Identifier: GPL-2.0-or-later
"""From what Placement and Nova say to the hosts and servers that eviction decides about. Pure.

    a node is down, or its gauge is older than STALE_SECONDS   its resources are unknown: nobody leaves, nobody comes
    a server runs                                              RUNS
    it is paused or shelved, and has our mark                  PAUSED, SHELVED
    it is paused, stopped or shelved by somebody else          no fact: it is left alone, and uses nothing
    something is being done with it, or that is not known      BUSY; after busy_seconds STUCK, as an error is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from .account import ANYWHERE, Host, Resource, Server, State
from .candidates import asked
from .compute import Migration, Node, Seen
from .placement import Child
from .providers import resource_of

STALE_SECONDS = 180.0
"""Three times RENEW_SECONDS of the agent."""
ENDED = {"error", "failed", "cancelled"}
"""Migrations that came to nothing."""
UNDERWAY = {"accepted", "queued", "preparing", "running", "post-migrating"}


@dataclass(frozen=True)
class Facts:
    """notes: what is not as it should be, by what it is about."""

    hosts: tuple[Host, ...] = ()
    servers: tuple[Server, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


def facts(children: Sequence[Child], nodes: Mapping[str, Node], seen: Iterable[Seen], migrations: Sequence[Migration],
          stuck: frozenset[str] = frozenset(), unsure: Set[str] = frozenset()) -> Facts:
    """migrations: of the last while, oldest first. stuck: servers with which nothing can be done for now. unsure: those with
    which something may be going on."""
    notes: dict[str, str] = {}
    by_host: dict[str, dict[str, Resource]] = {}
    for child in children:
        node = nodes.get(child.root)
        if node is None or not node.host:
            notes[child.name] = (f"{child.name}: Nova has no compute node {child.root}; nothing is done with it; remedy: was "
                                 "it deleted? openstack resource provider delete")
            continue
        by_host.setdefault(node.host, {})[resource_of(child.name)] = _resource(child, node, notes)
    hosts = tuple(Host(node.host, by_host[node.host], node.takes) for node in nodes.values() if node.host in by_host)
    return Facts(hosts, tuple(_servers(children, nodes, seen, migrations, stuck, unsure, notes)), notes)


def _resource(child: Child, node: Node, notes: dict[str, str]) -> Resource:
    spare = child.spare
    if not node.up:
        notes[child.name] = f"{child.name}: nova-compute on {node.host} is down; nothing is done with it"
        spare = None
    elif spare is None:
        notes[child.name] = (f"{child.name}: its gauge knows nothing; nothing is done with it; remedy: virt-idletime gauge on "
                             f"{node.host}")
    elif child.age > STALE_SECONDS:
        notes[child.name] = (f"{child.name}: its gauge is {_old(child.age)}; nothing is done with it; remedy: does "
                             f"idletime-openstack run on {node.host}, in this version?")
        spare = None
    promised = float(sum(child.used.values()))
    return Resource(child.kind, None if spare is None else float(spare), promised, float(child.full or 1))


def _old(age: float) -> str:
    return "older than three minutes" if age < float("inf") else "of an unknown age"


def _servers(children: Sequence[Child], nodes: Mapping[str, Node], seen: Iterable[Seen], migrations: Sequence[Migration],
             stuck: frozenset[str], unsure: Set[str], notes: dict[str, str]) -> Iterable[Server]:
    sources = {one.uuid: one.server for one in migrations if one.uuid and one.status in UNDERWAY}
    held: dict[str, dict[tuple[str, str], tuple[str, float]]] = {}
    for child in children:
        host = nodes[child.root].host if child.root in nodes else ""
        for consumer, used in child.used.items():
            server = sources.get(consumer, consumer)
            held.setdefault(server, {})[host, resource_of(child.name)] = child.kind, float(used)
    for one in seen:
        state = state_of(one)
        away = state in (State.PAUSED, State.SHELVED)
        if state is None or (one.uuid in stuck if away else not one.background):
            continue
        if state is State.STUCK:
            notes[one.uuid] = (f"server {one.uuid} ({one.name}) is in status {one.status}: it is left alone; remedy: openstack "
                               "server show")
        mine = {name: each for (host, name), each in held.get(one.uuid, {}).items() if host == one.host}
        holds = {} if state is State.SHELVED else {name: amount for name, (_, amount) in mine.items()}
        if not holds and state is State.RUNS:
            continue
        asks: dict[str, float] = {}
        for kind, amount in mine.values():
            asks[kind] = asks.get(kind, 0.0) + amount
        if not holds:
            asks = {kind: float(of_flavor) for kind, of_flavor in asked(one.specs).items()}
        if one.uuid in stuck and state in (State.RUNS, State.BUSY):
            state = State.STUCK
        elif one.uuid in unsure and state is State.RUNS:
            state = State.BUSY
        yield Server(one.uuid, "" if state is State.SHELVED else one.host, holds, asks, float(one.ram), state,
                     refused(one, migrations))


def state_of(one: Seen) -> State | None:
    """None: nothing of ours."""
    if one.task or one.status in ("MIGRATING", "REBUILD", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "REBOOT", "HARD_REBOOT"):
        return State.BUSY if one.host else None
    if one.status == "ACTIVE":
        return State.RUNS
    if one.status == "ERROR":
        return State.STUCK if one.host else None
    if one.status in ("PAUSED", "SHELVED") and one.marked:
        return State.PAUSED
    return State.SHELVED if one.status == "SHELVED_OFFLOADED" and one.marked else None


def refused(one: Seen, migrations: Sequence[Migration]) -> frozenset[str]:
    """Hosts to which moves failed. Two hosts are enough of it, as is a move that was ended, or one to a host that is not known.
    One that is shelved and not yet away comes back where it is."""
    failed = [each for each in migrations if each.server == one.uuid and each.status in ENDED]
    hosts = {each.to for each in failed}
    enough = len(hosts) > 1 or "" in hosts or any(each.status == "cancelled" for each in failed) or one.status == "SHELVED"
    return frozenset(hosts | ({ANYWHERE} if enough else set()))
