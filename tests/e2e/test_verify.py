"""The instruments of data: idleverify sees wrong blocks, and the model of a power cut loses what may be lost, no more."""

from __future__ import annotations

import random
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from tests.framework import paths
from tests.testbed import power
from tests.testbed.requests import FLUSH, REQUESTS, WRITE

SIZE = 1 << 20


def zeroes(path: Path, before: bytes) -> None:
    """Writes that were reported as done and are not there."""
    path.open("r+b").write(bytes(SIZE))


def older(path: Path, before: bytes) -> None:
    """The content of a moment ago: each block is a good one, of an earlier write."""
    path.open("r+b").write(before)


def shifted(path: Path, before: bytes) -> None:
    """Good blocks in the wrong place."""
    path.open("r+b").write(before[power.BLOCK_BYTES:])


@pytest.mark.parametrize("damage", [zeroes, older, shifted])
def test_wrong_data_are_seen(stack: ExitStack, damage: Callable[[Path, bytes], None]) -> None:
    """A load on a file that somebody else changes ends with status 3; left alone it does not."""
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "file"
    path.write_bytes(bytes(SIZE))
    tool = str(paths.find_tool("idleverify", "loadgen"))
    command = [tool, "device", "--device", str(path), "--span-bytes", str(SIZE), "--request-blocks", "4"]
    assert subprocess.run([*command, "--seconds", "1"], capture_output=True).returncode == 0
    # Its blocks begin with sequence numbers of their own, so the first run's data are wrong ones, too.
    before = path.read_bytes()
    with subprocess.Popen([*command, "--seconds", "60", "--seed", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as load:
        while path.read_bytes() == before:
            pass
        while load.poll() is None:
            damage(path, before)
        assert load.returncode == 3, load.communicate()[1]


def log_of(*requests: tuple[int, int, int, int]) -> np.ndarray:
    """A slowdisk's log of (operation, block, arrival, finish)."""
    log = np.zeros(len(requests), REQUESTS)
    for number, (operation, block, arrival_ns, finish_ns) in enumerate(requests):
        log[number] = (b"", operation, power.BLOCK_BYTES if operation == WRITE else 0, block * power.BLOCK_BYTES,
                       arrival_ns, arrival_ns, finish_ns)
    return log


def test_power_cut_model() -> None:
    """Safe: finished before a flush that arrived in time. Everything else comes and goes."""
    log = log_of((WRITE, 0, 10, 20), (WRITE, 1, 11, 35), (FLUSH, 0, 30, 30), (WRITE, 2, 40, 50), (FLUSH, 0, 60, 60))
    data = b"".join(bytes([value]) * power.BLOCK_BYTES for value in (1, 2, 3))
    assert power.safe(log, 29).tolist() == [False] * 5
    # The second write was not finished when the flush came.
    assert power.safe(log, 45).tolist() == [True, False, False, False, False]
    assert power.safe(log, 60).tolist() == [True, True, False, True, False]
    seen = set()
    for seed in range(64):
        state = power.after_loss(bytes(3 * power.BLOCK_BYTES), log, data, 45, random.Random(seed))
        seen.add(tuple(state[:: power.BLOCK_BYTES]))
    assert seen == {(1, b, c) for b in (0, 2) for c in (0, 3)}
