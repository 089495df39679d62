# SPDX-License-Identifier: GPL-2.0-or-later
"""What the compiler is told about the host. Data only; gathered by resolve.gather()."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RUN_DIR = "/run/idletime"


@dataclass(frozen=True)
class Source:
    """What is behind one device, as the domain XML says. Key of HostFacts.resolutions.

    device: "disk" or "interface". type: the XML's type attribute ("file", "block", "network", "bridge", ...).
    name: path, bridge, device, network or volume name. endpoint: protocol and hosts of network storage, sorted, such as
    "nbd:10.0.0.5:10809". format: image format. backing: sources below, where the XML names them. bridge: of a virtual
    network, where libvirt has filled it in (live XML).
    """

    device: str
    type: str
    name: str = ""
    endpoint: str = ""
    format: str = ""
    backing: tuple[Source, ...] = ()
    bridge: str = ""


@dataclass(frozen=True)
class Resolution:
    """The resource behind a source.

    name: of the resource, None if there is none. devices: host devices that it stands for. trail: how it was
    found, for people ("/var/lib/libvirt/images/a.img", "/dev/sda2", "sda"). problem and remedy: why it is not known which
    one it is. none: why there is none to be found. notes: what people should know though it worked.
    """

    name: str | None
    devices: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    none: str = ""


@dataclass(frozen=True)
class HostFacts:
    """The host, as far as one domain needs it.

    run_dir: parent of all arenas. emulator: properties that the domain's emulator knows, such as
    "virtio-blk-pci.idletime" and "idletime-resource.auto"; None if it was not asked: then all are assumed. settings: what
    the host says of a resource, by its name; a domain's policy wins over it.
    """

    resolutions: Mapping[Source, Resolution] = field(default_factory=dict)
    run_dir: str = RUN_DIR
    emulator: frozenset[str] | None = None
    settings: Mapping[str, Mapping[str, int | bool]] = field(default_factory=dict)
