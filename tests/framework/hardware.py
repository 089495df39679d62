"""The host of a measurement: what a figure means nothing without."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.framework import paths


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*: (.*)", text)
    return found.group(1) if found else platform.machine()


def _git(*argv: str) -> str | None:
    result = subprocess.run(["git", *argv], cwd=paths.ROOT, capture_output=True, text=True)
    return result.stdout.strip() or None


def machine() -> dict[str, Any]:
    """Processors, kernel and sources; nothing that tells whose machine it was.

    A commit may be rebased away later; what QEMU is built from has a name that stays, that of its folder in git.
    """
    return {"cpu": _cpu(), "cpus": os.cpu_count(), "host_kernel": platform.release(),
            "commit": _git("describe", "--always", "--dirty"), "patches": _git("rev-parse", "--short", "HEAD:qemu-patches")}
