# SPDX-License-Identifier: GPL-2.0-or-later
"""Domain XML as a tree. Pure."""

from __future__ import annotations

from typing import TypeAlias

from lxml import etree

from .errors import Finding, Kind, PolicyError, Severity

Element: TypeAlias = etree._Element


def read(text: str) -> Element:
    """The root element. Raises PolicyError (Kind.SYNTAX) where the text is not well-formed, or has a document type."""
    parser = etree.XMLParser(encoding="utf-8", resolve_entities=False, no_network=True)
    try:
        root = etree.fromstring(text.encode("utf-8", "surrogatepass"), parser)
    except etree.XMLSyntaxError as error:
        raise _refused(f"not well-formed XML: {error.msg}", error.lineno,
                       "correct the XML; 'xmllint --noout FILE' shows the place") from error
    if root.getroottree().docinfo.doctype:
        raise _refused("the XML has a document type (<!DOCTYPE>)", None, "remove it; domain XML has none")
    return root


def get(element: Element, path: str, name: str) -> str:
    """An attribute of a child, "" if either is missing."""
    child = element.find(path)
    return "" if child is None else str(child.get(name, ""))


def _refused(message: str, line: int | None, remedy: str) -> PolicyError:
    return PolicyError([Finding(Severity.ERROR, Kind.SYNTAX, message, remedy, line=line)])
