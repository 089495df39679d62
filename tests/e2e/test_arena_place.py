"""QEMU changes its directory, its root directory or its user after its start: the arena stays the one it was given.

No guest runs. Two QEMUs with the same option share an arena; then devices are plugged and change their class, and the
arena is deleted under them, so that both have to find the new one.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

import pytest

from tests.framework import paths
from tests.framework.process import STOP_SECONDS
from tests.framework.qmp import Qmp

WAIT_SECONDS = 20.0
"""The arena is looked for once a second, and trusted a second after everybody has moved."""


@dataclass
class Quiet:
    """A QEMU without a guest, perhaps a daemon: known by the pid that it wrote down."""

    name: str
    pid: int
    qmp: Qmp

    def info(self) -> dict:
        """Its one resource."""
        return self.qmp.execute("query-idletime")[0]

    def boards(self) -> set[tuple[str, str]]:
        """Device and inode of the boards that it has mapped, and that still have a name."""
        lines = [line.split(maxsplit=5) for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines()]
        return {(fields[3], fields[4]) for fields in lines
                if len(fields) == 6 and fields[5].endswith(("/foreground", "/background"))}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll; the message names what did not come."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def gone(pidfd: int) -> None:
    """End a process that need not be our child, and wait for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            pass
        if select.select([pidfd], [], [], STOP_SECONDS)[0]:
            break
    os.close(pidfd)


def start(stack: ExitStack, folder: Path, name: str, path: str, options: Sequence[str]) -> Quiet:
    """Returns when QEMU is a daemon in its final place; `path` is relative to `folder`, or absolute."""
    pidfile, monitor = folder / f"{name}.pid", folder / f"{name}.qmp"
    argv = [str(paths.find_qemu()), "-name", name, "-nodefaults", "-display", "none", "-S", "-daemonize",
            "-pidfile", str(pidfile), "-qmp", f"unix:{monitor},server=on,wait=off",
            "-blockdev", "driver=null-co,node-name=d0", "-blockdev", "driver=null-co,node-name=d1",
            "-object", f"idletime-resource,id=r0,path={path}",
            "-device", "virtio-blk-pci,id=first,drive=d0,addr=0x5,idletime=r0", *options]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    pid = int(pidfile.read_text())
    stack.callback(gone, os.pidfd_open(pid))
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(str(monitor))
    qmp = Qmp(channel, name)
    stack.callback(qmp.close)
    return Quiet(name, pid, qmp)


def use_everything(qemu: Quiet) -> None:
    """Hotplug, and a live class that needs the background board for the first time."""
    qemu.qmp.execute("device_add", driver="virtio-blk-pci", id="second", drive="d1", addr="0x6", idletime="r0")
    qemu.qmp.execute("idletime-set", **{"device": "first", "class": "background"})
    assert [device["participants"] for device in qemu.info()["devices"]] == [2, 1]


def check(stack: ExitStack, folder: Path, path: str, options: Sequence[str]) -> None:
    """The whole story."""
    if os.geteuid() != 0:
        pytest.skip("changing the user or the root directory needs root")
    both = [start(stack, folder, name, path, options) for name in ("one", "two")]
    for qemu in both:
        use_everything(qemu)
    assert both[0].boards() == both[1].boards() and len(both[0].boards()) == 2
    before = both[0].boards()
    shutil.rmtree(folder / "arena")
    for qemu in both:
        wait_until(lambda: qemu.info()["state"] == "idle" and len(qemu.boards() - before) == 2,
                   f"{qemu.name} finds no new arena: {qemu.info()['state']}")
    assert both[0].boards() == both[1].boards()
    assert (folder / "arena" / "foreground").stat().st_ino in {int(inode) for _, inode in both[0].boards()}


@pytest.fixture
def folder(stack: ExitStack, scratch: Path) -> Path:
    """Everybody may write it; what a QEMU cannot remove any more, having lost sight of it, goes with it."""
    scratch.chmod(0o755)
    folder = scratch / "place"
    folder.mkdir()
    folder.chmod(0o777)
    stack.callback(shutil.rmtree, folder)
    return folder


def test_daemonize(stack: ExitStack, folder: Path) -> None:
    """A relative path: a daemon works in the root directory, in which others may have folders of any name."""
    before = set(Path("/").iterdir())
    check(stack, folder, "arena", [])
    assert set(Path("/").iterdir()) <= before


def test_chroot(stack: ExitStack, folder: Path) -> None:
    """Outside of the new root directory the arena is out of sight, and within it stays the same."""
    (folder / "root").mkdir()
    check(stack, folder, str(folder / "arena"), ["-run-with", f"chroot={folder}/root"])
    assert list((folder / "root").iterdir()) == []


def test_user(stack: ExitStack, folder: Path) -> None:
    """Claims go on with what root has opened."""
    check(stack, folder, str(folder / "arena"), ["-run-with", "user=nobody"])
