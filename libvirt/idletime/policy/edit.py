# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes to a policy element, as text in and text out. Pure. The rest of a domain's XML is nobody's business here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lxml import etree

from ..errors import Finding, Kind, PolicyError, Severity
from ..xmltree import Element, read
from .grammar import SETTINGS, SWITCHES
from .model import NAMESPACE, Class
from .parse import find

_LOOKS: Mapping[str, Callable[[str], str]] = {
    "max-hold-ms": lambda text: "never" if text == "0" else _with_unit(text, "ms"),
    "max-request-bytes": lambda text: _with_unit(text, "B"),
    "budget-percent": lambda text: _with_unit(text, "%"),
    **dict.fromkeys(SWITCHES, lambda text: {"on": "yes", "off": "no"}.get(text, text)),
    "rate-bps": lambda text: "unknown" if text == "0" else _with_unit(text, "bit"),
}
# Property -> (element, attribute).
_PLACES = {**{property_: place for place, property_ in SETTINGS.items()},
           "by": ("policy", "by"), "enforce": ("policy", "enforce"), "control": ("guest", "control"), "cpu": ("cpu", "class"),
           "jobs": ("job", "class"), "jobs-by": ("job", "by"), "jobs-diverging": ("job", "diverging"),
           "memory-low": ("memory", "low"), "memory-high": ("memory", "high")}

# Property -> (element, attributes that say it, what is added where none does).
_NEEDS = {"budget-percent": ("interval", ("auto", "us"), ("auto", "yes")),
          **dict.fromkeys(("jobs-by", "jobs-diverging"), ("job", ("class",), ("class", "background")))}

SETTABLE = tuple(_PLACES)
DEVICE_SETTABLE = ("resource", "class", "queues", "dscp")


def plain(class_: str) -> str:
    """A policy element that says nothing but the class."""
    return f'<idletime:policy xmlns:idletime="{NAMESPACE}" class="{class_}"/>'


def with_class(policy: str | None, class_: str) -> str:
    """The policy with this class, or one that says nothing else."""
    if policy is None:
        return plain(class_)
    root = _root(policy)
    root.set("class", class_)
    if class_ != Class.BACKGROUND.value:
        root.attrib.pop("by", None)  # it means nothing then
    return _text(root)


def with_settings(policy: str, settings: Mapping[str, str], resource: str | None = None) -> str:
    """The policy with values set for one resource or, None, for all that it does not name, by QEMU's names ("interval-us":
    "5000"); for all also those of guest, cpu, memory. A budget alone is one of the learned interval, and only background jobs
    have a deadline: what these need is said with them.

    Raises PolicyError for a name that is not known. Values are checked by parse().
    """
    root = _root(policy)
    for name, value in settings.items():
        if name not in _PLACES:
            raise _unknown(name, SETTABLE)
        element, attribute = _PLACES[name]
        looks = _LOOKS.get(name, str)(value)
        child = root if element == "policy" else _child(root, element, "resource", resource)
        _put(child, attribute, looks)
        if (name, looks) == ("auto", "no"):
            child.attrib.pop("budget", None)  # it means nothing without auto
    for name in settings.keys() & _NEEDS.keys():
        element, rather_than, needed = _NEEDS[name]
        child = _child(root, element, "resource", resource)
        if not any(child.get(each) for each in rather_than):
            _put(child, *needed)
    return _text(root)


def with_device(policy: str, kind: str, target: str | None, settings: Mapping[str, str]) -> str:
    """The policy with attributes of one disk or interface set; target None: of the one for all that it does not name."""
    root = _root(policy)
    for name, value in settings.items():
        if name not in DEVICE_SETTABLE:
            raise _unknown(name, DEVICE_SETTABLE)
        _put(_child(root, kind, "target", target), name, value)
    return _text(root)


def element_text(xml: str) -> str | None:
    """The policy element of a domain (or the element itself) as text that stands alone; None if there is none."""
    policy = find(read(xml))
    return None if policy is None else _text(policy)


def in_domain(domain_xml: str, policy: str | None) -> str:
    """The domain as it would be with this policy, to look at; not fit to be defined."""
    root = read(domain_xml)
    metadata = root.find("metadata")
    if metadata is None:
        metadata = etree.SubElement(root, "metadata")
    for child in list(metadata):
        if isinstance(child.tag, str) and etree.QName(child).namespace == NAMESPACE:
            metadata.remove(child)
    if policy is not None:
        metadata.append(_root(policy))
    return str(etree.tostring(root, encoding="unicode"))


def for_libvirt(policy: str) -> str:
    """A policy element without namespaces: libvirt's metadata call puts its own in, and fails over one."""
    root = _root(policy)
    for element in root.iter(etree.Element):
        element.tag = etree.QName(element).localname
    etree.cleanup_namespaces(root)
    return str(etree.tostring(root, encoding="unicode", with_tail=False))


def _root(policy: str) -> Element:
    return read(policy)


def _text(element: Element) -> str:
    etree.cleanup_namespaces(lone := etree.fromstring(etree.tostring(element, with_tail=False)))
    return str(etree.tostring(lone, encoding="unicode"))


def _child(policy: Element, name: str, key: str, value: str | None) -> Element:
    """The child of this name that is for this target or resource (None: for all); made where there is none."""
    tag = f"{{{NAMESPACE}}}{name}"
    for child in policy.iterchildren(tag):
        if child.get(key) == value:
            return child
    child = etree.SubElement(policy, tag)
    if value is not None:
        _put(child, key, value)
    return child


def _put(element: Element, name: str, value: str) -> None:
    try:
        element.set(name, value)
    except ValueError:
        raise PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, f"{name}={value!r} has characters that XML cannot hold",
                                   "leave them out")]) from None


def _with_unit(text: str, unit: str) -> str:
    """A number gets the unit that the property's name has; what has one keeps it, as in the policy."""
    return text + unit if text.isdecimal() else text


def _unknown(name: str, known: tuple[str, ...]) -> PolicyError:
    return PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, f"'{name}' cannot be set",
                                "use one of: " + ", ".join(known))])
