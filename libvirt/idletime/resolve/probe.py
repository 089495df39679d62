# SPDX-License-Identifier: GPL-2.0-or-later
"""Which properties of ours an emulator has: asked from the emulator itself, since libvirt does not tell."""

from __future__ import annotations

import functools
import os
import re
import subprocess

_TIMEOUT = 10  # seconds; it takes 0.1
_QUESTIONS = {"idletime-resource": ("-object", "idletime-resource,help"),
              "virtio-blk-pci": ("-device", "virtio-blk-pci,help"),
              "virtio-net-pci": ("-device", "virtio-net-pci,help")}


def emulator(path: str) -> frozenset[str] | None:
    """Such as {"virtio-blk-pci.idletime", "idletime-resource.weight"}; None if it cannot be asked."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _ask(path, status.st_mtime_ns, status.st_size) if os.access(path, os.X_OK) else None


@functools.lru_cache(maxsize=64)
def _ask(path: str, _time: int, _size: int) -> frozenset[str] | None:
    known: set[str] = set()
    for name, question in _QUESTIONS.items():
        try:
            answer = subprocess.run([path, "-machine", "none", "-nodefaults", *question], capture_output=True,
                                    text=True, timeout=_TIMEOUT, check=False, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.findall(r"^\s+([a-z-]+)=<", answer.stdout, re.M)
        known |= {f"{name}.{one}" for one in found if name == "idletime-resource" or one.startswith("idletime")}
    return frozenset(known)
