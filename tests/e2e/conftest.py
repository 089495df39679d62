"""Fixtures: disks, machines and arenas that end with their test, and the proof that they did."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Callable, Iterator, Sequence

import pytest

from tests.framework import accel
from tests.framework.qemu import Boot, Machine, has_idletime
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model


@pytest.fixture(scope="session")
def boot() -> Boot:
    """QEMU, kernel and initramfs that all machines share."""
    result = accel.prepare()
    if not has_idletime(result.qemu):
        pytest.exit(f"{result.qemu} is not a patched QEMU: build one with `make qemu`", returncode=2)
    return result


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where all temporary files of this test go: a short name, as socket paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def children() -> list[str]:
    """Our child processes, as "pid command"."""
    pids = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [f"{pid} {Path('/proc', pid, 'comm').read_text().strip()}" for pid in pids]


@pytest.fixture
def stack(scratch: Path) -> Iterator[ExitStack]:
    """What a test starts; afterwards no child process and no file of it may be left."""
    before = children()
    with ExitStack() as started:
        yield started
    assert children() == before, "these child processes are left"
    assert list(scratch.iterdir()) == [], "these files are left"


@pytest.fixture
def arena(stack: ExitStack) -> Path:
    """The path of an arena that does not exist yet."""
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arena-"))) / "disk0"


@pytest.fixture
def disk(stack: ExitStack) -> Callable[..., Disk]:
    """Start a disk: disk(service_us=1000); parameters are those of Model."""
    return lambda **parameters: stack.enter_context(Disk(Model(**parameters)))


@pytest.fixture
def machine(stack: ExitStack, boot: Boot, arena: Path) -> Callable[..., Machine]:
    """Boot a participant: machine(disk, "bg1", "background", interval_us=5000, weight=200).

    `extra` are QEMU options that come before those of the disk.
    """

    def start(
        shared: Disk, name: str, device_class: str, cpus: int = 1, machine: str = "q35",
        extra: Sequence[str] = (), **parameters: object,
    ) -> Machine:
        # What the device refers to comes before it.
        arguments = [*extra, *attach(shared, name, arena, device_class, **parameters)]  # type: ignore[arg-type]
        return stack.enter_context(Machine(boot, name, arguments, machine=machine, cpus=cpus))

    return start
