# SPDX-License-Identifier: GPL-2.0-or-later
"""An interface source -> the host's uplink that its packets leave by.

    bridge   -> its port that leads out           vlan, macvlan, macvtap -> the device below
    bond     -> itself: it is one link            NAT, routed, user      -> where the host's default route leaves
    veth     -> what its other end is in          Open vSwitch           -> its only port that leads out
    isolated -> no resource: nothing leaves

Where there are several answers, or a tunnel, it is not guessed: that is said, and an operator can name the resource.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ..conf.resources import Identity
from ..facts import Resolution, Source
from . import routes
from .lookup import Lookup, Network
from .names import resource_name
from .outcome import NAME_IT, NoResource, Unresolved
from .tree import Tree

CLASS = "/sys/class/net"
OVS = "ovs-system"
"""The device that all ports of Open vSwitch's bridges belong to, whichever bridge it is."""

_MAX_DEPTH = 16
_TUNNEL_KINDS = ("vxlan", "geneve", "wireguard", "ppp", "gretap", "ip6gretap", "bareudp")
_TUNNEL_TYPES = ("512", "768", "769", "776", "778", "823", "65534")  # ARPHRD: PPP, IP in IP, SIT, GRE, none
_DEFAULT_ROUTE = "default route"
_HOST_ROUTES = "the host routes its packets"
_AGAIN = "wait: it is looked at again when routes change"


