# SPDX-License-Identifier: GPL-2.0-or-later
"""idletimed beside a played libvirt with thousands of VMs: all are carried out, nobody waits for all, memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import libvirt
import pytest

from idletime.hostd import daemon as room
from idletime.hostd import metrics_look, settle
from idletime.hostd.daemon import Daemon
from idletime.hostd.host import Listener
from idletime.hostd.metrics_facts import MOST_VMS
from idletime.hostd.settings import Metrics, Settings
from played import failed
from test_hostd_settle import Domain, Monitor, policy
from test_metrics_server import ask

VMS = 2000
SECONDS = 900.0
"""For all of them on a machine that does much else: they take 18 s of processor time."""

AGAIN = 300
"""So many are waited for while all are looked at again."""

VM_BYTES = 60_000
"""Of what is kept of a VM, the played one's QEMU included."""


class Vm(Domain):
    def __init__(self, number: int) -> None:
        super().__init__(policy("background" if number % 2 else "foreground"))
        self.number = number

    def name(self) -> str:
        return f"vm{self.number}"

    def UUIDString(self) -> str:
        return f"{self.number:08x}-0000-4000-8000-000000000000"


class Libvirt:
    """Host and connection in one."""

    def __init__(self, _uri: str, listener: Listener) -> None:
        self.listener = listener
        self.vms = {vm.UUIDString(): vm for vm in map(Vm, range(VMS))}

    def open(self) -> Libvirt:
        return self

    def close(self) -> None:
        pass

    def isAlive(self) -> bool:
        return True

    def getCapabilities(self) -> str:
        return next(iter(self.vms.values())).getCapabilities()

    def lookupByUUIDString(self, uuid: str) -> Vm:
        if uuid not in self.vms:
            raise failed(libvirt.VIR_ERR_NO_DOMAIN)
        return self.vms[uuid]

    def listAllDomains(self, _flags: int = 0) -> list[Vm]:
        return []


def play(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Settings:
    """This libvirt in place of the real one."""
    monkeypatch.setattr(room, "Host", Libvirt)
    for module in (settle, metrics_look):
        monkeypatch.setattr(module, "DomainMonitor", Monitor)
    return Settings(uri="played:///", run_dir=str(folder), owner="0:0", metrics=Metrics(look_seconds=2))


async def until(condition: Callable[[], bool], what: str) -> float:
    """Seconds until that."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < SECONDS, f"not within {SECONDS} s: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def ticking(found: list[tuple[float, float]]) -> None:
    """Of each tick of 20 ms of the loop: processor seconds that the loop itself took meanwhile, and by how much it is late."""
    while True:
        now, busy = time.monotonic(), time.thread_time()
        await asyncio.sleep(0.02)
        found.append((time.thread_time() - busy, time.monotonic() - now - 0.02))


def memory() -> int:
    """Of this process now, in bytes; that of the played QEMUs is in it."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def page_with(path: str, line: str) -> None:
    """Asks until the metrics have that line: a page is of the look before, and is not made anew for nine times as long as it
    took to make."""
    end = time.monotonic() + SECONDS
    while line.encode() not in (page := ask(path)):
        assert time.monotonic() < end, f"not within {SECONDS} s: {line.strip()} in {page[:4000]!r}"
        time.sleep(0.1)


def host_of(path: str) -> Any:
    """What the API says; on a machine that does much else an answer may be cut off after its ten seconds."""
    for _ in range(20):
        with contextlib.suppress(ValueError):
            return json.loads(ask(path, "GET /v1/host HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")[2])
    raise AssertionError("no answer came to its end")


def test_thousands_of_vms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All get their class; while all are looked at again, a VM of which libvirt tells something is served at once, and the
    loop ticks; metrics have as many as they may; when all have gone, nothing is kept of them."""
    settings = play(monkeypatch, tmp_path)

    async def work() -> None:
        daemon = Daemon(settings)
        host: Any = daemon.host
        ticks: list[tuple[float, float]] = []
        running, clock = asyncio.create_task(daemon.run()), asyncio.create_task(ticking(ticks))
        before = memory()
        daemon.appeared(list(host.vms))
        took = await until(lambda: daemon.counts.looks >= VMS, "all are looked at")
        assert daemon.counts.looks == VMS and daemon.counts.failures == 0
        assert {vm.qemu.state["virtio-disk0"][:2] for vm in host.vms.values()} == {("sda", "background"), ("sda", "foreground")}

        ticks.clear()
        daemon.touch_all()
        changed = host.vms[Vm(VMS // 2).UUIDString()]
        changed.xml = changed.xml.replace("class='foreground'", "class='background'")
        host.listener.touched(changed.UUIDString())
        served = await until(lambda: changed.qemu.state["virtio-disk0"][1] == "background", "the one is served")
        looked = daemon.counts.looks - VMS
        await until(lambda: daemon.counts.looks >= VMS + AGAIN, "they are looked at again")
        busiest, late = max(busy for busy, _ in ticks), sorted(late for _, late in ticks)
        kept = (memory() - before) / VMS
        print(f"{VMS} VMs: looked at in {took:.1f} s; one that changed while all were looked at again was served after "
              f"{served * 1000:.0f} ms, {looked} looks; the loop took {busiest * 1000:.0f} ms at a time at most, and was late "
              f"by {late[int(len(late) * 0.95)] * 1000:.0f} ms in 95 %; {kept:.0f} bytes a VM")
        assert looked < AGAIN / 5, "it went before those that only were due"
        assert busiest < 0.5, "the loop waits for nothing"
        assert kept < VM_BYTES

        await asyncio.to_thread(page_with, f"{tmp_path}/.metrics.sock", f"\nidletime_daemon_left_out_vms {VMS - MOST_VMS}.0\n")
        answer = await asyncio.to_thread(host_of, f"{tmp_path}/.api.sock")
        assert len(answer["vms"]) == MOST_VMS and f"{VMS - MOST_VMS} VMs are not shown" in answer["problems"][0]
        assert memory() - before < VMS * VM_BYTES, "the pages are made of some of them"

        gone = list(host.vms)
        host.vms.clear()
        for uuid in gone:
            host.listener.touched(uuid)
        await until(lambda: not daemon.queue.known(), "all have gone")
        assert not any((daemon.parts, daemon.names, daemon.police.members, daemon.memory.members, daemon.channels))
        assert {file.name for file in (tmp_path / ".state").glob("*-*.json")} == set()
        clock.cancel()
        daemon.stop()
        await running

    asyncio.run(asyncio.wait_for(work(), 2 * SECONDS))


def test_a_fault_of_ours_about_one_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  caplog: pytest.LogCaptureFixture) -> None:
    """Nor itself, at the next event."""
    settings = play(monkeypatch, tmp_path)
    real, first = Daemon._seen, {Vm(number).UUIDString() for number in range(10)}

    def seen(daemon: Daemon, uuid: str, *rest: Any) -> None:
        if uuid in first:
            first.remove(uuid)
            raise ValueError("no room")
        real(daemon, uuid, *rest)

    monkeypatch.setattr(Daemon, "_seen", seen)

    async def work() -> None:
        daemon = Daemon(settings)
        running = asyncio.create_task(daemon.run())
        for looks in (20, 40):
            daemon.appeared([Vm(number).UUIDString() for number in range(20)])
            await until(partial(lambda least: daemon.counts.looks >= least, looks), "all are looked at")
        assert not daemon.unseen and len(daemon.parts) == 20
        daemon.stop()
        await running

    asyncio.run(asyncio.wait_for(work(), SECONDS))
    assert sum("a fault of ours: ValueError: no room" in text for text in caplog.messages) == 10
