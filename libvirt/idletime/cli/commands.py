# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands. Each takes parsed arguments and returns an exit code; all printing goes through show."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .. import doctor, domains, explain, hostview, jobview, observed, policy, resolve, select, sockets, state, status
from ..conf import resources as resources_d
from ..conf import rules
from ..domains import HostError
from ..enforced import carried_out, choice_of
from ..errors import Exit, PolicyError, Severity
from ..gauge import said as said_gauge
from ..patience import Patience
from ..police.look import Look
from ..policy import edit
from ..resolve.tree import Tree
from ..verdict import Verdict, of_domain
from ..xmltree import read
from . import changes, migrate, show, trace

_Arguments = argparse.Namespace

# ---- check

@dataclass(frozen=True)
class _Given:
    """Domain XML, and how the host that it is for is looked up. running: whether devices may have been plugged out."""

    xml: str
    lookup: resolve.Lookup | None
    running: bool = False


def check(options: _Arguments) -> int:
    """What a policy comes to on this host. Nothing is changed, and no program that the XML names is run."""
    given = _source(options)
    xml = _with_policy(options, given.xml)
    wrong = _wrong_files(options.run_dir, options.root)
    if read(xml).tag != "domain":
        return _bare(options, xml, wrong)
    tree = Tree(options.root, options.run_dir)
    host = resolve.Host(options.root, given.lookup, options.run_dir)
    found = of_domain(xml, rules.load(tree), host, options.run_dir, given.running)
    if errors := [finding for finding in found.findings if finding.severity is Severity.ERROR]:
        raise PolicyError(errors)
    choice = choice_of(found.policy, found.devices, found.plan, True)
    found = replace(found, plan=carried_out(choice, found.plan))
    why = [f"the VM {choice.why}"] if choice.suspend else []
    lines = [str(found.decision), *map(str, found.findings), *show.plan_lines(found.plan), *why]
    show.result(options, {"policy": found.policy is not None, **_judged(found)}, lines)
    return Exit.FIT if found.plan.unresolved else Exit.SETTINGS if wrong else Exit.OK


def _judged(found: Verdict) -> dict[str, Any]:
    who = found.decision
    return {"class": who.class_, "by": who.by, "why": who.why, "place": who.place or None,
            "findings": show.plain(found.findings), "plan": show.plain(found.plan)}


def _bare(options: _Arguments, xml: str, wrong: bool) -> int:
    """A policy element alone."""
    own = policy.parse(xml)
    lines = ["the policy is valid" if own else "no policy: the domain is left as it is"]
    show.result(options, {"policy": own is not None, "class": own and own.class_.value, "findings": [], "plan": None}, lines)
    return Exit.SETTINGS if wrong else Exit.OK


def _source(options: _Arguments) -> _Given:
    """Domain XML of a file, of standard input or of a domain."""
    if options.source == "-":
        return _from_file(sys.stdin.read(), options)
    if os.path.isfile(options.source):  # of a name that is too long Path.is_file() raises an error
        return _from_file(show.file_text(options.source), options)
    if "/" in options.source or options.source.endswith(".xml"):
        raise HostError(f"there is no file '{options.source}'; remedy: correct the name", Exit.USAGE)
    connection = domains.connect(options.connect, read_only=True)
    domain = _one(connection, options.source)
    persistent = bool(domain.isPersistent())
    return _Given(domains.xml_of(domain, inactive=persistent), domains.HostLookup(connection), not persistent)


def _from_file(xml: str, options: _Arguments) -> _Given:
    return _Given(xml, None if options.root != "/" else domains.LateLookup(options.connect))


def _with_policy(options: _Arguments, xml: str) -> str:
    """The XML with the policy that --policy names."""
    if not options.policy:
        return xml
    classes = [one.value for one in policy.Class]
    if options.policy in classes:
        return edit.in_domain(xml, edit.plain(options.policy))
    if not os.path.exists(options.policy):
        raise HostError(f"'{options.policy}' is no class and no file; remedy: use {', '.join(classes)}, or the name of a "
                        "file with a policy", Exit.USAGE)
    text = edit.element_text(show.file_text(options.policy))
    if text is None:
        raise HostError(f"there is no policy in '{options.policy}'; remedy: give a policy element, or a domain with "
                        "one", Exit.POLICY)
    return edit.in_domain(xml, text)


