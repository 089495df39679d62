# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes the policies of domains: looks, says what would change, writes metadata, waits until idletimed has carried it out.

Nothing but the policy element is written, by virDomainSetMetadata: a domain's XML is not defined again. The rest is
idletimed's, which hears of the change from libvirt and says in its state file what has become of it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import domains, state
from .conf.rules import Decision, Rules, decide_xml
from .errors import Finding, PolicyError, Severity
from .policy import edit, parse
from .verdict import Verdict
from .xmltree import read

Edit = Callable[[str | None], str | None]
"""A policy element as text, None where there is none, and the same after it was changed."""

WAIT_SECONDS = 10.0
"""A look at a domain takes idletimed well under a second; ten are for a host that has much to do."""

_POLL_SECONDS = 0.05
_TRIES = 5
_START = "systemctl start idletimed"


@dataclass(frozen=True)
class Domain:
    """A domain as it is now. live, config: its policy where it runs and where it is persistent; xml: to look at."""

    handle: Any
    name: str
    uuid: str
    run: int | None
    persistent: bool
    xml: str
    live: str | None
    config: str | None

    @property
    def policy(self) -> str | None:
        """The policy that is edited: what the next start would have, too."""
        return self.config if self.persistent else self.live


@dataclass(frozen=True)
class Change:
    """What is to be written. after: None removes. verdict: who the domain then is, and what it should have."""

    domain: Domain
    after: str | None
    verdict: Verdict

    @property
    def live(self) -> bool:
        return self.domain.run is not None and _digest(self.domain.live) != _digest(self.after)

    @property
    def config(self) -> bool:
        return self.domain.persistent and _digest(self.domain.config) != _digest(self.after)

    @property
    def changed(self) -> bool:
        return self.live or self.config

    @property
    def expected(self) -> Expected | None:
        """What idletimed says when it has carried this out; None where nothing runs."""
        if self.domain.run is None:
            return None
        return Expected(self.domain.name, self.domain.uuid, self.domain.run, _digest(self.after),
                        self.verdict.decision.class_)


@dataclass(frozen=True)
class Expected:
    """Of a running domain: its policy in a word, and who it then is."""

    name: str
    uuid: str
    run: int
    policy: str
    class_: str


@dataclass(frozen=True)
class Outcome:
    """What has become of it. in_force None: not known. devices: "vda on sda". problems: why it is not, and the remedy."""

    name: str
    uuid: str
    class_: str
    in_force: bool | None
    devices: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """A domain's name in what is wrong with its policy."""
    try:
        yield
    except PolicyError as error:
        raise PolicyError([replace(one, element=f"'{name}' {one.element}".rstrip(), line=None)
                           for one in error.findings]) from error


def look(domain: Any) -> Domain:
    """A domain and its policies. Raises HostError, PolicyError."""
    with domains.translated(f"look at '{domain.name()}'"):
        domain = domain.connect().lookupByUUIDString(domain.UUIDString())  # its run is of now
        persistent, running = bool(domain.isPersistent()), bool(domain.isActive())
        run = domain.ID() if running else None
    shown = domains.xml_of(domain)
    stored = domains.xml_of(domain, inactive=True) if persistent else None
    with naming(domain.name()):
        live, config = (edit.element_text(xml) if xml is not None else None for xml in (shown if running else None, stored))
    return Domain(domain, domain.name(), domain.UUIDString(), run, persistent, shown, live, config)


def plan(domain: Domain, edited: Edit, judge: Callable[[str], Verdict]) -> Change:
    """What a change comes to. judge: what this host makes of a domain's XML. Raises PolicyError if the policy is wrong or
    names what the domain does not have; one can be taken away whatever the host's rules say then."""
    after = edited(domain.policy)
    if after is not None:
        parse(after)
    try:
        verdict = judge(edit.in_domain(domain.xml, after))
    except PolicyError as error:
        if after is not None:
            raise
        left = Decision(None, "default", "what a rule of the host says of it is wrong")
        verdict = Verdict(left, findings=tuple(error.findings))
    if after is not None and (errors := [finding for finding in verdict.findings if finding.severity is Severity.ERROR]):
        raise PolicyError(errors)
    return Change(domain, after, verdict)


