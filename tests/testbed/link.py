"""A network on one machine: guests' taps on a bridge, an uplink of set rate and delay, a sink behind it.

    tap-NAME ...  bridge0    uplink "up0" (tbf)  ~~~ delay ~~~  "up1" (tbf)  10.9.0.1
    `------------- namespace "host" -------------'               `-- namespace "sink" --'

No packet leaves the two namespaces. The token bucket of the uplink is what the guests contend for: packets in its queue
still belong to their taps, as they do in the queue of a real NIC. Without a delay the uplink is a veth pair. The kernel's
netem is not everywhere, so a delay comes from a program of ours between two taps (linkemu.c).
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.framework import paths
from tests.framework.process import Process
from tests.testbed.namespace import Namespace, NamespaceError, number_of

SINK_ADDRESS, SINK_MAC = "10.9.0.1", "52:54:00:00:00:01"
HOST_ADDRESS = "10.9.0.5"
"""Of the host itself, once it has one."""
PREFIX = 24
BRIDGE, UPLINK, FAR = "bridge0", "up0", "up1"
BRIDGE_SYSCTL = "net/bridge/bridge-nf-call-iptables"

BURST_US = 250
"""The token bucket holds so much time: a timer of the host is seldom later than that."""

BURST_BYTES = 3200
"""At least two full packets: with one, each late timer would lose rate. Small, so that tbf cuts up GSO packets."""


@dataclass(frozen=True)
class Model:
    """How the uplink behaves; the same in both directions."""

    rate_mbit: int = 100
    delay_us: int = 0
    queue_bytes: int = 120_000
    br_netfilter: bool = False

    @property
    def burst_bytes(self) -> int:
        """Size of the token bucket."""
        return max(BURST_BYTES, self.rate_mbit * BURST_US // 8)

    def parameters(self) -> dict[str, Any]:
        """For reports."""
        return {**asdict(self), "burst_bytes": self.burst_bytes}


@dataclass
class Tap:
    """A guest's end: file descriptors for QEMU, and the address that belongs to it."""

    name: str
    number: int
    fds: list[int]

    @property
    def device(self) -> str:
        """Its name as a network device of the host."""
        return f"tap-{self.name}"[:15]

    @property
    def address(self) -> str:
        """The guest's IPv4 address."""
        return f"10.9.0.{10 + self.number}"

    @property
    def mac(self) -> str:
        """The guest's Ethernet address."""
        return f"52:54:00:00:00:{10 + self.number:02x}"


@dataclass
class Link:
    """A context manager: enter builds both namespaces, leave removes all of it."""

    model: Model = Model()
    host: Namespace = field(init=False)
    sink: Namespace = field(init=False)

    def __enter__(self) -> Link:
        with ExitStack() as stack:
            self._taps: list[Tap] = []
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            self.host = stack.enter_context(Namespace())
            self.sink = stack.enter_context(Namespace())
            self._stack = stack
            self._build()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def add_tap(self, name: str, queues: int = 1) -> Tap:
        """A new tap on the bridge; it lives until release() or until the link is left."""
        tap = Tap(name, len(self._taps), [])
        tap.fds = self.host.tap(tap.device, queues)
        self._taps.append(tap)
        self._stack.callback(self.release, tap)
        self._join(tap.device)
        return tap

    def take(self, tap: Tap, other: Link) -> None:
        """Move another link's tap to our bridge: its guest keeps its address and finds a sink with the same one here."""
        other.host.command("ip", "link", "set", tap.device, "netns", self.host.path)
        self._join(tap.device)

    def release(self, tap: Tap) -> None:
        """Close our copies of a tap's descriptors; the tap goes when QEMU's are closed, too."""
        while tap.fds:
            os.close(tap.fds.pop())

    def start(self, argv: list[str], log: Path) -> Process:
        """Start a process at the sink."""
        return self.sink.start(argv, log)

    def set_br_netfilter(self, on: bool) -> None:
        """Whether bridged packets pass iptables, which makes the bridge forget whose they are."""
        if self.host.has_sysctl(BRIDGE_SYSCTL):
            self.host.sysctl(BRIDGE_SYSCTL, int(on))
        elif on:
            raise NamespaceError(f"this kernel has no /proc/sys/{BRIDGE_SYSCTL}: load br_netfilter")

    def give_host_address(self) -> None:
        """Let the host itself send over the uplink. May be called again."""
        self.host.command("ip", "address", "replace", f"{HOST_ADDRESS}/{PREFIX}", "dev", BRIDGE)

    def uplink(self) -> dict[str, int]:
        """The uplink's queue: bytes sent, packets dropped, bytes and packets in it now."""
        text = self.host.command("tc", "-s", "-j", "qdisc", "show", "dev", UPLINK)
        found = next(each for each in json.loads(text) if each["kind"] == "tbf")
        return {name: number_of(found.get(name)) for name in ("bytes", "packets", "drops", "backlog", "qlen")}

    def arrived(self) -> int:
        """Packets that have arrived at the sink's end, in the order of the link; all that is behind them is later."""
        text = self.sink.command("ip", "-s", "-j", "link", "show", "dev", FAR)
        return number_of(json.loads(text)[0]["stats64"]["rx"]["packets"])

    def _build(self) -> None:
        for each in (self.host, self.sink):
            each.sysctl("net/ipv6/conf/all/disable_ipv6", 1)
            each.sysctl("net/ipv6/conf/default/disable_ipv6", 1)
        self.host.command("ip", "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
        self.host.command("ip", "link", "set", BRIDGE, "up")
        self._delayed() if self.model.delay_us else self._direct()
        for where, device in ((self.host, UPLINK), (self.sink, FAR)):
            self._limit(where, device)
        self._join(UPLINK)
        self.sink.command("ip", "link", "set", FAR, "address", SINK_MAC)
        self.sink.command("ip", "address", "add", f"{SINK_ADDRESS}/{PREFIX}", "dev", FAR)
        self.sink.command("ip", "link", "set", FAR, "up")
        self.set_br_netfilter(self.model.br_netfilter)

    def _join(self, device: str) -> None:
        self.host.command("ip", "link", "set", device, "master", BRIDGE, "up")

    def _direct(self) -> None:
        argv = ["ip", "link", "add", UPLINK, "type", "veth", "peer", "name", FAR, "netns", self.sink.path]
        self.host.command(*argv)

    def _delayed(self) -> None:
        """linkemu between two taps; it has no queue of its own to speak of, the token buckets have."""
        (near,), (far,) = self.host.tap(UPLINK, vnet_header=False), self.sink.tap(FAR, vnet_header=False)
        argv = [str(paths.find_tool("linkemu", "testbed")), f"--near={near}", f"--far={far}",
                f"--delay-us={self.model.delay_us}"]
        process = Process(argv, self.folder / "linkemu.log", (near, far))
        os.close(near)
        os.close(far)
        self._stack.callback(process.stop)

    def _limit(self, where: Namespace, device: str) -> None:
        where.command(
            "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.model.rate_mbit}mbit",
            "burst", str(self.model.burst_bytes), "limit", str(self.model.queue_bytes),
        )
