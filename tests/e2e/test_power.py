"""Power cuts: whatever a guest was told to be on the disk is there, in every state that a loss of power may leave."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_disk import Start
from tests.e2e.test_life import device
from tests.e2e.test_migration import boot_of
from tests.e2e.test_neighbours import FOREVER_SECONDS
from tests.framework import accel, paths
from tests.framework.ledger import note
from tests.framework.qemu import Boot, Machine
from tests.testbed import power
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import WRITE

FILES = 8
"""As many counters as idleverify has."""

SIZE_MIB = 48
STATES = int(os.environ.get("IDLETIME_POWER_STATES", "10"))
"""Losses of power that one run is tried with: one at its end, the others at random times before."""

SYNCED = 60
"""Files that must have been synced before the end; enough for several commits of the journal."""


@pytest.fixture(scope="session")
def ext4_boot(boot: Boot) -> Boot:
    """A guest that can mount ext4."""
    return accel.with_modules(boot, ["crc32c_generic", "ext4"])


def new_filesystem(path: Path) -> bytes:
    """An empty ext4 in a file; returns its content."""
    path.write_bytes(b"")
    os.truncate(path, SIZE_MIB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-b", str(power.BLOCK_BYTES), str(path)], check=True)
    return path.read_bytes()


def check(state: bytearray, folder: Path) -> list[int]:
    """Repair as a boot does (journal, orphans), insist on a clean filesystem then; returns what the counters say."""
    image, dump = folder / "state", folder / "dump"
    image.write_bytes(state)
    preen = subprocess.run(["e2fsck", "-p", str(image)], capture_output=True, text=True)
    assert preen.returncode in (0, 1), f"e2fsck -p: {preen.stdout}{preen.stderr}"
    full = subprocess.run(["e2fsck", "-f", "-n", str(image)], capture_output=True, text=True)
    assert full.returncode == 0, f"e2fsck -fn: {full.stdout}{full.stderr}"
    shutil.rmtree(dump, ignore_errors=True)
    dump.mkdir()
    subprocess.run(["debugfs", "-R", f"rdump / {dump}", str(image)], check=True, capture_output=True)
    tool = paths.find_tool("idleverify", "loadgen")
    text = subprocess.run([str(tool), "check", "--directory", str(dump), "--files", str(FILES)], check=True,
                          capture_output=True, text=True).stdout
    shutil.rmtree(dump)
    image.unlink()
    return [int(word) for word in text.split()]


def run_until_cut(stack: ExitStack, its_boot: Boot, its_arena: Path | None, shared: Disk, marks: Disk) -> None:
    """A guest writes and syncs files until it has enough; then its QEMU is killed."""
    arguments = attach(shared, "background", its_arena, "background", **({"max_hold_ms": 200} if its_arena else {}))
    arguments += ["-blockdev", marks.blockdev("marks", "marks"), "-device", "virtio-blk-pci,drive=marks"]
    machine = stack.enter_context(Machine(its_boot, "background", arguments))
    machine.guest.run("mkdir /mnt; mount -t ext4 /dev/vda /mnt")
    # Data that nobody syncs, so that there is always something to lose.
    machine.guest.run("(while :; do dd if=/dev/urandom of=/mnt/noise bs=4k count=256 conv=notrunc; done) >/dev/null 2>&1 &")
    machine.guest.run(f"idleverify count --directory /mnt --marks /dev/vdb --files {FILES} --seconds 3000 >/dev/null 2>&1 &")
    marks.wait_for(0, lambda log: int((log["operation"] == WRITE).sum()) >= SYNCED, 120)
    if its_arena:
        assert device(machine)["hold"]["max-us"] > 0, "nothing was held"
    machine.process.kill()
    machine.process.wait(10)


@pytest.mark.parametrize("patched", [True, False], ids=["patched", "stock"])
def test_power_cut(disk: Start, stack: ExitStack, ext4_boot: Boot, arena: Path, scratch: Path, patched: bool) -> None:
    """ext4 on a background disk: no corruption, and each file at least as new as its last fsync."""
    seed = int(os.environ.get("IDLETIME_SEED", "1"))
    dice = random.Random(seed)
    its_boot = boot_of(ext4_boot, patched)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    base = new_filesystem(folder / "image")
    model = Model(service_us=300, size=f"{SIZE_MIB}M")
    shared = stack.enter_context(Disk(model, image=folder / "image", keep_data=True))
    marks = stack.enter_context(Disk(Model(service_us=0, size="1M"), keep_data=True))
    fg = stack.enter_context(Machine(ext4_boot, "foreground", attach(shared, "foreground", arena)))
    fg.guest.load(intensity=40, seconds=FOREVER_SECONDS)
    run_until_cut(stack, its_boot, arena if patched else None, shared, marks)

    log, data = shared.read(), shared.data_log.read_bytes()
    mark_log, mark_data = marks.read(), marks.data_log.read_bytes()
    first, last = int(mark_log["arrival_ns"][0]), int(log["arrival_ns"][-1])
    for number in range(STATES):
        at_ns = dice.randint(first, last) if number else last
        state = power.after_loss(base, log, data, at_ns, dice)
        found, promised = check(state, folder), power.marks(mark_log, mark_data, at_ns, FILES)
        assert all(have >= said for have, said in zip(found, promised)), (
            f"seed {seed}, state {number}: synced {promised}, found {found}")
    note(f"power cut ({'patched' if patched else 'stock'})", 1, states=STATES, seed=seed,
         verified_bytes=STATES * FILES * 8 * power.BLOCK_BYTES)
