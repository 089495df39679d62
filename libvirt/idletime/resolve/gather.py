# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry points: one source, or all sources of a domain."""

from __future__ import annotations

from ..compiler.devices import devices_of
from ..compiler.facts import RUN_DIR, HostFacts, Resolution, Source
from ..xmltext import Document
from . import probe as _probe
from .disk import Disks, Lookup
from .net import Uplinks
from .tree import Tree


def resolve(source: Source, root: str = "/", lookup: Lookup | None = None) -> Resolution:
    """The resource behind one source. Reads below root only. Never raises: Resolution.problem says what is wrong."""
    return _Host(root, lookup).resolve(source)


class _Host:
    def __init__(self, root: str, lookup: Lookup | None):
        tree = Tree(root)
        self._disks, self._uplinks = Disks(tree, lookup), Uplinks(tree, lookup)

    def resolve(self, source: Source) -> Resolution:
        return (self._disks if source.device == "disk" else self._uplinks).resolve(source)


def gather(domain_xml: str, root: str = "/", lookup: Lookup | None = None, run_dir: str = RUN_DIR,
           probe: bool = True) -> HostFacts:
    """HostFacts for compile(): resolves each disk and interface of the domain (or of one device's XML).

    probe: ask the domain's emulator which properties it has (cached by path and time of the file; about 0.1 s).
    Raises PolicyError (Kind.SYNTAX) if the XML is not well-formed.
    """
    document = Document(domain_xml)
    host = _Host(root, lookup)
    sources = {device.source for device in devices_of(document.root) if not device.unserved}
    emulator = document.root.findtext("./devices/emulator") if probe and root == "/" else None
    return HostFacts({source: host.resolve(source) for source in sources}, run_dir,
                     _probe.emulator(emulator) if emulator else None)


__all__ = ["Lookup", "gather", "resolve"]