def carry_out(change: Change, edited: Edit, judge: Callable[[str], Verdict]) -> Change:
    """Write what differs; where somebody has changed the domain's policy since it was looked at, that is edited instead.
    Returns what was written. Raises HostError, PolicyError."""
    for _ in range(_TRIES):
        now = look(change.domain.handle)
        if _stands(now) == _stands(change.domain):
            break
        change = plan(now, edited, judge)
    else:
        raise domains.HostError(f"others change the policy of '{change.domain.name}' all the time; remedy: try again")
    write(change)
    return change


def _stands(domain: Domain) -> tuple[object, ...]:
    return domain.run, domain.persistent, domain.live, domain.config


def write(change: Change) -> None:
    """Write what differs. Raises HostError."""
    if change.changed:
        domains.set_policy(change.domain.handle, change.after, change.live, change.config)


def _digest(policy: str | None) -> str:
    return state.digest(None if policy is None else read(policy))


# ---- what has become of it

def by_rules(found: Iterable[Domain], rules: Rules) -> list[Expected]:
    """What running domains are by the host's files; those whose own policy is wrong are left out."""
    result = []
    for one in found:
        if one.run is None:
            continue
        try:
            class_ = decide_xml(one.xml, rules).class_
        except PolicyError:
            continue
        result.append(Expected(one.name, one.uuid, one.run, _digest(one.live), class_))
    return result


def outcome(expected: Expected, said: state.DomainState | None) -> Outcome | None:
    """What idletimed says; None if it has not looked since. Pure."""
    if said is None or (said.run, said.policy, said.class_) != (expected.run, expected.policy, expected.class_):
        return None
    names = {one["id"]: str(one["name"]) for one in said.resources}
    devices = tuple(f"{one['target']} on {names.get(one['resource'], one['resource'])}" for one in said.devices)
    return Outcome(said.name, said.uuid, said.class_, said.in_force, devices, said.problems)


def wait(expected: Sequence[Expected], run_dir: str, seconds: float = WAIT_SECONDS) -> list[Outcome]:
    """Return when idletimed has carried it all out or said why not, does not run, or the time is over.

    A device that leaves a resource lets first go what is held: until then it is not in force, and nothing is wrong.
    """
    end = time.monotonic() + seconds
    found: dict[str, Outcome] = {}
    while True:
        for one in expected:
            if not _done(found.get(one.uuid)) and (has := outcome(one, state.domain(run_dir, one.uuid))):
                found[one.uuid] = has
        alive = state.daemon(run_dir) is not None
        if all(_done(found.get(one.uuid)) for one in expected) or not alive or time.monotonic() >= end:
            return [_last(one, found.get(one.uuid), alive, seconds) for one in expected]
        time.sleep(_POLL_SECONDS)


def _done(found: Outcome | None) -> bool:
    return found is not None and bool(found.in_force or found.problems)


def _last(one: Expected, found: Outcome | None, alive: bool, seconds: float) -> Outcome:
    """What is known when nobody waits any longer."""
    if found is not None and _done(found):
        return found
    if not alive:
        problem = f"written, not in force: idletimed does not run; remedy: {_START}"
    else:
        problem = (f"written, but idletimed has not carried it out within {seconds:g} s; remedy: look again with "
                   f"'virt-idletime status {one.name}', and at 'journalctl -u idletimed'")
    return Outcome(one.name, one.uuid, one.class_, None, problems=(problem,))


def warnings(change: Change) -> list[Finding]:
    """What the host says of a change, notes left out."""
    return [finding for finding in change.verdict.findings if finding.severity is not Severity.NOTE]