def _wrong_files(run_dir: str, root: str = "/") -> bool:
    """Whether a file of the operator's was left out; says what is wrong."""
    tree = Tree(root, run_dir)
    found = (*resources_d.load(tree).findings, *rules.load(tree).findings)
    show.findings(found)
    return bool(found)


# ---- shows

def _connect(options: _Arguments, numbers: bool) -> tuple[Any, bool]:
    """A connection, and whether it may ask QEMU for numbers: who may not write can still read."""
    if numbers and not options.readonly:
        try:
            connection = domains.connect(options.connect, read_only=False)
            return connection, domains.is_qemu(connection)
        except HostError as error:
            refused = error
        with contextlib.suppress(HostError):
            connection = domains.connect(options.connect, read_only=True)
            print(f"note: {refused}; figures are those of idletimed's last look", file=sys.stderr)
            return connection, False
        raise refused
    return domains.connect(options.connect, read_only=True), False


def _patience(options: _Arguments, read_only: bool = False) -> Patience:
    return Patience(lambda: domains.connect(options.connect, read_only))


def _one(connection: Any, word: str) -> Any:
    """The one domain that a word names."""
    there = domains.by_name(connection)
    chosen = select.select(list(there), [word])
    if len(chosen) > 1:
        names = ", ".join(one.name for one in chosen)
        raise HostError(f"'{word}' fits {names}; remedy: name one", Exit.USAGE)
    return there[chosen[0]]


def _statuses(options: _Arguments, numbers: bool) -> list[status.DomainStatus]:
    """Of the domain that is named, or of all of the host: libvirt's, and those that no libvirt has started."""
    if word := getattr(options, "domain", None):
        return [_Subject(options, word, numbers).status()]
    known = rules.load(Tree("/", options.run_dir))
    found = _of_libvirt(options, known, numbers) if _libvirt(options) else []
    asked = numbers and not options.readonly
    found += sockets.statuses(sockets.there(options.run_dir), known, asked, options.run_dir)
    return sorted(found, key=lambda one: one.name)


def _libvirt(options: _Arguments) -> bool:
    """Whether this host has one."""
    return bool(options.connect or options.settings.uri)


class _Subject:
    """The one VM that a word names."""

    def __init__(self, options: _Arguments, word: str, numbers: bool) -> None:
        self.options, self.numbers = options, numbers and not options.readonly
        self.known = rules.load(Tree("/", options.run_dir))
        self.vms = sockets.named(options.run_dir, word)
        if len(self.vms) > 1:
            raise HostError(f"'{word}' fits {', '.join(one.name for one in self.vms)}; remedy: name one", Exit.USAGE)
        if self.vms and not _is_domain(options, word):
            return
        self.vms = []
        if not _libvirt(options):
            raise select.NoSuchDomain(f"there is no VM '{word}', and by the settings (uri = \"\") this host has no libvirt; "
                                      "remedy: 'virt-idletime list --all' names all")
        self.connection, self.numbers = _connect(options, numbers)
        self.domain = _one(self.connection, word)

    def status(self) -> status.DomainStatus:
        if self.vms:
            return sockets.sample(self.vms[0], self.known, self.numbers, self.options.run_dir)
        (found,) = _looks(self.options, self.connection, [self.domain], self.known, self.numbers)
        if isinstance(found, HostError):
            raise found
        return found

    def decision(self) -> rules.Decision | None:
        """None: its own policy is wrong, which is among its problems."""
        if self.vms:
            return sockets.decision(self.vms[0], self.known)
        with contextlib.suppress(PolicyError):
            return rules.decide_xml(domains.xml_of(self.domain), self.known)
        return None


