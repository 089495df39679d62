"""What the host is: facts that a measurement must state to mean something."""

from __future__ import annotations

from typing import Any

from tests.framework import hardware
from tests.framework.qemu import Boot, version


def facts(boot: Boot) -> dict[str, Any]:
    """Host, QEMU, accelerator and guest of a measurement."""
    return {
        **hardware.machine(), "qemu": version(boot.qemu), "accel": boot.accel,
        "guest_kernel": boot.kernel.name.removeprefix("vmlinuz-"),
    }
