# SPDX-License-Identifier: GPL-2.0-or-later
"""Rate windows in idletimed, with a libvirt that is played, files and a clock that are set: who is limited, and who never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import libvirt
import pytest
from lxml import etree

from idletime.hostd import police as room
from idletime.hostd import rates, usage
from idletime.hostd.police import Police
from idletime.hostd.settings import Suspend
from idletime.hostd.settle import Looked
from idletime.hostd.usage import Access
from idletime.police.enforce import Choice
from played import Domain, Host, failed, stage

STEP, MB = 0.25, 1_000_000
RATE, INTERVAL = Choice(False, False, True, "rate"), Choice(True, False, False, "interval")
ACCESSES = (Access("disk", "vda", "", "", ("sda",)), Access("interface", "vnet0", "", "", ("eth0",)))


class Vm(Domain):
    """A domain that moves 8 MB/s on its disk unless it is limited, and sends nothing."""

    NAMESPACE = rates.NAMESPACE

    def __init__(self, name: str = "b") -> None:
        super().__init__(name)
        self.moved = 0
        self.limits: dict[str, int] = {"vda": 0, "vnet0": 0}
        self.acts: list[tuple[str, int]] = []
        self.wrong, self.refuses = False, ""

    def XMLDesc(self, _flags: int) -> str:
        return ("<domain><devices><disk><target dev='vda'/></disk><interface><target dev='vnet0'/></interface></devices>"
                "</domain>")

    def blockIoTune(self, name: str, _flags: int) -> dict[str, Any]:
        return {"total_bytes_sec": self.limits[name], "total_bytes_sec_max_length": 1, "group_name": "drive"}

    def interfaceParameters(self, name: str, _flags: int) -> dict[str, int]:
        return {"outbound.average": self.limits[name]}

    def setBlockIoTune(self, name: str, values: dict[str, int], _flags: int) -> None:
        self.set(name, values["total_bytes_sec"])

    def setInterfaceParameters(self, name: str, values: dict[str, int], _flags: int) -> None:
        self.set(name, values["outbound.average"])

    def set(self, name: str, value: int) -> None:
        assert self.record is not None, "the record comes first"
        if self.wrong or name == self.refuses:
            raise failed(libvirt.VIR_ERR_OPERATION_FAILED, "it cannot")
        self.limits[name] = value
        self.acts.append((name, value))


class World(Host):
    """A host with a disk and an uplink, and its idletimed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.vms, self.disk, self.sent = {"b": Vm()}, 0, 0
        (root / "sys/class/net/eth0/statistics").mkdir(parents=True)
        self.police = self.made()

    def made(self) -> Police:
        return self.by_hand(Police(lambda: self, Suspend(), str(self.root), touch=self.touched.append))

    async def end(self) -> None:
        await self.police.close()

    def domainListGetStats(self, vms: list[Vm], _stats: int, _flags: int) -> list[tuple[Vm, dict[str, Any]]]:
        return [(one, {"state.state": libvirt.VIR_DOMAIN_RUNNING, "state.reason": 1, "cpu.time": 0, "block.count": 1,
                       "block.0.name": "vda", "block.0.rd.bytes": one.moved, "net.count": 1, "net.0.name": "vnet0"})
                for one in vms]

    def looked(self, choice: Choice | None = RATE, uuid: str = "b") -> None:
        vm = self.vms[uuid]
        names = rates.of_domain(etree.fromstring(
            vm.XMLDesc(0).replace("<domain>", f"<domain><metadata>{in_namespace(vm.record)}</metadata>")))
        self.police.seen(uuid, Looked(uuid, True, choice=choice, background=True, accesses=ACCESSES, limited=names))

    async def step(self, foreground: float = 0, sends: float = 0, seconds: float = 1) -> None:
        """So long with so many bytes a second of the foreground, a look each quarter of a second, and what comes of it."""
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            for one in self.vms.values():
                moved = int(min(8 * MB, one.limits["vda"] or 8 * MB) * STEP)
                one.moved += moved
                self.disk += moved
            self.disk += int(foreground * STEP)
            self.sent += int(sends * STEP)
            (self.root / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
            (self.root / "proc/diskstats").write_text(f"8 0 sda 0 0 {self.disk // 512} 0 0 0 0 0 0 0\n")
            (self.root / "sys/class/net/eth0/statistics/tx_bytes").write_text(f"{self.sent}\n")
            await self.police._look()
            await asyncio.gather(*self.police._acts)


def in_namespace(record: str | None) -> str:
    return record.replace("<limits", f"<limits xmlns='{rates.NAMESPACE}'") if record else ""


Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a scene."""
    return stage(lambda: World(tmp_path), (room, usage), monkeypatch)


def test_limited_beside_the_foreground_and_not_after_it(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(seconds=10)
        assert vm.acts == [] and vm.record is None, "alone"
        await world.step(4 * MB, seconds=2)
        assert vm.acts == [("vda", 500_000)] and world.touched == ["b"]
        await world.step(4 * MB, seconds=30)
        assert len(vm.acts) == 1
        await world.step(seconds=6)
        assert vm.acts[1:] == [("vda", 0)] and vm.record is None
        acts = world.police._deeds.acts
        assert (acts["rate", "limit", "foreground"], acts["rate", "lift", "idle"]) == (1, 1)

    play(scene)
    assert caplog.messages == ["disk sda: background is limited: the foreground moves 1200 KB/s, more than 1000 KB/s",
                               "disk sda: background is not limited any more: the foreground moves 400 KB/s, "
                               "less than 500 KB/s"]


def test_an_uplink(play: Play) -> None:
    """In KiB a second."""
    async def scene(world: World) -> None:
        world.looked()
        await world.step(sends=9 * MB, seconds=2)
        assert world.vms["b"].acts == [("vnet0", 500_000 // 1024)]

    play(scene)


def test_what_the_operator_limits_is_left_alone(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.limits["vda"] = 7 * MB
        world.looked()
        await world.step(4 * MB, sends=9 * MB, seconds=10)
        assert vm.limits == {"vda": 7 * MB, "vnet0": 488} and vm.record == '<limits devices="vnet0"/>'

    play(scene)
    (problem,) = caplog.messages
    assert "vda: has limits of its own" in problem and "; remedy: " in problem


def test_what_the_operator_sets_in_place_of_ours_is_left(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """Neither overwritten nor lifted; what the operator lifts is limited again at the next change."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(4 * MB, sends=9 * MB, seconds=2)
        assert vm.limits == {"vda": 500_000, "vnet0": 488} and vm.record == '<limits devices="vda vnet0"/>'
        vm.limits["vda"] = 7 * MB
        await world.step(seconds=8)
        assert vm.limits == {"vda": 7 * MB, "vnet0": 0} and vm.record is None
        await world.step(4 * MB, seconds=4)
        assert vm.limits["vda"] == 7 * MB and vm.record is None
        vm.limits["vda"] = 0
        await world.step(seconds=8)
        await world.step(4 * MB, seconds=4)
        assert vm.limits["vda"] == 500_000

    play(scene)
    assert any("vda: has limits of its own" in text for text in caplog.messages)


def test_what_the_operator_lifts_is_limited_again() -> None:
    vm, limits = Vm(), rates.Limits()
    for value in (500_000, 400_000):
        vm.limits["vda"] = 0
        assert limits.of_domain(vm, {"vda": value}) == (set(), None) and vm.limits["vda"] == value
    assert limits.of_domain(vm, {}) == (set(), None) and vm.limits["vda"] == 0 and vm.record is None


def test_who_is_promoted_or_restarted_has_no_limits(play: Play) -> None:
    """What an earlier idletimed left is lifted, or kept where it is still to be; at the end nothing is left."""
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        world.looked()
        await world.step(4 * MB, seconds=2)
        world.looked(INTERVAL)
        await world.step(4 * MB)
        assert vm.limits["vda"] == 0 and vm.record is None and not world.police.members["b"].active

        world.looked()
        await world.step(4 * MB, seconds=2)
        assert vm.limits["vda"] == 500_000
        world.police = world.made()
        world.looked()
        await world.step(seconds=1)
        assert vm.limits["vda"] == 0 and vm.record is None
        await world.step(4 * MB, seconds=2)
        assert room.release(world) == (["b"], [])
        assert vm.limits["vda"] == 0 and vm.record is None

    play(scene)
    assert rates.of_domain(etree.fromstring("<domain/>")) == frozenset()


def test_one_that_was_unplugged_leaves_the_others_theirs_to_be_lifted() -> None:
    vm = Vm()
    vm.record, vm.limits = '<limits devices="vda vdb vdz"/>', {"vda": 5, "vnet0": 0}
    assert rates.release([vm]) == (["b"], [])
    assert vm.limits["vda"] == 0 and vm.record is None


def test_one_that_refuses_leaves_the_others_theirs_to_be_lifted() -> None:
    vm = Vm()
    vm.record, vm.limits = '<limits devices="vda vnet0"/>', {"vda": 5, "vnet0": 5}
    vm.refuses = "vda"
    names, (problem,) = rates.release([vm])
    assert names == [] and "virsh blkdeviotune" in problem
    assert vm.limits == {"vda": 5, "vnet0": 0} and vm.record == '<limits devices="vda"/>'


def test_a_tap_gets_a_new_name_by_a_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt keeps the limit and names the tap anew; the record has its address."""
    vm, xml = Vm(), ("<domain><metadata>%s</metadata><devices><interface><mac address='52:54:00:00:00:07'/><target dev='%s'/>"
                     "</interface></devices></domain>")
    monkeypatch.setattr(vm, "XMLDesc", lambda _flags: xml % ("", "vnet0"))
    assert rates.Limits().of_domain(vm, {"vnet0": 1_000_000}) == (set(), None)
    assert vm.record == '<limits devices="52:54:00:00:00:07"/>'
    vm.limits = {"vnet8": 976}
    monkeypatch.setattr(vm, "XMLDesc", lambda _flags: xml % ("", "vnet8"))
    assert rates.of_domain(etree.fromstring(xml % (in_namespace(vm.record), "vnet8"))) == {"vnet8"}
    assert rates.release([vm]) == (["b"], [])
    assert vm.limits == {"vnet8": 0} and vm.record is None


def test_a_limit_that_libvirt_refuses_is_tried_again(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        vm = world.vms["b"]
        vm.wrong = True
        world.looked()
        await world.step(4 * MB, seconds=4)
        assert vm.record == '<limits devices="vda"/>' and vm.acts == []
        vm.wrong = False
        await world.step(4 * MB)
        assert vm.acts[0] == ("vda", 500_000)

    play(scene)
    assert len(caplog.messages) == 1 and "limits did not come through: it cannot" in caplog.messages[0]
