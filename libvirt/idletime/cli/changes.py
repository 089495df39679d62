# SPDX-License-Identifier: GPL-2.0-or-later
"""mark, unmark, enable, disable: each is an edit of the policies of the domains that were named; the way is one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from .. import change, domains, enable, resolve, select, sockets
from ..change import Change, Domain, Edit, Outcome
from ..conf import resources, rules
from ..devices import devices_of
from ..domains import HostError
from ..errors import Exit, PolicyError
from ..facts import DISK, DeviceFacts
from ..policy import edit, parse
from ..resolve.tree import Tree
from ..verdict import Verdict, of_domain
from ..xmltree import read
from . import show

_Arguments = argparse.Namespace

_From = TypeVar("_From")
_To = TypeVar("_To")

_OTHER = {"foreground": "disable", "background": "unmark", "guest": "unmark"}
"""Which command takes away an own policy of this class."""


@dataclass(frozen=True)
class Done:
    """One domain, for people and for --json. before, after: its class, None without a policy of its own; policy_before,
    policy_after: that policy as text."""

    name: str
    uuid: str
    before: str | None
    after: str | None
    changed: bool
    when: str
    class_: str | None = None
    in_force: bool | None = None
    devices: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    policy_before: str | None = None
    policy_after: str | None = None


# ---- commands

def mark(options: _Arguments) -> int:
    if options.policy and options.class_:
        raise HostError("--class and --policy together; remedy: leave --class out, the policy of a file has a class",
                        Exit.USAGE)
    given = _given(options.policy)

    def edited(policy: str | None) -> str:
        return given or edit.with_class(policy, options.class_ or "background")
    return _run(options, _with_settings(options, edited))


def unmark(options: _Arguments) -> int:
    return _run(options, lambda _: None, refuse=_not_of("unmark"))


def enable_(options: _Arguments) -> int:
    if options.all:
        known = _rules(options.run_dir)
        return _default(options, enable.enable(known), known)
    return _run(options, _with_settings(options, lambda policy: edit.with_class(policy, "foreground")))


def disable(options: _Arguments) -> int:
    if options.all:
        known = _rules(options.run_dir)
        return _default(options, enable.disable(known, enable.there()), known)
    return _run(options, lambda _: None, refuse=_not_of("disable"))


# ---- edits

def _given(file: str | None) -> str | None:
    if file is None:
        return None
    text = edit.element_text(show.file_text(file))
    if text is None:
        raise HostError(f"there is no policy in '{file}'; remedy: give a policy element, or a domain with one", Exit.POLICY)
    return text


def _with_settings(options: _Arguments, first: Callable[[str | None], str]) -> Edit:
    settings = dict(map(_pair, options.values))
    devices = [(kind, *_device(text)) for kind in ("disk", "interface") for text in getattr(options, kind)]

    def edited(policy: str | None) -> str:
        text = edit.with_settings(first(policy), settings)
        for kind, target, name, value in devices:
            text = edit.with_device(text, kind, None if target == "all" else target, {name: value})
        return text
    return edited


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise HostError(f"'{text}' is not NAME=VALUE; remedy: write such as interval-us=5000", Exit.USAGE)
    return name, value


def _device(text: str) -> tuple[str, str, str]:
    """"vda=sda" and "52:54:00:00:00:01:queues=2-3": target, name, value."""
    left, separator, value = text.rpartition("=")
    if not separator or not left:
        raise HostError(f"'{text}' is not TARGET=RESOURCE; remedy: write such as vda=sda, or vda:class=guest", Exit.USAGE)
    target, colon, name = left.rpartition(":")
    return (target, name, value) if colon and name in edit.DEVICE_SETTABLE else (left, "resource", value)


def _not_of(command: str) -> Callable[[Domain], str | None]:
    """Why a domain is not one for this command: the other one is meant for it."""
    def refuse(domain: Domain) -> str | None:
        meant = _OTHER.get(_class(domain.policy) or "", command)
        if meant != command:
            return (f"'{domain.name}' is {_class(domain.policy)} by its own policy, not changed; remedy: "
                    f"virt-idletime {meant} {domain.name}")
        return None
    return refuse


# ---- the way

def _run(options: _Arguments, edited: Edit, refuse: Callable[[Domain], str | None] = lambda _: None) -> int:
    """Choose, look, plan all, then write, then wait. A wrong policy or name is found before anything is written."""
    connection, chosen = _chosen(options)
    host = resolve.Host(lookup=domains.HostLookup(connection), run_dir=options.run_dir)
    known = _rules(options.run_dir)

    def planned(one: Domain) -> Change:
        with change.naming(one.name):
            return change.plan(one, edited, judged(one))

    def judged(one: Domain) -> Callable[[str], Verdict]:
        return lambda xml: of_domain(xml, known, host, options.run_dir, running=one.run is not None)

    found, failed = _each(change.look, chosen)
    refused = {one.name: why for one in found if (why := refuse(one))}
    _check_targets(options, [one for one in found if one.name not in refused])
    changes = [planned(one) for one in found if one.name not in refused]
    for why in refused.values():
        print(f"note: {why}", file=sys.stderr)
    if options.dry_run:
        _print(options, [_planned(one) for one in changes])
        return Exit.FAILED if failed else Exit.OK
    written, unwritten = _each(lambda one: change.carry_out(one, edited, judged(one.domain)), changes)
    done = _outcomes(options, written)
    _print(options, done)
    return Exit.FAILED if failed or unwritten else _code(done) or (Exit.SETTINGS if known.findings else Exit.OK)


def _chosen(options: _Arguments) -> tuple[Any, list[Any]]:
    if not options.domain and not options.all:
        raise HostError("no domain is named; remedy: name some, by name, UUID or glob, or give --all", Exit.USAGE)
    if options.domain and options.all:
        raise HostError(f"--all and '{options.domain[0]}' together; remedy: leave one out; --except leaves out domains",
                        Exit.USAGE)
    try:
        connection = domains.connect(options.connect, read_only=bool(options.dry_run))
        there = domains.by_name(connection)
        names = select.select(list(there), options.domain, options.all, options.excepted)
    except (HostError, select.NoSuchDomain):
        _refuse_vms(options)
        raise
    return connection, [there[name] for name in names]


def _refuse_vms(options: _Arguments) -> None:
    """Those without libvirt have no metadata."""
    for one in (one for word in options.domain for one in sockets.named(options.run_dir, word)):
        raise HostError(f"no libvirt has started '{one.name}', so it has no policy of its own; remedy: name its class by a "
                        f"rule in {rules.FOLDER}, as idletimed-rules(5) says", Exit.FIT)


def _check_targets(options: _Arguments, found: Sequence[Domain]) -> None:
    """A device that was named on the command line and that a domain does not have is a slip."""
    for kind in ("disk", "interface") if hasattr(options, "disk") else ():
        for text in getattr(options, kind):
            target = _device(text)[0]
            for domain in found:
                there = [one for one in devices_of(read(domain.xml)) if one.kind == kind]
                if target != "all" and not any(one.called(target) for one in there):
                    known = ", ".join(one.target for one in there) or "none"
                    raise HostError(f"'{domain.name}' has no {kind} '{target}'; remedy: use one of its targets ({known}), "
                                    "or 'all'", Exit.FIT)
                if not getattr(options, "policy", None) and (other := _other_name(domain, kind, target, there)):
                    raise HostError(f"the policy of '{domain.name}' names {kind} '{target}' as '{other}'; remedy: use that",
                                    Exit.FIT)


def _other_name(domain: Domain, kind: str, target: str, there: Sequence[DeviceFacts]) -> str | None:
    """By which a domain's own policy names this device already, if not by this one. One that cannot be read names none."""
    try:
        own = parse(domain.policy) if domain.policy is not None else None
    except PolicyError:
        return None
    named = [] if own is None else own.disks if kind == DISK else own.interfaces
    if any(one.target == target for one in named):
        return None
    meant = [one for one in there if one.called(target)]
    return next((one.target for one in named for device in meant if one.target and device.called(one.target)), None)


