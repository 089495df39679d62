"""Pass-through disks: scsi-block and scsi-generic on a SCSI disk of the host's kernel."""

from __future__ import annotations

from typing import Callable

from tests.framework.qemu import Machine

OPTIONS = "dev_size_mb=64 lbpu=1 delay=0 opts=2"
"""With UNMAP, and a block that cannot be read."""

BAD_BLOCK = "0x1234"
"""scsi_debug's, of the sort that OPTIONS asks for."""

DISK, GENERIC = "/dev/sda", "/dev/sg0"


def test_scsi_block_and_scsi_generic(host: Machine, passes: Callable[..., None]) -> None:
    """Hold, deadline, what passes, UNMAP, pieces, errors of the disk, task management, stop, detach and unplug."""
    host.guest.run("rmmod scsi_debug", 60)
    host.guest.run(f"insmod /lib/modules/scsi_debug.ko {OPTIONS}", 60)
    host.guest.run(f"until [ -b {DISK} ] && [ -c {GENERIC} ]; do usleep 100000; done", 60)
    passes("scsi-pass", {"IDLETIME_SCSI_HOST": f"{DISK},{GENERIC},{BAD_BLOCK}"})
