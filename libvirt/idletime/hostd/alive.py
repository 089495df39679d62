# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether idletimed is alive: it holds a lock on a file that only root opens, and the kernel lets go of it with the process.

Nobody waits for this lock: who asks takes it or does not get it, at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

FILE, MODE = ".idletimed", 0o600
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def hold(run_dir: str) -> int | None:
    """Be the one that is alive, until the descriptor is closed. None: another idletimed is."""
    folder = Path(run_dir)
    if not folder.is_dir():
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
    descriptor = os.open(folder / FILE, _FLAGS | os.O_CREAT, MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def alive(run_dir: str) -> bool:
    """Whether an idletimed holds the lock. Needs root; where nothing can be known, none is."""
    try:
        descriptor = os.open(Path(run_dir) / FILE, _FLAGS)
    except OSError:
        return False
    with contextlib.closing(os.fdopen(descriptor)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
