# SPDX-License-Identifier: GPL-2.0-or-later
"""Scratch disks for tests: qcow2 images, and a host with domains whose QEMU has locked them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import libvirt
import pytest

from idletime import scratch
from idletime.hostd import overlay
from idletime.hostd import space as room
from idletime.hostd.settings import Settings
from idletime.hostd.settle import Looked
from idletime.hostd.space import Space
from idletime.police.enforce import Choice
from idletime.policy.parse import parse_tree
from idletime.resolve.files import mount_of
from idletime.resolve.tree import Tree
from idletime.xmltree import read
from played import CONFIG, Domain, Host, failed, stage

MIB = 1 << 20
SIZE = 100 * MIB
CHOICE = Choice(True, False, False, "")
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
MARK = "<space target='vda' reclaim='yes'/>"
AGENT = f"<channel type='unix'><target type='virtio' name='{scratch.AGENT}' state='connected'/></channel>"


def image(backing: str = "/base", format_: str = "raw", version: int = 3, snapshots: int = 0, incompatible: int = 0) -> bytes:
    """The first cluster of a qcow2 image of 1 GiB, and three more."""
    name, known = backing.encode(), format_.encode()
    extension = struct.pack(">II", 0xE2792ACA, len(known)) + known.ljust(-(-len(known) // 8) * 8, b"\0") if known else b""
    at = 512 if name else 0
    head = b"QFI\xfb" + struct.pack(">IQI", version, at, len(name))
    head += struct.pack(">IQIIQQIIQ", 16, 1 << 30, 0, 2, 3 << 16, 1 << 16, 1, snapshots, 0)
    head += struct.pack(">QQQII", incompatible, 0, 0, 4, 104) if version == 3 else b""
    return ((head + extension).ljust(512, b"\0") + name).ljust(4 << 16, b"\0")


def xml(file: str, name: str, mark: str = MARK, class_: str = "background", more: str = "", disk: str = "") -> str:
    return (f"<domain type='kvm'><name>{name}</name><metadata><policy xmlns='urn:idletime:policy:1' class='{class_}'>{mark}"
            f"</policy></metadata><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/>"
            f"<source file='{file}'/><target dev='vda' bus='virtio'/>{disk}</disk>{more}</devices></domain>")


class Vm(Domain):
    """A domain whose QEMU has locked its overlay. freed: MiB that a trim really brings. hangs: its agent does not answer."""

    NAMESPACE, WHERE = overlay.NAMESPACE, CONFIG

    def __init__(self, world: World, name: str, mib: int) -> None:
        super().__init__(name)
        self.world, self.image, self.freed = world, False, 0
        self.file = world.root / f"{name}.qcow2"
        self.file.write_bytes(image() + b"x" * (mib * MIB))
        self.live = self.config = xml(str(self.file), name, more=AGENT)
        self.acts: list[str] = []
        self.snapshots, self.persistent, self.job = 0, True, 0
        self.block_job: dict[str, int] = {}
        self.hangs: threading.Event | None = None
        self.paused = self.wrong = False
        self.after_destroy: Callable[[], None] = lambda: None
        self.descriptor = os.open(self.file, os.O_RDWR)
        fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, overlay._flock(fcntl.F_RDLCK))

    def isPersistent(self) -> bool:
        return self.persistent

    def hasManagedSaveImage(self) -> bool:
        return self.image

    def snapshotNum(self) -> int:
        return self.snapshots

    def listAllSnapshots(self) -> list[Any]:
        return []

    def listAllCheckpoints(self) -> list[Any]:
        return []

    def jobInfo(self) -> list[int]:
        return [self.job]

    def blockJobInfo(self, _target: str, _flags: int) -> dict[str, int]:
        return self.block_job

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_PAUSED if self.paused else libvirt.VIR_DOMAIN_RUNNING, 0]

    def XMLDesc(self, flags: int) -> str:
        return self.config if flags == INACTIVE or not self.run else self.live

    def fSTrim(self, *_rest: Any) -> None:
        if self.paused:
            raise failed(libvirt.VIR_ERR_OPERATION_INVALID, "domain is not running")
        self.acts.append("trim")
        if self.wrong:
            raise failed(libvirt.VIR_ERR_AGENT_UNRESPONSIVE, "not now")
        if self.hangs is not None:
            self.hangs.wait(20)
        os.truncate(self.file, os.stat(self.file).st_size - self.freed * MIB)

    def destroy(self) -> None:
        assert 'done="no"' in str(self.record), "the record comes first"
        self.acts.append("destroy")
        self.end()
        self.after_destroy()

    def end(self) -> None:
        os.close(self.descriptor)
        self.run = 0

    @property
    def empty(self) -> bool:
        return self.file.read_bytes() == image()


class World(Host):
    """A file system of 100 MiB, 5 of which are to be free, and its idletimed. others: MiB that others take."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.others = 0
        self.add("b", 30)
        self.space = self.made()

    def made(self) -> Space:
        return self.by_hand(Space(lambda: self, Settings(run_dir=str(self.root)), self.touched.append))

    async def end(self) -> None:
        await self.space.close()
        for vm in self.vms.values():
            if vm.run:
                vm.end()

    def add(self, name: str, mib: int) -> Vm:
        self.vms[name] = Vm(self, name, mib)
        return self.vms[name]

    def place(self, _status: os.statvfs_result) -> overlay.Place:
        taken = sum(os.stat(vm.file).st_blocks * 512 for vm in self.vms.values())
        return overlay.Place(SIZE - taken - self.others * MIB, SIZE)

    def looked(self, *names: str) -> None:
        """idletimed has looked at these domains, or at all."""
        for name in names or tuple(self.vms):
            vm = self.vms[name]
            if vm.run:
                root = read(vm.live)
                disks, _ = scratch.of(root, parse_tree(root), Tree("/"))
                self.space.seen(name, Looked(name, True, choice=CHOICE, scratch=disks, dropped=overlay.dropped_of(vm)))
            else:
                self.space.seen(name, Looked(name, dropped=overlay.dropped_of(vm)))

    async def step(self, seconds: float = 2) -> None:
        """Time passes, then a look, and what comes of it."""
        self.now += seconds
        await self.space._look()
        await self.acts()

    async def acts(self) -> None:
        await asyncio.gather(*self.space._acts)


Play = Callable[[Callable[[World], Awaitable[None]]], None]


def local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this folder is on counts as local."""
    mount = mount_of(Tree("/"), str(folder))
    assert mount is not None
    monkeypatch.setattr(scratch, "LOCAL", (mount.type,))


def scenes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """What runs a scene in a world in this folder. qemu-img is played."""
    local(folder, monkeypatch)
    monkeypatch.setattr(overlay, "fresh", lambda *_rest: image())

    def made() -> World:
        world = World(folder)
        monkeypatch.setattr(overlay, "_place", world.place)
        return world

    return stage(made, (room,), monkeypatch)
