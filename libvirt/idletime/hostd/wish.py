# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest has asked for, kept in its running domain: metadata urn:idletime:wish:1 of the live XML.

There it survives a restart of libvirtd and of idletimed, a save and a migration, and ends with the domain. It is the
wish that is kept, not the grant: what may be granted is decided anew from the policy that then holds.
"""

from __future__ import annotations

from lxml import etree

from ..xmltree import Element
from .protocol import NAMES, QueueWish, Wish

NAMESPACE = "urn:idletime:wish:1"
PREFIX = "idletimew"


def to_xml(wish: Wish) -> str:
    """The element, without a prefix: libvirt adds it."""
    root = etree.Element("wish", {"class": "background" if wish.background else "foreground"})
    for entry in wish.queues:
        names = {name: entry.device[name] for name in (*NAMES, "kernel") if name in entry.device}
        etree.SubElement(root, "queues", {**names, "list": entry.queues})
    return str(etree.tostring(root, encoding="unicode"))


def of_domain(live: Element) -> Wish:
    """The wish that is in a domain's XML; nobody but us writes it, so what does not make sense counts as none."""
    element = live.find(f"./metadata/{{{NAMESPACE}}}wish")
    if element is None:
        return Wish()
    entries = []
    for child in element.iterfind(f"{{{NAMESPACE}}}queues"):
        names = {name: child.get(name, "") for name in (*NAMES, "kernel") if child.get(name)}
        entries.append(QueueWish(names, child.get("list", "")))
    return Wish(element.get("class") == "background", tuple(entries))
