# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain XML -> Policy, with every error at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from lxml import etree

from ..errors import Finding, Kind, PolicyError, Severity
from ..police.enforce import Enforce
from ..xmltree import Element, read
from .grammar import CHILDREN, GONE, KEYS, POLICY, REQUIRED, SETTINGS, SWITCHES
from .model import AUTO, NAMESPACE, NONE, Class, Control, CpuClass, DevicePolicy, Memory, Policy, Space
from .units import BadValue, Form

_PREFIX = f"{{{NAMESPACE}}}"
_ANY_VERSION = "urn:idletime:policy:"

# An element with its attributes as values.
Values = tuple[Element, str, dict[str, Any]]


def parse(xml: str) -> Policy | None:
    """The policy of a domain, or of a bare policy element; None if the domain has none. Pure.

    Raises PolicyError (Kind.SYNTAX) with every finding: line, element, value, remedy.
    """
    return parse_tree(read(xml))


def parse_tree(root: Element) -> Policy | None:
    """The same for a parsed document."""
    found = find(root)
    if found is None:
        return None
    reader = _Reader()
    policy = reader.policy(found)
    if reader.findings:
        raise PolicyError(reader.findings)
    assert policy is not None, "no policy without a finding"
    return policy


def find(root: Element) -> Element | None:
    """The policy element of a domain or network of elements; checks that there is one at most, of this version."""
    if root.tag == _PREFIX + "policy":
        return root
    ours = [element for element in root.iterfind("./metadata/*")
            if isinstance(element.tag, str) and _is_meant(etree.QName(element))]
    for element in ours:
        name = etree.QName(element)
        if name.namespace != NAMESPACE:
            newer = ", or install a newer virt-idletime" if (name.namespace or "").startswith(_ANY_VERSION) else ""
            raise PolicyError([_error(element, f"namespace '{name.namespace}' is not known to this version",
                                      f"write {NAMESPACE}{newer}")])
        if name.localname != "policy":
            raise PolicyError([_error(element, f"element '{name.localname}' is not known in <metadata>",
                                      "write 'policy'")])
    if len(ours) > 1:
        raise PolicyError([_error(ours[1], "a second policy", "keep one: libvirt stores one element a namespace")])
    return ours[0] if ours else None


def describe(element: Element) -> str:
    """An element as its writer knows it: disk target='vda'."""
    name = etree.QName(element).localname
    key = KEYS.get(name)
    value = element.get(key) if key else None
    return f"{name} {key}='{value}'" if value is not None else name


def _is_meant(name: etree.QName) -> bool:
    """Whether this is a policy of ours, of any version, or was to be one, with its namespace mistyped."""
    namespace = name.namespace or ""
    return namespace.startswith(_ANY_VERSION) or (name.localname == "policy" and (
        "idletime" in namespace or difflib.SequenceMatcher(None, namespace, NAMESPACE).ratio() > 0.8))


def _error(element: Element, message: str, remedy: str) -> Finding:
    return Finding(Severity.ERROR, Kind.SYNTAX, message, remedy, describe(element), element.sourceline)


