# SPDX-License-Identifier: GPL-2.0-or-later
"""What libvirt writes down of running domains: only another source behind a device is a change. With this machine's inotify."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from idletime.hostd import records

RECORD = """<domstatus state='running' reason='booted' pid='7'>
  <job type='{job}'/>
  <domain type='kvm' id='1'><name>web</name>
    <devices>
      <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{file}'/>
        <target dev='vda' bus='virtio'/><alias name='virtio-disk0'/></disk>
      <interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='{bridge}'/><model type='virtio'/>
        <alias name='net0'/></interface>
    </devices>
  </domain>
</domstatus>
"""


def record(file: str = "/a", bridge: str = "br0", job: str = "none") -> str:
    return RECORD.format(file=file, bridge=bridge, job=job)


def write(folder: Path, text: str, name: str = "web") -> None:
    """As libvirtd does."""
    (folder / f"{name}.xml.new").write_text(text)
    (folder / f"{name}.xml.new").rename(folder / f"{name}.xml")


class Seen(list[str]):
    """What was told; `after` waits until all files that were there at the call have been compared."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.watcher = folder, records.Records(str(folder), self.append)
        self._mark = 0

    async def after(self, text: str, name: str = "web") -> list[str]:
        """Write a record, then one of another domain whose change is told last; what was told before that."""
        self.clear()
        write(self.folder, text, name)
        self._mark += 1
        write(self.folder, record(file=f"/mark{self._mark}"), "mark")
        while "mark" not in self:
            await asyncio.sleep(0.005)
        for _ in range(3):  # names of one batch are compared in any order
            await asyncio.sleep(0.02)
        return [one for one in self if one != "mark"]


def watching(folder: Path, work: Callable[[Seen], Awaitable[None]], *, there: bool = True) -> None:
    async def run() -> None:
        seen = Seen(folder)
        seen.watcher.watch()
        while there and len(seen.watcher._known) < 2:
            await asyncio.sleep(0.005)
        await work(seen)
        seen.watcher.close()

    if there:
        write(folder, record())
        write(folder, record("/mark0"), "mark")
    asyncio.run(asyncio.wait_for(run(), 20))


def test_another_source_is_told(tmp_path: Path) -> None:
    async def work(seen: Seen) -> None:
        assert await seen.after(record()) == []
        assert await seen.after(record(job="migration out")) == []
        assert await seen.after(record(file="/overlay")) == ["web"]
        assert await seen.after(record(file="/overlay")) == []
        assert await seen.after(record(file="/overlay", bridge="br1")) == ["web"]
        assert await seen.after("<domstatus>") == []  # not well-formed: forgotten, the next one is as new
        assert await seen.after(record()) == []
        assert await seen.after(record(file="/b")) == ["web"]

    watching(tmp_path, work)


def test_domains_come_and_go(tmp_path: Path) -> None:
    """Of that libvirt has events."""
    async def work(seen: Seen) -> None:
        assert await seen.after(record(), "new") == []
        assert await seen.after(record("/c"), "new") == ["new"]
        (tmp_path / "new.xml").unlink()
        assert await seen.after(record()) == []
        assert await seen.after(record("/d"), "new") == []

    watching(tmp_path, work)


def test_a_folder_that_libvirt_makes_later(tmp_path: Path) -> None:
    """idletimed was there first: it watches when libvirt answers."""
    async def work(seen: Seen) -> None:
        tmp_path.joinpath("late").mkdir()
        write(seen.folder, record())
        write(seen.folder, record("/mark0"), "mark")
        seen.watcher.watch()
        while len(seen.watcher._known) < 2:
            await asyncio.sleep(0.005)
        assert await seen.after(record("/b")) == ["web"]

    watching(tmp_path / "late", work, there=False)


def test_lost_events_are_an_event(tmp_path: Path) -> None:
    """The kernel says so where it could not keep them all."""
    async def work(seen: Seen) -> None:
        asyncio.get_running_loop().remove_reader(seen.watcher._line)
        write(seen.folder, record("/b"))
        seen.watcher._hear(b"\xff\xff\xff\xff\x00\x40\0\0" + bytes(8))
        while "web" not in seen:
            await asyncio.sleep(0.005)

    watching(tmp_path, work)


def test_where_there_is_no_libvirt() -> None:
    async def run() -> None:
        watcher = records.Records(None, lambda name: None)
        watcher.watch()
        watcher.close()

    asyncio.run(run())
