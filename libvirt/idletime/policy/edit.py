# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes to the policy element in a domain's text; the rest stays to the byte. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lxml import etree

from ..errors import Finding, Kind, PolicyError, Severity
from ..xmltext import Document, Element, attribute
from .grammar import SETTINGS, SWITCHES
from .model import NAMESPACE
from .parse import find

_BEFORE_METADATA = ("description", "title", "genid", "uuid", "name")

_LOOKS: Mapping[str, Callable[[str], str]] = {
    "max-hold-ms": lambda text: "never" if text == "0" else _with_unit(text, "ms"),
    "max-request-bytes": lambda text: _with_unit(text, "B"),
    "budget-percent": lambda text: _with_unit(text, "%"),
    **dict.fromkeys(SWITCHES, lambda text: {"on": "yes", "off": "no"}.get(text, text)),
    "rate-bps": lambda text: "unknown" if text == "0" else _with_unit(text, "bit"),
}
# Property -> (element, attribute).
_PLACES = {property_: place for place, property_ in SETTINGS.items()}

SETTABLE = (*_PLACES, "class")
DEVICE_SETTABLE = ("resource", "class", "queues", "dscp")


def with_class(xml: str, class_: str) -> str:
    """The domain with this class; it gets a policy if it has none."""
    document = Document(xml)
    policy = find(document.root)
    if policy is not None:
        document.set_attribute(policy, "class", class_)
        return document.render()
    return _insert(document, [plain(class_)])


def plain(class_: str) -> str:
    """A policy element that says nothing but the class."""
    return f"<idletime:policy xmlns:idletime='{NAMESPACE}' class={attribute(class_)}/>"


def without(xml: str) -> str:
    """The domain without its policy, and without <metadata> if that held nothing else."""
    document = Document(xml)
    policy = find(document.root)
    if policy is not None:
        metadata = policy.getparent()
        alone = metadata is not None and len(metadata) == 1 and not metadata.attrib
        document.remove(metadata if alone else policy)
    return document.render()


def element_text(xml: str) -> str | None:
    """The policy element of a domain (or the element itself) as text that stands alone; None if there is none."""
    policy = find(Document(xml).root)
    if policy is None:
        return None
    text: str = etree.tostring(policy, encoding="unicode", with_tail=False)
    etree.cleanup_namespaces(lone := etree.fromstring(text))
    return str(etree.tostring(lone, encoding="unicode"))


def for_libvirt(policy_text: str) -> str:
    """A policy element without namespaces: libvirt's metadata call puts its own in, and fails over one."""
    root = etree.fromstring(policy_text)
    for element in root.iter(etree.Element):
        element.tag = etree.QName(element).localname
    etree.cleanup_namespaces(root)
    return str(etree.tostring(root, encoding="unicode"))


def replaced(xml: str, policy_text: str | None) -> str:
    """The domain with this policy element instead of its own; None: with none."""
    bare = without(xml)
    return bare if policy_text is None else _insert(Document(bare), policy_text.splitlines())


def with_settings(xml: str, settings: Mapping[str, str], resource: str | None = None) -> str:
    """The domain with properties set by QEMU's names ("interval-us": "5000"), for all resources or for one.

    Raises PolicyError for a name that is not known, or without a policy. Values are checked by parse().
    """
    for name, value in settings.items():
        if name not in SETTABLE:
            raise _unknown(name, SETTABLE)
        if name == "class":
            xml = with_class(xml, value)
            continue
        element, attribute_ = _PLACES[name]
        looks = _LOOKS.get(name, str)
        xml = _set(xml, element, "resource", resource, attribute_, looks(value))
        if (name, looks(value)) == ("auto", "no"):
            xml = _unset(xml, element, "resource", resource, "budget")  # it means nothing without auto
    return xml


def with_device(xml: str, kind: str, target: str | None, settings: Mapping[str, str]) -> str:
    """The domain with attributes of one disk or interface element set; target None: of the one for all others."""
    for name, value in settings.items():
        if name not in DEVICE_SETTABLE:
            raise _unknown(name, DEVICE_SETTABLE)
        xml = _set(xml, kind, "target", target, name, value)
    return xml


def _with_unit(text: str, unit: str) -> str:
    """A number gets the unit that the property's name has; what has one keeps it, as in the policy."""
    return text + unit if text.isdecimal() else text


def _unknown(name: str, known: tuple[str, ...]) -> PolicyError:
    return PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, f"'{name}' cannot be set",
                                "use one of: " + ", ".join(known))])


def _set(xml: str, name: str, key: str, key_value: str | None, attribute_: str, value: str) -> str:
    document = Document(xml)
    policy = find(document.root)
    if policy is None:
        raise PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, "the domain has no policy",
                                   "give it one: virt-idletime mark DOMAIN")])
    for child in policy.iterchildren(f"{{{NAMESPACE}}}{name}"):
        if child.get(key) == key_value:
            document.set_attribute(child, attribute_, value)
            return document.render()
    values = {key: key_value, attribute_: value} if key_value else {attribute_: value}
    text = "".join(f" {one}={attribute(str(text))}" for one, text in values.items())
    document.append(policy, [f"<{_prefix(policy)}{name}{text}/>"])
    return document.render()


def _unset(xml: str, name: str, key: str, key_value: str | None, attribute_: str) -> str:
    document = Document(xml)
    policy = find(document.root)
    for child in () if policy is None else policy.iterchildren(f"{{{NAMESPACE}}}{name}"):
        if child.get(key) == key_value and attribute_ in child.attrib:
            document.remove_attribute(child, attribute_)
    return document.render()


def _prefix(policy: Element) -> str:
    return f"{policy.prefix}:" if policy.prefix else ""


def _insert(document: Document, lines: list[str]) -> str:
    metadata = document.root.find("metadata")
    if metadata is not None:
        document.append(metadata, lines)
        return document.render()
    block = ["<metadata>", *("\t" + line for line in lines), "</metadata>"]
    for name in _BEFORE_METADATA:
        sibling = document.root.find(name)
        if sibling is not None:
            document.insert_after(sibling, block)
            break
    else:
        document.append(document.root, block)
    return document.render()
