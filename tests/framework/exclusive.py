"""What one test run makes and others find: several run at a time."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Wait until no other process is inside with this file, which is made. It does not nest."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
