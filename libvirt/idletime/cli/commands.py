# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands. Each takes parsed arguments and returns an exit code; all printing goes through show."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import change, compiler, domains, explain, hostview, policy, resolve, status
from ..conf import resources as resources_d
from ..conf import rules
from ..domains import HostError
from ..errors import Exit, Kind, PolicyError, Severity
from ..policy import edit
from ..resolve.tree import Tree
from . import show

_Arguments = argparse.Namespace

_AT_ONCE = 4  # domains asked at the same time; libvirtd serves one connection by five threads (max_client_requests)


# ---- XML in, XML out

@dataclass(frozen=True)
class _Given:
    """Domain XML, and how the host that it is for is looked up."""

    xml: str
    lookup: resolve.Lookup | None
    emulators: Callable[[], Collection[str]] = frozenset

    def facts(self, xml: str, options: _Arguments) -> compiler.HostFacts:
        return resolve.gather(xml, options.root, self.lookup, options.run_dir, self.emulators)


def _source(options: _Arguments) -> _Given:
    """Domain XML of a file, of standard input or of a domain. Of a file's, an emulator is run only if it is libvirt's."""
    if options.source == "-":
        return _from_file(sys.stdin.read(), options)
    if Path(options.source).is_file():
        return _from_file(_file(options.source), options)
    if "/" in options.source or options.source.endswith(".xml"):
        raise HostError(f"there is no file '{options.source}'; remedy: correct the name", Exit.USAGE)
    connection = domains.connect(options.connect, read_only=True)
    domain = domains.lookup(connection, options.source)
    return _Given(domains.xml_of(domain, inactive=bool(domain.isPersistent())), domains.HostLookup(connection),
                  lambda: domains.emulators_of(domain))


def _from_file(xml: str, options: _Arguments) -> _Given:
    if options.root != "/":
        return _Given(xml, None)
    late = domains.LateLookup(options.connect)
    return _Given(xml, late, late.emulators)


def _file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"cannot read '{name}': {error}; remedy: give a readable file in UTF-8", Exit.USAGE) from error


def check(options: _Arguments) -> int:
    """Everything that compile would find, without the result."""
    given = _source(options)
    xml = _with_policy(options)(given.xml)
    wrong = _wrong_files(options.root)
    if policy.parse(xml) is None:
        show.result(options, {"policy": False, "findings": []}, ["no policy: the domain is left as it is"])
        return Exit.SETTINGS if wrong else Exit.OK
    result = compiler.compile(xml, given.facts(xml, options)) if _is_domain(xml) else None
    findings = result.findings if result else ()
    lines = [str(finding) for finding in findings]
    lines += show.plan_lines(result.plan) if result else ["the policy is valid"]
    show.result(options, {"policy": True, "findings": show.plain(findings),
                          "plan": show.plain(result.plan) if result else None}, lines)
    return Exit.FIT if result and result.plan.unresolved else Exit.SETTINGS if wrong else Exit.OK


def _wrong_files(root: str = "/") -> bool:
    """Whether a file of the operator's was left out; says what is wrong."""
    tree = Tree(root)
    found = (*resources_d.load(tree).findings, *rules.load(tree).findings)
    show.findings(found)
    return bool(found)


def _is_domain(xml: str) -> bool:
    return compiler.root_name(xml) != "policy"


def compile(options: _Arguments) -> int:
    given = _source(options)
    if options.undo:
        sys.stdout.write(compiler.decompile(given.xml))
        return Exit.OK
    xml = _with_policy(options)(given.xml)
    if options.device:
        device = _file(options.device)
        result = compiler.compile_device(device, xml, given.facts(device, options))
    else:
        result = compiler.compile(xml, given.facts(xml, options))
    show.findings(result.findings)
    sys.stdout.write(result.xml)
    return Exit.OK


# ---- changes

def _change(options: _Arguments, edited: Callable[[str], str]) -> int:
    connection = domains.connect(options.connect, read_only=False)
    domain = domains.lookup(connection, options.domain)
    findings = change.apply(connection, domain, edited, options.live, options.config, options.run_dir)
    show.findings(findings)
    return Exit.RESTART if any(finding.kind is Kind.LIVE and finding.severity is Severity.WARNING
                               for finding in findings) else Exit.OK


def apply(options: _Arguments) -> int:
    return _change(options, _with_policy(options))


def _with_policy(options: _Arguments) -> Callable[[str], str]:
    """The edit that --policy asks for."""
    if not options.policy:
        return lambda xml: xml
    classes = [one.value for one in policy.Class]
    if options.policy in classes:
        text: str | None = edit.plain(options.policy)
    elif not Path(options.policy).exists():
        raise HostError(f"'{options.policy}' is no class and no file; remedy: use {', '.join(classes)}, or the name of a "
                        "file with a policy", Exit.USAGE)
    else:
        text = edit.element_text(_file(options.policy))
    if text is None:
        raise HostError(f"there is no policy in '{options.policy}'; remedy: give a policy element, or a domain with "
                        "one", Exit.POLICY)
    return lambda xml: edit.replaced(xml, text)


