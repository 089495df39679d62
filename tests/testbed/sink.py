"""The far end of the network: netload as sink and as answerer, and iperf3."""

from __future__ import annotations

import itertools
import json
import select
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.framework import paths
from tests.framework.process import Process
from tests.testbed.link import Link

READY_SECONDS = 10.0
"""A program starts within milliseconds; the rest is for a busy host."""

POLL_SECONDS = 0.01


class Sink:
    """A context manager around one netload process at the sink, such as Sink(link, "sink", protocol="udp", port=5001)."""

    _numbers = itertools.count(1)

    def __init__(self, link: Link, command: str, **parameters: object) -> None:
        self._link, self._command = link, command
        self._options = [f"--{name.replace('_', '-')}={value}" for name, value in parameters.items()]
        self.log: Path = link.folder / f"{command}.{next(self._numbers)}"

    def __enter__(self) -> Sink:
        program = str(paths.find_tool("netload", "loadgen"))
        self.process: Process = self._link.start([program, self._command, *self._options], self.log)
        try:
            self._await_ready()
        except BaseException:
            self.process.stop()
            raise
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.process.stop()
        self.log.unlink(missing_ok=True)

    def report(self) -> dict[str, Any]:
        """End the sink; returns what it counted."""
        self.process.stop()
        return json.loads(self.log.read_text().splitlines()[-1])

    def _await_ready(self) -> None:
        """It says so in its log, which is a file: nothing announces a line there."""
        for _ in range(int(READY_SECONDS / POLL_SECONDS)):
            if self.log.read_text().startswith('{"ready"'):
                return
            if select.select([self.process.pidfd], [], [], POLL_SECONDS)[0]:
                break
        raise self.process.error(f"netload {self._command} does not listen")


@dataclass(frozen=True)
class Window:
    """Part of a run, on CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int


def goodput_mbit(report: dict[str, Any], window: Window) -> float:
    """Payload a second that a sink took within a window, in Mbit/s; whole buckets only."""
    width_ns = report["bucket_ms"] * 1_000_000
    taken, count = 0, 0
    for number, size in enumerate(itertools.chain(report["buckets"], itertools.repeat(0))):
        begin_ns = report["begin_ns"] + number * width_ns
        if begin_ns + width_ns > window.end_ns:
            break
        if begin_ns >= window.begin_ns:
            taken, count = taken + size, count + 1
    return taken * 8 / 1e6 / (count * width_ns / 1e9) if count else 0.0
