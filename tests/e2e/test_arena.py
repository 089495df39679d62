"""The arena's filesystem under running VMs: full, and mounted read-only. Deleted, truncated, scribbled: test_neighbours."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator

import pytest

from tests.e2e.test_disk import info
from tests.e2e.test_life import MAX_HOLD_MS, SPAN_BYTES
from tests.e2e.test_neighbours import FOREVER_SECONDS, delete, served_again, wait_for_state
from tests.framework import verify
from tests.framework.ledger import note
from tests.framework.qemu import Boot, Machine
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    """A host command."""
    return subprocess.run(argv, capture_output=True, text=True)


@pytest.fixture
def small(stack: ExitStack) -> Iterator[Path]:
    """A tmpfs with room for one arena and little more."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    if run("mount", "-t", "tmpfs", "-o", "size=256k", "idletime-test", str(folder)).returncode != 0:
        pytest.skip("mounting a tmpfs needs root and CAP_SYS_ADMIN")
    stack.callback(run, "umount", "-l", str(folder))
    yield folder


def pair(stack: ExitStack, boot: Boot, arena: Path) -> tuple[Disk, Machine, Machine]:
    """A foreground and a verifying background on this arena."""
    shared = stack.enter_context(Disk(Model(service_us=2000)))
    fg = stack.enter_context(Machine(boot, "foreground", attach(shared, "foreground", arena)))
    bg = stack.enter_context(
        Machine(boot, "background", attach(shared, "background", arena, "background", max_hold_ms=MAX_HOLD_MS)))
    fg.guest.load(intensity=20, seconds=FOREVER_SECONDS)
    verify.start(bg.guest, span_bytes=SPAN_BYTES)
    served_again(shared, "background")
    return shared, fg, bg


def test_full_filesystem(stack: ExitStack, boot: Boot, small: Path) -> None:
    """The arena is lost and its filesystem is full: promotions only, until there is room again."""
    shared, fg, bg = pair(stack, boot, small / "disk0")
    filler = small / "filler"
    delete(small / "disk0")
    while True:
        try:
            with filler.open("ab", buffering=0) as file:
                file.write(bytes(4096))
        except OSError:
            break
    wait_for_state(bg, lambda state: state == "lost")
    before = info(bg)["devices"][0]["promotions"]["deadline"]
    served_again(shared, "foreground")
    served_again(shared, "background", 8)
    assert info(bg)["devices"][0]["promotions"]["deadline"] > before
    filler.unlink()
    wait_for_state(bg, lambda state: state != "lost")
    served_again(shared, "foreground")
    served_again(shared, "background", 50)
    report = verify.end(bg.guest)
    assert report["errors"] == 0
    note("arena's filesystem full", 1, verified_bytes=report["verified_bytes"])


def test_read_only(stack: ExitStack, boot: Boot, small: Path) -> None:
    """Under running VMs the kernel refuses to remount; a read-only mount over the arena changes nothing for them."""
    shared, fg, bg = pair(stack, boot, small / "disk0")
    assert run("mount", "-o", "remount,ro", str(small)).returncode != 0, "the boards are mapped writable"
    arena = str(small / "disk0")
    assert run("mount", "--bind", arena, arena).returncode == 0
    stack.callback(run, "umount", "-l", arena)
    assert run("mount", "-o", "remount,bind,ro", arena).returncode == 0
    served_again(shared, "foreground")
    served_again(shared, "background", 50)
    assert info(bg)["state"] != "lost"
    # One that comes later says what it misses.
    late = Machine(boot, "late", attach(shared, "late", small / "disk0"), wait_for_guest=False)
    with pytest.raises(Exception, match="Read-only file system"), late:
        pass
    report = verify.end(bg.guest)
    assert report["errors"] == 0 and fg.process.running()
    note("arena mounted read-only", 1, verified_bytes=report["verified_bytes"])
