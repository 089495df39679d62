# SPDX-License-Identifier: GPL-2.0-or-later
"""An interface source -> the host's uplink that its packets leave by.

    bridge   -> its port that is no guest's    vlan, macvlan, macvtap -> the device below
    bond     -> itself: it is one link         no uplink (NAT, user)  -> the device of the default route
"""

from __future__ import annotations

from ..compiler.facts import Resolution, Source
from .disk import Lookup, Unresolved
from .names import resource_name
from .tree import Tree

CLASS = "/sys/class/net"
_MAX_DEPTH = 16
_DEFAULT_ROUTE = "00000000"
_NAME_IT = "find out which uplink it uses"


class Uplinks:
    """Resolves interface sources on one host."""

    def __init__(self, tree: Tree, lookup: Lookup | None = None):
        self.tree = tree
        self.lookup = lookup

    def resolve(self, source: Source) -> Resolution:
        """The resource behind a source. Raises Unresolved."""
        if source.type == "user":
            return self._routed(("user",))
        if source.type == "openvswitch":
            raise Unresolved(f"bridge '{source.name}' is of Open vSwitch, whose ports the kernel does not tell",
                             _NAME_IT)
        if source.type == "ethernet":
            return self._tap(source.name)
        return self._down(self._device(source), (source.name,))

    def _device(self, source: Source) -> str:
        if source.type == "network":
            device = self.lookup.bridge(source.name) if self.lookup else None
            if not device:
                raise Unresolved(f"network '{source.name}' has no known bridge",
                                 "start the network, and run this with a connection to libvirt")
            return device
        if source.type not in ("bridge", "direct"):
            raise Unresolved(f"type '{source.type}' has no known uplink", _NAME_IT)
        return source.name

    def _tap(self, name: str) -> Resolution:
        master = self.tree.real(f"{CLASS}/{name}/master").rsplit("/", 1)[-1]
        if not name or not self.tree.exists(f"{CLASS}/{name}/master"):
            raise Unresolved(f"tap '{name}' is in no bridge (yet)", _NAME_IT)
        return self._down(master, (name, master))

    def _down(self, device: str, trail: tuple[str, ...], depth: int = 0) -> Resolution:
        """Follow a device to the uplink below it."""
        if not self.tree.exists(f"{CLASS}/{device}"):
            raise Unresolved(f"the host has no network device '{device}'", "correct the name, or bring it up")
        trail = trail if trail[-1] == device else (*trail, device)
        if self.tree.exists(f"{CLASS}/{device}/bridge"):
            return self._bridge(device, trail, depth)
        lower = self._lower(device)
        if len(lower) != 1 or self.tree.exists(f"{CLASS}/{device}/bonding") or depth >= _MAX_DEPTH:
            return self._end(device, lower, trail)
        return self._down(lower[0], trail, depth + 1)

    def _end(self, device: str, lower: list[str], trail: tuple[str, ...]) -> Resolution:
        notes = (f"'{device}' is one resource over {', '.join(lower)}",) if len(lower) > 1 else ()
        return Resolution(resource_name(device), tuple(lower) or (device,), trail, notes=notes)

    def _bridge(self, bridge: str, trail: tuple[str, ...], depth: int) -> Resolution:
        ports = [port for port in self.tree.names(f"{CLASS}/{bridge}/brif") if self._is_uplink(port)]
        if not ports:
            return self._routed(trail)
        ends = [self._down(port, (*trail, port), depth + 1) for port in ports]
        if len({end.name for end in ends}) == 1:
            return ends[0]
        return Resolution(resource_name(bridge), tuple(sorted({name for end in ends for name in end.devices})), trail,
                          notes=(f"bridge '{bridge}' has the uplinks {', '.join(ports)}: they count as one "
                                 f"resource, '{bridge}'; who uses one of them without the bridge is not seen",))

    def _is_uplink(self, port: str) -> bool:
        """A port that leads out of the host: hardware, a bond, or something on top of these; no tap, no veth."""
        path = f"{CLASS}/{port}"
        if self.tree.exists(f"{path}/tun_flags"):
            return False
        return self.tree.exists(f"{path}/device") or self.tree.exists(f"{path}/bonding") or bool(self._lower(port))

    def _lower(self, device: str) -> list[str]:
        return [name.removeprefix("lower_") for name in self.tree.names(f"{CLASS}/{device}") if
                name.startswith("lower_")]

    def _routed(self, trail: tuple[str, ...]) -> Resolution:
        """Packets that the host routes leave by the default route, the one of the smallest metric."""
        routes = [line.split() for line in (self.tree.text("/proc/net/route") or "").splitlines()[1:]]
        default = sorted((int(route[6]), route[0]) for route in routes if len(route) > 7 and
                         route[1] == _DEFAULT_ROUTE and route[7] == _DEFAULT_ROUTE)
        if not default:
            raise Unresolved(f"'{trail[-1]}' has no uplink, and the host has no default route", _NAME_IT)
        device = default[0][1]
        found = self._down(device, (*trail, "default route", device))
        return Resolution(found.name, found.devices, found.trail,
                          notes=(*found.notes, f"'{trail[-1]}' has no uplink of its own: its packets leave by the "
                                               f"default route, '{found.name}'"))
