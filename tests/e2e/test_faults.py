"""Disks that fail while background requests are held: the guest sees what it would see without us, and loses nothing."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_disk import Start
from tests.e2e.test_life import MAX_HOLD_MS, REPETITIONS, SPAN_BYTES, hold_figures, wait_for_held
from tests.e2e.test_neighbours import FOREVER_SECONDS, served_again
from tests.framework import holds, verify
from tests.framework.ledger import note
from tests.framework.qemu import Machine
from tests.testbed.attach import DEVICE
from tests.testbed.disk import Disk, Model

POLICIES: dict[str, tuple[dict[str, str], str]] = {
    "report": ({"werror": "report", "rerror": "report"}, "EIO"),
    "stop": ({"werror": "stop", "rerror": "stop"}, "EIO"),
    "enospc": ({"werror": "enospc", "rerror": "report"}, "ENOSPC"),
}
"""The device's options, and the error that the disk answers with. werror=ignore loses data by design: machine tests."""


def pair(machine: Start, shared: Disk, **device: Any) -> tuple[Machine, Machine]:
    """A foreground that is busy half of the time, and a background guest that verifies its data."""
    fg = machine(shared, "foreground", "foreground")
    bg = machine(shared, "background", "background", max_hold_ms=MAX_HOLD_MS, device=device)
    fg.guest.load(intensity=50, seconds=FOREVER_SECONDS)
    holds.watch(bg, DEVICE)
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    return fg, bg


def test_server_killed_and_restarted(stack: ExitStack, machine: Start) -> None:
    """The storage server crashes and comes back: requests in service are sent again, held ones wait."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    shared = stack.enter_context(
        Disk(Model(service_us=2000), image=folder / "image", reconnect_seconds=60))
    _, bg = pair(machine, shared)
    for _ in range(REPETITIONS):
        wait_for_held(bg)
        shared.kill()
        shared.revive()
        served_again(shared, "foreground")
        served_again(shared, "background")
    report = verify.end(bg.guest)
    assert report["errors"] == 0
    note("storage server killed and restarted", REPETITIONS, verified_bytes=report["verified_bytes"])


def wait_for_stop(machine: Machine) -> None:
    """Return when an I/O error has stopped the VM."""
    end = time.monotonic() + 30
    while machine.qmp.execute("query-status")["status"] != "io-error":
        assert time.monotonic() < end, "the VM does not stop"
        time.sleep(0.01)


@pytest.mark.parametrize("policy", POLICIES)
def test_errors(stack: ExitStack, machine: Start, policy: str) -> None:
    """The disk fails every write, and reads too, for a while: reported to the guest, or the VM stops and goes on."""
    device, error = POLICIES[policy]
    trigger = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "fail"
    rates = ["error-pwrite-rate=100%"] + ([] if policy == "enospc" else ["error-pread-rate=100%"])
    filters = {"error": [f"error={error}", f"error-file={trigger}", *rates]}
    shared = stack.enter_context(Disk(Model(service_us=2000), filters=filters))
    _, bg = pair(machine, shared, **device)
    for _ in range(REPETITIONS):
        wait_for_held(bg)
        trigger.touch()
        if policy == "report":
            # Failed ones do not reach the log of the disk behind the filter.
            errors = bg.qmp.execute("query-blockstats")[0]["stats"]["failed_wr_operations"]
            end = time.monotonic() + 30
            while bg.qmp.execute("query-blockstats")[0]["stats"]["failed_wr_operations"] == errors:
                assert time.monotonic() < end, "no write failed"
        else:
            wait_for_stop(bg)
        trigger.unlink()
        if policy != "report":
            bg.qmp.execute("cont")
        served_again(shared, "background")
    hold = hold_figures(bg)
    report = verify.end(bg.guest)
    assert (report["errors"] > 0) == (policy == "report")
    note(f"{error} with werror={device['werror']}", REPETITIONS, verified_bytes=report["verified_bytes"], **hold)
