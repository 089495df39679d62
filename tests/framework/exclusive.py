"""What one test run makes and others find: several run at a time."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import Iterator

from tests.framework import paths


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Wait until no other process is inside under this name. It does not nest."""
    paths.GUEST.mkdir(parents=True, exist_ok=True)
    with (paths.GUEST / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
