# SPDX-License-Identifier: GPL-2.0-or-later
"""XML as text with positions: edits that leave every other byte as it was.

A serialiser would rewrite quotes, white space and the order of attributes of what is not ours. So lxml answers
what is where in the tree, expat says at which bytes, and an edit replaces just these.

What is inserted goes right behind the end of a tag, with its own white space in front. So removing an element together
with the white space in front of it is the exact inverse.
"""

from __future__ import annotations

import functools
import html
import re
from dataclasses import dataclass
from typing import TypeAlias, cast
from xml.parsers import expat

from lxml import etree

from .errors import Finding, Kind, PolicyError, Severity

Element: TypeAlias = etree._Element  # lxml has no public name for it

# A start tag up to its end; ">" may stand in an attribute's value.
_START_TAG = re.compile(rb"""<[^\s/>]+(?:[^>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = r"""\s+{name}\s*=\s*(?P<quoted>"[^"]*"|'[^']*')"""


@dataclass(frozen=True)
class Span:
    """Byte offsets of an element: <start ...>open ... close</...>end. For <empty/>, open == close == end."""

    start: int
    open: int
    close: int
    end: int

    @property
    def empty(self) -> bool:
        return self.open == self.end


def _refused(message: str, line: int | None, remedy: str) -> PolicyError:
    return PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, message, remedy, line=line)])


def _spans(data: bytes) -> list[Span]:
    """Spans of all elements in document order."""
    parser = expat.ParserCreate("utf-8")
    spans: list[Span | None] = []
    open_elements: list[tuple[int, int]] = []

    def start(_name: str, _attributes: object) -> None:
        open_elements.append((len(spans), parser.CurrentByteIndex))
        spans.append(None)

    def end(_name: str) -> None:
        index, begin = open_elements.pop()
        tag = _START_TAG.match(data, begin)
        assert tag, "expat has accepted this tag"
        if data.endswith(b"/>", begin, tag.end()):
            spans[index] = Span(begin, tag.end(), tag.end(), tag.end())
            return
        at = parser.CurrentByteIndex
        spans[index] = Span(begin, tag.end(), at, data.index(b">", at) + 1)

    def doctype(*_: object) -> None:
        raise _refused("the XML has a document type (<!DOCTYPE>)", parser.CurrentLineNumber,
                       "remove it; domain XML has none")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise _refused(f"not well-formed XML: {expat.ErrorString(error.code)}", error.lineno,
                       "correct the XML; 'xmllint --noout FILE' shows the place") from None
    return cast("list[Span]", spans)  # all elements are closed in well-formed XML


