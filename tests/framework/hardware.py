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


def _commit() -> str | None:
    result = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=paths.ROOT, capture_output=True, text=True)
    return result.stdout.strip() or None


def machine() -> dict[str, Any]:
    """Processors, kernel and commit; nothing that tells whose machine it was."""
    return {"cpu": _cpu(), "cpus": os.cpu_count(), "host_kernel": platform.release(), "commit": _commit()}
