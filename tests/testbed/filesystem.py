"""An ext4 file system at the begin of a shared disk, with a tree of files in it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tests.testbed.disk import Disk

SIZE_MIB = 256
TREE = Path("/usr/include")
"""Thousands of small text files that each machine with a compiler has."""

COPY_BYTES = 1 << 20
"""Of one request: the slow disk takes its time for each."""


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def make(disk: Disk, folders: tuple[str, ...] = ("linux",)) -> None:
    """Put the file system there; it holds include/, the named folders of TREE. What was there is lost."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as name:
        tree, image = Path(name) / "tree", Path(name) / "image"
        (tree / "include").mkdir(parents=True)
        for folder in folders:
            _run("cp", "-a", str(TREE / folder), str(tree / "include"))
        _run("mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(image), f"{SIZE_MIB}M")
        uri = f"nbd+unix:///setup?socket={disk.socket}"
        _run("nbdcopy", f"--request-size={COPY_BYTES}", str(image), uri)
