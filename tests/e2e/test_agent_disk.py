"""Marks and the disk: a guest's own background beside its foreground and beside another VM. Events are checked, not times."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from tests.e2e.test_disk import MS, PAUSE_NS, SLACK_NS, await_requests, info, not_held, promotions
from tests.framework import agent, series
from tests.framework.qemu import Boot, Machine
from tests.testbed import blankfs
from tests.testbed.attach import attach
from tests.testbed.disk import Disk
from tests.testbed.requests import FLUSH, early, of_client, paid

INTERVAL_NS = 20 * MS
BACKGROUND_BYTES = 8192
"""The size of background requests, by which the disk's log tells them from the foreground's 4096 of the same VM."""

HOLD_MS = {"ext4": 0, "xfs": 1000}
"""max-hold-ms: ext4 does without a deadline (0), XFS does not."""


@pytest.fixture
def marking(boot: Boot, kernel: str) -> Boot:
    """A guest with the agent and a kernel of this series."""
    return agent.boot_with_agent(boot, series.get_series(kernel))


def start(stack: ExitStack, marking: Boot, disk: Disk, arena: Path, name: str, device_class: str = "guest") -> Machine:
    """A machine of class `guest` whose agent runs."""
    arguments = attach(disk, name, arena, device_class, interval_us=INTERVAL_NS // 1000)
    machine = stack.enter_context(Machine(marking, name, arguments))
    agent.AgentGuest(machine.guest).start()
    return machine


def of_size(log: np.ndarray, size: int) -> np.ndarray:
    """The requests of this size."""
    return log[log["bytes"] == size]


@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_background_of_two_vms_waits_for_the_foreground_of_one(
    marking: Boot, disk: Callable[..., Disk], arena: Path, stack: ExitStack
) -> None:
    """`idletime run -- dd` beside a foreground load in the same VM and in another one: neither comes within 20 ms of it."""
    shared = disk(service_us=5000)
    both, other = (start(stack, marking, shared, arena, name) for name in ("both", "other"))
    command = f"idletime run -- dd if=/dev/vda of=/dev/null bs={BACKGROUND_BYTES} iflag=direct count=100000"
    readers = [(machine, machine.guest.start(f"echo $$ >/run/dd.pid; exec {command}")) for machine in (both, other)]
    for name in ("both", "other"):
        await_requests(shared, name, 3)
    mark = shared.mark()
    report = both.guest.load(intensity=30, seconds=5).result()
    log = shared.read(mark)
    for machine, reader in readers:
        machine.guest.run("kill $(cat /run/dd.pid)")
        machine.guest.finish(reader, "dd", check=False, timeout_seconds=30)

    foreground = of_size(of_client(log, "both"), 4096)
    assert len(foreground) == report["operations"] > 0
    promoted = promotions(both) + promotions(other)
    for machine in ("both", "other"):
        background = of_size(of_client(log, machine), BACKGROUND_BYTES)
        # 50 pauses of about 67 ms, of which 47 are left after the interval: each VM gets a part of them.
        assert len(background) > 30, machine
        assert not_held(foreground, background, INTERVAL_NS) <= promoted, machine

    # A burst meets what is in service as it begins, from whichever VM; it does not pay again.
    background = of_size(log[log["operation"] != FLUSH], BACKGROUND_BYTES)
    times = paid(foreground, background, PAUSE_NS)
    assert (times > 1).sum() <= promoted + len(times) // 10, times
    print(f"of {len(times)} bursts {(times == 1).sum()} paid once, {(times > 1).sum()} more often")


@pytest.mark.parametrize("kernel", ["6.12"])
def test_without_marks_all_is_foreground(marking: Boot, disk: Callable[..., Disk], arena: Path, stack: ExitStack) -> None:
    """The control experiment: the same reads without a mark are held by nobody."""
    shared = disk(service_us=2000)
    machine = start(stack, marking, shared, arena, "both")
    load = machine.guest.load(intensity=30, seconds=3)
    machine.guest.run(f"dd if=/dev/vda of=/dev/null bs={BACKGROUND_BYTES} iflag=direct count=200")
    load.result()
    foreground, other = (of_size(shared.read(), size) for size in (4096, BACKGROUND_BYTES))
    assert info(machine)["background"]["requests"] == 0
    # 30 bursts, each with several reads of the other size between its own.
    assert len(early(foreground, other, INTERVAL_NS, SLACK_NS)) > 30


@pytest.mark.parametrize(("kernel", "kind"), [("6.1", "ext4"), ("6.12", "xfs")])
def test_a_foreground_fsync_does_not_wait_for_held_writes(
    marking: Boot, disk: Callable[..., Disk], arena: Path, stack: ExitStack, kind: str
) -> None:
    """Writes of `ionice -c3` that are held for a foreground elsewhere are released when a foreground sync needs them.

    On ext4 by the journal's writes, which have a class of their own. XFS has no
    such mark: a log write that the background process itself has begun is idle,
    too, and a sync of the foreground that needs the same part of the log waits
    for its deadline.
    """
    shared = disk(service_us=500)
    blankfs.make(shared, kind)
    arguments = attach(shared, "files", arena, "guest", interval_us=200_000, max_hold_ms=HOLD_MS[kind])
    files = stack.enter_context(Machine(marking, "files", arguments))
    busy = start(stack, marking, shared, arena, "busy")
    files.guest.run(
        "mkdir -p /mnt && mount -t %s -o noatime /dev/vda /mnt && "
        "for name in fg bg; do dd if=/dev/zero of=/mnt/$name bs=1M count=4 conv=fsync 2>&1; done" % kind, timeout_seconds=60,
    )
    # A foreground without gaps of 200 ms in another VM: what is held stays so, but for promotions.
    greedy = busy.guest.load(outstanding=2, seconds=120, span_bytes=1 << 20)
    await_requests(shared, "busy")
    # New blocks: the commit has to wait for their data, which is the case that the rule is for.
    writer = files.guest.start("ionice -c3 dd if=/dev/zero of=/mnt/new bs=64k count=8 conv=fsync 2>&1")
    held(files)
    for _ in range(3):
        files.guest.run("dd if=/dev/zero of=/mnt/fg bs=4096 count=1 conv=notrunc,fsync 2>&1", timeout_seconds=60)
    files.guest.finish(writer, "ionice -c3 dd", timeout_seconds=60)

    assert not greedy.wait(0), "the foreground of the other VM ended before"
    counted = info(files)["devices"][0]["promotions"]
    assert sum(counted.values()) > 0
    if kind == "ext4":
        assert counted["journal"] > 0 and counted["deadline"] == 0
    greedy.stop()
    greedy.result()
    files.guest.run("umount /mnt", timeout_seconds=60)


def held(machine: Machine) -> None:
    """Return when a request of this machine is held."""
    for _ in range(20000):
        if info(machine)["held"] > 0:
            return
    raise TimeoutError("nothing is held")