def _is_domain(options: _Arguments, word: str) -> bool:
    """Whether libvirt, where there is one, has a domain of this very name."""
    with contextlib.suppress(HostError, select.NoSuchDomain):
        return _libvirt(options) and _one(domains.connect(options.connect, read_only=True), word) is not None
    return False


def _of_libvirt(options: _Arguments, known: rules.Rules, numbers: bool) -> list[status.DomainStatus]:
    connection, numbers = _connect(options, numbers)
    found = _looks(options, connection, domains.all_of(connection), known, numbers)
    return [one for one in found if not isinstance(one, HostError)]


def _looks(options: _Arguments, connection: Any, there: Sequence[Any], known: rules.Rules,
           numbers: bool) -> list[status.DomainStatus | HostError]:
    """One each; an error of one that went away since it was listed."""
    host = resolve.Host(lookup=domains.HostLookup(connection), run_dir=options.run_dir)

    def look(domain: Any, numbers: bool) -> status.DomainStatus | HostError:
        try:
            with domains.translated("look at a domain"):
                return status.sample(domain, domains.state(domain), domains.xml_of(domain), host, numbers, options.run_dir,
                                     known)
        except HostError as error:
            return error

    def ask(uuid: str, own: Any) -> status.DomainStatus | HostError:
        try:
            with domains.translated("find a domain"):
                return look(own.lookupByUUIDString(uuid), True)
        except HostError as error:
            return error

    if not numbers:
        return [look(domain, False) for domain in there]
    patience = _patience(options)
    found = patience.ask({number: partial(ask, domain.UUIDString()) for number, domain in enumerate(there)})
    late = patience.late
    return [found[number] if number in found else
            _but(look(domain, False), status.SILENT if number in late else status.UNASKED)
            for number, domain in enumerate(there)]


def _but(found: status.DomainStatus | HostError, why: str) -> status.DomainStatus | HostError:
    return found if isinstance(found, HostError) else replace(found, problems=(*found.problems, why))


def status_(options: _Arguments) -> int:
    found = [one for one in _statuses(options, True) if options.domain or one.class_ or one.problems]
    _said_alive(options)
    show.result(options, [one.as_dict() for one in found], lambda: show.status(found))
    _none_found(found)
    return Exit.OK


def _said_alive(options: _Arguments) -> None:
    if state.daemon(options.run_dir) is None:
        print("warning: idletimed does not run: nothing new is carried out; remedy: systemctl start idletimed", file=sys.stderr)


def list_(options: _Arguments) -> int:
    found = [one for one in _statuses(options, False) if options.all or one.class_ or one.problems]
    rows = [{"name": one.name, "uuid": one.uuid, "state": one.state, "class": one.class_, "control": one.control}
            for one in found]
    show.result(options, rows, lambda: show.table(("domain", "state", "class", "guest may"), [
        (row["name"], row["state"], row["class"], row["control"]) for row in rows]))
    _none_found(found)
    return Exit.OK


def _none_found(found: list[status.DomainStatus]) -> None:
    """An empty table is an answer; why it is empty helps more."""
    if not found:
        print("note: no domain is foreground or background; make some so: virt-idletime mark DOMAIN, or virt-idletime enable "
              "--all ('list --all' shows all)", file=sys.stderr)


def explain_(options: _Arguments) -> int:
    subject = _Subject(options, options.domain, True)
    one, decision = subject.status(), subject.decision()
    show.findings(subject.known.findings)
    explained = explain.explain(one)
    show.result(options, explain.as_dict(one, decision, explained), explain.lines(one, decision, explained))
    return Exit.SETTINGS if subject.known.findings else Exit.OK