def _like(name: str, known: Iterable[str]) -> str:
    """The known name that was meant, else all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"write '{close[0]}'" if close else "use one of: " + ", ".join(known) if known else "remove it"


class _Reader:
    """One pass over a policy element; collects findings instead of stopping at the first."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def policy(self, element: Element) -> Policy | None:
        own = self._attributes(element, POLICY)
        children = [values for child in element if (values := self._child(child)) is not None]
        if element.text and element.text.strip():
            self._text(element, element.text)
        self._once(children)
        self._sense(children)
        if "by" in own and own.get("class") not in (None, Class.BACKGROUND.value):  # None: that is said already
            self._say(element, f"by='{element.get('by')}' with class='{element.get('class')}'",
                      "write class='background', or remove by: at that time a background domain becomes foreground")
        return None if self.findings else _build(element, own, children)

    # ---- elements

    def _child(self, child: Any) -> Values | None:
        if child.tail and child.tail.strip():
            self._text(child.getparent(), child.tail)
        if not isinstance(child.tag, str):
            return None  # a comment
        name = etree.QName(child)
        if name.namespace != NAMESPACE or name.localname not in CHILDREN:
            self._say(child, f"element '{name.localname}' is not known", _foreign(name) or
                      _like(name.localname, CHILDREN))
            return None
        if len(child) or (child.text and child.text.strip()):
            self._say(child, "the element has content", "remove it: everything is said in attributes")
        return child, name.localname, self._attributes(child, CHILDREN[name.localname])

    def _text(self, element: Element, text: str) -> None:
        self._say(element, f"text '{text.strip()[:40]}' between the elements", "remove it")

    def _once(self, children: list[Values]) -> None:
        seen: dict[tuple[str, str | None], int] = {}
        for element, name, values in children:
            key = (name, values.get(KEYS.get(name, "")))
            if key in seen:
                self._say(element, f"said before, in line {seen[key]}", "keep one of them")
            seen.setdefault(key, element.sourceline)

    def _sense(self, children: list[Values]) -> None:
        """What each attribute allows and both together do not."""
        for element, name, values in children:
            if name == "interval" and "budget" in values and values.get("auto") != "yes":
                self._say(element, f"budget='{element.get('budget')}' without auto='yes'",
                          "add auto='yes', or remove budget")
            if name == "memory" and values.get("high") and values.get("low") and values["high"] < values["low"]:
                self._say(element, f"high='{element.get('high')}' is less than low='{element.get('low')}'",
                          "write a larger high, or a smaller low")
            if name not in ("disk", "interface") and values.get("resource") in (AUTO, NONE):
                self._say(element, f"resource='{values['resource']}' names no resource",
                          "name one, or leave the attribute out: then it is for all of them")
            if values.get("resource") == NONE and set(values) - {"resource", "target"}:
                self._say(element, "resource='none' with other attributes",
                          "remove them: with 'none' the device is left as it is")

    # ---- attributes

    def _attributes(self, element: Element, known: dict[str, Form] | Any) -> dict[str, Any]:
        values = {}
        for name, text in element.attrib.items():
            gone = GONE.get((etree.QName(element).localname, name))
            if gone is not None:
                self._say(element, f"{name}='{text}' is not known any more", gone.format(text))
                return {}
            if name not in known:
                self._say(element, f"attribute '{etree.QName(name).localname}' is not known", _like(name, known))
                continue
            try:
                values[name] = known[name].read(text)
            except BadValue as bad:
                self._say(element, f"{name}='{text}' {bad}", f"write {known[name].expected}")
                values[name] = None
        self._required(element, values, known)
        return values

    def _required(self, element: Element, values: dict[str, Any], known: Any) -> None:
        for group in REQUIRED.get(etree.QName(element).localname, ()):
            if not any(name in values for name in group):
                names = ", ".join(f"'{name}'" for name in group)
                self._say(element, f"needs the attribute {names}" if len(group) == 1 else f"needs one of {names}",
                          f"write {group[0]}='...': {known[group[0]].expected}")

    def _say(self, element: Element, message: str, remedy: str) -> None:
        self.findings.append(_error(element, message, remedy))


def _foreign(name: etree.QName) -> str:
    if name.namespace == NAMESPACE:
        return ""
    return f"give it the namespace {NAMESPACE} of its parent (a prefix such as idletime:)" if \
        name.localname in CHILDREN else ""


# ---- values -> model

def _build(element: Element, own: dict[str, Any], children: list[Values]) -> Policy:
    one = {name: values for _, name, values in children if name not in KEYS}
    return Policy(
        class_=Class(own["class"]),
        by=own.get("by"),
        disks=_devices("disk", children),
        interfaces=_devices("interface", children),
        settings=_settings(children),
        control=Control(one.get("guest", {}).get("control", "none")),
        cpu=CpuClass(one["cpu"]["class"]) if "cpu" in one else None,
        memory=Memory(one["memory"]["low"], one["memory"].get("high")) if "memory" in one else None,
        jobs=one.get("job", {}).get("class") == Class.BACKGROUND.value,
        jobs_by=one.get("job", {}).get("by"),
        jobs_diverging=one.get("job", {}).get("diverging", "wait"),
        space=tuple(Space(values["target"], element.sourceline) for element, name, values in children
                    if name == "space" and values["reclaim"] == "yes"),
        enforce=Enforce(own.get("enforce", Enforce.INTERVAL.value)),
        line=element.sourceline,
    )


def _devices(kind: str, children: list[Values]) -> tuple[DevicePolicy, ...]:
    return tuple(_device(element, values) for element, name, values in children if name == kind)


def _device(element: Element, values: dict[str, Any]) -> DevicePolicy:
    class_ = values.get("class")
    return DevicePolicy(target=values.get("target"), resource=values.get("resource", AUTO),
                        class_=Class(class_) if class_ else None, queues=values.get("queues"),
                        dscp=values.get("dscp"), line=element.sourceline)


def _settings(children: list[Values]) -> dict[str | None, dict[str, int | bool]]:
    settings: dict[str | None, dict[str, int | bool]] = {}
    for _, name, values in children:
        for attribute, value in values.items():
            property_ = SETTINGS.get((name, attribute))
            if property_:
                settings.setdefault(values.get("resource"), {})[property_] = \
                    value == "yes" if property_ in SWITCHES else value
    return settings
