"""What a disk may hold after a loss of power: pure functions over a slowdisk's log and the data of its writes.

A write is safe once a flush has arrived that came after the write was finished. All others that had arrived may be
there or not, block by block, in any combination.
"""

from __future__ import annotations

import random

import numpy as np

from tests.testbed.requests import FLUSH, WRITE

BLOCK_BYTES = 4096
"""What a disk writes whole or not at all; the file systems of our tests use the same."""

MARK_MAGIC = 0x59464952454C4449
"""The first word of idleverify's blocks; then come place and sequence."""


def safe(log: np.ndarray, at_ns: int) -> np.ndarray:
    """For each request of a log: is it a write that a loss of power at this time cannot undo?"""
    flushes = log["arrival_ns"][(log["operation"] == FLUSH) & (log["arrival_ns"] <= at_ns)]
    last = flushes.max(initial=np.iinfo(np.int64).min)
    return (log["operation"] == WRITE) & (log["finish_ns"] <= last)


def arrived(log: np.ndarray, at_ns: int) -> np.ndarray:
    """For each request of a log: is it a write that the disk had got by then?"""
    return (log["operation"] == WRITE) & (log["arrival_ns"] <= at_ns)


def _survives(mode: str, dice: random.Random) -> bool:
    return mode == "all" or (mode == "some" and dice.random() < 0.5)


def after_loss(base: bytes, log: np.ndarray, data: bytes, at_ns: int, dice: random.Random) -> bytearray:
    """The content of a disk that lost power at this time; `dice` decides what became of the writes that were not safe."""
    state = bytearray(base)
    is_safe, had_arrived = safe(log, at_ns), arrived(log, at_ns)
    position = 0
    for number, request in enumerate(log):
        if request["operation"] != WRITE:
            continue
        size, offset = int(request["bytes"]), int(request["offset"])
        if had_arrived[number]:
            mode = "all" if is_safe[number] else dice.choice(["all", "none", "some"])
            for start in range(0, size, BLOCK_BYTES):
                if _survives(mode, dice):
                    block = data[position + start : position + min(start + BLOCK_BYTES, size)]
                    state[offset + start : offset + start + len(block)] = block
        position += size
    return state


def marks(log: np.ndarray, data: bytes, at_ns: int, files: int) -> list[int]:
    """The sequence number of each file that idleverify had reported as synced by then."""
    found = [0] * files
    position = 0
    for request in log[log["operation"] == WRITE]:
        magic, place, sequence = np.frombuffer(data, "<u8", 3, position)
        if request["arrival_ns"] <= at_ns:
            assert magic == MARK_MAGIC
            found[int(place)] = max(found[int(place)], int(sequence))
        position += int(request["bytes"])
    return found
