# SPDX-License-Identifier: GPL-2.0-or-later
"""Adds wanted elements to a domain's text, and takes them out again. Pure.

What was added is written down in the domain's metadata (namespace urn:idletime:compiled:1), since libvirt writes
XML anew: where the text has changed, the record still says which elements are ours.

    <idletimed:compiled xmlns:idletimed='urn:idletime:compiled:1'>
      <idletimed:added path="cputune/emulatorsched" around="1"/>   ours; so is the one element around it, which goes
                                                                   if nothing else is in it
      <idletimed:opened path="cputune"/>                    was an empty tag
      <idletimed:set path="..." name="alias" was="net0"/>   an attribute; without was: it was not there
    </idletimed:compiled>
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import Finding, Kind, Severity
from ..xmltext import Document, Element, attribute
from .want import Want

NAMESPACE = "urn:idletime:compiled:1"
QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
NSMAP = {"qemu": QEMU}

# New children of <domain> stand behind the first of these that is there; else at the end.
_BEHIND = {"memtune": ("currentMemory", "memory", "maxMemory"),
           "cputune": ("iothreadids", "iothreads", "vcpus", "vcpu")}

# The only places that a record may name, by kind of entry. It comes from metadata that people can edit.
_STEP = r"(?:\[(?:(?:@?[a-z]+(?:/@[a-z]+)?)='[^']*'|[0-9]+)\])?"
_DEVICE = rf"devices/(disk|interface){_STEP}"
_FRONTEND = rf"qemu:override/qemu:device{_STEP}/qemu:frontend"
_BOX = rf"memtune|cputune|devices|qemu:commandline|qemu:override(/qemu:device{_STEP}(/qemu:frontend)?)?"
PLACES = {kind: re.compile(pattern) for kind, pattern in {
    "added": rf"memtune/soft_limit|cputune/((vcpusched|emulatorsched|iothreadsched){_STEP}|shares)"
             rf"|devices/channel{_STEP}|{_DEVICE}/(alias|driver)|qemu:commandline/qemu:arg{_STEP}"
             rf"|{_FRONTEND}/qemu:property{_STEP}",
    "opened": rf"{_BOX}|{_DEVICE}|metadata",
    "set": rf"{_DEVICE}/(alias|driver)",
}.items()}


def qualified(tag: str) -> str:
    return f"{{{QEMU}}}{tag[5:]}" if tag.startswith("qemu:") else tag


@dataclass
class Merge:
    """One run of additions to a document."""

    document: Document
    record: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    # ---- elements

    def add(self, parent: Element, path: str, wants: list[Want]) -> None:
        """Add what is missing below parent (path: of parent, "" for the domain)."""
        missing = []
        for want in wants:
            there = self._find(parent, want)
            if there is None:
                missing.append(want)
            elif want.children and not want.whole:
                self.add(there, path + self._step(want), list(want.children))
            else:
                self._foreign(there, want)
        if not missing:
            return
        if parent is self.document.root:
            for want in missing:
                self._add_top(want)
        elif self.document.append(parent, self._lines(missing, self._prefix(parent))):
            self.record.append(("opened", {"path": path.rstrip("/")}))
        for want in missing:
            self._remember(path, want, 0)

    def _add_top(self, want: Want) -> None:
        prefix = self._prefix(self.document.root)
        lines = self._lines([want], prefix or "qemu", declare=not prefix)
        for name in _BEHIND.get(want.tag, ()):
            sibling = self.document.root.find(name)
            if sibling is not None:
                return self.document.insert_after(sibling, lines)
        self.document.append(self.document.root, lines)
        return None

    @staticmethod
    def _find(parent: Element, want: Want) -> Element | None:
        for child in parent.iterchildren(qualified(want.tag)):
            if not want.key or want.foreign == "keep" or _key(child, want.key) == _wanted_key(want):
                return child
        return None

    def _foreign(self, there: Element, want: Want) -> None:
        if want.foreign == "use":
            return
        refuse = want.foreign == "refuse"
        value = " ".join([*(f"{name}='{text}'" for name, text in there.attrib.items()), (there.text or "").strip()])
        self.findings.append(Finding(
            Severity.ERROR if refuse else Severity.WARNING, Kind.FIT,
            f"the domain has its own <{want.tag} {value.strip()}>" +
            ("" if refuse else ": kept, the policy's is not used"),
            "remove it, or what asks for it in the policy" if refuse else "remove it to use the policy's",
            want.tag, there.sourceline))

    # ---- attributes

    def set(self, element: Element, path: str, name: str, value: str) -> None:
        """Set an attribute of an element that is there; path: as it will be found afterwards."""
        entry = {"path": path, "name": name}
        if name in element.attrib:
            entry["was"] = element.get(name, "")
        self.document.set_attribute(element, name, value)
        self.record.append(("set", entry))

    # ---- text

    @staticmethod
    def _prefix(element: Element) -> str | None:
        return next((prefix for prefix, uri in element.nsmap.items() if uri == QEMU and prefix), None)

    def _lines(self, wants: list[Want], prefix: str | None, declare: bool = False) -> list[str]:
        return [line for want in wants for line in _render(want, prefix or "qemu", declare, 0)]

    @staticmethod
    def _step(want: Want) -> str:
        key = f"[{want.key}='{_wanted_key(want)}']" if want.key else ""
        return f"{want.tag}{key}/"

    def _remember(self, path: str, want: Want, around: int) -> None:
        here = path + self._step(want)
        if want.children and not want.whole:
            for child in want.children:
                self._remember(here, child, around + 1)
            return
        entry = {"path": here.rstrip("/")}
        self.record.append(("added", {**entry, "around": str(around)} if around else entry))

    def finish(self, metadata: Element, empty: bool = False) -> None:
        """Write the record down. empty: also if nothing was added, so that it is seen to have been compiled."""
        if not self.record and not empty:
            return
        lines = [f"<idletimed:compiled xmlns:idletimed='{NAMESPACE}'>"]
        for kind, entry in self.record:
            values = " ".join(f'{name}="{_escape(value)}"' for name, value in entry.items())
            lines.append(f"\t<idletimed:{kind} {values}/>")
        self.document.append(metadata, [*lines, "</idletimed:compiled>"])


def _escape(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _key(element: Element, key: str) -> str | None:
    path, _, name = key.rpartition("@")
    child = element.find(path.rstrip("/")) if path else element
    return None if child is None else child.get(name)


def _wanted_key(want: Want) -> str:
    path, _, name = want.key.rpartition("@")
    if not path:
        return want.attributes[name]
    return next(child.attributes[name] for child in want.children if child.tag == path.rstrip("/"))


def _render(want: Want, prefix: str, declare: bool, depth: int) -> list[str]:
    tag = f"{prefix}:{want.tag[5:]}" if want.tag.startswith("qemu:") else want.tag
    namespace = f" xmlns:{prefix}='{QEMU}'" if declare and want.tag.startswith("qemu:") else ""
    start = f"{chr(9) * depth}<{tag}{namespace}" + "".join(
        f" {name}={attribute(value)}" for name, value in want.attributes.items())
    lines = [f"{chr(9) * depth}<{tag} value='{want.option}'/>"] if want.option else []
    if want.children:
        inner = [line for child in want.children for line in _render(child, prefix, False, depth + 1)]
        return [*lines, start + ">", *inner, f"{chr(9) * depth}</{tag}>"]
    return [*lines, f"{start}>{_escape(want.text)}</{tag}>" if want.text else start + "/>"]
