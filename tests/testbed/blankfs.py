"""File systems on shared disks: made on the host in a sparse file, and copied to the disk."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.testbed.disk import Disk

MAKE = {
    # Nothing is left for the guest's kernel to initialize later, as that would be a load that nobody asked for.
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=16", "-N", "1024"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
COPY_SECONDS = 120


def make(disk: Disk, kind: str, size_bytes: int = 1 << 30) -> None:
    """Put a fresh file system of this kind on a disk that nobody uses yet; the disk has to be empty (zeros)."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as folder:
        image = Path(folder) / kind
        with image.open("wb") as file:
            file.truncate(size_bytes)
        _run([*MAKE[kind], str(image)])
        _run(["nbdcopy", "--destination-is-zero", str(image), f"nbd+unix:///setup?socket={disk.socket}"])


def _run(argv: list[str]) -> None:
    result = subprocess.run(argv, capture_output=True, text=True, timeout=COPY_SECONDS)
    if result.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed ({result.returncode}); is its package there (`make deps`)?\n{result.stderr}")
