"""Disks on virtio-scsi: what real guests see of them is what they see of virtio-blk."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Sequence

import pytest

from tests.e2e.test_disk import MS, Start, info, not_held, promotions
from tests.e2e.test_life import MAX_HOLD_MS, SPAN_BYTES, THREADS, wait_for_held
from tests.e2e.test_migration import LONG_HOLD, WAYS, boot_of, iothread, wait_for_migration, wait_until_running
from tests.e2e.test_neighbours import FOREVER_SECONDS, served_again
from tests.framework import verify
from tests.framework.qemu import Boot, Machine, has_idletime
from tests.testbed import scsi
from tests.testbed.attach import attach
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client


@pytest.fixture(scope="module")
def scsi_boot(boot: Boot) -> Boot:
    """A guest with the driver."""
    return scsi.with_driver(boot)


@pytest.fixture
def scsi_machine(stack: ExitStack, scsi_boot: Boot, arena: Path) -> Start:
    """As `machine`, with its disk on virtio-scsi."""

    def start(shared: Disk, name: str, device_class: str, extra: Sequence[str] = (), **parameters: object) -> Machine:
        arguments = [*extra, *attach(shared, name, arena, device_class, scsi=True, **parameters)]  # type: ignore[arg-type]
        machine: Machine = stack.enter_context(Machine(scsi_boot, name, arguments))
        scsi.wait_for_disk(machine)
        return machine

    return start


def test_nothing_starts_within_the_interval(disk: Start, scsi_machine: Start) -> None:
    """Two processes: no background request comes to the disk while foreground is there, or within 20 ms after it."""
    shared: Disk = disk(service_us=5000)
    fg, bg = (scsi_machine(shared, name, name, interval_us=20000) for name in ("foreground", "background"))
    mark, before = shared.mark(), promotions(bg)
    loads = [bg.guest.load(device=scsi.DISK, outstanding=4, seconds=5), fg.guest.load(device=scsi.DISK, intensity=30, seconds=5)]
    reports = [load.result() for load in loads]
    foreground, background = (of_client(shared.read(mark), name) for name in ("foreground", "background"))

    assert all(report["operations"] > 0 for report in reports)
    assert len(background) > 50
    assert not_held(foreground, background, 20 * MS) <= promotions(bg) - before


def test_large_requests_come_in_pieces(disk: Start, scsi_machine: Start) -> None:
    """1 MiB reads of a background guest arrive in pieces of max-request-bytes, and all bytes of them do."""
    shared: Disk = disk(service_us=500)
    bg = scsi_machine(shared, "bg", "background", max_request_bytes=65536)
    mark = shared.mark()
    report = bg.guest.load(device=scsi.DISK, block_bytes=1 << 20, outstanding=2, seconds=2).result()
    log = of_client(shared.read(mark), "bg")

    assert report["operations"] > 0
    assert log["bytes"].max() == 65536
    assert log["bytes"].sum() == report["bytes"]
    assert info(bg)["devices"][0]["pieces"] > 0


def test_a_command_that_is_held_for_longer_than_the_guests_timeout(disk: Start, scsi_machine: Start) -> None:
    """Linux waits for it: its driver of virtio-scsi starts the timer anew, aborts nothing and resets nothing."""
    shared: Disk = disk(service_us=2000)
    fg = scsi_machine(shared, "foreground", "foreground")
    bg = scsi_machine(shared, "background", "background", interval_us=60_000_000, max_hold_ms=3000)
    bg.guest.run("echo 1 >/sys/block/sda/device/timeout")
    mark = shared.mark()
    load = fg.guest.load(device=scsi.DISK, outstanding=2, seconds=FOREVER_SECONDS)
    shared.wait_for(mark, lambda log: len(of_client(log, "foreground")) > 5)
    said = bg.guest.run(f"time dd if={scsi.DISK} of=/dev/null bs=4k count=1 iflag=direct 2>&1; dmesg | tail -n 5").text
    load.stop()
    load.result()
    (longest,) = (one["hold"]["max-us"] for one in info(bg)["devices"])
    assert longest >= 3_000_000 and "1+0 records in" in said, said
    assert not any(word in said.lower() for word in ("abort", "reset", "error", "timing out")), said


# To a stock QEMU with an iothread: it restarts what was held beside that thread, see ARCHITECTURE.md.
CASES = [(way, threads) for way in WAYS for threads in THREADS if WAYS[way][1] or threads == "main-loop"]


@pytest.mark.parametrize("way, threads", CASES)
def test_migration(
    disk: Start, stack: ExitStack, scsi_boot: Boot, arena: Path, scratch: Path, way: str, threads: str,
) -> None:
    """Over a Unix socket, the disk shared: what the source held is done by the destination; the guest verifies its data."""
    from_boot, to_boot = (boot_of(scsi_boot, patched) for patched in WAYS[way])
    shared: Disk = disk(service_us=2000)
    fg = stack.enter_context(Machine(scsi_boot, "foreground", attach(shared, "foreground", arena)))
    fg.guest.load(intensity=70, seconds=FOREVER_SECONDS)
    socket = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "socket"

    def mover(name: str, its_boot: Boot, extra: list[str], device_class: str, **resource: object) -> Machine:
        its_arena = arena if has_idletime(its_boot.qemu) else None
        arguments = attach(shared, name, its_arena, device_class, THREADS[threads], scsi=True,
                           **(resource if its_arena else {}))
        return Machine(its_boot, name, [*extra, *iothread(threads), *arguments], wait_for_guest=not extra)

    source = stack.enter_context(mover("source", from_boot, [], "background", **LONG_HOLD))
    target = stack.enter_context(
        mover("target", to_boot, ["-incoming", f"unix:{socket}"], "background", interval_us=7000, max_hold_ms=MAX_HOLD_MS))
    scsi.wait_for_disk(source)
    verify.start(source.guest, scsi.DISK, span_bytes=SPAN_BYTES, threads=8)
    served_again(shared, "source", 1)
    if WAYS[way][0]:
        wait_for_held(source)
    source.qmp.execute("migrate", uri=f"unix:{socket}")
    wait_for_migration(source)
    wait_until_running(target)
    served_again(shared, "target")
    assert verify.running(target.guest)
    report = verify.end(target.guest)
    assert report["errors"] == 0 and report["verified_bytes"] > 0
