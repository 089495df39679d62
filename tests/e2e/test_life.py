"""A guest that checks its own data while its VM lives a hard life beside a busy foreground: nothing is lost."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.e2e.test_disk import Start, info
from tests.e2e.test_neighbours import FOREVER_SECONDS, served_again
from tests.framework import holds, verify
from tests.framework.ledger import note
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import DEVICE
from tests.testbed.disk import Disk

REPETITIONS = int(os.environ.get("IDLETIME_REPETITIONS", "3"))
"""Of each event in one test; `make soak` and the README's table use more."""

MAX_HOLD_MS = 300
"""Short, so that the load gets on beside the foreground that is nearly always busy."""

SPAN_BYTES = 16 << 20

OUTSTANDING = 4 * 2
"""idleverify has four threads, each with up to 256 KiB, which is two pieces."""

THREADS: dict[str, dict[str, Any]] = {"main-loop": {}, "iothread": {"iothread": "io0"}}


def device(machine: Machine) -> dict[str, Any]:
    """The machine's device as query-idletime shows it."""
    return info(machine)["devices"][0]


def hold_figures(machine: Machine) -> dict[str, float]:
    """The longest hold seen and the bound that was promised, which must hold."""
    found = holds.figures(machine, info(machine), OUTSTANDING)
    assert found["longest_hold_ms"] <= found["bound_ms"], found
    return found


def wait_for_held(machine: Machine, count: int = 1) -> None:
    """Return when requests are held."""
    end = time.monotonic() + 30
    while device(machine)["held"] < count:
        assert time.monotonic() < end, "nothing is held"


def neighbours(disk: Start, machine: Start, **parameters: Any) -> tuple[Disk, Machine, Machine]:
    """A busy foreground and a background guest that verifies its data."""
    shared: Disk = disk(service_us=2000)
    fg = machine(shared, "foreground", "foreground")
    extra = ["-object", "iothread,id=io0"] if "iothread" in parameters.get("device", {}) else []
    bg = machine(shared, "background", "background", max_hold_ms=MAX_HOLD_MS, extra=extra, **parameters)
    fg.guest.load(intensity=70, seconds=FOREVER_SECONDS * 10)
    holds.watch(bg, DEVICE)
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    return shared, fg, bg


def stop_and_cont(machine: Machine, folder: Path, number: int) -> None:
    """Held requests join those to be retried, and are held again."""
    machine.qmp.execute("stop")
    assert device(machine)["held"] == 0
    machine.qmp.execute("cont")


def resize(machine: Machine, folder: Path, number: int) -> None:
    """Drains the device; the size stays, as the disk's."""
    machine.qmp.execute("block_resize", node_name="disk", size=1 << 30)


def mirror(machine: Machine, folder: Path, number: int) -> None:
    """Starts and ends a job: two drains, and a foreground copy of nothing."""
    name = f"mirror{number}"
    machine.qmp.execute("blockdev-add", driver="null-co", node_name=name, size=1 << 30)
    machine.qmp.execute("blockdev-mirror", job_id=name, device="disk", target=name, sync="none")
    machine.qmp.execute("block-job-cancel", device=name, force=True)
    end = time.monotonic() + 30
    while machine.qmp.execute("query-block-jobs"):
        assert time.monotonic() < end, "the mirror does not end"
    machine.qmp.execute("blockdev-del", node_name=name)


def snapshot(machine: Machine, folder: Path, number: int) -> None:
    """An external snapshot, merged back at once."""
    name = f"over{number}"
    machine.qmp.execute("blockdev-snapshot-sync", node_name="disk", snapshot_file=str(folder / name),
                        snapshot_node_name=name)
    machine.qmp.execute("block-commit", job_id=name, device=name)
    end = time.monotonic() + 60
    while not (jobs := machine.qmp.execute("query-block-jobs")) or not jobs[0]["ready"]:
        assert time.monotonic() < end, "the commit does not get ready"
    machine.qmp.execute("block-job-complete", device=name)
    while machine.qmp.execute("query-block-jobs"):
        assert time.monotonic() < end, "the commit does not end"


def reclassify(machine: Machine, folder: Path, number: int) -> None:
    """To foreground and back while requests are held."""
    for name in ("foreground", "guest", "background"):
        machine.qmp.execute("idletime-set", **{"device": DEVICE, "class": name})


def set_interval(machine: Machine, folder: Path, number: int) -> None:
    """To 0, to a minute, and back."""
    for value in (0, 60_000_000, 20_000):
        machine.qmp.execute("qom-set", path="/objects/disk0", property="interval-us", value=value)


EVENTS: dict[str, Callable[[Machine, Path, int], None]] = {
    "stop and cont": stop_and_cont, "block_resize": resize, "mirror": mirror, "snapshot": snapshot,
    "class change": reclassify, "interval change": set_interval,
}