def _each(act: Callable[[_From], _To], subjects: Iterable[_From]) -> tuple[list[_To], int]:
    """What came of each, and how many failed, which are said: a domain that went away, or whose policy nobody can read, does
    not stop the others."""
    done, failed = [], 0
    for one in subjects:
        try:
            with domains.translated("look at a domain"):
                done.append(act(one))
        except (HostError, PolicyError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
    return done, failed


def _outcomes(options: _Arguments, changes: Sequence[Change]) -> list[Done]:
    expected = [one.expected for one in changes if one.expected is not None]
    outcomes = [] if options.no_wait else change.wait(expected, options.run_dir)
    by_uuid = {one.uuid: one for one in outcomes}
    return [_done(one, by_uuid.get(one.domain.uuid)) for one in changes]


def _done(one: Change, outcome: Outcome | None) -> Done:
    planned = _planned(one)
    if outcome is None:
        return planned
    return replace(planned, class_=outcome.class_, in_force=outcome.in_force, devices=outcome.devices,
                   problems=outcome.problems)


def _planned(one: Change) -> Done:
    names = {resource.id: resource.name for resource in one.verdict.plan.resources}
    devices = tuple(f"{device.target} on {names[device.resource]}" for device in one.verdict.plan.devices)
    return Done(one.domain.name, one.domain.uuid, _class(one.domain.policy), _class(one.after), one.changed, _when(one.domain),
                one.verdict.decision.class_, None, devices, tuple(map(str, change.warnings(one))),
                one.domain.live if one.live and not one.config else one.domain.policy, one.after)


def _class(policy: str | None) -> str | None:
    """Of an own policy; "wrong" of one that cannot be read: that can be replaced, and taken away."""
    try:
        own = parse(policy) if policy is not None else None
    except PolicyError:
        return "wrong"
    return own.class_.value if own else None


def _when(domain: Domain) -> str:
    if domain.run is None:
        return "from its next start on"
    return "now and at each start" if domain.persistent else "until it stops"


# ---- the host's default

def _rules(run_dir: str) -> rules.Rules:
    """What the host's files say; what is wrong in them, and in those of resources, is said, and among the findings."""
    known = rules.load(tree := Tree("/", run_dir))
    known = replace(known, findings=known.findings + resources.load(tree).findings)
    show.findings(known.findings)
    return known


def _default(options: _Arguments, step: enable.Step, known: rules.Rules) -> int:
    if options.domain or options.excepted or any(getattr(options, name, None) for name in ("values", "disk", "interface")):
        raise HostError("--all is this host's default, for all of which nothing else speaks; remedy: leave the rest out, and "
                        "name a domain's class by mark, or by a rule (idletimed-rules(5))", Exit.USAGE)
    if options.dry_run:
        _say_default(options, step, [])
        return Exit.OK
    try:
        enable.act(step)
    except OSError as error:
        raise HostError(f"cannot change {enable.NAME}: {error.strerror}; remedy: run this as root") from error
    listed = domains.all_of(domains.connect(options.connect, read_only=True)) if options.connect or options.settings.uri else []
    found, failed = _each(change.look, listed)
    now = rules.load(Tree("/", options.run_dir))
    outcomes = [] if options.no_wait else change.wait(change.by_rules(found, now), options.run_dir)
    _say_default(options, step, outcomes)
    if failed:
        return Exit.FAILED
    return Exit.PENDING if any(one.in_force is not True for one in outcomes) else Exit.SETTINGS if known.findings else Exit.OK


def _say_default(options: _Arguments, step: enable.Step, outcomes: Sequence[Outcome]) -> None:
    what = "nothing to do" if step.done else f"{'write' if step.text else 'remove'} {enable.NAME}"
    show.result(options, {"file": enable.NAME, "default": "foreground" if step.text else None, "changed": not step.done,
                          "domains": show.plain(outcomes)}, lambda: show.default(what, step.text, outcomes))


# ---- words

def _print(options: _Arguments, done: Sequence[Done]) -> None:
    show.result(options, show.plain(done), lambda: show.changes(done, options.dry_run))


def _code(done: Sequence[Done]) -> int:
    """in_force None: nothing runs, or nobody waited."""
    return Exit.PENDING if any(one.in_force is False or (one.in_force is None and one.problems) for one in done) else Exit.OK

