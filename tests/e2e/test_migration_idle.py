"""A VM migrates, or its disk is copied, over the uplink by which others send: held, it costs them nothing, and it is done."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.framework import accel
from tests.framework.idletimed import wait_until
from tests.framework.qemu import Boot, Machine
from tests.testbed import observer
from tests.testbed.copier import Copier
from tests.testbed.link import SINK_ADDRESS, UPLINK, Link
from tests.testbed.mover import Mover
from tests.testbed.namespace import NamespaceError
from tests.testbed.nic import attach_nic, configure
from tests.testbed.sink import Sink, Window, goodput_mbit

PORT = 5001
BURST_MBIT, INTENSITY, QUANTUM_MS = 100, 50, 100
ALONE_SECONDS, LIMIT_SECONDS = 3.0, 90.0
SMALL = {"memory_mib": 256, "fill_mib": 32}
SUM = "md5sum /fill"
HELD_AT_LEAST_US = 3200
"""More than the interval takes a migration that waits for a foreground, and less than one that has the uplink alone waits."""


@pytest.fixture
def boot() -> Boot:
    """Guests of the network."""
    try:
        with Link():
            pass
    except NamespaceError as error:
        pytest.skip(str(error))
    return accel.prepare(network=True)


@contextmanager
def foreground(boot: Boot, link: Link, arena: Path) -> Iterator[Machine]:
    """A VM of ours on the link's bridge."""
    tap = link.add_tap("fo0")
    with Machine(boot, "foreground", attach_nic(tap, arena, rate_bps=BURST_MBIT * 1_000_000), tap.fds) as machine:
        link.release(tap)
        configure(machine.guest, tap)
        yield machine


def moved(mover: Mover) -> None:
    """Its guest goes on at the target, with what the source had."""
    before = mover.source.guest.run(SUM).text
    mover.begin()
    assert mover.wait(LIMIT_SECONDS)["status"] == "completed"
    wait_until(lambda: bool(mover.target.qmp.execute("query-status")["running"]), "it runs at the target", LIMIT_SECONDS)
    assert mover.target.guest.run(SUM).text == before


def kept(machine: Machine, link: Link, work: Mover | Copier, attached: bool, done: str = "completed") -> float:
    """Of what a UDP foreground in bursts gets alone, the share that it gets while the VM migrates, or its disk is copied."""
    burst_bytes = BURST_MBIT * 1000 // 8 * QUANTUM_MS * INTENSITY // 100
    seconds = ALONE_SECONDS + LIMIT_SECONDS
    with Sink(link, "sink", protocol="udp", port=PORT, seconds=seconds + 30) as sink:
        load = machine.guest.netload("send", host=SINK_ADDRESS, port=PORT, protocol="udp", intensity=INTENSITY, quantum_ms=QUANTUM_MS,
                                     quantum_bytes=burst_bytes, pace_mbit=BURST_MBIT, seconds=seconds)
        load.wait(ALONE_SECONDS)
        begin = time.monotonic_ns()
        work.begin(attached)
        status = work.wait(LIMIT_SECONDS)
        end = time.monotonic_ns()
        load.stop()
        load.result()
        report = sink.report()
    assert status["status"] == done, status
    alone = goodput_mbit(report, Window(begin - int((ALONE_SECONDS - 1) * 1e9), begin))
    return goodput_mbit(report, Window(begin, end)) / alone


def waited(held: dict[str, Any]) -> float:
    """The share of chunks that waited longer than HELD_AT_LEAST_US."""
    bounds, bins = held["hold"]["boundaries-us"], held["hold"]["bins"]
    return sum(bins[bounds.index(HELD_AT_LEAST_US) + 1:]) / sum(bins)


def test_beside_a_foreground(boot: Boot, tmp_path: Path) -> None:
    """Control experiment: as it comes, the same migration takes some of it."""
    arena = tmp_path / "arena"
    with Link() as link, foreground(boot, link, arena) as machine:
        shares = []
        for attached in (False, True):
            with Mover(boot, link, arena, auto="on", **SMALL) as mover:
                shares.append(kept(machine, link, mover, attached))
                if attached:
                    held = mover.held()
        uncontrolled, ours = shares
        assert ours > 0.9 and ours > uncontrolled + 0.03, shares
        assert held["waits"]["interval"] > 0 and held["background"]["bytes"] > 32 << 20, held
        assert waited(held) > 0.005, held


def test_a_guest_and_its_memory(boot: Boot, tmp_path: Path) -> None:
    """Nobody else sends."""
    with Link() as link, Mover(boot, link, tmp_path / "arena", auto="on", **SMALL) as mover:
        moved(mover)
        wait_until(lambda: mover.held()["in-service"] == 0, "its last chunk is given back")


@pytest.mark.skipif(observer.missing() is not None, reason=str(observer.missing()))
def test_it_does_not_wait_for_itself(boot: Boot, tmp_path: Path) -> None:
    """The observer counts what the host sends; these packets are marked, so they are none."""
    arena = tmp_path / "arena"
    arena.mkdir()
    with ExitStack() as stack:
        link = stack.enter_context(Link())
        mover = stack.enter_context(Mover(boot, link, arena, auto="on", **SMALL))
        stack.enter_context(observer.Observer(arena, "--uplink", UPLINK, start=link.host.start))
        moved(mover)
        seen = mover.source.qmp.execute("query-idletime")[0]["observer"]
        assert seen["state"] == "seen", seen
        # The control is in the packets: the switchover and what is before it are the host's, and foreground.
        assert 0 < seen["foreground"]["requests"] < 3000 and waited(mover.held()) < 0.02, (seen, mover.held())


def test_a_copy_of_a_disk(boot: Boot, tmp_path: Path) -> None:
    """By NBD over the uplink. Control experiment: as it comes, the same copy takes some of it."""
    arena = tmp_path / "arena"
    with Link() as link, foreground(boot, link, arena) as machine:
        shares = []
        for attached in (False, True):
            with Copier(boot, link, arena, tmp_path, auto="on") as copier:
                shares.append(kept(machine, link, copier, attached, "ready"))
                if attached:
                    held = copier.held()
                assert copier.equal()
        uncontrolled, ours = shares
        assert ours > 0.9 and ours > uncontrolled + 0.03, shares
        assert held["waits"]["interval"] > 0 and held["background"]["bytes"] >= 32 << 20, (held, shares)


@pytest.mark.skipif(observer.missing() is not None, reason=str(observer.missing()))
def test_a_copy_does_not_wait_for_itself(boot: Boot, tmp_path: Path) -> None:
    """Its connection is marked while it is attached."""
    arena = tmp_path / "arena"
    arena.mkdir()
    with ExitStack() as stack:
        link = stack.enter_context(Link())
        copier = stack.enter_context(Copier(boot, link, arena, tmp_path, auto="on"))
        stack.enter_context(observer.Observer(arena, "--uplink", UPLINK, start=link.host.start))
        copier.begin()
        assert copier.wait(LIMIT_SECONDS)["status"] == "ready"
        seen = copier.source.qmp.execute("query-idletime")[0]["observer"]
        assert seen["state"] == "seen" and seen["foreground"]["requests"] < 300, seen
        held = copier.held()
        # For its last chunk each one waits; for a foreground hardly one.
        assert held["waits"]["foreground"] + held["waits"]["interval"] < held["background"]["requests"] / 10, held
