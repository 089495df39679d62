"""Priority inversion in a guest: a foreground fsync beside held background writes of the same file system."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_disk import Start
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


@pytest.mark.parametrize("device_class", HOLD_MS)
def test_fsync_beside_held_writes(
    stack: ExitStack, ext4_boot: Boot, arena: Path, scratch: Path, device_class: str,  # noqa: F811
) -> None:
    """One process writes and syncs at idle priority all the time; another one's fsync is not its victim."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    new_filesystem(folder / "image")
    shared = stack.enter_context(Disk(Model(service_us=1000, size="48M"), image=folder / "image"))
    marks = stack.enter_context(Disk(Model(service_us=0, size="1M")))
    fg = stack.enter_context(Machine(ext4_boot, "foreground", attach(shared, "foreground", arena)))
    # Nothing is released by the interval: what is not promoted is held to its deadline.
    arguments = attach(shared, "mixed", arena, device_class, interval_us=60_000_000, max_hold_ms=HOLD_MS[device_class])
    arguments += ["-blockdev", marks.blockdev("marks", "marks"), "-device", "virtio-blk-pci,drive=marks"]
    mixed = stack.enter_context(Machine(ext4_boot, "mixed", arguments))
    fg.guest.load(intensity=50, seconds=FOREVER_SECONDS)
    mixed.guest.run("mkdir /mnt; mount -t ext4 /dev/vda /mnt; mkdir /mnt/count", 60)
    # Nobody reads metadata for the first time later: a held read under a directory's lock is a wait of its own.
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