def set_(options: _Arguments) -> int:
    settings = {}
    for text in options.settings:
        name, separator, value = text.partition("=")
        if not separator:
            raise HostError(f"'{text}' is not NAME=VALUE; remedy: write such as interval-us=5000", Exit.USAGE)
        settings[name] = value
    kind, target = ("disk", options.disk) if options.disk else ("interface", options.interface)
    if target:
        return _change(options, lambda xml: edit.with_device(xml, kind, None if target == "all" else target, settings))
    return _change(options, lambda xml: edit.with_settings(xml, settings, options.resource))


def mark(options: _Arguments) -> int:
    return _change(options, _with_class(options, "background"))


def _with_class(options: _Arguments, class_: str) -> Callable[[str], str]:
    """The edit of mark and unmark: the class, and the resources that were named."""
    named = [(kind, *_pair(text)) for kind in ("disk", "interface") for text in getattr(options, kind)]

    def edited(xml: str) -> str:
        xml = edit.with_class(xml, class_)
        for kind, target, name in named:
            xml = edit.with_device(xml, kind, None if target == "all" else target, {"resource": name})
        return xml
    return edited


def _pair(text: str) -> tuple[str, str]:
    left, separator, right = text.rpartition("=")
    if not separator:
        raise HostError(f"'{text}' is not TARGET=RESOURCE; remedy: write such as vda=sda", Exit.USAGE)
    return left, right


def unmark(options: _Arguments) -> int:
    if options.remove:
        return _change(options, lambda xml: edit.without(compiler.decompile(xml)))
    return _change(options, _with_class(options, "foreground"))


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
            print(f"note: {refused}; without QEMU's numbers", file=sys.stderr)
            return connection, False
        raise refused
    return domains.connect(options.connect, read_only=True), False


def _statuses(options: _Arguments, numbers: bool) -> list[status.DomainStatus]:
    connection, numbers = _connect(options, numbers)
    host = resolve.Host(lookup=domains.HostLookup(connection))
    if getattr(options, "domain", None):
        return [_status(domains.lookup(connection, options.domain), host, numbers, options.run_dir)]
    listed = sorted(connection.listAllDomains(), key=lambda domain: str(domain.name()))

    def look(domain: Any) -> status.DomainStatus | None:
        with contextlib.suppress(HostError):  # it went away since it was listed
            return _status(domain, host, numbers, options.run_dir)
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:  # a QEMU that is slow to answer keeps no other waiting
        return [one for one in pool.map(look, listed) if one]


def _status(domain: Any, host: resolve.Host, numbers: bool, run_dir: str) -> status.DomainStatus:
    with domains.translated("look at a domain"):
        return status.sample(domain, domains.state(domain), domains.xml_of(domain), host, numbers, run_dir)


def status_(options: _Arguments) -> int:
    found = [one for one in _statuses(options, True) if options.domain or one.class_ or one.problems]
    show.result(options, [one.as_dict() for one in found], lambda: show.status(found))
    _none_found(found)
    return Exit.OK


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
        print("note: no domain has a policy; give it one: virt-idletime mark DOMAIN (list --all shows all)",
              file=sys.stderr)


def explain_(options: _Arguments) -> int:
    connection, numbers = _connect(options, True)
    domain = domains.lookup(connection, options.domain)
    one = _status(domain, resolve.Host(lookup=domains.HostLookup(connection)), numbers, options.run_dir)
    known = rules.load(Tree("/"))
    show.findings(known.findings)
    decision = None
    with contextlib.suppress(PolicyError):  # its own policy is wrong, which is among its problems
        decision = rules.decide_xml(domains.xml_of(domain), known)
    explained = explain.explain(one)
    show.result(options, explain.as_dict(decision, explained), explain.lines(one, decision, explained))
    return Exit.SETTINGS if known.findings else Exit.OK


def resources(options: _Arguments) -> int:
    found = hostview.resources(_statuses(options, True), options.run_dir, resources_d.load(Tree("/")))
    show.result(options, show.plain(found), lambda: show.resources(found))
    return Exit.SETTINGS if _wrong_files() else Exit.OK


RUN: dict[str, Callable[[_Arguments], Any]] = {
    "check": check, "compile": compile, "apply": apply, "set": set_, "mark": mark, "unmark": unmark,
    "status": status_, "list": list_, "explain": explain_, "resources": resources,
}

