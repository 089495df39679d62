"""Neighbours and the arena: who dies, stops or loses the shared memory must not take the others along."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from tests.e2e.test_disk import Start, info
from tests.framework.qemu import Machine
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

FOREVER_SECONDS = 120
"""A load that outlasts every test here; it ends with its machine."""

POLL_SECONDS = 0.05


def at_least(client: str, count: int) -> Callable[[np.ndarray], bool]:
    """A condition for Disk.wait_for: so many requests of a client have been served."""
    return lambda log: len(of_client(log, client)) >= count


def served_again(disk: Disk, client: str, count: int = 20, timeout_seconds: float = 30) -> None:
    """Return when the disk has served that many more requests of a client."""
    disk.wait_for(disk.mark(), at_least(client, count), timeout_seconds)


def wait_for_state(machine: Machine, wanted: Callable[[str], bool], timeout_seconds: float = 30) -> None:
    """Return when query-idletime shows a state of this kind; the arena is looked at once a second."""
    end = time.monotonic() + timeout_seconds
    while not wanted(state := info(machine)["state"]):
        assert time.monotonic() < end, f"the state is still {state}"
        time.sleep(POLL_SECONDS)


def never_idle(machine: Machine) -> None:
    """A foreground that always has a request in service: greedy, with two outstanding."""
    machine.guest.load(outstanding=2, seconds=FOREVER_SECONDS)


def stop_in_service(machine: Machine, neighbour: Machine) -> None:
    """SIGSTOP a foreground QEMU while a request of it is in service, as its neighbour sees it.

    Where the processors are taken, there are moments between two requests: then it goes on, and is stopped again.
    """
    end = time.monotonic() + 30
    machine.process.kill(signal.SIGSTOP)
    while info(neighbour)["state"] != "foreground":
        assert time.monotonic() < end, "it was never stopped in service"
        machine.process.kill(signal.SIGCONT)
        time.sleep(POLL_SECONDS)
        machine.process.kill(signal.SIGSTOP)


def greedy(machine: Machine) -> None:
    """A background that always wants more."""
    machine.guest.load(outstanding=4, seconds=FOREVER_SECONDS)


def issued(machine: Machine) -> int:
    """Background requests that this machine has issued; the guest's own boot does some."""
    return info(machine)["devices"][0]["background"]["requests"]


def test_killed_foreground_holds_nobody(disk: Start, machine: Start) -> None:
    """A foreground QEMU that is killed in service leaves its slot busy; the background starts nevertheless."""
    shared: Disk = disk(service_us=5000)
    fg, bg = (machine(shared, name, name, max_hold_ms=0) for name in ("foreground", "background"))
    never_idle(fg)
    served_again(shared, "foreground")
    before = issued(bg)
    greedy(bg)
    served_again(shared, "foreground")
    while_busy = issued(bg) - before
    fg.process.kill(signal.SIGKILL)
    fg.process.wait(10)
    served_again(shared, "background", 100)

    # max-hold-ms=0: while the foreground lived, nothing could have been promoted either.
    assert while_busy == 0
    assert info(bg)["devices"][0]["promotions"]["deadline"] == 0


def test_stopped_foreground_leaves_promotions(disk: Start, machine: Start) -> None:
    """A foreground QEMU that is stopped in service: the background gets what max-hold-ms promises, and no more."""
    shared: Disk = disk(service_us=5000)
    fg = machine(shared, "foreground", "foreground")
    bg = machine(shared, "background", "background", max_hold_ms=500)
    never_idle(fg)
    served_again(shared, "foreground")
    stop_in_service(fg, bg)
    try:
        before = issued(bg)
        greedy(bg)
        served_again(shared, "background", 8)
        device = info(bg)["devices"][0]
        assert device["promotions"]["deadline"] == device["background"]["requests"] - before
    finally:
        fg.process.kill(signal.SIGCONT)
    served_again(shared, "foreground")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_holder_of_the_cap(disk: Start, machine: Start, number: signal.Signals) -> None:
    """The background QEMU that holds the only token is killed or stopped; the other one goes on (lease: 5 s)."""
    shared: Disk = disk(service_us=300000)
    one, other = (machine(shared, name, "background") for name in ("bg1", "bg2"))
    one.guest.load(outstanding=4, seconds=FOREVER_SECONDS)
    # With 300 ms a request, a greedy participant on its own holds the token nearly always.
    served_again(shared, "bg1", 2)
    one.process.kill(number)
    other.guest.load(outstanding=4, seconds=FOREVER_SECONDS)
    served_again(shared, "bg2", 5)
    one.process.kill(signal.SIGCONT)


def delete(arena: Path) -> None:
    """As an overeager cleaner of /run would."""
    shutil.rmtree(arena)


def truncate(arena: Path) -> None:
    """Every access to the mapped boards faults from now on."""
    for board in ("foreground", "background"):
        os.truncate(arena / board, 0)


def scribble(arena: Path) -> None:
    """Random bytes over both boards, header included."""
    for board in ("foreground", "background"):
        size = (arena / board).stat().st_size
        (arena / board).open("r+b").write(np.random.default_rng(1).bytes(size))


@pytest.mark.parametrize("damage", [delete, truncate, scribble])
def test_lost_arena(disk: Start, machine: Start, arena: Path, damage: Callable[[Path], Any]) -> None:
    """Under load: nobody crashes, foreground goes on, background falls to promotions, and comes back with the arena."""
    shared: Disk = disk(service_us=2000)
    fg = machine(shared, "foreground", "foreground")
    bg = machine(shared, "background", "background", max_hold_ms=1000)
    fg.guest.load(intensity=20, seconds=FOREVER_SECONDS)
    greedy(bg)
    served_again(shared, "background")
    damage(arena)
    if damage is not delete:  # a deleted one is made anew at once
        wait_for_state(bg, lambda state: state == "lost")
        served_again(shared, "foreground")
        served_again(shared, "background", 8)
        assert info(bg)["devices"][0]["promotions"]["deadline"] > 0
        delete(arena)
    wait_for_state(bg, lambda state: arena.is_dir() and state != "lost")
    served_again(shared, "foreground")
    served_again(shared, "background", 100)
    assert fg.process.running() and bg.process.running()
