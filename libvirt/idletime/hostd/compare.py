# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two domain XMLs say the same, whatever libvirt did to their form. Pure.

libvirt moves elements and gives addresses and aliases. So a compiled domain that libvirt has stored is not, byte for
byte, what the compiler makes of it; what must be the same is every element with its attributes, wherever it stands
among its siblings.
"""

from __future__ import annotations

from collections import Counter

from lxml import etree

_GIVEN = ("address", "alias")
"""Children that libvirt adds to a device that was written without them."""

_OURS = "org.idletime.agent.0"


def same(one: str, other: str) -> bool:
    """Whether they have the same elements."""
    return _elements(one) == _elements(other)


def _elements(xml: str) -> Counter[tuple[object, ...]]:
    root = etree.fromstring(xml.encode())
    for channel in root.iterfind("./devices/channel"):
        target = channel.find("target")
        if target is not None and target.get("name") == _OURS:
            _strip(channel, target)
    return Counter(_facts(element) for element in root.iter(etree.Element))


def _strip(channel: etree._Element, target: etree._Element) -> None:
    """What libvirt adds to the agent's channel: a place, a socket, whether somebody is there."""
    for child in list(channel):
        if child.tag in (*_GIVEN, "source"):
            channel.remove(child)
    target.attrib.pop("state", None)


def _facts(element: etree._Element) -> tuple[object, ...]:
    path = [element.tag, *(above.tag for above in element.iterancestors())]
    text = (element.text or "").strip()
    return (*path, text, *sorted(element.attrib.items()))
