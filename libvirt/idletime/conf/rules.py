# SPDX-License-Identifier: GPL-2.0-or-later
"""/etc/idletime/rules.d: who is what, where the domain itself does not say.

    default = "foreground"                  # of what no rule fits; without it such domains are not attached

    [[rule]]
    class = "background"
    name = ["ci-*", "test-*"]               # all conditions of a rule must hold, one glob of a list is enough

    [[rule]]
    class = "background"
    metadata = { xpath = "nova:flavor/@name", value = "batch.*" }

decide() is pure: facts of a domain and rules in, a policy out, with which rule and why.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from lxml import etree

from .. import due
from ..errors import Finding, Kind, PolicyError, Severity
from ..policy.model import Class, Policy
from ..policy.parse import parse, parse_tree
from ..policy.units import BadValue, Form
from ..xmltree import Element
from ..xmltree import read as read_xml
from .files import NAMES, File, Kept, read, remembered, take

if TYPE_CHECKING:
    from ..resolve.tree import Tree

FOLDER = "/etc/idletime/rules.d"
NOT_ATTACHED = "none"

NAMESPACES = {
    "nova": "http://openstack.org/xmlns/libvirt/nova/1.1",
    "libosinfo": "http://libosinfo.org/xmlns/libvirt/domain/1.0",
}
"""Prefixes that every file knows; [namespaces] adds more."""

XPATH_REMEDY = f"correct it; prefixes are those of [namespaces] and {', '.join(NAMESPACES)}"

_FACTS = ("name", "uuid", "title")
_CLASSES = (*(one.value for one in Class), NOT_ATTACHED)
_ANYWHERE = re.compile(r"[@*\w][\w.:*-]*(?=[/\[@]|$)")  # begins with a name, which is no function and no axis


@dataclass(frozen=True)
class Facts:
    """A domain, as far as rules look at it. metadata: its <metadata>, None if it has none."""

    name: str
    uuid: str
    title: str
    metadata: Element | None = None


def facts_of(root: Element) -> Facts:
    """The facts in a domain's XML."""
    return Facts(root.findtext("name") or "", (root.findtext("uuid") or "").lower(), root.findtext("title") or "",
                 root.find("metadata"))


@dataclass(frozen=True)
class Query:
    """An XPath from <metadata>, and the globs of which one result must fit; none: a result is enough."""

    text: str
    find: Any
    globs: tuple[str, ...] = ()

    def hit(self, metadata: Element | None) -> str | None:
        """Why it holds; None if it does not."""
        for value in _texts(self.find(etree.Element("metadata") if metadata is None else metadata)):
            if not self.globs:
                return f"{self.text} is there"
            glob = next((glob for glob in self.globs if fnmatchcase(value, glob)), None)
            if glob is not None:
                return f"{self.text} is '{value}', which fits '{glob}'"
        return None


def _texts(result: Any) -> list[str]:
    """What an XPath has found, as texts: nodes, attributes, or one value."""
    if isinstance(result, list):
        return [_text(one) if isinstance(one, etree._Element) else str(one) for one in result]
    if isinstance(result, bool):
        return ["true"] if result else []
    return [f"{result:g}"] if isinstance(result, float) else [str(result)] if result else []


def _text(node: Element) -> str:
    """Of an element, or of a comment."""
    return "".join(node.itertext()).strip() if isinstance(node.tag, str) else node.text or ""


_WRONG_XPATH = (etree.XPathError, TypeError, ValueError)
"""What lxml raises for one, beside its own: an empty prefix or namespace, characters that XML cannot hold."""


