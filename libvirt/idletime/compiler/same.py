# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two domains say the same, however libvirt has ordered and split their elements. Pure."""

from __future__ import annotations

from typing import Any

from lxml import etree

from ..xmltext import Element
from .devices import get
from .merge import QEMU
from .want import CHANNEL, numbers_of

_SCHEDULERS = {"vcpusched": "vcpus", "iothreadsched": "iothreads"}
_ARGUMENT = f"{{{QEMU}}}arg"  # the order among these matters

# tag, sorted attributes, text, children (sorted, but where their order matters)
Form = tuple[Any, ...]


def same(one: Element, other: Element) -> bool:
    """Equal but for comments, white space, and the order of siblings (not of command-line arguments)."""
    return _form(one) == _form(other)


def _form(element: Element) -> Form:
    children = [form for child in element.iterchildren(etree.Element) if not _by_libvirt(child)
                for form in _split(child)]
    children.sort(key=lambda form: (form[0],) if form[0] == _ARGUMENT else form)
    return (str(element.tag), tuple(sorted(element.attrib.items())), (element.text or "").strip(), tuple(children))


def _by_libvirt(element: Element) -> bool:
    """What libvirt adds to our channel."""
    parent = element.getparent()
    return parent is not None and parent.tag == "channel" and element.tag != "target" and \
        get(parent, "target", "name") == CHANNEL


def _split(element: Element) -> list[Form]:
    """A scheduler for several vCPUs is as many for one each."""
    form = _form(element)
    name = _SCHEDULERS.get(str(element.tag))
    text = element.get(name) if name else None
    if name is None or text is None:
        return [form]
    return [(form[0], tuple(sorted({**element.attrib, name: str(number)}.items())), *form[2:])
            for number in numbers_of(text)]
