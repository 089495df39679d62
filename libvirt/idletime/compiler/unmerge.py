# SPDX-License-Identifier: GPL-2.0-or-later
"""Takes out of a domain's text what the record in its metadata says was added. Pure."""

from __future__ import annotations

from lxml import etree

from ..errors import Finding, Kind, PolicyError, Severity
from ..xmltext import Document, Element
from .merge import NAMESPACE, NSMAP, PLACES, QEMU

# libvirt writes one element for each vCPU and I/O thread, whatever was given.
_SPLIT = ("cputune/vcpusched[", "cputune/iothreadsched[")

_OPTION_ARGS = ("-object", "-global")


def record_of(root: Element) -> Element | None:
    """The record, None if the domain was not compiled."""
    return root.find(f"./metadata/{{{NAMESPACE}}}compiled")


def unmerge(document: Document) -> str:
    """The text without what was added, and without the record."""
    record = record_of(document.root)
    if record is None:
        return document.render()
    run = _Unmerge(document)
    for entry in record:
        if isinstance(entry.tag, str):
            run.entry(entry)
    run.gone.add(record)
    run.act()
    return document.render()


class _Unmerge:
    def __init__(self, document: Document):
        self.document = document
        self.gone: set[Element] = set()
        self.boxes: set[Element] = set()
        self.opened: list[Element] = []
        self.attributes: list[tuple[Element, str, str | None]] = []

    def entry(self, entry: Element) -> None:
        """Collect; what the user has removed since is not there any more, and that is fine."""
        kind, path = etree.QName(entry).localname, entry.get("path", "")
        if kind not in PLACES or not PLACES[kind].fullmatch(path):
            raise PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, f"path='{path}' is no place of ours",
                                       "remove the element 'compiled' and what it names, then compile again",
                                       etree.QName(entry).localname, entry.sourceline)])
        found = self.document.root.xpath(path, namespaces=NSMAP)
        for element in found if path.startswith(_SPLIT) else found[:1]:
            if kind == "added":
                self._added(element, entry.get("around", "0"))
            elif kind == "opened":
                self.opened.append(element)
            elif kind == "set":
                self.attributes.append((element, entry.get("name", ""), entry.get("was")))

    def _added(self, element: Element, around: str) -> None:
        self.gone.add(element)
        ancestors = list(element.iterancestors())[:-1]  # never the domain
        self.boxes.update(ancestors[:int(around) if around.isdecimal() else 0])
        before = element.getprevious()
        if element.tag == f"{{{QEMU}}}arg" and before is not None and before.get("value") in _OPTION_ARGS:
            self.gone.add(before)

    def act(self) -> None:
        for box in sorted(self.boxes, key=lambda box: -len(list(box.iterancestors()))):
            if not self._left(box):
                self.gone.add(box)
        for element in self.gone:
            if not any(ancestor in self.gone for ancestor in element.iterancestors()):
                self.document.remove(element)
        for element in self.opened:
            if element not in self.gone and not self._left(element):
                self.document.close(element)
        for element, name, was in self.attributes:
            if element in self.gone or name not in element.attrib:
                continue
            if was is None:
                self.document.remove_attribute(element, name)
            else:
                self.document.set_attribute(element, name, was)

    def _left(self, element: Element) -> bool:
        """Whether something that is not ours is in it: an element, a comment, an attribute."""
        return (bool(element.attrib) and element.tag != f"{{{QEMU}}}device") or \
            any(child not in self.gone for child in element)
