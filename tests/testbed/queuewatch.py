"""Samples the uplink's queue while a load runs: one tc process that is asked again and again."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from tests.testbed.link import Link, UPLINK
from tests.testbed.namespace import number_of

SAMPLE_SECONDS = 0.01
"""A hundred samples a second cost a tenth of a percent of a processor."""

STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Sample:
    """The uplink's queue at one time (CLOCK_MONOTONIC)."""

    time_ns: int
    backlog_bytes: int
    packets: int
    drops: int
    sent_bytes: int


class QueueWatch:
    """A context manager; afterwards `samples` holds what was seen."""

    def __init__(self, link: Link, every_seconds: float = SAMPLE_SECONDS) -> None:
        self._link, self._every = link, every_seconds
        self._end = threading.Event()
        self.samples: list[Sample] = []

    def __enter__(self) -> QueueWatch:
        argv = ["stdbuf", "-oL", "tc", "-s", "-j", "-batch", "-"]
        self._tc = self._link.host.call(
            lambda: subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        assert self._tc.stdin and self._tc.stdout
        self._tc.stdin.close()
        self._tc.wait(STOP_SECONDS)
        self._tc.stdout.close()

    def _run(self) -> None:
        next_time = time.monotonic()
        while not self._end.wait(max(0.0, next_time - time.monotonic())):
            self.samples.append(self._sample())
            next_time = max(next_time + self._every, time.monotonic())

    def _sample(self) -> Sample:
        assert self._tc.stdin and self._tc.stdout
        self._tc.stdin.write(f"qdisc show dev {UPLINK}\n")
        self._tc.stdin.flush()
        queue = json.loads(self._tc.stdout.readline())[0]
        values = [number_of(queue.get(name)) for name in ("backlog", "qlen", "drops", "bytes")]
        return Sample(time.monotonic_ns(), *values)

    def summary(self) -> dict[str, Any]:
        """Bytes and packets in the queue, and packets dropped over all samples."""
        if not self.samples:
            return {"samples": 0}
        backlog = np.array([each.backlog_bytes for each in self.samples])
        return {
            "samples": len(self.samples), "mean_bytes": float(backlog.mean()),
            "p99_bytes": float(np.percentile(backlog, 99)), "most_bytes": int(backlog.max()),
            "most_packets": max(each.packets for each in self.samples),
            "drops": self.samples[-1].drops - self.samples[0].drops,
            "sent_bytes": self.samples[-1].sent_bytes - self.samples[0].sent_bytes,
        }
