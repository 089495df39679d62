"""How a machine is attached to the network: QEMU's options for a participant, and its address in the guest."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

from tests.framework.guest import Guest
from tests.testbed.attach import options
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
        *result, "-object", f"idletime-resource,id={RESOURCE},path={arena}{options(resource)}",
        "-device", f"{virtio},idletime={RESOURCE},idletime-class={device_class}",
    ]


def configure(guest: Guest, tap: Tap) -> None:
    """Bring the guest's NIC up with its address."""
    guest.run(f"ip link set eth0 up && ip address add {tap.address}/{PREFIX} dev eth0")
