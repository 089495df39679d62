"""examples/htcondor on two nodes: a job's VM is background, pauses while the foreground needs its disk, and goes elsewhere when that
lasts."""

from __future__ import annotations

from typing import Callable, Iterator

import pytest

from tests.condor.pool import Pool
from tests.lab.host import Host, until

SECONDS = 600.0
"""For an event: the gauge takes a minute to believe that a node is busy, and several of a node that has just begun that it is idle again."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as result:
        yield result


@pytest.fixture(autouse=True)
def idle(pool: Pool) -> Iterator[None]:
    yield
    for one in pool.nodes:
        pool.relieve(one)
    pool.remove()


def come(condition: Callable[[], object], what: str, pool: Pool) -> None:
    until(condition, what, SECONDS, pool.said)


def running(pool: Pool) -> Host:
    """The node where the job's VM works, as background."""
    come(lambda: any(pool.state(one) == "running" for one in pool.nodes), "a VM runs", pool)
    one = next(one for one in pool.nodes if pool.state(one) == "running")
    come(lambda: pool.class_of(one) == "background", "it is background", pool)
    come(lambda: pool.console(one).count('"errors"') > 1, "it works", pool)
    return one


def test_suspended_and_continued(pool: Pool) -> None:
    come(lambda: all(pool.spare(one) > 0.8 for one in pool.nodes), "both nodes are idle", pool)
    pool.submit()
    one = running(pool)
    pool.load(one)
    come(lambda: pool.state(one) == "paused", "the job is suspended", pool)
    pool.relieve(one)
    come(lambda: pool.state(one) == "running", "it goes on", pool)


def test_checkpoint_and_move(pool: Pool) -> None:
    """HTCondor makes a checkpoint, and does not use it (examples/htcondor/README.md): on the other node the guest boots anew, from the
    disk that it had."""
    come(lambda: all(pool.spare(one) > 0.8 for one in pool.nodes), "both nodes are idle", pool)
    pool.patience(20)
    pool.submit()
    one = running(pool)
    other = next(each for each in pool.nodes if each is not one)
    pool.load(one)
    come(lambda: pool.state(other) == "running", "it runs on the other node", pool)
    come(lambda: pool.class_of(other) == "background", "it is background there", pool)
    come(lambda: pool.console(other).count('"errors"') > 1, "it works there", pool)
    assert pool.jobs()[0]["NumCkpts_RAW"] > 0
    assert "idleverify:" not in pool.console(one) + pool.console(other)
