"""What test_killed.py kills: a test with a disk and a guest that waits for its end. pytest does not collect it by itself."""

from __future__ import annotations

import signal
from typing import Callable


def test_waits(machine: Callable[..., object], disk: Callable[..., object]) -> None:
    machine(disk(), "fg", "foreground")
    signal.pause()