@pytest.mark.parametrize("threads", THREADS)
def test_events_under_load(disk: Start, machine: Start, scratch: Path, threads: str) -> None:
    """Each event many times, in random order, while requests are held; the guest finds what it wrote."""
    seed = int(os.environ.get("IDLETIME_SEED", "1"))
    shared, _, bg = neighbours(disk, machine, device=THREADS[threads])
    order = [name for name in EVENTS for _ in range(REPETITIONS)]
    random.Random(seed).shuffle(order)
    with_folder = bg.folder
    for number, name in enumerate(order):
        wait_for_held(bg)
        EVENTS[name](bg, with_folder, number)
        assert verify.running(bg.guest), f"the load ended after {order[: number + 1]} (seed {seed})"
    hold = hold_figures(bg)
    report = verify.end(bg.guest)
    assert report["errors"] == 0 and report["verified_bytes"] > 0
    for name in EVENTS:
        note(f"{name} ({threads})", REPETITIONS, seed=seed)
    note(f"data in a hard life ({threads})", 1, verified_bytes=report["verified_bytes"], **hold)


def test_stop_and_cont_hundred_times(disk: Start, machine: Start) -> None:
    """Under load, as the issue of every live backup tool would have it."""
    _, _, bg = neighbours(disk, machine)
    for number in range(100):
        stop_and_cont(bg, bg.folder, number)
    report = verify.end(bg.guest)
    assert report["errors"] == 0 and report["verified_bytes"] > 0
    note("stop and cont", 100, verified_bytes=report["verified_bytes"], **hold_figures(bg))


def test_unbind_and_bind(disk: Start, machine: Start) -> None:
    """The guest's driver leaves and comes while requests are held: it resets the device."""
    shared, _, bg = neighbours(disk, machine)
    verify.end(bg.guest)
    driver = "/sys/bus/virtio/drivers/virtio_blk"
    name = bg.guest.run(f"basename $(echo {driver}/virtio*)").text.strip()
    for _ in range(REPETITIONS):
        load = bg.guest.start("idleload --device /dev/vda --outstanding 8 --seconds 100")
        wait_for_held(bg)
        # The block layer of the guest waits for its requests, which are promoted.
        bg.guest.run(f"echo {name} >{driver}/unbind; ! [ -e /dev/vda ]", 60)
        # Its name is free again when the last who had it open is gone: else the disk comes back as vdb.
        assert bg.guest.finish(load, "idleload", 60, check=False).status != 0
        bg.guest.run(f"echo {name} >{driver}/bind", 60)
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    report = verify.end(bg.guest)
    note("driver unbind and bind", REPETITIONS, verified_bytes=report["verified_bytes"])


def reset(machine: Machine) -> None:
    """As the button on the front does."""
    machine.qmp.execute("system_reset")


def reboot(machine: Machine) -> None:
    """By the guest; the command never answers."""
    machine.guest.start("reboot -f")


RESETS = {"system_reset": reset, "guest reboot": reboot}


@pytest.mark.parametrize("way", RESETS)
def test_system_reset(disk: Start, machine: Start, boot: Boot, way: str) -> None:
    """The machine is reset while requests are held; the guest boots anew and finds a disk that works."""
    shared: Disk = disk(service_us=2000)
    fg = machine(shared, "foreground", "foreground")
    fg.guest.load(intensity=70, seconds=FOREVER_SECONDS * 10)
    bg = machine(shared, "background", "background", max_hold_ms=MAX_HOLD_MS, extra=["-action", "reboot=reset"])
    for _ in range(max(1, REPETITIONS // 2)):
        verify.start(bg.guest, span_bytes=SPAN_BYTES)
        wait_for_held(bg)
        bg.guest.expect_hello()
        RESETS[way](bg)
        bg.guest.wait_ready(120)
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    report = verify.end(bg.guest)
    assert report["errors"] == 0
    note(way, max(1, REPETITIONS // 2), verified_bytes=report["verified_bytes"])


def test_unplug_and_plug(disk: Start, machine: Start, arena: Path) -> None:
    """The disk is unplugged while it holds requests, and plugged again; others of the resource go on."""
    shared: Disk = disk(service_us=2000)
    fg = machine(shared, "foreground", "foreground")
    fg.guest.load(intensity=70, seconds=FOREVER_SECONDS * 10)
    bg = machine(shared, "background", "background", max_hold_ms=MAX_HOLD_MS, machine="pc")
    for _ in range(REPETITIONS):
        bg.guest.run("idleload --device /dev/vda --outstanding 8 --seconds 100 >/dev/null 2>&1 &")
        wait_for_held(bg)
        bg.qmp.execute("device_del", id=DEVICE)
        end = time.monotonic() + 30
        while info(bg)["devices"]:
            assert time.monotonic() < end, "the guest does not let go of its disk"
            time.sleep(0.02)
        served_again(shared, "foreground")
        bg.qmp.execute("device_add", driver="virtio-blk-pci", id=DEVICE, drive="disk", idletime="disk0",
                       **{"idletime-class": "background"})
        bg.guest.run("while ! [ -e /dev/vda ]; do usleep 20000; done")
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    report = verify.end(bg.guest)
    assert report["errors"] == 0
    note("unplug and plug", REPETITIONS, verified_bytes=report["verified_bytes"])