class Uplinks:
    """Resolves interface sources on one host."""

    def __init__(self, tree: Tree, lookup: Lookup | None = None):
        self.tree = tree
        self.lookup = lookup

    def resolve(self, source: Source) -> Resolution:
        """The resource behind a source. Raises Unresolved, NoResource."""
        found = self._resolve(source)
        return replace(found, apart=found.apart or self._apart(found.trail))

    def _resolve(self, source: Source) -> Resolution:
        if source.type == "user":
            return self._routed(("user",))
        if source.type == "openvswitch":
            return self._ovs(source.name, (source.name,))
        if source.type == "ethernet":
            return self._tap(source.name)
        if source.type == "network":
            return self._network(source)
        if source.type not in ("bridge", "direct"):
            raise Unresolved(f"type '{source.type}' has no known uplink")
        return self._down(source.name, (source.name,))

    def identity(self, source: Source, found: Resolution) -> Identity:
        """By what an operator may name the resource of a source: found is what it comes to without."""
        network = self.lookup.network(source.name) if source.type == "network" and self.lookup else None
        bridges = {source.bridge, network.bridge if network else "", "" if source.type == "network" else source.name}
        return Identity(bridge=tuple(sorted((bridges | set(found.trail)) - {""})),
                        network=(source.name,) if source.type == "network" else ())

    def _apart(self, trail: tuple[str, ...]) -> str:
        """As in Resolution. A packet that the host routes, that comes out of a veth, or that a tunnel packs, begins anew."""
        if _DEFAULT_ROUTE in trail:
            return _HOST_ROUTES
        veth = next((port for port, peer in pairwise(trail) if peer and self._peer(port) == peer), None)
        if veth:
            return f"they come out of a veth, whose other end is '{veth}'"
        tunnel = next((name for name in trail if self._is_tunnel(name) and not self._is_tap(name)), None)
        return _packed(tunnel) if tunnel else ""

    # ---- virtual networks

    def _network(self, source: Source) -> Resolution:
        network = self.lookup.network(source.name) if self.lookup else None
        trail = (f"network {source.name}",)
        if network is None:
            if source.bridge:
                return self._down(source.bridge, (*trail, source.bridge))
            raise Unresolved(f"network '{source.name}' is not known",
                             "define the network, and run this with a connection to libvirt")
        if network.mode == "":
            raise NoResource(f"network '{source.name}' is isolated: no packet of it leaves the host")
        if network.mode == "hostdev":
            raise NoResource(f"network '{source.name}' gives its guests devices of their own (VFIO), past QEMU")
        if network.mode in ("nat", "route", "open"):
            return self._forwarded(network, trail)
        return self._bound(source, network, trail)

    def _forwarded(self, network: Network, trail: tuple[str, ...]) -> Resolution:
        """The host routes these packets: by the network's device, else by its own routes."""
        trail = (*trail, network.bridge) if network.bridge else trail
        try:
            found = self._down(network.devices[0], (*trail, network.devices[0])) if network.devices else self._routed(trail)
        except Unresolved as error:
            raise Unresolved(error.problem, error.remedy, _HOST_ROUTES) from error
        return replace(found, apart=_HOST_ROUTES)

    def _bound(self, source: Source, network: Network, trail: tuple[str, ...]) -> Resolution:
        """A bridge of the host, or devices for macvtap, of which libvirt chooses one at the start."""
        bridge = source.bridge or network.bridge
        if bridge and network.openvswitch:
            return self._ovs(bridge, (*trail, bridge))
        if bridge:
            return self._down(bridge, (*trail, bridge))
        if not network.devices:
            raise Unresolved(f"network '{source.name}' names neither a bridge nor a device", "give it one")
        return self._one([self._down(device, (*trail, device)) for device in network.devices],
                         f"network '{source.name}' has the devices {', '.join(network.devices)}")

    # ---- devices

    def _tap(self, name: str) -> Resolution:
        if not name or not self.tree.exists(f"{CLASS}/{name}/master"):
            raise Unresolved(f"tap '{name}' is in no bridge (yet)")
        master = self._master(name)
        return self._into(master, (name, master), 0)

    def _master(self, name: str) -> str:
        path = f"{CLASS}/{name}/master"
        return self.tree.real(path).rsplit("/", 1)[-1] if self.tree.exists(path) else ""

    def _into(self, master: str, trail: tuple[str, ...], depth: int) -> Resolution:
        return self._ovs(master, trail) if master == OVS else self._down(master, trail, depth)

    def _down(self, device: str, trail: tuple[str, ...], depth: int = 0) -> Resolution:
        """Follow a device to the uplink below it."""
        if not device or not self.tree.exists(f"{CLASS}/{device}"):
            raise Unresolved(f"the host has no network device '{device}'", "correct the name, or bring it up")
        trail = trail if trail[-1] == device else (*trail, device)
        if self.tree.exists(f"{CLASS}/{device}/bridge") and depth < _MAX_DEPTH:
            return self._bridge(device, trail, depth)
        lower = self._lower(device)
        if not lower and self._is_ovs_port(device):
            return self._ovs(device, trail)
        if not lower and self._is_tunnel(device):
            raise Unresolved(f"'{device}' is a tunnel, and what carries it is not known", apart=_packed(device))
        if len(lower) != 1 or self.tree.exists(f"{CLASS}/{device}/bonding") or depth >= _MAX_DEPTH:
            return self._end(device, lower, trail)
        return self._down(lower[0], trail, depth + 1)

    def _end(self, device: str, lower: list[str], trail: tuple[str, ...]) -> Resolution:
        notes = (f"'{device}' is one resource over {', '.join(lower)}",) if len(lower) > 1 else ()
        return Resolution(resource_name(device), tuple(lower) or (device,), trail, notes=notes)

    def _one(self, ends: list[Resolution], what: str) -> Resolution:
        """The one resource that these all are. Raises Unresolved."""
        if len({end.name for end in ends}) > 1:
            raise Unresolved(f"{what}, which are several resources")
        return ends[0]

    # ---- bridges

    def _bridge(self, bridge: str, trail: tuple[str, ...], depth: int) -> Resolution:
        ports = self.tree.names(f"{CLASS}/{bridge}/brif")
        uplinks = [port for port in ports if self._is_uplink(port)]
        if not uplinks:
            return self._without_uplink(bridge, ports, trail, depth)
        ends = [self._down(port, (*trail, port), depth + 1) for port in uplinks]
        if len({end.name for end in ends}) == 1:
            return ends[0]
        return Resolution(resource_name(bridge), tuple(sorted({name for end in ends for name in end.devices})), trail,
                          notes=(f"bridge '{bridge}' has the uplinks {', '.join(uplinks)}: they count as one "
                                 f"resource, '{bridge}'; who uses one of them without the bridge is not seen",))

    def _without_uplink(self, bridge: str, ports: list[str], trail: tuple[str, ...], depth: int) -> Resolution:
        """Another bridge at the other end of a veth (as OpenStack has it), a tunnel, or the host's routes."""
        for port in ports:
            peer = self._peer(port)
            master = self._master(peer) if peer else ""
            if master and master not in trail:
                return self._into(master, (*trail, port, peer, master), depth + 1)
        for port in ports:
            if self._is_tunnel(port) and not self._is_tap(port):
                raise Unresolved(f"bridge '{bridge}' leaves by the tunnel '{port}', and what carries it is not known",
                                 apart=_packed(port))
        return self._routed(trail)

    def _ovs(self, bridge: str, trail: tuple[str, ...]) -> Resolution:
        """The kernel knows the ports of Open vSwitch, but not which bridge they are in."""
        ports = [name for name in self.tree.names(CLASS) if self._master(name) == OVS and not self._is_tap(name)]
        uplinks = [port for port in ports if self._is_uplink(port)]
        tunnels = [port for port in ports if self._is_tunnel(port)]
        ways = ", ".join(uplinks + tunnels) or "none that the kernel knows"
        if not uplinks or tunnels:
            raise Unresolved(f"bridge '{bridge}' is of Open vSwitch, whose ways out are {ways}",
                             apart=_packed(tunnels[0]) if tunnels else "")
        end = self._one([self._down(port, (*trail, port), 1) for port in uplinks],
                        f"bridge '{bridge}' is of Open vSwitch, whose ways out are {ways}")
        return Resolution(end.name, end.devices, end.trail, notes=(
            *end.notes, f"'{uplinks[0]}' is the only way out of Open vSwitch here, so it is that of '{bridge}'"))

    def _is_uplink(self, port: str) -> bool:
        """A port that leads out of the host: hardware, a bond, or something on top of these; no tap, no veth."""
        path = f"{CLASS}/{port}"
        if self._is_tap(port):
            return False
        return self.tree.exists(f"{path}/device") or self.tree.exists(f"{path}/bonding") or bool(self._lower(port))

    def _is_tap(self, device: str) -> bool:
        return self.tree.exists(f"{CLASS}/{device}/tun_flags")

    def _is_tunnel(self, device: str) -> bool:
        """Its packets go on in packets of another device, which the kernel chooses anew for each."""
        path = f"{CLASS}/{device}"
        kind = f"\n{self.tree.text(f'{path}/uevent') or ''}\n"
        return self._is_tap(device) or (self.tree.text(f"{path}/type") or "") in _TUNNEL_TYPES or \
            any(f"\nDEVTYPE={one}\n" in kind for one in _TUNNEL_KINDS)

    def _is_ovs_port(self, device: str) -> bool:
        """A port of Open vSwitch that the host itself uses: no hardware, where Open vSwitch is at work."""
        path = f"{CLASS}/{device}"
        return self.tree.exists(f"{CLASS}/{OVS}") and device != OVS and not self.tree.exists(f"{path}/device") and \
            not self.tree.exists(f"{path}/bonding") and not self._peer(device) and not self._is_tunnel(device)

    def _lower(self, device: str) -> list[str]:
        return [name.removeprefix("lower_") for name in self.tree.names(f"{CLASS}/{device}") if
                name.startswith("lower_")]

    def _peer(self, device: str) -> str:
        """The other end of a veth; "" if it is none, or ends in another network namespace."""
        other = self.tree.text(f"{CLASS}/{device}/iflink") or ""
        if not other or other == self.tree.text(f"{CLASS}/{device}/ifindex") or self._lower(device):
            return ""
        return next((name for name in self.tree.names(CLASS) if name != device and
                     self.tree.text(f"{CLASS}/{name}/ifindex") == other and
                     self.tree.text(f"{CLASS}/{name}/iflink") == self.tree.text(f"{CLASS}/{device}/ifindex")), "")

    # ---- routes

    def _routed(self, trail: tuple[str, ...]) -> Resolution:
        """Packets that the host routes."""
        devices = routes.internet(self.tree)
        if not devices:
            raise Unresolved(f"the host routes the packets of '{trail[-1]}', and has no default route", _AGAIN)
        try:
            ends = [self._down(device, (*trail, _DEFAULT_ROUTE, device)) for device in devices]
        except Unresolved as error:
            raise Unresolved(f"the host routes the packets of '{trail[-1]}' by {', '.join(devices)}: {error.problem}",
                             NAME_IT) from error
        found = self._one(ends, f"the host routes the packets of '{trail[-1]}' by {', '.join(devices)}")
        return Resolution(found.name, found.devices, found.trail,
                          notes=(*found.notes, f"'{trail[-1]}' has no uplink of its own: its packets leave by the "
                                               f"default route, '{found.name}'"))

    def ways_out(self) -> frozenset[tuple[str, ...]]:
        """What resolutions of this host depend on and may change while it runs: default routes, and links that lead
        out with what they are part of."""
        try:
            found = {("default", *routes.internet(self.tree))}
        except Unresolved as error:
            found = {("default", error.problem)}
        return frozenset(found | {(name, self._master(name)) for name in self.tree.names(CLASS)
                                  if self._is_uplink(name)})


def _packed(tunnel: str) -> str:
    return f"the tunnel '{tunnel}' may pack them"
