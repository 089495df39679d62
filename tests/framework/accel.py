"""KVM where a guest really boots with it, TCG everywhere else."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from tests.framework import initramfs, kernel, paths, qemu
from tests.framework.exclusive import exclusive
from tests.framework.guest import GuestError
from tests.framework.process import ProcessError

PROBE_SECONDS = 20.0
"""A guest boots in about 1 s with a KVM that works; nested ones may hang for ever."""

VERDICT = paths.GUEST / "accel.json"
CHOICES = ("kvm", "tcg")


def _key(boot: qemu.Boot) -> dict[str, object]:
    """What the verdict depends on: this boot of the host, this QEMU, this kernel."""
    status = boot.qemu.stat()
    return {
        "host_boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "qemu": str(boot.qemu), "qemu_mtime_ns": status.st_mtime_ns, "kernel": str(boot.kernel),
    }


def kvm_boots(boot: qemu.Boot) -> bool:
    """Boot a probe guest with KVM; any failure within PROBE_SECONDS means no."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    probe = qemu.Machine(replace(boot, accel="kvm"), "probe", boot_seconds=PROBE_SECONDS)
    try:
        with probe:
            return True
    except (GuestError, ProcessError, TimeoutError):
        return False


def choose_accel(boot: qemu.Boot) -> str:
    """"kvm" or "tcg"; $IDLETIME_ACCEL decides, else the cached verdict, else a probe."""
    forced = os.environ.get("IDLETIME_ACCEL")
    if forced:
        if forced not in CHOICES:
            raise ValueError(f"IDLETIME_ACCEL={forced}: use one of {', '.join(CHOICES)}, or unset it")
        return forced
    key = _key(boot)
    with exclusive(paths.GUEST / ".accel.lock"):
        try:
            known = json.loads(VERDICT.read_text())
        except (OSError, ValueError):
            known = {}
        if known.get("key") != key:
            known = {"key": key, "accel": "kvm" if kvm_boots(boot) else "tcg"}
            VERDICT.write_text(json.dumps(known, indent=2) + "\n")
    return known["accel"]


def with_modules(boot: qemu.Boot, modules: list[str]) -> qemu.Boot:
    """The same with an initramfs that loads these modules, too."""
    return replace(boot, initramfs=initramfs.get_initramfs(kernel.get_kernel(), modules))


def prepare(wanted_qemu: str | None = None, network: bool = False) -> qemu.Boot:
    """Everything that a machine needs to boot: QEMU, kernel, initramfs (for the network, too), accelerator."""
    program = paths.find_qemu(wanted_qemu)
    guest_kernel = kernel.get_kernel()
    boot = qemu.Boot(program, guest_kernel.image, initramfs.get_initramfs(guest_kernel, network=network), "tcg")
    return replace(boot, accel=choose_accel(boot))
