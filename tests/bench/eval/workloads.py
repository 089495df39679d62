"""What the foreground does: the rows of the evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

OPERATIONS_PER_SECOND = 200
"""What the disk of 5 ms serves at most; Poisson arrivals are given in percent of it."""

BURSTS: dict[str, Any] = {"intensity": 30, "quantum_ms": 100}


@dataclass(frozen=True)
class Workload:
    """`loads` are idleload's options: one entry per foreground VM; each is a tuple of parts that run one
    after the other, of equal length (one part: no change in mid-run)."""

    name: str
    title: str
    loads: tuple[tuple[dict[str, Any], ...], ...]
    program: str = "idleload"
    tree: bool = False
    """On the disk's file system, which is mounted for it."""

    def parameters(self) -> dict[str, Any]:
        """For the data."""
        return asdict(self)


def _poisson(percent: int) -> dict[str, Any]:
    return {"rate": OPERATIONS_PER_SECOND * percent // 100, "outstanding": 4}


def _one(name: str, title: str, load: dict[str, Any]) -> Workload:
    return Workload(name, title, ((load,),))


MOUNT = "/mnt"
DATABASE, FILES = f"{MOUNT}/database", f"{MOUNT}/include"
TRACE = "/etc/mailserver.trace"
"""In the guest; made by tests/bench/eval/trace.py."""

WORKLOADS = (
    _one("periodic", "bursts of 30 ms every 100 ms", BURSTS),
    _one("jittered", "the same, pauses varied by 30 %", {**BURSTS, "pauses": "jittered"}),
    _one("exponential", "the same, exponential pauses", {**BURSTS, "pauses": "exponential"}),
    _one("poisson-10", "Poisson arrivals, 10 % of the disk", _poisson(10)),
    _one("poisson-30", "Poisson arrivals, 30 % of the disk", _poisson(30)),
    _one("poisson-60", "Poisson arrivals, 60 % of the disk", _poisson(60)),
    _one("long-gaps", "bursts of 300 ms every second", {"intensity": 30, "quantum_ms": 1000}),
    Workload(
        "two", "two foregrounds, 15 % of 100 and of 130 ms",
        (({"intensity": 15, "quantum_ms": 100},), ({"intensity": 15, "quantum_ms": 130, "seed": 3},)),
    ),
    Workload("change", "periodic bursts, then Poisson arrivals of 30 %", ((BURSTS, _poisson(30)),)),
    Workload("database", "SQLite, 8 durable transactions a second", (({"device": DATABASE, "rate": 8},),), "dbload", True),
    Workload("search", "search through a tree of files (grep -r)", (({"device": FILES, "files": True},),), tree=True),
    _one("greedy", "four requests at the disk, always", {"outstanding": 4}),
    _one("trace", "a recorded trace of a mail server's disk, replayed", {"trace": TRACE, "outstanding": 8}),
)

SEEK_BURSTS: dict[str, Any] = {"intensity": 30, "quantum_ms": 400}
"""As many requests a burst on a disk of 20 ms as BURSTS has on one of 5."""
SEEK = (
    _one("seek-periodic", "bursts of 120 ms every 400 ms", SEEK_BURSTS),
    _one("seek-jittered", "the same, pauses varied by 30 %", {**SEEK_BURSTS, "pauses": "jittered"}),
    _one("seek-poisson-30", "Poisson arrivals, 30 % of the disk", {"rate": 15, "outstanding": 4}),
)

SSD_CHANNELS, SSD_SERVICE_US = 16, 20_000
SSD_QUARTER: dict[str, Any] = {"rate": SSD_CHANNELS * 1_000_000 // SSD_SERVICE_US // 4, "outstanding": 64, "any_thread": True}
SSD = (
    Workload(
        "ssd-poisson-50", "two foregrounds, Poisson arrivals, 25 % of the disk each",
        ((SSD_QUARTER,), ({**SSD_QUARTER, "seed": 3},)),
    ),
)

BY_NAME = {workload.name: workload for workload in (*WORKLOADS, *SEEK, *SSD)}
