"""Observers, disks and loads for the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.framework import paths

PROGRAM = paths.BUILD / "stage" / "bin" / "idletime-observer"
SECONDS = 10.0
"""For what takes milliseconds on a quiet machine."""
HEALED = 1.2 if os.environ.get("IDLETIME_FULL") else 3.0
"""Within a second of idle nothing is left in service, whatever was lost; the rest is for who looks, and for a busy host."""

WRITER = """
import mmap, os, sys
disk, requests, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(disk, os.O_RDWR | os.O_DIRECT)
buffer = mmap.mmap(-1, size)
for at in range(requests):
    os.pwrite(fd, buffer, at % 1024 * size)
"""


def remove(arena: Path) -> None:
    """Under the feet of those who work in it: they may make and remove files meanwhile."""
    aside = arena.with_name(f"{arena.name}.removed-{time.monotonic_ns()}")
    arena.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def wait_until(what: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Returns when it is so; fails when it does not become so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)


class Observer:
    """One process of the program; ready when constructed, if it is expected to be."""

    def __init__(self, arena: Path, *options: str, ready: bool = True, prefix: Sequence[str] = ()) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by close()
        self.process = subprocess.Popen(
            [*prefix, str(PROGRAM), "--arena", str(arena), *options],
            stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert (line == "ready\n") == ready, f"said {line!r}; {self.said()}"

    def said(self) -> str:
        """What it wrote to stderr so far."""
        self.errors.seek(0)
        return self.errors.read()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """Nothing of it is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.errors.close()


@contextmanager
def loop_device() -> Iterator[str]:
    """A loop device over a file of 64 MiB in memory: fast, and the kernel's block layer sees it."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="idletime-observer-") as file:
        file.truncate(64 << 20)
        argv = ["losetup", "--find", "--show", file.name]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        device = done.stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


def write(disk: str, requests: int, size: int = 4096, group: Path | None = None) -> None:
    """Direct writes one after the other, by a process of its own, perhaps in a cgroup."""
    argv = ["python3", "-c", WRITER, disk, str(requests), str(size)]
    subprocess.run(argv, check=True, preexec_fn=partial(_join, group))


def _join(group: Path | None) -> None:
    """In a child, before its program: what it asks of a disk is this cgroup's."""
    if group:
        (group / "cgroup.procs").write_text(str(os.getpid()))


def fio(disk: str, *options: str) -> str:
    """A run of fio on the disk; its terse output."""
    argv = ["fio", f"--filename={disk}", "--direct=1", "--ioengine=libaio", "--name=load", "--output-format=terse", *options]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@contextmanager
def load(disk: str, group: Path | None = None, *options: str) -> Iterator[None]:
    """Reads and writes on the disk as long as the block runs, perhaps by a cgroup; more options of fio."""
    fio_argv = ["fio", f"--filename={disk}", "--direct=1", "--ioengine=libaio", "--name=load", "--rw=randrw", "--iodepth=16",
                "--time_based", "--runtime=600", "--size=32M", "--output=/dev/null", *options]
    process = subprocess.Popen(
        fio_argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=partial(_join, group))
    try:
        yield
    finally:
        process.terminate()
        process.wait()
