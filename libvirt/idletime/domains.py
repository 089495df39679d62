# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains of a libvirt connection: the few calls that this package makes, with errors that say what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import libvirt

from .errors import Exit, IdletimeError
from .facts import Source
from .policy.edit import for_libvirt
from .policy.model import NAMESPACE
from .resolve.lookup import Network, network_of, volume_of
from .select import Named
from .xmltree import Element, read

LibvirtError: type[Exception] = libvirt.libvirtError

_STATES = {libvirt.VIR_DOMAIN_RUNNING: "running", libvirt.VIR_DOMAIN_BLOCKED: "running",
           libvirt.VIR_DOMAIN_PAUSED: "paused", libvirt.VIR_DOMAIN_SHUTDOWN: "in shutdown",
           libvirt.VIR_DOMAIN_SHUTOFF: "shut off", libvirt.VIR_DOMAIN_CRASHED: "crashed",
           libvirt.VIR_DOMAIN_PMSUSPENDED: "pmsuspended"}


class HostError(IdletimeError):
    """libvirt or the host refused. code: exit code that fits."""

    def __init__(self, message: str, code: Exit = Exit.FAILED):
        self.code = code
        super().__init__(message)


@contextlib.contextmanager
def translated(what: str, remedy: str = "") -> Iterator[None]:
    """libvirt's errors as HostError: what was tried, why it failed, what to do."""
    try:
        yield
    except libvirt.libvirtError as error:
        text = f"cannot {what}: {error.get_error_message()}"
        raise HostError(f"{text}; remedy: {remedy}" if remedy else text) from error


def connect(uri: str | None, read_only: bool) -> Any:
    """A connection. uri None is libvirt's default. libvirt's own messages on stderr are switched off."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    with translated(f"connect to {uri or 'libvirt'}", "is libvirtd (or virtqemud) running, and are you in its group? "
                                                      "Name another one with --connect URI"):
        return (libvirt.openReadOnly if read_only else libvirt.open)(uri)


def all_of(connection: Any) -> list[Any]:
    """All domains. Raises HostError."""
    with translated("list the domains"):
        return list(connection.listAllDomains())


def stats_of(connection: Any, uuids: Iterable[str], stats: int) -> list[tuple[Any, dict[str, Any]]]:
    """What libvirt counts of those of these domains that are there; what it would have to wait for is left out. Raises
    libvirtError."""
    there = []
    for uuid in uuids:
        try:
            there.append(connection.lookupByUUIDString(uuid))
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
    return list(connection.domainListGetStats(there, stats, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)) if there else []


def by_name(connection: Any) -> dict[Named, Any]:
    """All domains by what they may be called; one that goes meanwhile is left out. Raises HostError."""
    found = {}
    for domain in all_of(connection):
        with translated("look at a domain"):
            try:
                found[Named(domain.name(), domain.UUIDString(), domain.ID() if domain.isActive() else None)] = domain
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                    raise
    return found


def state(domain: Any) -> str:
    return _STATES.get(domain.info()[0], "unknown")


def active(connection: Any) -> list[tuple[Any, str]]:
    """All domains that run, each with its state, in one call that waits for none of them. Raises HostError."""
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    with translated("list the domains"):
        found = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags)
    return [(domain, _STATES.get(one.get("state.state"), "unknown")) for domain, one in found]


def xml_of(domain: Any, inactive: bool = False) -> str:
    """Domain XML to look at: without secrets."""
    with translated(f"read the XML of '{domain.name()}'"):
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if inactive else 0))


def backup_of(domain: Any) -> Element | None:
    """The <domainbackup> that runs; None without one, and where libvirtd knows none. Raises libvirtError."""
    try:
        return read(domain.backupGetXMLDesc())
    except libvirt.libvirtError as error:
        if error.get_error_code() not in (libvirt.VIR_ERR_NO_DOMAIN_BACKUP, libvirt.VIR_ERR_NO_SUPPORT,
                                          libvirt.VIR_ERR_OPERATION_INVALID):
            raise
        return None


def tainted(domain: Any) -> bool:
    """Whether somebody has spoken to the monitor of a running domain (libvirt says so), or may have."""
    try:
        return bool(domain.messages(libvirt.VIR_DOMAIN_MESSAGE_TAINTING))
    except (libvirt.libvirtError, AttributeError):
        return True


@dataclass(frozen=True)
class HostLookup:
    """What only libvirt knows of sources: resolve.Lookup on a connection."""

    connection: Any

    def volume(self, pool: str, volume: str) -> Source | None:
        """The pool need not run: of most kinds the path is known without."""
        with contextlib.suppress(libvirt.libvirtError):
            found, path = self.connection.storagePoolLookupByName(pool), None
            with contextlib.suppress(libvirt.libvirtError):
                path = str(found.storageVolLookupByName(volume).path())
            return volume_of(found.XMLDesc(0), volume, path)
        return None

    def network(self, name: str) -> Network | None:
        with contextlib.suppress(libvirt.libvirtError):
            return network_of(self.connection.networkLookupByName(name).XMLDesc(0))
        return None


@dataclass
class LateLookup:
    """The same, connected when it is first asked; knows nothing where there is no libvirt."""

    uri: str | None
    _known: HostLookup | None = None
    _tried: bool = False

    def _lookup(self) -> HostLookup | None:
        if not self._tried:
            self._tried = True
            with contextlib.suppress(HostError):
                self._known = HostLookup(connect(self.uri, read_only=True))
        return self._known

    def volume(self, pool: str, volume: str) -> Source | None:
        known = self._lookup()
        return known.volume(pool, volume) if known else None

    def network(self, name: str) -> Network | None:
        known = self._lookup()
        return known.network(name) if known else None


def is_qemu(connection: Any) -> bool:
    return str(connection.getType()).upper() == "QEMU"


def set_policy(domain: Any, policy_xml: str | None, live: bool, config: bool) -> None:
    """Write the policy element into the domain's metadata; None removes it."""
    flags = (libvirt.VIR_DOMAIN_AFFECT_LIVE if live else 0) | (libvirt.VIR_DOMAIN_AFFECT_CONFIG if config else 0)
    with translated(f"write the policy of '{domain.name()}'"):
        domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, for_libvirt(policy_xml) if policy_xml else None,
                           "idletime" if policy_xml else None, NAMESPACE, flags)
