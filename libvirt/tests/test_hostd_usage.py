# SPDX-License-Identifier: GPL-2.0-or-later
"""What suspension counts: of arenas, of the kernel and of libvirt, from files and answers that are played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libvirt
import pytest

from idletime import arena, verdict
from idletime.conf.rules import Rules
from idletime.hostd import usage
from idletime.hostd.usage import Access, Moved
from idletime.police import facts
from idletime.police.look import Look
from idletime.resolve import Host

DISK = Access("disk", "vda", "slow", "/run/idletime/slow", ("sda",))
NIC = Access("interface", "vnet0", "", "", ("eth0",))


class Vm:
    def __init__(self, uuid: str, **stats: Any) -> None:
        self.uuid = uuid
        self.stats = {"state.state": libvirt.VIR_DOMAIN_RUNNING, "state.reason": 1, "cpu.time": 10**9, "block.count": 2,
                      "block.0.name": "vdb", "block.0.rd.reqs": 7000, "block.1.name": "vda", "net.count": 1,
                      "net.0.name": "vnet0", **stats}

    def UUIDString(self) -> str:
        return self.uuid


class Libvirt:
    def __init__(self, *vms: Vm) -> None:
        self.vms = {one.uuid: one for one in vms}

    def lookupByUUIDString(self, uuid: str) -> Vm:
        if uuid not in self.vms:
            error = libvirt.libvirtError("gone")
            error.err = (libvirt.VIR_ERR_NO_DOMAIN, 0, "gone", 0, "", None, None, 0, 0)
            raise error
        return self.vms[uuid]

    def domainListGetStats(self, vms: list[Vm], _stats: int, flags: int) -> list[tuple[Vm, dict[str, Any]]]:
        assert flags == libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        return [(one, one.stats) for one in vms]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (("proc/stat", "cpu 100 0 0 300 0 0 0 0 0 0\ncpu0 100 0 0 300 0 0 0 0 0 0\n"),
                       ("proc/diskstats", "8 0 sda 1000 0 7 0 500 0 1 0 0 0\n"),
                       ("sys/class/block/sda/queue/max_sectors_kb", "256\n"),
                       ("sys/class/net/eth0/statistics/tx_bytes", "9000\n"),
                       ("sys/class/net/eth0/statistics/tx_packets", "900\n")):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_shares(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board is exact: its foreground and what the VM has done. The kernel counts all, in pieces of 256 KiB and 1500 bytes."""
    monkeypatch.setattr(arena, "read", lambda path: arena.Arena(
        (arena.Foreground("a", 1, 0, 5, 30), arena.Foreground("b", 2, 0, 5, 12)), ()))
    vm = Vm("b", **{"block.1.rd.reqs": 100, "block.1.wr.reqs": 10, "block.1.rd.bytes": 100 << 20, "block.1.wr.bytes": 0,
                    "net.0.tx.pkts": 20, "net.0.tx.bytes": 150000})
    found = usage.look(Libvirt(vm), {"b": (DISK, NIC), "gone": (DISK,)}, Look(str(root)))
    reading = found.reading
    assert reading is not None and reading.cpus == facts.Cpus(1, 1.0, 3.0) and reading.cpu == {"b": 1.0}
    assert reading.devices == {"resource slow": 42 + 110, "disk sda": 1500, "uplink eth0": 900}
    # 100 MiB in pieces of 256 KiB: 400 requests; 150,000 bytes in frames of 1,500: 100 packets.
    assert reading.background == {"resource slow": {"b": 110}, "disk sda": {"b": 400}, "uplink eth0": {"b": 100}}
    assert found.moved == {"disk sda": Moved(8 * 512, {"b vda": 100 << 20}), "uplink eth0": Moved(9000, {"b vnet0": 150000})}
    assert found.unsure == {"disk sda": 0, "uplink eth0": 0} and set(found.vms) == {"b"}


def test_network_storage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts none of it; the board has the foreground's bytes, and libvirt those of both background VMs."""
    monkeypatch.setattr(arena, "read", lambda path: arena.Arena((arena.Foreground("a", 1, 0, 5, 30, 1000),), ()))
    far = Access("disk", "vda", "nbd", "/run/idletime/nbd")
    one, two = (Vm(name, **{"block.1.rd.bytes": size}) for name, size in (("b", 200), ("c", 30)))
    found = usage.look(Libvirt(one, two), {"b": (far,), "c": (far,)}, Look(str(root)))
    assert found.moved == {"resource nbd": Moved(1230, {"b vda": 200, "c vda": 30})}


def test_what_is_done_while_libvirt_is_asked(root: Path) -> None:
    """It may be the VM's own, and not be in libvirt's answer."""
    class Slow(Libvirt):
        def domainListGetStats(self, vms: list[Vm], stats: int, flags: int) -> list[tuple[Vm, dict[str, Any]]]:
            (root / "proc/diskstats").write_text("8 0 sda 1030 0 0 0 500 0 0 0 0 0\n")
            return super().domainListGetStats(vms, stats, flags)

    found = usage.look(Slow(Vm("b")), {"b": (DISK,)}, Look(str(root)))
    assert found.reading is not None and found.reading.devices == {"disk sda": 1530} and found.unsure == {"disk sda": 30}


def test_what_cannot_be_read_is_left_out(root: Path) -> None:
    found = usage.look(Libvirt(Vm("b")), {"b": (DISK, Access("disk", "vdz", "", "", ("nosuch",)))}, Look(str(root)))
    assert found.reading is not None and found.reading.devices == {"disk sda": 1500}
    assert found.reading.background == {"disk sda": {"b": 0}}


def test_what_a_busy_vm_did_is_not_known(root: Path) -> None:
    """libvirt leaves out what it would wait for: counted as nothing, all would be the foreground's. The rest is known."""
    vm, other = Vm("b"), Vm("c")
    del vm.stats["block.count"]
    found = usage.look(Libvirt(vm, other), {"b": (DISK, NIC), "c": (DISK,)}, Look(str(root)))
    assert found.reading is not None and found.vms["b"].runs
    assert found.reading.devices == {"uplink eth0": 900} and found.reading.background == {"uplink eth0": {"b": 0}}
    assert found.reading.cpu == {"b": 1.0, "c": 1.0}


def test_what_a_vm_shares() -> None:
    """Whatever serves it; not what its policy leaves alone."""
    xml = """<domain type='kvm'><name>a</name><metadata>
      <policy xmlns='urn:idletime:policy:1' class='background' enforce='suspend'>
      <disk target='vdb' resource='none'/><disk target='vda' resource='slow'/></policy></metadata><devices>
      <disk type='file'><source file='/tmp/a'/><target dev='vda' bus='virtio'/></disk>
      <disk type='file'><source file='/tmp/b'/><target dev='vdb' bus='virtio'/></disk>
      <disk type='network'><source protocol='nbd'/><target dev='sdc' bus='scsi'/></disk></devices></domain>"""
    found = verdict.of_domain(xml, Rules(), Host())
    assert found.policy is not None
    made = usage.accesses(found.policy, found.devices, found.plan, Host())
    assert [(one.counted, one.resource, one.arena) for one in made] == [("vda", "slow", "/run/idletime/slow"), ("sdc", "", "")]
