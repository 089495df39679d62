"""A backup program reads a running VM's disk through an NBD export, or an image through the storage daemon's, beside a foreground VM."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_disk import SLACK_NS, Start, not_held
from tests.framework import paths
from tests.framework.idletimed import wait_until
from tests.framework.qemu import Machine
from tests.framework.qmp import CommandError
from tests.framework.storage import StorageDaemon
from tests.testbed.attach import RESOURCE, options, settings
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import early, of_client

INTERVAL_US = 20_000
DISK_BYTES = 64 << 20
"""512 pieces of 5 ms, some 10 of them in each of the foreground's pauses: about 5 s."""

READ_SECONDS = 120.0
"""The rest is for a busy host."""

READERS = 8
"""Requests that qemu-img has in flight."""

EXPORT = "backup"


@dataclass
class Pair:
    """A foreground VM on a disk, `busy`, which has load; `read` is on the same disk and exports it."""

    disk: Disk
    busy: Machine
    read: Machine | StorageDaemon
    folder: Path

    @property
    def url(self) -> str:
        """Of the export."""
        return f"nbd+unix:///{EXPORT}?socket={self.folder}/nbd"

    def export(self) -> dict[str, Any]:
        """What query-idletime says of it."""
        (found,) = self.read.qmp.execute("query-idletime")[0]["exports"]
        assert isinstance(found, dict)
        return found

    def copy(self) -> None:
        """Read all of it with qemu-img, whose 8 requests in flight are of 2 MiB, beside bursts of the foreground; compare."""
        load = self.busy.guest.load(intensity=30, seconds=300)
        self.disk.wait_for(self.disk.mark(), lambda log: len(of_client(log, "busy")) > 5)
        image("convert", "-n", "-f", "raw", "-O", "raw", self.url, str(self.folder / "copy"))
        load.stop()
        load.result()
        image("compare", "-f", "raw", "-F", "raw", f"nbd+unix:///compare?socket={self.disk.socket}", str(self.folder / "copy"))


def image(*words: str) -> None:
    """qemu-img, which has to succeed."""
    result = subprocess.run([str(paths.STAGED_IMG), *words], capture_output=True, text=True, timeout=READ_SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture
def shared(stack: ExitStack) -> tuple[Disk, Path]:
    """A disk of random content, and a folder with room for a copy."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="export-")))
    (folder / "image").write_bytes(os.urandom(DISK_BYTES))
    with (folder / "copy").open("wb") as copy:
        copy.truncate(DISK_BYTES)
    return stack.enter_context(Disk(Model(service_us=5000, size=str(DISK_BYTES)), image=folder / "image")), folder


@pytest.fixture
def pair(shared: tuple[Disk, Path], machine: Start) -> Pair:
    """Two VMs."""
    disk, folder = shared
    busy, read = (machine(disk, name, "foreground", interval_us=INTERVAL_US) for name in ("busy", "read"))
    server = {"type": "unix", "data": {"path": str(folder / "nbd")}}
    read.qmp.execute("nbd-server-start", addr=server)
    read.qmp.execute("block-export-add", type="nbd", id=EXPORT, node_name="disk", name=EXPORT)
    return Pair(disk, busy, read, folder)


@pytest.fixture
def served(stack: ExitStack, shared: tuple[Disk, Path], machine: Start, arena: Path) -> Pair:
    """The storage daemon, whose export is background from the start."""
    disk, folder = shared
    busy = machine(disk, "busy", "foreground", interval_us=INTERVAL_US)
    daemon = StorageDaemon(
        "--object", f"idletime-resource,id={RESOURCE},path={arena}{options(settings({'interval_us': INTERVAL_US}))}",
        "--blockdev", disk.blockdev("disk", "read"), "--nbd-server", f"addr.type=unix,addr.path={folder}/nbd",
        "--export", f"type=nbd,id={EXPORT},node-name=disk,name={EXPORT},idletime={RESOURCE}")
    return Pair(disk, busy, stack.enter_context(daemon), folder)


def test_a_reader_waits_for_the_foreground(pair: Pair) -> None:
    """Nothing of it comes to the disk within a burst, or within the interval after it, but what was promoted."""
    pair.read.qmp.execute("idletime-attach", export=EXPORT, resource=RESOURCE)
    check_held(pair)


def test_a_reader_of_the_storage_daemon_waits(served: Pair) -> None:
    """The same without a VM, and without devices."""
    with pytest.raises(CommandError, match="no devices"):
        served.read.qmp.execute("idletime-attach", device="disk", resource=RESOURCE)
    check_held(served)


def check_held(pair: Pair) -> None:
    """Of an export that is attached; it is removed."""
    mark = pair.disk.mark()
    pair.copy()
    log = pair.disk.read(mark)
    foreground, read = of_client(log, "busy"), of_client(log, "read")
    export = pair.export()
    assert export["background"]["bytes"] >= DISK_BYTES and export["held"] == 0
    assert len(read) >= DISK_BYTES // (128 << 10) and len(foreground) > 50
    assert not_held(foreground, read, INTERVAL_US * 1000) <= sum(export["promotions"].values())
    pair.read.qmp.execute("idletime-detach", export=EXPORT)
    pair.read.qmp.execute("block-export-del", id=EXPORT)


def test_a_reader_that_is_not_attached_does_not_wait(pair: Pair) -> None:
    """The control experiment: the same reader is early as it happens, which is half of the time: 30 ms of each 100, and 20 after that.

    It has only 32 requests, as nothing cuts them.
    """
    mark = pair.disk.mark()
    pair.copy()
    log = pair.disk.read(mark)
    read = of_client(log, "read")
    assert len(early(of_client(log, "busy"), read, INTERVAL_US * 1000, SLACK_NS)) > len(read) / 8 > 0


def test_a_reader_is_killed_while_it_is_held(pair: Pair) -> None:
    """The foreground never rests: what the reader asked for is dropped with it, and the export can be removed."""
    # A busy host gives its guests pauses that are longer than the standard interval.
    pair.read.qmp.execute("idletime-set", resource=RESOURCE, interval_us=60_000_000, max_hold_ms=0)
    pair.read.qmp.execute("idletime-attach", export=EXPORT, resource=RESOURCE)
    load = pair.busy.guest.load(outstanding=2, seconds=300)
    pair.disk.wait_for(pair.disk.mark(), lambda log: len(of_client(log, "busy")) > 5)
    reader = subprocess.Popen([str(paths.STAGED_IMG), "convert", "-n", "-f", "raw", "-O", "raw", pair.url, str(pair.folder / "copy")])
    try:
        wait_until(lambda: pair.export()["held"] == READERS, "all that it asks for is held")
    finally:
        reader.kill()
        reader.wait()
    wait_until(lambda: pair.export()["held"] == 0, "nothing is held")
    assert pair.export()["background"]["requests"] == 0
    pair.read.qmp.execute("block-export-del", id=EXPORT)
    load.stop()
    load.result()
