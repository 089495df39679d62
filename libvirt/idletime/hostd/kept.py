# SPDX-License-Identifier: GPL-2.0-or-later
"""An element in a domain's metadata that says what idletimed did to it, for the next idletimed. Context: a thread of hands."""

from __future__ import annotations

from typing import Any

import libvirt
from lxml import etree

from ..xmltree import Element, read

_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT


def element_of(domain: Any, namespace: str, flags: int) -> Element | None:
    """The element of this namespace in the live or the persistent XML, as flags say; None: there is none. Raises libvirtError
    for all else."""
    try:
        return read(domain.metadata(_ELEMENT, namespace, flags))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return None
        raise


def number(element: Element, name: str) -> int:
    """An attribute that is a whole number; 0 where there is none, whatever stands there."""
    text = element.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def as_text(element: Element) -> str:
    return str(etree.tostring(element, encoding="unicode"))


def keep(domain: Any, element: Element | None, prefix: str, namespace: str, flags: int) -> None:
    """Write the element; libvirt adds the prefix. None: remove it. Raises libvirtError."""
    text = None if element is None else as_text(element)
    domain.setMetadata(_ELEMENT, text, prefix if text else None, namespace, flags)
