"""Fixtures: disks, machines and arenas that end with their test, and the proof that they did."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import pytest

from tests.framework import accel, run_folder
from tests.framework.qemu import Boot, Machine, has_idletime, has_idletime_net
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model
from tests.testbed.link import Link, Model as LinkModel
from tests.testbed.namespace import NamespaceError
from tests.testbed.nic import NetMachine, attach_nic, configure


def pytest_configure(config: pytest.Config) -> None:
    """Files of a run that is killed go with it; those of a worker of pytest-xdist are in the folder of the run."""
    if not hasattr(config, "workerinput"):
        run_folder.guard()


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


@pytest.fixture(scope="session")
def net_boot() -> Boot:
    """As `boot`, for guests with a NIC."""
    result = accel.prepare(network=True)
    if not has_idletime_net(result.qemu):
        pytest.exit(f"{result.qemu}: its virtio-net is not a patched one: build one with `make qemu`", returncode=2)
    return result


@pytest.fixture
def link(stack: ExitStack) -> Callable[..., Link]:
    """Build a network: link(rate_mbit=10); parameters are those of its Model. Skips for users who may not."""

    def build(**parameters: Any) -> Link:
        try:
            return stack.enter_context(Link(LinkModel(**parameters)))
        except NamespaceError as error:
            if os.geteuid() == 0:
                raise
            pytest.skip(str(error))

    return build


@pytest.fixture
def nic(stack: ExitStack, net_boot: Boot, arena: Path) -> Callable[..., NetMachine]:
    """Boot a participant of an uplink: nic(link, "bg", "background", queues=2, interval_us=5000)."""

    def start(shared: Link, name: str, device_class: str, queues: int = 1, **parameters: Any) -> NetMachine:
        tap = shared.add_tap(name, queues)
        arguments = attach_nic(tap, arena, device_class, **parameters)
        machine = stack.enter_context(Machine(net_boot, name, arguments, tap.fds, cpus=queues))
        shared.release(tap)
        configure(machine.guest, tap)
        return NetMachine(machine, tap)

    return start
