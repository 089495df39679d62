"""How a machine is attached to a shared disk: QEMU's options for a participant."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping, Protocol, Sequence

DEVICE, RESOURCE = "vd0", "disk0"
"""Ids of the device and of the resource object in every machine."""


class Shared(Protocol):
    """What several machines can have as a disk."""

    @property
    def fds(self) -> Sequence[int]:
        """Descriptors that the options name."""

    def options(self, node: str, client: str) -> list[str]:
        """QEMU's options for a block node of this name, for a machine that comes as `client`."""


def options(values: Mapping[str, object]) -> str:
    """Properties as QEMU takes them: weight=200, background_queues becomes background-queues."""
    return "".join(f",{name.replace('_', '-')}={value}" for name, value in values.items())


def settings(resource: Mapping[str, object]) -> dict[str, object]:
    """With the standard interval, not a learned one, unless an interval or auto is named: tests know it in advance."""
    return {**({} if resource.keys() & {"auto", "interval_us"} else {"auto": "off"}), **resource}


def attach(
    disk: Shared, client: str, arena: Path | None, device_class: str = "foreground",
    device: Mapping[str, object] | None = None, scsi: bool = False, **resource: object,
) -> list[str]:
    """A virtio disk of this class on the shared disk, known there as `client`; without an arena, a stock one.

    `resource` are properties of the resource object, e.g. interval_us=5000;
    `device` those of the device, e.g. {"num_queues": 2}; `scsi`: it is a disk
    on a virtio-scsi controller, which has these.
    """
    controller = ["-device", f"virtio-scsi-pci,id=scsi0{options(device or {})}"] if scsi else []
    one = f"scsi-hd,bus=scsi0.0,drive=disk,id={DEVICE}" if scsi else \
        f"virtio-blk-pci,drive=disk,id={DEVICE}{options(device or {})}"
    result = disk.options("disk", client)
    if arena is None:
        return [*result, *controller, "-device", one]
    return [
        *result, "-object", f"idletime-resource,id={RESOURCE},path={arena}{options(settings(resource))}", *controller,
        "-device", f"{one},idletime={RESOURCE},idletime-class={device_class}",
    ]