class Document:
    """A parsed text, and edits to it that render() applies. Positions are those of the original text."""

    def __init__(self, text: str):
        """Raises PolicyError (Kind.SYNTAX) if text is not well-formed, or has a document type."""
        self._data = text.encode("utf-8", "surrogatepass")
        self.root: Element = self._parse()
        self._edits: list[tuple[int, int, bytes]] = []
        self._newline = "\r\n" if b"\r\n" in self._data else "\n"

    def _parse(self) -> Element:
        if b"<!DOCTYPE" in self._data:
            _spans(self._data)  # refuses one that is not in a comment
        parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True)
        try:
            return etree.fromstring(self._data, parser)
        except etree.XMLSyntaxError as error:
            _spans(self._data)  # its errors are for people
            raise _refused(f"not well-formed XML: {error.msg}", error.lineno, "correct the XML") from error

    @functools.cached_property
    def _span(self) -> dict[Element, Span]:
        """Made late: who only reads needs no positions."""
        return dict(zip(self.root.iter(etree.Element), _spans(self._data), strict=True))

    def span(self, element: Element) -> Span:
        return self._span[element]

    # ---- looking

    def _indent_before(self, position: int) -> str | None:
        """White space between the last newline and position; None if something else stands there."""
        match = re.search(rb"\n([ \t]*)\Z", self._data[:position][-200:])
        return match.group(1).decode() if match else None

    @functools.cached_property
    def step(self) -> str:
        """One level of indentation: that of the first child."""
        for child in self.root.iterchildren(etree.Element):
            return self._indent_before(self.span(child).start) or "  "
        return "  "

    def child_indent(self, parent: Element) -> str | None:
        """Indentation of parent's children, or what it should be; None where the text has no line breaks."""
        children = list(parent.iterchildren(etree.Element))
        if children:
            return self._indent_before(self.span(children[-1]).start)
        own = self._indent_before(self.span(parent).start)
        return None if own is None else own + self.step

    # ---- editing

    def _replace(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, end, text.encode("utf-8")))

    def _block(self, lines: list[str], indent: str | None) -> str:
        if indent is None:
            return "".join(line.lstrip("\t") for line in lines)
        return "".join(self._newline + indent + line for line in
                       (line.replace("\t", self.step) for line in lines))

    def insert_after(self, sibling: Element, lines: list[str]) -> None:
        """Insert lines (a tab is one more level) behind sibling, indented as it is."""
        span = self.span(sibling)
        self._replace(span.end, span.end, self._block(lines, self._indent_before(span.start)))

    def append(self, parent: Element, lines: list[str]) -> bool:
        """Insert lines as the last children of parent. True if parent was an empty tag and had to be opened."""
        span, children = self.span(parent), list(parent.iterchildren(etree.Element))
        block = self._block(lines, self.child_indent(parent))
        if not span.empty:
            at = self.span(children[-1]).end if children else span.open
            self._replace(at, at, block)
            return False
        slash = self._data.rindex(b"/", span.start, span.end)
        outer = self._indent_before(span.start)
        name = re.match(rb"<([^\s/>]+)", self._data[span.start:span.end])
        assert name, "a start tag has a name"
        closing = "" if outer is None else self._newline + outer
        self._replace(slash, span.end, f">{block}{closing}</{name.group(1).decode()}>")
        return True

    def close(self, parent: Element) -> None:
        """Undo what append() did to an empty tag: <a>\\n</a> becomes <a/>. Everything inside is removed."""
        span = self.span(parent)
        self._replace(span.open - 1, span.end, "/>")

    def remove(self, element: Element) -> None:
        """Remove an element and the white space in front of it."""
        span, start = self.span(element), self.span(element).start
        while self._data[start - 1:start].isspace():
            start -= 1
        self._replace(start, span.end, "")

    def _attribute(self, element: Element, name: str) -> re.Match[bytes]:
        span = self.span(element)
        match = re.compile(_ATTRIBUTE.format(name=re.escape(name)).encode()).search(self._data, span.start, span.open)
        assert match, "the caller has seen the attribute"
        return match

    def set_attribute(self, element: Element, name: str, value: str) -> None:
        """Set an attribute without prefix; a new one goes first."""
        if name in element.attrib:
            match = self._attribute(element, name)
            quote = match.group("quoted")[:1].decode()
            self._replace(match.start("quoted"), match.end("quoted"), quote + html.escape(value) + quote)
            return
        tag = re.compile(rb"<[^\s/>]+").match(self._data, self.span(element).start)
        assert tag, "a start tag has a name"
        self._replace(tag.end(), tag.end(), f" {name}={attribute(value)}")

    def remove_attribute(self, element: Element, name: str) -> None:
        match = self._attribute(element, name)
        self._replace(match.start(), match.end(), "")

    def render(self) -> str:
        """The text with all edits. Edits within a removed element are dropped with it."""
        result, position = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: (edit[0], -edit[1])):
            if end < position or start < position:
                continue
            result += [self._data[position:start], text]
            position = end
        result.append(self._data[position:])
        return b"".join(result).decode("utf-8")


def attribute(value: str) -> str:
    """A quoted attribute value, in libvirt's style: single quotes."""
    return f"'{html.escape(value)}'"
