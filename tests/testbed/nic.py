"""How a machine is attached to the network: QEMU's options for a participant, and its address in the guest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from tests.framework.guest import Guest
from tests.framework.qemu import Machine
from tests.testbed.attach import options, settings
from tests.testbed.link import PREFIX, Tap

NIC, NETDEV, RESOURCE = "nic0", "net0", "uplink"
"""Ids of the device, of its backend and of the resource object in every machine."""


def _backend(tap: Tap, netdev: Mapping[str, object]) -> str:
    name = "fd" if len(tap.fds) == 1 else "fds"
    return f"tap,id={NETDEV},vhost=off,{name}={':'.join(map(str, tap.fds))}{options(netdev)}"


def attach_nic(
    tap: Tap, arena: Path | None, device_class: str = "foreground", device: Mapping[str, object] | None = None,
    netdev: Mapping[str, object] | None = None, **resource: object,
) -> list[str]:
    """A virtio NIC of this class on a tap, with as many queue pairs as it has; without an arena, a stock one.

    `resource`, `device` and `netdev` are properties of these. The machine has to be given tap.fds, too.
    """
    queues = len(tap.fds)
    # No boot ROM: nothing boots from it, and firmware packages differ.
    virtio = f"virtio-net-pci,netdev={NETDEV},id={NIC},mac={tap.mac},romfile="
    virtio += f",mq=on,vectors={2 * queues + 2}" if queues > 1 else ""
    # Names as they are: some of virtio-net's have underscores, such as host_tso4.
    virtio += "".join(f",{name}={value}" for name, value in (device or {}).items())
    result = ["-netdev", _backend(tap, netdev or {})]
    if arena is None:
        return [*result, "-device", virtio]
    return [
        *result, "-object", f"idletime-resource,id={RESOURCE},path={arena}{options(settings(resource))}",
        "-device", f"{virtio},idletime={RESOURCE},idletime-class={device_class}",
    ]


def configure(guest: Guest, tap: Tap) -> None:
    """Bring the guest's NIC up with its address; without IPv6: a bridge floods its multicast as clones, which no tap is charged for."""
    guest.run("echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6 || [ ! -e /proc/net/if_inet6 ]")
    guest.run(f"ip link set eth0 up && ip address add {tap.address}/{PREFIX} dev eth0")


@dataclass
class NetMachine:
    """A running machine with a NIC on a tap."""

    machine: Machine
    tap: Tap

    @property
    def guest(self) -> Guest:
        """The guest in it."""
        return self.machine.guest

    def info(self) -> dict[str, Any]:
        """query-idletime of its only resource."""
        return self.machine.qmp.execute("query-idletime")[0]

    def sent(self, role: str) -> int:
        """Packets of this class that its NIC has sent."""
        return self.info()["devices"][0][role]["requests"]

    def promotions(self) -> int:
        """Packets that left before the interval allowed it."""
        return sum(self.info()["devices"][0]["promotions"].values())

    def set_class(self, device_class: str) -> None:
        """Change the NIC's class."""
        self.machine.qmp.execute("idletime-set", device=NIC, **{"class": device_class})
