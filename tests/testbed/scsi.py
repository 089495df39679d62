"""A disk on virtio-scsi in a guest: what its kernel has to have, and what it is called there."""

from __future__ import annotations

from tests.framework import accel
from tests.framework.qemu import Boot, Machine

DISK = "/dev/sda"


def with_driver(boot: Boot) -> Boot:
    """The same guest with the driver."""
    return accel.with_modules(boot, ["virtio_scsi", "sd_mod"])


def wait_for_disk(machine: Machine) -> None:
    """Linux looks for disks of a controller after it has booted."""
    machine.guest.run(f"while ! [ -b {DISK} ]; do usleep 10000; done")
