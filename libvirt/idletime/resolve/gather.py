# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry points: one source, or all sources of a domain."""

from __future__ import annotations

from typing import Protocol

from ..compiler.facts import RUN_DIR, HostFacts, Resolution, Source


class Lookup(Protocol):
    """What only libvirt knows. Each returns None when it does not know, and never raises."""

    def volume(self, pool: str, volume: str) -> str | None:
        """Path of a storage volume."""

    def bridge(self, network: str) -> str | None:
        """Bridge or device that a virtual network uses."""


def resolve(source: Source, root: str = "/", lookup: Lookup | None = None) -> Resolution:
    """The resource behind one source. Reads below root only. Never raises: Resolution.problem says what is wrong."""
    raise NotImplementedError


def gather(domain_xml: str, root: str = "/", lookup: Lookup | None = None, run_dir: str = RUN_DIR,
           probe: bool = True) -> HostFacts:
    """HostFacts for compile(): resolves each disk and interface of the domain (or of one device's XML).

    probe: ask the domain's emulator which properties it has (cached by path and time of the file; about 0.1 s).
    Raises PolicyError (Kind.SYNTAX) if the XML is not well-formed.
    """
    raise NotImplementedError
