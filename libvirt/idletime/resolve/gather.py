# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry points: one source, or all sources of a domain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection

from ..compiler.choose import said_of
from ..compiler.devices import devices_of
from ..compiler.facts import RUN_DIR, HostFacts, Resolution, Source
from ..conf import resources
from ..errors import PolicyError
from ..policy.model import AUTO, Policy
from ..policy.parse import parse_tree
from ..xmltext import Document, Element
from . import probe as _probe
from .disk import Disks
from .lookup import Lookup
from .net import Uplinks
from .outcome import NoResource, Unresolved
from .tree import Tree


class Host:
    """One look at a host: what was read once is not read again, so keep it for one command or one event only."""

    def __init__(self, root: str = "/", lookup: Lookup | None = None):
        tree = Tree(root)
        self.root = root
        self._disks, self._uplinks = Disks(tree, lookup), Uplinks(tree, lookup)
        self._known: dict[Source, Resolution] = {}
        self.resources = resources.load(tree)

    def resolve(self, source: Source) -> Resolution:
        """The resource behind one source. Never raises: where there is no name, problem or none says why."""
        if source not in self._known:
            self._known[source] = self._resolve(source)
        return self._known[source]

    def _resolve(self, source: Source) -> Resolution:
        rules = self._disks if source.device == "disk" else self._uplinks
        try:
            found = rules.resolve(source)
        except Unresolved as error:
            found = Resolution(None, problem=error.problem, remedy=error.remedy)
        except NoResource as error:
            found = Resolution(None, none=error.reason)
        named = self.resources.named(rules.identity(source, found)) if self.resources.names_any else None
        if named is None:
            return found
        return Resolution(named.name, found.devices, (*(found.trail or (source.name,)), named.place), notes=found.notes)


def resolve(source: Source, root: str = "/", lookup: Lookup | None = None) -> Resolution:
    """The same for a single source. Reads below root only."""
    return Host(root, lookup).resolve(source)


def gather(domain_xml: str, root: str = "/", lookup: Lookup | None = None, run_dir: str = RUN_DIR,
           emulators: Callable[[], Collection[str]] = frozenset, host: Host | None = None) -> HostFacts:
    """HostFacts for compile(): resolves each disk and interface of the domain (or of one device's XML) whose
    resource the policy does not name.

    emulators: programs that may be run, to ask which properties they have (cached by path and time of the file; about
    0.1 s). The XML may come from anybody: an emulator that is not among them is not run, and all properties are assumed.
    host: a look at the host to share among several domains; root and lookup are then not used.
    Raises PolicyError (Kind.SYNTAX) if the XML is not well-formed.
    """
    document = Document(domain_xml)
    host = host or Host(root, lookup)
    emulator = document.root.findtext("./devices/emulator") or ""
    known = _probe.emulator(emulator) if emulator and host.root == "/" and emulator in emulators() else None
    return HostFacts({source: host.resolve(source) for source in _wanted(document.root)}, run_dir, known,
                     host.resources.settings)


def _wanted(root: Element) -> set[Source]:
    """Sources to resolve: without a policy to go by (a device's XML, a wrong policy), all of them."""
    policy: Policy | None = None
    with contextlib.suppress(PolicyError):  # compile() will say it
        policy = parse_tree(root)
    return {device.source for device in devices_of(root) if not device.unserved and
            (policy is None or said_of(policy, device)[0].resource == AUTO)}

