# SPDX-License-Identifier: GPL-2.0-or-later
"""What of this host's disks and uplinks is no VM's work, so that suspension does not take it for foreground (paper 004, 4.2).

    looks      four times a second, as suspension's: accesses of a device by everybody, less those of all VMs (hostd/usage.py)
    windows    as long as suspension judges by: accesses a second in each
    quiet      what 99 of 100 windows stay below

A host that keeps logs and is watched has some accesses on its disks at any time. More than suspension expects of it, and
background VMs are stopped for nobody; less, and foreground that does little is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import libvirt

from . import domains, resolve, verdict
from .conf import rules
from .errors import PolicyError
from .hostd import usage
from .hostd.police import PERIOD_SECONDS
from .hostd.usage import Access, Usage
from .police import suspend
from .police.look import Look
from .policy import Class, Policy

LOOK_SECONDS, WINDOW_SECONDS = PERIOD_SECONDS, suspend.Settings().aggregation_s
"""Suspension's own."""

PERCENTILE = 0.99
LEAST_WINDOWS = 20


@dataclass(frozen=True)
class Noise:
    """What nobody's VM did on one device, accesses a second: in the mean, what PERCENTILE of the windows stay below, and the
    most."""

    device: str
    mean: float
    quiet: float
    most: float


def shared(connection: Any, host: resolve.Host, known: rules.Rules, run_dir: str) -> dict[str, tuple[Access, ...]]:
    """Of each running VM, by UUID, what it shares, whoever it is. One whose XML is wrong counts as nobody."""
    found = {}
    for domain, _ in domains.active(connection):
        try:
            its = verdict.of_domain(domains.xml_of(domain), known, host, run_dir)
            policy = its.policy or Policy(Class.FOREGROUND)
            found[domain.UUIDString()] = usage.accesses(policy, its.devices, its.plan, host)
        except (PolicyError, domains.HostError, libvirt.libvirtError):
            continue
    return found


def rests(looks: Iterable[Usage]) -> dict[str, list[tuple[float, float]]]:
    """Of each device of the host: for each time between two looks its seconds, and the accesses that were no VM's. Pure."""
    found: dict[str, list[tuple[float, float]]] = {}
    for before, after in pairwise(looks):
        sample = usage.between(before, after)
        if sample is None:
            continue
        for device in after.unsure:  # what the kernel counts; an arena knows whose a request is
            if device in sample.devices:
                found.setdefault(device, []).append((sample.seconds, sample.devices[device].foreground))
    return found


def noise(device: str, rest: Sequence[tuple[float, float]]) -> Noise | None:
    """None: too little is known. Pure."""
    rates, window = [], list[tuple[float, float]]()
    for one in rest:
        window.append(one)
        while sum(seconds for seconds, _ in window[1:]) >= WINDOW_SECONDS:
            window.pop(0)
        if (seconds := sum(each for each, _ in window)) >= WINDOW_SECONDS:
            rates.append(sum(count for _, count in window) / seconds)
    if len(rates) < LEAST_WINDOWS:
        return None
    rates.sort()
    return Noise(device, sum(rates) / len(rates), rates[math.ceil(PERCENTILE * len(rates)) - 1], rates[-1])


def measure(connection: Any, vms: Mapping[str, Sequence[Access]], files: Look, times: Iterable[Any],
            wait: Callable[[], None]) -> list[Noise]:
    """Look as often as `times` has elements, and wait before each. Raises libvirtError."""
    looks = []
    for _ in times:
        wait()
        looks.append(usage.look(connection, vms, files))
    found = (noise(device, rest) for device, rest in sorted(rests(looks).items()))
    return [one for one in found if one is not None]


def quiet_per_second(found: Sequence[Noise]) -> int:
    """For [suspend] of idletimed.toml: one figure for all devices, that of the busiest."""
    return math.ceil(max((one.quiet for one in found), default=0.0))
