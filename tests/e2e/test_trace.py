"""QEMU's trace log as a picture: each request of a background guest, and which of them collided, beside the foreground's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.e2e.test_scsi import scsi_boot, scsi_machine  # noqa: F401  (fixtures)
from tests.framework import paths
from tests.testbed import scsi

EVENTS = ("idletime_*", "virtio_blk_idletime_hold", "virtio_blk_handle_read", "virtio_blk_handle_write",
          "virtio_blk_req_complete", "virtio_scsi_cmd_req", "virtio_scsi_cmd_resp")
"""As idletime-qemu(7) has them."""

SLACK_US = 1000.0
"""Between the foreground's event on the board and its line in the log; more on a busy host, see RARE."""

RARE = 0.1


@pytest.fixture
def traced(scratch: Path, stack: Any) -> Callable[[str], list[str]]:
    """QEMU's options that log the events of one machine."""
    def options(name: str) -> list[str]:
        log = scratch / f"{name}.log"
        stack.callback(log.unlink)
        return ["-D", str(log), "-msg", "timestamp=on", *(word for event in EVENTS for word in ("-trace", event))]
    return options


def converted(scratch: Path, *names: str) -> dict[str, Any]:
    """What `virt-idletime trace` makes of logs."""
    done = subprocess.run(["/usr/bin/python3", "-m", "idletime", "trace", *(str(scratch / f"{name}.log") for name in names)],
                          capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(paths.ROOT / "libvirt")})
    assert done.returncode == 0, done.stderr
    print(done.stderr, end="")  # shown by -rP
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def drawn(picture: dict[str, Any], process: str, track: str) -> list[tuple[float, float, dict[str, Any]]]:
    """Begin, end and event of all slices of a track."""
    (pid,) = [one["pid"] for one in picture["traceEvents"] if one["name"] == "process_name" and one["args"]["name"] == process]
    return [(one["ts"], one["ts"] + one["dur"], one) for one in picture["traceEvents"]
            if one["ph"] == "X" and one["pid"] == pid and one["cat"].endswith(track)]


def test_a_collision_is_seen(disk: Any, machine: Any, traced: Callable[[str], list[str]], scratch: Path) -> None:
    """Those in service that a request of the foreground met are collisions, and no others; held until they are in service."""
    shared = disk(service_us=5000)
    fg, bg = (machine(shared, name, name, interval_us=20000, extra=traced(name)) for name in ("foreground", "background"))
    loads = [bg.guest.load(outstanding=4, seconds=5), fg.guest.load(intensity=30, seconds=5)]
    reports = [load.result() for load in loads]
    (counted,) = bg.qmp.execute("query-idletime")
    for each in (fg, bg):
        each.stop()  # the log is whole

    picture = converted(scratch, "foreground", "background")
    met = drawn(picture, "foreground", "foreground")
    served, held = drawn(picture, "background", "in service"), drawn(picture, "background", "held")
    collided = [one for one in served if one[2]["name"] == "collision"]
    assert len(met) >= reports[1]["operations"] and len(served) == len(held) == counted["devices"][0]["background"]["requests"]
    assert 0 < len(collided) <= counted["collisions"]

    def meets(begin: float, end: float) -> bool:
        return any(begin - SLACK_US <= ts <= end + SLACK_US for ts, *_ in met)
    assert sum(not meets(begin, end) for begin, end, _ in collided) <= RARE * len(collided)
    alone = [one for one in served if one not in collided]
    assert sum(meets(begin + SLACK_US, end - SLACK_US) for begin, end, _ in alone) <= RARE * len(alone)
    # What is released is in service, one after the other (max-inflight is 1).
    served.sort(key=lambda one: one[0])
    held.sort(key=lambda one: one[1])
    assert sum(abs(one[1] - its[0]) > SLACK_US for one, its in zip(held, served)) <= RARE * len(held)
    assert all(early[1] - SLACK_US <= late[0] for early, late in zip(served, served[1:]))


def test_scsi(disk: Any, scsi_machine: Any, traced: Callable[[str], list[str]], scratch: Path) -> None:  # noqa: F811
    """Each command of the foreground is there, and the background's collisions meet one."""
    shared = disk(service_us=5000)
    fg, bg = (scsi_machine(shared, name, name, interval_us=20000, extra=traced(name)) for name in ("foreground", "background"))
    loads = [bg.guest.load(device=scsi.DISK, outstanding=4, seconds=2), fg.guest.load(device=scsi.DISK, intensity=30, seconds=2)]
    reports = [load.result() for load in loads]
    for each in (fg, bg):
        each.stop()
    picture = converted(scratch, "foreground", "background")
    met = [one for one in drawn(picture, "foreground", "scsi") if one[2]["name"] == "read"]
    collided = [one for one in drawn(picture, "background", "in service") if one[2]["name"] == "collision"]
    assert len(met) >= reports[1]["operations"] > 0 and collided
    alone = [(begin, end) for begin, end, _ in collided
             if not any(begin - SLACK_US <= ts <= end + SLACK_US for ts, *_ in met)]
    assert len(alone) <= RARE * len(collided)


def test_a_log_without_times(scratch: Path) -> None:
    log = scratch / "old.log"
    log.write_text("idletime_gate_done participant bg/vda service_ns 5 collision 0\n")
    try:
        with pytest.raises(AssertionError, match=r"does not say when its events were; remedy: .*timestamp=on"):
            converted(scratch, "old")
    finally:
        log.unlink()
