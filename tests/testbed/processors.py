"""What a private host's /proc/stat says of its processors: two hosts on one machine are not one host's processors."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Callable

from tests.framework.libvirtd import Libvirtd

PERIOD_SECONDS = 0.1
SIZE = 512
"""Written at once, and always as much, so that nobody reads half of it."""

TICKS = os.sysconf("SC_CLK_TCK")
FIELDS = 10


def one(number: int) -> list[int]:
    """The ticks of one processor of this machine, as the kernel has them."""
    lines = Path("/proc/stat").read_text().splitlines()
    return [int(word) for word in next(line for line in lines if line.startswith(f"cpu{number} ")).split()[1:]]


def busy() -> list[int]:
    """A processor that is never idle."""
    return [int(time.monotonic() * TICKS), *[0] * (FIELDS - 1)]


def idle() -> list[int]:
    """One that does nothing."""
    return [0, 0, 0, int(time.monotonic() * TICKS), *[0] * (FIELDS - 4)]


class Processor:
    """A context manager: a host has one processor, with these ticks."""

    def __init__(self, host: Libvirtd, ticks: Callable[[], list[int]]) -> None:
        self._host, self._ticks = host, ticks
        self._file = host.run / "stat"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Processor:
        self._file.touch()
        self._write()
        self._host.call("mount", "--bind", "/run/stat", "/proc/stat")
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join()
        self._host.call("umount", "/proc/stat")

    def _follow(self) -> None:
        while not self._ends.wait(PERIOD_SECONDS):
            self._write()

    def _write(self) -> None:
        ticks = " ".join(map(str, self._ticks()))
        with self._file.open("r+b") as file:
            os.pwrite(file.fileno(), f"cpu  {ticks}\ncpu0 {ticks}\nbtime 0".ljust(SIZE - 1).encode() + b"\n", 0)
