"""The trace of a small mail server's disk: generated once with a fixed seed, shipped, and replayed.

    python3 -m tests.bench.eval.trace > tests/bench/eval/mailserver.csv

A delivery looks up a mailbox (2 to 5 random reads), writes the message (4 to
64 KiB, sequential), its index and a journal record; a visit lists a mailbox
(3 to 12 reads near each other). Deliveries and visits arrive as Poisson
processes whose rates change every few seconds between night, day and rush.

Format: that of the MSR Cambridge traces, one request a line: time (100 ns),
host, disk, type, offset (bytes), size (bytes), response time (100 ns; 0: not known).
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Iterator

SECONDS = 60
DISK_BYTES = 3 << 28
BLOCK_BYTES = 4096
SEED = 20041201
TICKS_PER_SECOND = 10_000_000
RATES = {"night": (0.5, 0.5), "day": (2.0, 3.0), "rush": (6.0, 8.0)}
"""Deliveries and visits a second."""
SHIPPED = Path(__file__).with_name("mailserver.csv")

Row = tuple[float, str, int, int]
"""Seconds, Read or Write, offset, size (bytes)."""


def _somewhere(dice: random.Random) -> int:
    return dice.randrange(DISK_BYTES // BLOCK_BYTES - 1024) * BLOCK_BYTES


def delivery(dice: random.Random, at: float, journal: int) -> Iterator[Row]:
    """A message arrives; journal: where the journal is then."""
    for _ in range(dice.randint(2, 5)):
        yield at, "Read", _somewhere(dice), BLOCK_BYTES
        at += dice.uniform(0.004, 0.012)
    body = _somewhere(dice)
    for block in range(0, dice.choice((1, 1, 2, 4, 16)) * BLOCK_BYTES, 4 * BLOCK_BYTES):
        yield at, "Write", body + block, 4 * BLOCK_BYTES
        at += 0.002
    yield at, "Write", _somewhere(dice), BLOCK_BYTES
    yield at + 0.006, "Write", journal, BLOCK_BYTES


def visit(dice: random.Random, at: float) -> Iterator[Row]:
    """Somebody looks into a mailbox."""
    place = _somewhere(dice)
    for number in range(dice.randint(3, 12)):
        yield at, "Read", place + number * 3 * BLOCK_BYTES, 2 * BLOCK_BYTES
        at += dice.uniform(0.005, 0.02)


def rows() -> list[Row]:
    """The whole trace, in order of time."""
    dice = random.Random(SEED)
    result: list[Row] = []
    at, until, hour = 0.0, 0.0, RATES["day"]
    while at < SECONDS:
        if at >= until:
            hour, until = RATES[dice.choice(("night", "day", "day", "rush"))], at + dice.uniform(2, 6)
        at += dice.expovariate(sum(hour))
        if dice.random() < hour[0] / sum(hour):
            result += delivery(dice, at, (len(result) % 256) * BLOCK_BYTES)
        else:
            result += visit(dice, at)
    return sorted(row for row in result if row[0] < SECONDS)


def for_idleload(shift_bytes: int, path: Path = SHIPPED) -> bytes:
    """A trace file as idleload reads it, its offsets moved up by `shift_bytes`."""
    lines = []
    for line in path.read_text().splitlines():
        ticks, _, _, kind, offset, size, _ = line.split(",")
        lines.append(f"{int(ticks) // 10} {kind[0].lower()} {int(offset) + shift_bytes} {size}")
    return ("\n".join(lines) + "\n").encode()


def main() -> None:
    """Print the trace."""
    for at, kind, offset, size in rows():
        sys.stdout.write(f"{int(at * TICKS_PER_SECOND)},mail,0,{kind},{offset},{size},0\n")


if __name__ == "__main__":
    main()
