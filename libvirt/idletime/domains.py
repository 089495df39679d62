# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains of a libvirt connection: the few calls that this package makes, with errors that say what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import libvirt
from lxml import etree

from .compiler.facts import Source
from .errors import Exit, IdletimeError
from .policy.edit import for_libvirt
from .policy.model import NAMESPACE
from .resolve.lookup import Network, network_of, volume_of

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


def lookup(connection: Any, name: str) -> Any:
    """A domain by name, UUID or id."""
    for find in (connection.lookupByName, connection.lookupByUUIDString,
                 lambda text: connection.lookupByID(int(text))):
        with contextlib.suppress(libvirt.libvirtError, ValueError):
            return find(name)
    raise HostError(f"there is no domain '{name}' on {connection.getURI()}; remedy: 'virsh list --all' names them, "
                    "--connect URI chooses another host", Exit.NO_DOMAIN)


def state(domain: Any) -> str:
    return _STATES.get(domain.info()[0], "unknown")


def xml_of(domain: Any, inactive: bool = False) -> str:
    """Domain XML to look at: without secrets, so not to be defined again."""
    with translated(f"read the XML of '{domain.name()}'"):
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if inactive else 0))


def xml_to_define(domain: Any) -> str:
    """The persistent XML with its secrets (passwords of VNC and SPICE): defined again without, they would be lost."""
    with translated(f"read the XML of '{domain.name()}' with its secrets",
                    "run this with the right to write domains, without --readonly"):
        return str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))


def emulators_of(domain: Any) -> frozenset[str]:
    """The emulator of a domain that libvirt knows, and so runs."""
    emulator = etree.fromstring(xml_of(domain, inactive=bool(domain.isPersistent())).encode()).findtext("./devices/emulator")
    return frozenset({emulator} if emulator else ())


@dataclass(frozen=True)
class HostLookup:
    """What only libvirt knows of sources: resolve.Lookup on a connection."""

    connection: Any

    def emulators(self) -> frozenset[str]:
        """The emulators that libvirt has found on this host."""
        with contextlib.suppress(libvirt.libvirtError):
            root = etree.fromstring(self.connection.getCapabilities().encode())
            return frozenset(element.text for element in root.iterfind("./guest//emulator") if element.text)
        return frozenset()

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

    def emulators(self) -> frozenset[str]:
        known = self._lookup()
        return known.emulators() if known else frozenset()

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


def define(connection: Any, xml: str) -> Any:
    """Replace the persistent XML. libvirt checks it against its schema."""
    with translated("define the domain"):
        return connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
