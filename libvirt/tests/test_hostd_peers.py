# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked of other hosts, and of a guest that may be sent: a libvirt that is played."""

from __future__ import annotations

from types import SimpleNamespace

import libvirt
import pytest

from idletime.errors import IdletimeError
from idletime.hostd import peers
from idletime.police.linger import Place
from test_hostd_linger import Vm


class Other:
    """A connection to another host."""

    def __init__(self, uuid: str, idle_s: list[int], memory: dict[str, int], promised: int = 0) -> None:
        self.uuid, self.idle_s, self.memory, self.promised, self.closed = uuid, idle_s, memory, promised, False

    def getCapabilities(self) -> str:
        return f"<capabilities><host><uuid>{self.uuid}</uuid></host></capabilities>"

    def getCPUStats(self, _cpu: int) -> dict[str, int]:
        return {"kernel": 1, "user": 1, "idle": self.idle_s.pop(0) * 10**9, "iowait": 10**9}

    def getMemoryStats(self, _cell: int) -> dict[str, int]:
        return self.memory

    def getAllDomainStats(self, _stats: int, _flags: int) -> list[tuple[None, dict[str, int]]]:
        return [(None, {"balloon.current": self.promised}), (None, {})]

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(("promised", "free"), [(0, 250), (600, 250), (800, 150), (2000, 0)])
def test_a_place(monkeypatch: pytest.MonkeyPatch, promised: int, free: int) -> None:
    """Of 1,000 MiB with 300 to be had 50 stay, and what VMs may have is theirs; 3 of 4 processors are idle."""
    here, clock = Other("here", [], {}), iter((10.0, 12.0))
    memory = {"total": 1000 << 10, "free": 100 << 10, "buffers": 50 << 10, "cached": 150 << 10}
    there = Other("there", [100, 106], memory, promised << 10)
    monkeypatch.setattr(peers.domains, "connect", lambda _uri, read_only: there)
    monkeypatch.setattr(peers, "time", SimpleNamespace(sleep=lambda _seconds: None, monotonic=lambda: next(clock)))
    assert peers.place(here, "test") == Place("test", 3.0, free << 20) and there.closed
    there.uuid = "here"
    assert peers.place(here, "test") is None


def test_a_host_that_cannot_be_reached() -> None:
    with pytest.raises(IdletimeError, match="qemu\\+nothing"):
        peers.place(Other("here", [], {}), "qemu+nothing:///system")
    libvirt.virResetLastError()


def test_what_a_guest_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "time", SimpleNamespace(sleep=lambda _seconds: None))
    vm = Vm("b")
    vm.dirty = 3
    host = SimpleNamespace(lookupByUUIDString=lambda _uuid: vm, domainListGetStats=lambda *_: [(vm, vm.stats())])
    assert peers.writes(host, "b") == 3 << 20
    vm.state = lambda: [libvirt.VIR_DOMAIN_PAUSED, 1]  # type: ignore[method-assign]
    assert peers.writes(host, "b") == 0 and vm.asked == 1
