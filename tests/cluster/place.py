"""Where the cluster keeps things: what is cached below build/cluster, and what exists only while it is up."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any, Sequence

from tests.framework import paths

CACHE = paths.BUILD / "cluster"
"""Base trees and packages: made once, kept when the cluster goes down."""

RUN = CACHE / "run"
"""Everything of a raised cluster; `down` removes it whole."""

STATE = RUN / "state.json"

CONTROLLER = CACHE / "controller"
"""Inventory and settings of Ansible; they depend on nothing but the number of nodes, so they may be made first."""

INVENTORY = CONTROLLER / "inventory"

SOCKETS = Path(f"/tmp/idletime-ssh-{hashlib.sha256(str(CACHE).encode()).hexdigest()[:8]}")
"""Folder of the SSH connections that Ansible keeps open: in /tmp, since the path of a socket is short."""

COLLECTIONS = paths.BUILD / "ansible" / "collections"
TOOLS = paths.BUILD / "ansible" / "venv" / "bin"

RESULTS = CACHE / "results"
"""What was measured on the cluster; stays when it goes down."""

HERE = Path(__file__).parent
ROLES = paths.ROOT / "ansible" / "roles"

COMMAND_SECONDS = 60.0
"""Time that one short command may take on a busy machine."""


class ClusterError(RuntimeError):
    """The cluster could not be raised, changed or taken down; the text says why and what to do."""


def run(argv: Sequence[str | Path], timeout_seconds: float = COMMAND_SECONDS, **more: Any) -> str:
    """Run a command to its end; returns stdout, and an error quotes stderr."""
    words = [str(word) for word in argv]
    result = subprocess.run(words, capture_output=True, text=True, timeout=timeout_seconds, **more)
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip())[-2000:]
        raise ClusterError(f"`{' '.join(words)}` ended with {result.returncode}: {said}")
    return result.stdout


def need_root() -> None:
    """Namespaces with mounts and devices need root."""
    if os.geteuid() != 0:
        raise ClusterError("the test cluster needs root (namespaces, mounts, devices): run it with sudo")
