# SPDX-License-Identifier: GPL-2.0-or-later
"""What the kernel says of processors, disks, links, memory and pressure: parsers of its text, and the difference of two looks.

Pure. Counters only grow; rates are the reader's. What a line does not say, or says in a way that is not known, is None or left
out: no text raises. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .suspend import Sample, Use

TICKS = 100
"""USER_HZ: what /proc counts processor time in, on every architecture that QEMU runs on."""

SECTOR = 512
"""Of /proc/diskstats, whatever the disk's own is."""

LINES = 10000
"""Of one file; a host has fewer disks, and a cgroup fewer keys."""


def number(text: str | None) -> int | None:
    """A file with one number; "max" and what is none: None."""
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 20 else None


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[:LINES]]


def _numbers(words: list[str]) -> list[int]:
    """The numbers that a line begins with."""
    found: list[int] = []
    for word in words:
        value = number(word)
        if value is None:
            break
        found.append(value)
    return found


# ---- processors

@dataclass(frozen=True)
class Cpus:
    """/proc/stat. Time that a processor waits for a disk is idle: somebody else may have it. steal is neither."""

    count: int
    busy_s: float
    idle_s: float


def cpus(text: str) -> Cpus | None:
    """Of /proc/stat: user nice system idle iowait irq softirq steal guest guest_nice; guest time is in user already."""
    rows = [row for row in _rows(text) if row and row[0].startswith("cpu")]
    all_ = next((_numbers(row[1:]) for row in rows if row[0] == "cpu"), [])
    count = sum(number(row[0][3:]) is not None for row in rows)
    if len(all_) < 7 or not count:
        return None
    busy = all_[0] + all_[1] + all_[2] + all_[5] + all_[6]
    return Cpus(count, busy / TICKS, (all_[3] + all_[4]) / TICKS)


# ---- disks and links

@dataclass(frozen=True)
class Disk:
    """/proc/diskstats of one device: completed reads and writes, and their bytes. What is discarded or flushed is not in it."""

    requests: int
    bytes_: int
    busy_s: float


def disks(text: str) -> dict[str, Disk]:
    """By name. Kernels add columns at the end."""
    found = {}
    for row in _rows(text):
        values = _numbers(row[3:])
        if len(values) >= 10:
            found[row[2]] = Disk(values[0] + values[4], (values[2] + values[6]) * SECTOR, values[9] / 1000)
    return found


# ---- pressure, memory, cgroups

@dataclass(frozen=True)
class Pressure:
    """A line of PSI. avg10: percent of the last 10 s; total_s grows."""

    avg10: float
    total_s: float


def pressure(text: str) -> dict[str, Pressure]:
    """By "some" and "full"; empty where the kernel has PSI off."""
    found = {}
    for row in _rows(text):
        pairs = dict(word.partition("=")[::2] for word in row[1:])
        total = number(pairs.get("total"))
        try:
            avg10 = float(pairs.get("avg10", ""))
        except ValueError:
            continue
        if total is not None and 0 <= avg10 <= 100:
            found[row[0]] = Pressure(avg10, total / 1e6)
    return found


def meminfo(text: str) -> dict[str, int]:
    """In bytes: MemTotal, MemAvailable, SwapFree; of /proc/PID/status VmSwap."""
    return {row[0].rstrip(":"): value * 1024 for row in _rows(text)
            if len(row) == 3 and row[2] == "kB" and (value := number(row[1])) is not None}


def cgroup(text: str) -> str:
    """Of /proc/PID/cgroup: the path of version 2; "" where there is none, and of one that leaves the tree."""
    for line in text.splitlines()[:LINES]:
        if line.startswith("0::/") and ".." not in line.split("/"):
            return line[3:]
    return ""


# ---- two looks

@dataclass(frozen=True)
class Reading:
    """One look at the host. cpu: processor seconds by background VM. devices: accesses of each device since the boot, by all;
    background: what of them each VM did, by device and VM (domstats, or the arena's numbers)."""

    at_s: float
    cpus: Cpus
    cpu: Mapping[str, float] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    background: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def between(before: Reading, after: Reading) -> Sample | None:
    """What was used from one look to the other. What is not background is foreground: the host's own services too (004, 4.2
    leaves them out; `quiet` does). A device that was not there before is left out. None where that is no time, or where a VM is
    new or was started anew: what it has done would be taken for the foreground's."""
    seconds = after.at_s - before.at_s
    if seconds <= 0 or _new(before.cpu, after.cpu) or any(
            _new(before.background.get(name, {}), ours) for name, ours in after.background.items() if name in before.devices):
        return None
    cpu = _grown(before.cpu, after.cpu)
    busy = max(0.0, after.cpus.busy_s - before.cpus.busy_s)
    idle = max(0.0, after.cpus.idle_s - before.cpus.idle_s)
    whole = _grown(before.devices, after.devices)
    devices = {}
    for name, amount in whole.items():
        ours = _grown(before.background.get(name, {}), after.background.get(name, {}))
        devices[name] = Use(max(0.0, amount - sum(ours.values())), ours)
    return Sample(after.at_s, seconds, after.cpus.count, min(idle, after.cpus.count * seconds),
                  Use(max(0.0, busy - sum(cpu.values())), cpu), devices)


def quiet(sample: Sample, services: Mapping[str, float]) -> Sample:
    """The sample without what the host's own services do in any second (004, 4.2): accesses by device, which calibration has
    found on the host at rest."""
    devices = {name: Use(max(0.0, use.foreground - services.get(name, 0.0) * sample.seconds), use.background)
               for name, use in sample.devices.items()}
    return Sample(sample.at_s, sample.seconds, sample.cpus, sample.idle_s, sample.cpu, devices)


def _new(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return any(value < before.get(name, float("inf")) for name, value in after.items())


def _grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in after.items() if name in before and value >= before[name]}
