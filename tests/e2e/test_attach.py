"""Live attach: a VM that was started with no idletime at all becomes background while its guest works, and stock again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_disk import Start, info
from tests.e2e.test_life import SPAN_BYTES, THREADS, device, wait_for_held
from tests.e2e.test_neighbours import FOREVER_SECONDS, served_again
from tests.framework import verify
from tests.framework.ledger import note
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import DEVICE, RESOURCE, attach
from tests.testbed.disk import Disk

ROUNDS = 20
"""Of attach and detach under load."""


def background(machine: Machine) -> None:
    """Attach the disk of a running VM."""
    arguments: dict[str, Any] = {"device": DEVICE, "resource": RESOURCE, "class": "background"}
    machine.qmp.execute("idletime-attach", **arguments)


def detach(machine: Machine) -> None:
    """Detach it, and wait until the resource has no device."""
    machine.qmp.execute("idletime-detach", device=DEVICE)
    end = time.monotonic() + 30
    while info(machine)["devices"]:
        assert time.monotonic() < end, f"still attached: {device(machine)}"


@pytest.mark.parametrize("threads", THREADS)
def test_attach_and_detach_under_load(disk: Start, stack: ExitStack, boot: Boot, arena: Path, threads: str) -> None:
    """Beside a busy foreground: attached it is held, detached it is not; the guest finds all that it wrote."""
    shared: Disk = disk(service_us=2000)
    fg = stack.enter_context(Machine(boot, "foreground", attach(shared, "foreground", arena)))
    options: dict[str, Any] = THREADS[threads]
    extra = ["-object", "iothread,id=io0"] if options else []
    bg = stack.enter_context(Machine(boot, "background", [*extra, *attach(shared, "background", None, device=options)]))
    fg.guest.load(intensity=70, seconds=FOREVER_SECONDS * 10)
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    assert bg.qmp.execute("query-idletime") == []

    bg.qmp.execute("object-add", qom_type="idletime-resource", id=RESOURCE, path=str(arena), interval_us=20_000,
                   max_hold_ms=60_000)
    for number in range(ROUNDS):
        background(bg)
        # All of its load, which goes on without end, is held sooner or later: 70 % foreground leaves 30 ms at a time.
        wait_for_held(bg)
        assert device(bg)["class"] == "background"
        if number == 0:
            shared_before = device(bg)["background"]["requests"]
            served_again(shared, "background", 3)
            assert device(bg)["background"]["requests"] > shared_before
            assert device(bg)["promotions"]["class-change"] == 0
        detach(bg)
        served_again(shared, "background", 3)
        assert verify.running(bg.guest), f"the load ended in round {number}"
    bg.qmp.execute("object-del", id=RESOURCE)
    assert bg.qmp.execute("query-idletime") == []
    report = verify.end(bg.guest)
    assert report["errors"] == 0 and report["verified_bytes"] > 0
    note(f"attach and detach under load ({threads})", ROUNDS, verified_bytes=report["verified_bytes"])
