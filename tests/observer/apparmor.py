"""The observer's AppArmor profile, compiled here for the kernel of a guest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.framework import paths

ROOM = paths.ROOT / "libvirt" / "confinement" / "apparmor"
FEATURES = Path("/etc/apparmor.d/abi/3.0")


def missing() -> str | None:
    """What this machine lacks for it, with the remedy; None: nothing."""
    return None if shutil.which("apparmor_parser") and FEATURES.exists() else "apparmor is not installed: run `make deps`"


def profile(*local: Path) -> bytes:
    """As the kernel takes it; a folder with local/idletime-observer adds to it, as /etc/apparmor.d does."""
    argv = ["apparmor_parser", "--skip-kernel-load", "--skip-cache", "--stdout", "--features-file", str(FEATURES),
            *(word for folder in (*local, ROOM, Path("/etc/apparmor.d")) for word in ("--Include", str(folder))),
            str(ROOM / "profiles" / "idletime-observer")]
    return subprocess.run(argv, check=True, capture_output=True).stdout
