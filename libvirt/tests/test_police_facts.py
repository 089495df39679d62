# SPDX-License-Identifier: GPL-2.0-or-later
"""Parsers on recorded text, the difference of two looks, and a reader that nothing makes raise."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypothesis_profile  # noqa: F401
from idletime.police import facts
from idletime.police.facts import Cpus, Disk, Pressure, Reading
from idletime.police.look import MOST, Look

STAT = """cpu  1111397 993008 1058090 1074235 14487 0 16426 84793 3 9
cpu0 566816 483430 529216 551733 2708 0 2831 40200 2 5
cpu1 544580 509577 528874 522502 11779 0 13594 44592 1 4
intr 263128 0 0
ctxt 22380
"""
DISKSTATS = """   7       0 loop0 8450028 0 67417034 1894032 851734 0 6452982 211759 0 133544 2107835 0 0 0 0 22390 2043
   8       1 sda1 10 0 80 1 0 0 0 0 0 7
 broken
"""
PSI = """some avg10=1.53 avg60=0.87 avg300=0.20 total=4829303
full avg10=0.00 avg60=0.12 avg300=0.05 total=1209
"""
V1 = "11:memory:/machine/qemu-1-ci.libvirt-qemu\n4:cpu,cpuacct:/machine/qemu-1-ci.libvirt-qemu/emulator\n1:name=systemd:/x\n"
V2 = "0::/machine.slice/machine-qemu\\x2d1\\x2dci.scope/libvirt/emulator\n"


def test_recorded_text():
    assert facts.cpus(STAT) == Cpus(2, (1111397 + 993008 + 1058090 + 16426) / 100, (1074235 + 14487) / 100)
    assert facts.disks(DISKSTATS) == {"loop0": Disk(9301762, (67417034 + 6452982) * 512, 133.544),
                                      "sda1": Disk(10, 80 * 512, 0.007)}
    assert facts.pressure(PSI) == {"some": Pressure(1.53, 4.829303), "full": Pressure(0.0, 0.001209)}
    assert facts.meminfo("MemTotal:       24684092 kB\nHugePages_Total:       0\n") == {"MemTotal": 24684092 * 1024}
    assert facts.cgroup(V1) == "" and facts.cgroup(V2).endswith("/libvirt/emulator")
    assert facts.cgroup("0::/../../outside\n") == ""
    assert [facts.number(text) for text in ("12\n", "max\n", "-1", "", None, "٣", "9" * 30)] == [12] + [None] * 6


PARSERS = [facts.cpus, facts.disks, facts.pressure, facts.meminfo, facts.cgroup, facts.number]


@pytest.mark.parametrize("parser", PARSERS)
@settings(max_examples=40)
@given(st.text() | st.text(alphabet="cpu0123456789 \n=:/.)(-kB") | st.sampled_from([STAT, DISKSTATS, PSI, V1, V2]),
       st.integers(0, 300))
def test_no_text_raises(parser, text, cut):
    parser(text)
    parser(text[:cut])


def test_two_looks():
    before = Reading(10.0, Cpus(2, 100.0, 500.0), {"ci": 20.0}, {"sda": 1000, "eth0": 5}, {"sda": {"ci": 300}})
    after = Reading(11.0, Cpus(2, 101.5, 500.5), {"ci": 20.5}, {"sda": 1100, "eth0": 5, "sdb": 7}, {"sda": {"ci": 340}})
    found = facts.between(before, after)
    assert (found.seconds, found.cpus, found.idle_s) == (1.0, 2, 0.5)
    assert (found.cpu.foreground, found.cpu.background) == (1.0, {"ci": 0.5})
    assert found.devices["sda"].foreground == 60 and found.devices["sda"].background == {"ci": 40}
    assert found.devices["eth0"].share is None and "sdb" not in found.devices
    assert facts.between(after, after) is None
    assert facts.between(replace(before, cpu={}), after) is None
    assert facts.between(replace(before, background={"sda": {"ci": 341}}), after) is None
    assert facts.quiet(found, {"sda": 100.0}).devices["sda"].foreground == 0


@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60)), min_size=2, max_size=2))
def test_a_counter_that_was_reset_is_nothing(values):
    (disk, ours), (disk_then, ours_then) = values
    found = facts.between(Reading(0, Cpus(1, 0, 0), {}, {"sda": disk}, {"sda": {"v": ours}}),
                          Reading(1, Cpus(1, 0, 0), {}, {"sda": disk_then}, {"sda": {"v": ours_then}}))
    assert (found is None) == (ours_then < ours)
    for use in found.devices.values() if found else ():
        assert use.foreground >= 0 and all(one >= 0 for one in use.background.values())


@pytest.fixture
def tree(tmp_path):
    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Look(str(tmp_path))
    return make


def test_a_host_with_v1(tree):
    look = tree({"proc/stat": STAT, "proc/7/cgroup": V1, "proc/diskstats": DISKSTATS,
                 "sys/class/net/eth0/statistics/tx_packets": "77\n"})
    assert look.cpus().count == 2 and look.disks()["sda1"].requests == 10
    assert look.sent_packets("eth0") == 77 and not look.unified() and look.group_of(7) is None
    assert look.pressure() == {}


def test_a_host_with_v2(tree):
    look = tree({"sys/fs/cgroup/cgroup.controllers": "cpu memory\n", "proc/7/cgroup": V2, "proc/8/cgroup": "0::/user.slice\n",
                 "proc/pressure/memory": PSI, "sys/fs/cgroup/fore.slice/memory.pressure": PSI})
    assert look.group_of(7) == "/machine.slice/machine-qemu\\x2d1\\x2dci.scope"
    assert look.group_of(8) is None, "it is not its own"
    assert look.pressure("memory", "/fore.slice")["some"] == look.pressure()["some"]


def test_nothing_raises_and_nothing_is_read_without_end(tree, tmp_path):
    look = tree({"proc/stat": "x" * (MOST + 10), "proc/9/cgroup": ""})
    os.mkfifo(tmp_path / "proc/diskstats")
    assert len(look.text("/proc/stat")) == MOST
    assert look.disks() == {} and look.group_of(9) is None and look.group_of(-1) is None
    assert look.text("/proc") is None and look.text("/../etc/passwd") is None and look.text("/a\0b") is None
    assert look.sent_packets("../../x") is None


def test_this_host():
    assert Look().cpus().count >= 1 and Look().meminfo()["MemTotal"] > 0
