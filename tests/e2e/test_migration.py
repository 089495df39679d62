"""Migration while requests are held: patched and unpatched QEMU in both directions; the guest verifies its data."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_disk import Start, info
from tests.e2e.test_life import MAX_HOLD_MS, REPETITIONS, SPAN_BYTES, THREADS, device, wait_for_held
from tests.e2e.test_neighbours import FOREVER_SECONDS, served_again
from tests.framework import paths, verify
from tests.framework.ledger import note
from tests.framework.qemu import Boot, Machine, has_idletime
from tests.testbed.attach import attach
from tests.testbed.disk import Disk

UNPATCHED = paths.BUILD / "unpatched" / "stage" / "bin" / "qemu-system-x86_64"
"""What `make qemu-unpatched` builds."""

WAYS = {"patched to patched": (True, True), "patched to unpatched": (True, False),
        "unpatched to patched": (False, True)}

LONG_HOLD = {"interval_us": 60_000_000, "max_hold_ms": 2000}
"""On the source: whatever is not held longer than this is held when the migration stops the VM."""


def boot_of(boot: Boot, patched: bool) -> Boot:
    """The same guest on the QEMU that is asked for."""
    if patched:
        return boot
    if not UNPATCHED.exists():
        pytest.skip(f"{UNPATCHED} is not built: `make qemu-unpatched`")
    assert not has_idletime(UNPATCHED)
    return Boot(UNPATCHED, boot.kernel, boot.initramfs, boot.accel)


def iothread(threads: str) -> list[str]:
    """The object that the device refers to."""
    return ["-object", "iothread,id=io0"] if THREADS[threads] else []


def wait_for_migration(machine: Machine) -> dict[str, Any]:
    """Return when it is complete."""
    end = time.monotonic() + 60
    while (status := machine.qmp.execute("query-migrate"))["status"] != "completed":
        assert status["status"] != "failed" and time.monotonic() < end, status
        time.sleep(0.02)
    return status


def wait_until_running(machine: Machine) -> None:
    """Return when the destination has taken over."""
    end = time.monotonic() + 60
    while not machine.qmp.execute("query-status")["running"]:
        assert time.monotonic() < end, machine.context()
        time.sleep(0.02)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("way", WAYS)
def test_migration(
    disk: Start, stack: ExitStack, boot: Boot, arena: Path, scratch: Path, way: str, threads: str,
) -> None:
    """Over a Unix socket, the disk shared: what the source held is done by the destination, as its own options say."""
    from_boot, to_boot = (boot_of(boot, patched) for patched in WAYS[way])
    shared: Disk = disk(service_us=2000)
    fg = stack.enter_context(Machine(boot, "foreground", attach(shared, "foreground", arena)))
    fg.guest.load(intensity=70, seconds=FOREVER_SECONDS)
    socket = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "socket"

    def mover(name: str, its_boot: Boot, extra: list[str], device_class: str, **resource: object) -> Machine:
        its_arena = arena if has_idletime(its_boot.qemu) else None
        arguments = attach(shared, name, its_arena, device_class, THREADS[threads], **(resource if its_arena else {}))
        return Machine(its_boot, name, [*extra, *iothread(threads), *arguments], wait_for_guest=not extra)

    source = stack.enter_context(mover("source", from_boot, [], "background", **LONG_HOLD))
    target = stack.enter_context(
        mover("target", to_boot, ["-incoming", f"unix:{socket}"], "guest", interval_us=7000, max_hold_ms=MAX_HOLD_MS))
    verify.start(source.guest, span_bytes=SPAN_BYTES, threads=8)
    served_again(shared, "source", 1)
    if WAYS[way][0]:
        wait_for_held(source)
    if WAYS[way][1]:
        # Its counters are its own: from 0, whatever the source has done.
        assert device(target)["background"]["requests"] == 0 and device(target)["hold"]["max-us"] == 0
    source.qmp.execute("migrate", uri=f"unix:{socket}")
    wait_for_migration(source)
    wait_until_running(target)
    if WAYS[way][1]:
        found = info(target)
        assert device(target)["class"] == "guest" and found["interval-us"] == 7000
        assert found["max-hold-ms"] == MAX_HOLD_MS
    served_again(shared, "target")
    assert verify.running(target.guest)
    report = verify.end(target.guest)
    assert report["errors"] == 0 and report["verified_bytes"] > 0
    note(f"migration, {way} ({threads})", 1, verified_bytes=report["verified_bytes"])


def test_savevm_and_loadvm(disk: Start, stack: ExitStack, boot: Boot, arena: Path, scratch: Path) -> None:
    """The whole machine, its disk too, goes back in time while requests are held, and verifies its data there."""
    shared: Disk = disk(service_us=2000)
    fg = stack.enter_context(Machine(boot, "foreground", attach(shared, "foreground", arena)))
    fg.guest.load(intensity=95, seconds=FOREVER_SECONDS)
    image = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "image"
    subprocess.run([str(paths.STAGED_IMG), "create", "-q", "-f", "qcow2", str(image), "64M"],
                   check=True)
    arguments = [
        "-blockdev", f"driver=qcow2,node-name=disk,file.driver=file,file.filename={image}",
        "-object", f"idletime-resource,id=disk0,path={arena},auto=off,max-hold-ms={MAX_HOLD_MS}",
        "-device", "virtio-blk-pci,drive=disk,id=vd0,idletime=disk0,idletime-class=background",
    ]
    bg = stack.enter_context(Machine(boot, "background", arguments))
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    wait_for_held(bg)
    assert bg.qmp.execute("human-monitor-command", 60, command_line="savevm s") == ""
    for _ in range(REPETITIONS):
        wait_for_held(bg)
        assert bg.qmp.execute("human-monitor-command", 60, command_line="loadvm s") == ""
        assert verify.running(bg.guest)
    report = verify.end(bg.guest)
    assert report["errors"] == 0 and report["verified_bytes"] > 0
    note("savevm and loadvm", REPETITIONS, verified_bytes=report["verified_bytes"])
