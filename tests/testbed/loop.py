"""The shared disk as a file of the host (nbdfuse), and as a block device (a loop device on that): the kernel's schedulers see it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.framework.process import Process
from tests.testbed.disk import Disk

CONNECTIONS = 8
"""Requests of the loop device that the disk sees at a time, over all clients."""

CONNECTIONS_MAX = 10
"""libfuse has no more threads for one mount."""

START_SECONDS = 10.0


def missing() -> str | None:
    """What this machine lacks for a LoopDisk, with the remedy; None: nothing."""
    for tool, package in (("nbdfuse", "nbdfuse"), ("losetup", "mount"), ("fusermount3", "fuse3")):
        if not shutil.which(tool):
            return f"`{tool}` is missing: install {package} (`make deps`)"
    if not Path("/dev/loop-control").exists() or not Path("/dev/fuse").exists():
        return "/dev/loop-control or /dev/fuse is missing: the kernel's schedulers cannot be compared here"
    return None


@dataclass
class MountedDisk:
    """A context manager: enter mounts the disk as a file, leave removes the mount and the process."""

    disk: Disk
    client: str
    """The name under which the disk's log knows all that comes through here."""
    connections: int = CONNECTIONS

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="idletime-"))
        self._process: Process | None = None
        try:
            self._enter()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()

    @property
    def file(self) -> Path:
        """The disk."""
        return self._folder / "mount" / "disk"

    def _enter(self) -> None:
        (self._folder / "mount").mkdir()
        uri = f"nbd+unix:///{self.client}?socket={self.disk.socket}"
        self._process = Process(["nbdfuse", "-C", str(self.connections), str(self.file), uri], self._folder / "log")
        end = time.monotonic() + START_SECONDS
        while not self.file.exists():
            if time.monotonic() > end or not self._process.running():
                raise self._process.error("nbdfuse did not mount the disk")
            time.sleep(0.02)

    def _leave(self) -> None:
        if self._process:
            subprocess.run(["fusermount3", "-u", str(self._folder / "mount")], capture_output=True, timeout=30)
            self._process.stop()
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass
class LoopDisk(MountedDisk):
    """The same with a block device."""

    device: str = field(init=False, default="")

    def _enter(self) -> None:
        super()._enter()
        self.device = self._losetup("--find", "--show", "--direct-io=on", "--sector-size=512", str(self.file))
        self.elevator("none")  # whoever had this device before may have left another one

    def _leave(self) -> None:
        if self.device:
            self.elevator("none")
            self._losetup("--detach", self.device)
            self.device = ""
        super()._leave()

    @property
    def queue(self) -> Path:
        """The folder of the device's queue settings in sysfs."""
        return Path("/sys/block") / Path(self.device).name / "queue"

    def elevator(self, name: str) -> None:
        """Choose the kernel's scheduler; ValueError where this kernel lacks it."""
        scheduler = self.queue / "scheduler"
        if name not in scheduler.read_text().replace("[", "").replace("]", "").split():
            raise ValueError(f"this kernel has no I/O scheduler {name}: {scheduler} has {scheduler.read_text().strip()}")
        scheduler.write_text(name)

    def _losetup(self, *arguments: str) -> str:
        done = subprocess.run(["losetup", *arguments], capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise RuntimeError(f"losetup {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()
