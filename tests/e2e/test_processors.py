"""A processor of two VMs, in shares of what both have of it, so that what else runs here takes from both (003, Figure 3)."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Iterator

import pytest

from tests.bench import cpu

SECONDS = 3.0

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0 or not cpu.CGROUPS.is_dir(), reason="needs root, and cgroup v1's controller cpu"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor is the VMs' alone"),
]


@pytest.fixture
def rig() -> Iterator[cpu.Rig]:
    """Two VMs on one processor; ours are as they were afterwards."""
    before = os.sched_getaffinity(0)
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, before)
        yield cpu.Rig(stack, None)


def share(rig: cpu.Rig, way: str) -> float:
    """The background's, of what both VMs have."""
    found = rig.run(cpu.Cell(way, 100, 0), SECONDS)
    return float(found["background"] / (found["foreground_processor"] + found["background"]))


def test_the_foreground_has_it(rig: cpu.Rig) -> None:
    """Both without a pause: they halve it, unless the background has the least weight or the idle class. What is measured includes
    the start and the end of the foreground's load, some tenths of a second."""
    assert 0.35 < share(rig, cpu.EQUAL) < 0.7
    assert share(rig, cpu.WEIGHT) < 0.25
    assert share(rig, cpu.IDLE) < 0.25