@dataclass(frozen=True)
class Rule:
    """One rule. policy None: such domains are not attached. text: the policy's, where it has one."""

    policy: Policy | None
    globs: Mapping[str, tuple[str, ...]]
    queries: tuple[Query, ...]
    place: str
    text: str | None = None

    def hit(self, facts: Facts) -> str | None:
        """Why all conditions hold; None if one does not. Raises PolicyError where an XPath fails on what this domain has."""
        reasons = []
        for name, globs in self.globs.items():
            value = getattr(facts, name)
            glob = next((glob for glob in globs if fnmatchcase(value, glob)), None)
            if glob is None:
                return None
            reasons.append(f"{name} '{value}' fits '{glob}'")
        for query in self.queries:
            if (why := self._ask(query, facts.metadata)) is None:
                return None
            reasons.append(why)
        return ", ".join(reasons)

    def _ask(self, query: Query, metadata: Element | None) -> str | None:
        try:
            return query.hit(metadata)
        except _WRONG_XPATH as error:  # in a predicate: what is there shows only now
            raise PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, f"xpath = '{query.text}': {error}", XPATH_REMEDY,
                                       file=self.place)]) from error


@dataclass(frozen=True)
class Rules:
    """All rules in order, and the default with its place; findings: what is wrong, in files that were left out."""

    rules: tuple[Rule, ...] = ()
    default: Policy | None = None
    default_place: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Decision:
    """policy: None is not attached. by: "domain", "rule" or "default". place, text: of the rule. why: in words."""

    policy: Policy | None
    by: str
    why: str
    place: str = ""
    text: str | None = None

    @property
    def class_(self) -> str:
        return self.policy.class_.value if self.policy else NOT_ATTACHED

    def __str__(self) -> str:
        what = self.class_ if self.policy else "not attached"
        whose = {"domain": "its own policy", "rule": f"the rule in {self.place}", "default": "the default"}[self.by]
        return f"{what}, by {whose}: {self.why}"


def decide(facts: Facts, own: Policy | None, rules: Rules) -> Decision:
    """Who a domain is: its own policy, then the first rule that fits, then the default. Pure. Raises PolicyError where a rule
    cannot be asked of it: the ones after it may not have been meant for this domain."""
    if own is not None:
        return Decision(own, "domain", "its metadata has one")
    for rule in rules.rules:
        if (why := rule.hit(facts)) is not None:
            return Decision(rule.policy, "rule", why, rule.place, rule.text)
    if rules.default_place:
        return Decision(rules.default, "default", f"no rule fits; {rules.default_place} says so", rules.default_place)
    return Decision(None, "default", f"no rule fits, and no file in {FOLDER} has a default")


def decide_tree(root: Element, rules: Rules) -> Decision:
    """The same for a domain's XML, now: after its deadline a background domain is foreground. Raises PolicyError where its own
    policy is wrong, or a rule."""
    found = decide(facts_of(root), parse_tree(root), rules)
    policy = found.policy
    if policy is None or policy.by is None:
        return found
    if due.is_over(due.of_domain(root), policy.by, time.time()):
        return replace(found, policy=policy.over(), why=f"{found.why}; it was background until {policy.by}, and that is over")
    return replace(found, why=f"{found.why}; background until {policy.by}")


def decide_xml(domain_xml: str, rules: Rules) -> Decision:
    """The same for XML that was not read yet."""
    return decide_tree(read_xml(domain_xml), rules)


# ---- files

def load(tree: Tree, kept: Kept | None = None) -> Rules:
    """What the host's files say. Never raises. kept: as of files.take(); None: as idletimed has them."""
    return of_files(read(tree, FOLDER), remembered(tree) if kept is None else kept)


def of_files(files: Iterable[File], kept: Kept | None = None) -> Rules:
    """The same of these, in their order."""
    rules: list[Rule] = []
    default: tuple[Policy | None, str] = (None, "")
    kept_default = False  # it is of a file that has become wrong: another one may say it anew

    def taken(file: File, before: bool) -> None:
        nonlocal default, kept_default
        mine, said = _said(file, "" if before or kept_default else default[1])
        if file.findings:
            return
        rules.extend(mine)
        if said and not (before and default[1]):
            default, kept_default = said, before

    findings = take(files, kept, taken)
    return Rules(tuple(rules), *default, findings)


def _said(file: File, default: str) -> tuple[list[Rule], tuple[Policy | None, str] | None]:
    """Its rules and its default, and findings in it. default: the place of another one."""
    reader = _Reader(file)
    return reader.rules(), reader.default(default)


