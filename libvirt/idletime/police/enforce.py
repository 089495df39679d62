# SPDX-License-Identifier: GPL-2.0-or-later
"""Which policy holds a VM: enforce='interval', 'suspend', 'rate' or 'auto', by what its devices allow; and why, in words. Pure.

User level serves pauses of seconds, intervals those of milliseconds. So `auto` is: an interval for what passes QEMU, suspension
for what does not.

    its QEMU        devices that nobody holds     auto
    ours            none                          interval
    ours            some                          interval for those that can be held, and suspend
    stock           any                           suspend
    any             none                          suspend: it has the processor only

Rate windows are for who wants a background that goes on slowly beside the foreground, and can bear what that costs: no policy
comes to them by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Enforce(str, enum.Enum):
    """What the policy says."""

    INTERVAL = "interval"
    SUSPEND = "suspend"
    RATE = "rate"
    AUTO = "auto"


class Through(str, enum.Enum):
    """Who sees the requests of a device."""

    QEMU = "QEMU"              # virtio-blk, virtio-net of QEMU itself: can be held
    VHOST_USER = "vhost-user"  # another process serves it
    VDPA = "vhost-vdpa"        # the same in the kernel or in hardware
    VFIO = "VFIO"              # the guest has the hardware
    VHOST = "vhost"            # the kernel; falls back to QEMU where that is ours
    OTHER = "other"            # IDE, SCSI, e1000: QEMU serves it, and nothing holds it
    UNKNOWN = "not resolved"  # nobody knows what it shares


@dataclass(frozen=True)
class Device:
    """A disk or NIC that shares a resource with the foreground. label: as in the XML, such as "disk vda"."""

    label: str
    through: Through


@dataclass(frozen=True)
class Vm:
    """ours: its QEMU has intervals. background: it, or its guest, may be so; a foreground VM is held by nothing."""

    ours: bool
    devices: Sequence[Device] = ()
    background: bool = True


@dataclass(frozen=True)
class Choice:
    """What is in force. why: a sentence for explain; remedy: what would let a better policy hold, or empty."""

    interval: bool
    suspend: bool
    rate: bool
    why: str
    remedy: str = ""

    @property
    def as_a_whole(self) -> bool:
        """Whether the VM is stopped or limited, whatever its QEMU can hold."""
        return self.suspend or self.rate


def choose(enforce: Enforce, vm: Vm) -> Choice:
    """The policies of one VM. Whatever the policy asks for: nothing here stops a VM that is foreground."""
    if not vm.background:
        return Choice(False, False, False, "is foreground: nothing holds it")
    return {Enforce.INTERVAL: _interval, Enforce.SUSPEND: _suspend, Enforce.RATE: _rate, Enforce.AUTO: _auto}[enforce](vm)


def _held(vm: Vm) -> list[Device]:
    can = {Through.QEMU, Through.VHOST} if vm.ours else set()
    return [one for one in vm.devices if one.through in can]


def _not_held(vm: Vm) -> list[Device]:
    held = _held(vm)
    return [one for one in vm.devices if one not in held]


def _throttled(devices: Sequence[Device]) -> list[Device]:
    """What libvirt's limits reach: QEMU's own throttle for disks, tc for taps."""
    return [one for one in devices if one.through in (Through.QEMU, Through.VHOST, Through.OTHER)]


def _interval(vm: Vm) -> Choice:
    left = _not_held(vm)
    if not vm.ours:
        return Choice(False, False, False, "is held by nothing: enforce='interval', and its QEMU is stock",
                      "write enforce='auto', or start it with Idletime's QEMU")
    if left:
        return Choice(bool(_held(vm)), False, False,
                      f"is held by the interval only (enforce='interval'): nothing holds {_named(left)}",
                      "write enforce='auto': then it is also stopped while the foreground needs these")
    if not vm.devices:
        return Choice(False, False, False, "is held by nothing: enforce='interval', and it has no device to hold",
                      "write enforce='auto': then it is stopped while the foreground needs the processor")
    return Choice(True, False, False, "is held by the interval (enforce='interval')")


def _suspend(vm: Vm) -> Choice:
    return Choice(False, True, False, "is stopped as a whole while the foreground needs what it uses (enforce='suspend')",
                  "write enforce='auto': an interval wastes less where it can hold" if _held(vm) else "")


def _rate(vm: Vm) -> Choice:
    throttled = _throttled(vm.devices)
    left = [one for one in vm.devices if one not in throttled]
    if not throttled:
        return Choice(False, False, False, "is held by nothing: enforce='rate', and it has no device that libvirt throttles",
                      "write enforce='auto'")
    but = f"; nothing limits {_named(left)}" if left else ""
    return Choice(False, False, True, f"is limited on {_named(throttled)} while the foreground moves more than a rate "
                                      f"(enforce='rate'){but}", "write enforce='auto': it is stopped for these" if left else "")


def _auto(vm: Vm) -> Choice:
    held, left = _held(vm), _not_held(vm)
    if vm.ours and held and not left:
        return Choice(True, False, False, "is held by the interval: all its devices pass QEMU (enforce='auto')")
    if not vm.devices:
        return Choice(False, True, False, "is stopped while the foreground needs the processor: it has no device to hold "
                                          "(enforce='auto')")
    if held:
        return Choice(True, True, False,
                      f"is held by the interval on {_named(held)}, and stopped while the foreground needs what nothing holds: "
                      f"{_named(left)} (enforce='auto')")
    why = "its QEMU is stock" if not vm.ours else f"nothing holds {_named(left)}"
    return Choice(False, True, False, f"is stopped while the foreground needs what it uses: {why} (enforce='auto')",
                  "" if vm.ours else "start it with Idletime's QEMU")


def _named(devices: Sequence[Device]) -> str:
    return ", ".join(f"{one.label} ({one.through.value})" for one in devices)