def jobs(options: _Arguments) -> int:
    """Two looks; a read-only connection is enough for all but what QEMU says of now."""
    if not _libvirt(options):
        raise HostError("by the settings (uri = \"\") this host has no libvirt, and jobs are libvirt's; remedy: --connect URI",
                        Exit.USAGE)
    connection, ask = _connect(options, True)
    only = _one(connection, options.domain) if options.domain else None
    patience = _patience(options, not ask)
    before = jobview.look(connection, ask, options.run_dir, only, patience)
    time.sleep(options.delay if before.jobs else 0.0)
    now = jobview.look(connection, ask, options.run_dir, only, patience)
    found = jobview.build(before, now, time.time())
    if now.silent:
        print(f"warning: what jobs there are of {', '.join(now.silent)} is not known: QEMUs do not answer; remedy: see whether "
              "they are stopped, or wait for storage that is gone", file=sys.stderr)
    show.result(options, show.plain(found), lambda: show.jobs(found))
    return Exit.OK


def migrate_(options: _Arguments) -> int:
    """Until it is over; Ctrl-C ends it, and the domain runs on here."""
    connection = domains.connect(options.connect, read_only=False)
    return migrate.run(options, connection, _one(connection, options.domain))


def resources(options: _Arguments) -> int:
    found = hostview.resources(_statuses(options, True), options.run_dir, resources_d.load(Tree("/", options.run_dir)),
                              observed.read(options.run_dir))
    show.result(options, show.plain(found), lambda: show.resources(found))
    return Exit.SETTINGS if _wrong_files(options.run_dir) else Exit.OK


def gauge(options: _Arguments) -> int:
    """Exit status: 0, or 1 where there is none or it is old."""
    found = said_gauge.read(options.run_dir)
    age = None if found is None else found.age_seconds
    model: dict[str, Any] = {"resources": None, **(show.plain(found) or {}), "age_seconds": age}
    show.result(options, model, list(said_gauge.lines(found, age)))
    return Exit.OK if age is not None and age <= said_gauge.STALE_SECONDS else Exit.FAILED


def calibrate_(options: _Arguments) -> int:
    """How many accesses of this host's disks and uplinks are no VM's work."""
    from rich.console import Console
    from rich.progress import track

    from .. import calibrate  # with all of suspension: nobody else's start has to wait for that
    connection = domains.connect(options.connect, read_only=True)
    tree, host = Tree("/", options.run_dir), resolve.Host(lookup=domains.HostLookup(connection), run_dir=options.run_dir)
    vms = calibrate.shared(connection, host, rules.load(tree), options.run_dir)
    if not any(one.host for its in vms.values() for one in its):
        raise HostError("no running VM has a disk or an uplink that the kernel counts; remedy: start one whose disk is on this "
                        "host")
    steps = range(math.ceil(options.seconds / calibrate.LOOK_SECONDS) + 1)
    times = track(steps, "looking", console=Console(stderr=True), transient=True, disable=options.json)
    with domains.translated("look at the running VMs"):
        found = calibrate.measure(connection, vms, Look(), times, lambda: time.sleep(calibrate.LOOK_SECONDS))
    show.calibration(options, found, calibrate.quiet_per_second(found), options.settings.suspend.quiet_per_second)
    return Exit.OK


def doctor_(options: _Arguments) -> int:
    """Exit status: 0 all is well, 1 warnings, 2 errors."""
    connection, ask = _connect(options, True) if _libvirt(options) else (None, not options.readonly)
    facts = doctor.gather(connection, options.settings, options.run_dir, _patience(options) if ask else None)
    facts = replace(facts, settings_wrong=options.settings_wrong)
    report = doctor.examine(facts)
    show.result(options, show.plain(report), lambda: show.report(report))
    return report.status


def top(options: _Arguments) -> int:
    """Look until the user leaves, or as often as --count says."""
    from . import live  # late: urwid

    def connect() -> tuple[Any, bool]:
        return _connect(options, True)
    return live.run(options, connect if _libvirt(options) else None)


RUN: dict[str, Callable[[_Arguments], Any]] = {
    "check": check, "mark": changes.mark, "unmark": changes.unmark, "enable": changes.enable_, "disable": changes.disable,
    "status": status_, "list": list_, "explain": explain_, "jobs": jobs, "resources": resources,
    "migrate": migrate_,
    "doctor": doctor_, "calibrate": calibrate_, "top": top,
    "trace": trace.run,
    "gauge": gauge,
}
