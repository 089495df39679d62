"""A load generator as a process of the host, with the interface of a guest's load (tests.framework.guest.Load)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np

from tests.framework import paths
from tests.framework.guest import SAMPLES
from tests.framework.process import Process, ProcessError

LATE_SECONDS = 30.0
"""How much later than planned a load may end before we look for the cause."""


class HostLoad:
    """One run. `program`: idleload, or netload and its command; `start` begins a process, in a namespace for example."""

    _numbers = itertools.count(1)

    def __init__(self, folder: Path, *program: str, start: Callable[[list[str], Path], Process] = Process, latencies: bool = True,
                 **parameters: object) -> None:
        number, (name, *command) = next(self._numbers), program
        self._latencies = folder / f"latency.{number}"
        self._seconds = float(str(parameters["seconds"]))
        options = {**parameters, **({"latency_file": self._latencies} if latencies else {})}
        self._process = start([str(paths.find_tool(name, "loadgen")), *command, *_words(options)], folder / f"load.{number}")

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end, at most so long; tells whether it came."""
        try:
            self._process.wait(timeout_seconds)
        except ProcessError:
            return False
        return True

    def result(self) -> dict[str, Any]:
        """Its report, at its end."""
        if not self.wait(self._seconds + LATE_SECONDS):
            self._process.stop()
            raise self._process.error("the load on the host does not end")
        return dict(json.loads(self._process.log.read_text().splitlines()[-1]))

    def samples(self) -> np.ndarray:
        """Start and latency (us) of each request, in order of start."""
        return np.frombuffer(self._latencies.read_bytes(), SAMPLES)


def _words(options: dict[str, object]) -> Sequence[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