def _class(value: Any) -> Policy | None:
    if value not in _CLASSES:
        raise BadValue("is not known")
    return None if value == NOT_ATTACHED else Policy(Class(value))


def _policy(value: Any) -> Policy:
    try:
        found = parse(value) if isinstance(value, str) else None
    except PolicyError as error:
        raise BadValue("is no policy: " + "; ".join(finding.message for finding in error.findings)) from error
    if found is None:
        raise BadValue("has no policy")
    return found


_EXPECTED = " or ".join(f'"{one}"' for one in _CLASSES)
_CLASS = Form(_class, _EXPECTED)
_FORMS = {**dict.fromkeys(_FACTS, NAMES), "class": _CLASS,
          "policy": Form(_policy, "a policy element as text, see idletime-policy(5)")}


@dataclass
class _Reader:
    """One file."""

    file: File
    namespaces: dict[str, str] = field(default_factory=lambda: dict(NAMESPACES))

    def default(self, before: str) -> tuple[Policy | None, str] | None:
        data = self.file.data
        if "default" not in data:
            return None
        if before:
            self.file.say(("default",), f"default = '{data['default']}' is the second one, after {before}", "keep one of them")
        found = self.file.values((), {"default": data["default"]}, {"default": _CLASS})
        return found.get("default"), f"{self.file.name} line {self.file.line(('default',))}"

    def rules(self) -> list[Rule]:
        self.file.values((), self.file.data, {}, ["default", "namespaces", "rule"])
        self._namespaces(self.file.data.get("namespaces", {}))
        tables = self.file.data.get("rule", [])
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            self.file.say(("rule",), "rule is no list of tables", "write [[rule]] above each")
            return []
        return [self._rule(("rule", number), table) for number, table in enumerate(tables)]

    def _namespaces(self, table: Any) -> None:
        if not isinstance(table, dict) or not all(isinstance(one, str) for one in table.values()):
            self.file.say(("namespaces",), "namespaces is no table of prefixes", 'write such as x = "urn:example:x"')
            return
        self.namespaces.update(table)

    def _rule(self, path: tuple[str | int, ...], table: dict[str, Any]) -> Rule:
        values = self.file.values(path, table, _FORMS, ["metadata"])
        if ("class" in table) == ("policy" in table):
            self.file.say(path, "the rule has both class and policy" if "class" in table else
                          "the rule says nothing: it has neither class nor policy",
                          "remove one" if "class" in table else f"write class = {_EXPECTED}")
        if not table.keys() & {*_FACTS, "metadata"}:
            self.file.say(path, "the rule has no condition", f"write {', '.join(_FACTS)} or metadata, or use default")
        queries = self._queries((*path, "metadata"), table.get("metadata", []))
        globs = {name: values[name] for name in _FACTS if name in values}
        return Rule(values.get("class", values.get("policy")), globs, queries,
                    f"{self.file.name} line {self.file.line(path)}", table["policy"] if "policy" in values else None)

    def _queries(self, path: tuple[str | int, ...], value: Any) -> tuple[Query, ...]:
        tables: Sequence[Any] = value if isinstance(value, list) else [value]
        return tuple(query for one in tables if (query := self._query(path, one)) is not None)

    def _query(self, path: tuple[str | int, ...], table: Any) -> Query | None:
        if not isinstance(table, dict) or not isinstance(table.get("xpath"), str):
            self.file.say(path, "metadata has no xpath", 'write { xpath = "...", value = "..." }')
            return None
        values = self.file.values(path, table, {"value": NAMES}, ["xpath"])
        text = table["xpath"]
        try:
            find = etree.XPath(f".//{text}" if _ANYWHERE.match(text) else text, namespaces=self.namespaces, regexp=False)
            find(etree.Element("metadata"))  # unknown prefixes show themselves when it is used
        except _WRONG_XPATH as error:
            self.file.say(path, f"xpath = '{text}': {error}", XPATH_REMEDY)
            return None
        return Query(text, find, values.get("value", ()))
