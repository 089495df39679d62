"""Priority inversion in a guest: a foreground fsync beside held background writes of the same file system."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Callable

import pytest

from tests.e2e.test_life import device, wait_for_held
from tests.e2e.test_neighbours import FOREVER_SECONDS
from tests.e2e.test_power import FILES, ext4_boot, new_filesystem  # noqa: F401  (ext4_boot is a fixture)
from tests.framework.ledger import note
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model

COUNT_SECONDS = 8
HOLD_MS = {"guest": 8000, "background": 200}
"""A fsync of ours is a data write, a journal write and a flush, and for every other file a rename with a second sync.

Class guest: what is held leaves when the journal or a flush of the guest comes, so the bound is far below max-hold-ms.
Class background: each of the writes may be held for max-hold-ms, but the flush never is."""

BOUND_MS = {"guest": HOLD_MS["guest"] / 2, "background": 8 * HOLD_MS["background"] + 2000}

HEAD_MS = 500
"""Class guest: the first of what is held leaves after half a second, whatever max-hold-ms is."""

DIRECTORIES = 3
SLACK_MS = 1000
"""For the command to come into a guest under TCG, and its own requests."""


@pytest.fixture
def mixed_guest(stack: ExitStack, ext4_boot: Boot, arena: Path) -> Callable[..., Machine]:  # noqa: F811
    """Boots a guest with ext4 on a disk whose foreground, another VM, is busy; what is not promoted is held."""
    def boot(device_class: str, busy: dict[str, int]) -> Machine:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        new_filesystem(folder / "image")
        shared = stack.enter_context(Disk(Model(service_us=1000, size="48M"), image=folder / "image"))
        marks = stack.enter_context(Disk(Model(service_us=0, size="1M")))
        fg = stack.enter_context(Machine(ext4_boot, "foreground", attach(shared, "foreground", arena)))
        arguments = attach(shared, "mixed", arena, device_class, interval_us=60_000_000,
                           max_hold_ms=HOLD_MS[device_class])
        arguments += ["-blockdev", marks.blockdev("marks", "marks"), "-device", "virtio-blk-pci,drive=marks"]
        mixed = stack.enter_context(Machine(ext4_boot, "mixed", arguments))
        fg.guest.load(seconds=FOREVER_SECONDS, **busy)
        mixed.guest.run("mkdir /mnt; mount -t ext4 /dev/vda /mnt", 60)
        return mixed
    return boot


@pytest.mark.parametrize("device_class", HOLD_MS)
def test_fsync_beside_held_writes(mixed_guest: Callable[..., Machine], device_class: str) -> None:
    """One process writes and syncs at idle priority all the time; another one's fsync is not its victim."""
    mixed = mixed_guest(device_class, {"intensity": 50})
    mixed.guest.run("mkdir /mnt/count")
    # Nobody reads metadata for the first time later: a held read under a directory's lock has a test of its own.
    count = f"idleverify count --directory /mnt/count --marks /dev/vdb --files {FILES}"
    mixed.guest.run(f"dd if=/dev/zero of=/mnt/idle bs=64k count=16 conv=fsync; {count} --seconds 2", 120)
    mixed.guest.run("(while :; do ionice -c3 dd if=/dev/zero of=/mnt/idle bs=64k count=16 conv=notrunc,fsync; done)"
                    " >/dev/null 2>&1 &")
    wait_for_held(mixed)
    counted = json.loads(mixed.guest.run(f"{count} --seconds {COUNT_SECONDS}", 120).text)
    causes = device(mixed)["promotions"]
    assert counted["counted"] > 0 and counted["longest_us"] / 1000 < BOUND_MS[device_class], (counted, causes)
    if device_class == "guest":
        assert causes["journal"] + causes["flush"] > 0
    note(f"fsync beside held writes (class {device_class})", counted["counted"],
         longest_fsync_ms=counted["longest_us"] / 1000, bound_ms=BOUND_MS[device_class])


def test_lock_kept_across_a_held_read(mixed_guest: Callable[..., Machine]) -> None:
    """An idle process reads a directory for the first time; another one, that makes a file there, waits for its lock."""
    mixed = mixed_guest("guest", {"outstanding": 2})
    mixed.guest.run(f"for d in $(seq {DIRECTORIES}); do mkdir /mnt/$d; for f in $(seq 50); do : >/mnt/$d/$f; done; done;"
                    " sync", 120)
    longest_ms, reads = 0.0, 0
    for number in range(1, DIRECTORIES + 1):
        mixed.guest.run("umount /mnt; mount -t ext4 /dev/vda /mnt", 60)
        before = device(mixed)["promotions"]["deadline"]
        mixed.guest.run(f"(ionice -c3 ls /mnt/{number}) >/dev/null 2>&1 &")
        wait_for_held(mixed)
        begin = time.monotonic()
        mixed.guest.run(f": >/mnt/{number}/new", 60)
        took_ms = (time.monotonic() - begin) * 1000
        promoted = device(mixed)["promotions"]["deadline"] - before
        assert took_ms < max(promoted, 1) * HEAD_MS + SLACK_MS, (took_ms, promoted)
        longest_ms, reads = max(longest_ms, took_ms), max(reads, promoted)
    assert reads > 0
    note("file made beside a held read of its directory (class guest)", DIRECTORIES, longest_lock_ms=longest_ms,
         bound_ms=reads * HEAD_MS + SLACK_MS)
