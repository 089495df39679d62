# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a domain is what it is, and why its requests are held now: from rules, QEMU's answer and the boards, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import arena
from .conf.rules import Decision
from .status import KERNEL, DeviceStatus, DomainStatus, ResourceStatus


@dataclass(frozen=True)
class Explanation:
    """One device. verdict: the reason in a word, of _SENTENCES; None is unknown."""

    device: str
    resource: str
    verdict: str
    held: int | None
    interval_left_us: int | None
    foreground: tuple[str, ...]  # that is in service now, or was a moment ago
    remedy: str = ""
    seen_by: str | None = None


_SENTENCES: Mapping[str, str] = {
    "stock": "has no resource in QEMU: nothing of it is ever held",
    "unknown": "its state is not known",
    "foreground-class": "is foreground: nothing of it is ever held",
    "shadow": "is never held: shadow mode decides and counts only",
    "nothing-held": "holds nothing now",
    "foreground": "is held: foreground is in service",
    "interval": "is held: the preemption interval runs",
    "background": "is held: as much background as max-inflight allows is in service, or another one's turn is first",
    "learned": "is held: what was learned, or the budget, allows no start now; or max-inflight or another one's turn "
               "does not",
    "lost": "is held: the arena is lost, requests are released by deadline only",
}


def explain(status: DomainStatus) -> list[Explanation]:
    """One explanation a device. Reads the boards."""
    resources = {resource.id: resource for resource in status.resources}
    return [_device(status, device, resources[device.resource]) for device in status.devices]


def _device(status: DomainStatus, device: DeviceStatus, resource: ResourceStatus) -> Explanation:
    seen = _look(resource.path)
    interval = resource.interval_us_wanted if resource.interval_us is None else resource.interval_us
    left = seen.interval_left_us(interval) if seen else None
    verdict, remedy = _verdict(status, device, resource, seen, left)
    return Explanation(device.target, resource.name, verdict, device.held, left, _who(seen, interval), remedy, device.seen_by)


def _look(path: str) -> arena.Arena | None:
    try:
        return arena.read(path)
    except arena.ArenaError:
        return None


def _verdict(status: DomainStatus, device: DeviceStatus, resource: ResourceStatus, seen: arena.Arena | None,
             left: int | None) -> tuple[str, str]:
    if device.held is None:
        if status.in_force is None:
            return "unknown", "the domain does not run, or the connection is read-only: run this as root, without -r"
        return "stock", "systemctl status idletimed: it attaches the device, or says why it cannot"
    if resource.state == "lost":
        return "lost", f"remove what is damaged in {resource.path}; it is made anew within a second"
    if device.class_now == "foreground" and not device.held:
        return "foreground-class", ""
    if resource.shadow and not device.held:
        return "shadow", ""
    if not device.held:
        return "nothing-held", ""
    if resource.state == "foreground" or (seen is not None and left is None):
        return "foreground", ""
    if left or resource.state == "preemption":
        return "interval", ""
    return ("learned" if resource.auto else "background"), ""


def _who(seen: arena.Arena | None, interval_us: int) -> tuple[str, ...]:
    """Foreground participants that are in service, or whose interval runs."""
    return tuple(f"{one.label} (pid {one.pid}): " + (f"{one.in_service} in service" if one.idle_us is None else
                                                    f"last event {one.idle_us / 1000:.1f} ms ago")
                 for one in (seen.foreground if seen else ()) if one.idle_us is None or one.idle_us < interval_us)


def as_dict(status: DomainStatus, decision: Decision | None, found: list[Explanation]) -> dict[str, Any]:
    """policy: who the domain is, and why; None where its own policy is wrong. held: what holds it, and why; None is unknown."""
    who = decision and {"class": decision.class_, "by": decision.by, "why": decision.why, "place": decision.place or None}
    held = {"why": status.enforced, "remedy": status.better, "suspends": status.suspends,
            "stopped": status.stopped, "memory_given": status.memory_given,
            "memory_low": status.memory_low, "limited": status.limited, "scratch": status.scratch} if status.enforced else None
    return {"policy": who, "held": held, "jobs": [asdict(one) for one in status.jobs],
            "linger": status.linger or None,
            "migration": None if status.migration is None else asdict(status.migration),
            "devices": [asdict(one) for one in found]}


def lines(status: DomainStatus, decision: Decision | None, found: list[Explanation]) -> list[str]:
    """The explanation for people."""
    result = [f"{status.name}: {decision}"] if decision else []
    if status.enforced:
        result.append(f"{status.name} {status.enforced}")
        result += [f"  remedy: {status.better}"] if status.better else []
    if status.stopped:
        result.append(f"{status.name}: idletimed has stopped it: {status.stopped}")
    if status.limited:
        result.append(f"{status.name}: limited now: {', '.join(status.limited)}")
    if status.memory_low is not None:
        gave = f", {status.memory_given >> 20} MiB now" if status.memory_given else ""
        result.append(f"{status.name} gives memory back while the foreground is short of it, down to "
                      f"{status.memory_low >> 20} MiB{gave}")
    if status.linger:
        result.append(f"{status.name} {status.linger}")
    if status.scratch:
        result.append(f"{status.name}: its scratch disk {', '.join(status.scratch)} is trimmed, then dropped with the VM "
                      "stopped, while its file system is short of space")
    names = {one.id: one.name for one in status.resources}
    result += [f"{status.name}: block jobs of disk {one.target} are background on "
               f"{' and '.join(names.get(name, name) for name in (one.resource, *one.also))}: each copies while "
               f"{'these are' if one.also else 'that is'} idle" + (f", and is done by {one.by}" if one.by else "") +
               " ('virt-idletime jobs' shows those that run)" for one in status.jobs]
    if (moves := status.migration) is not None:
        result.append(f"{status.name}: migration is background on {names.get(moves.resource, moves.resource)}: it sends while "
                      "that is idle, until the VM stops for the switchover" +
                      (f", and is done by {moves.by}" if moves.by else ""))
    if not found and (status.suspends or status.limited is not None or status.jobs):
        return [*result, *(f"{status.name}: {one}" for one in status.problems)]
    if not found:
        return [*result, f"{status.name}: " + ("; ".join(status.problems) or "no policy, so nothing of it is ever held")]
    for one in found:
        held = f" ({one.held} requests)" if one.held else ""
        result.append(f"{status.name} {one.device} on {one.resource}{held}: {_SENTENCES[one.verdict]}")
        if one.seen_by == KERNEL:
            result.append(f"  seen by {KERNEL}: background waits for it")
        if one.held and one.interval_left_us is not None:
            result.append(f"  interval left: {one.interval_left_us / 1000:.1f} ms")
        result += [f"  foreground: {who}" for who in one.foreground]
        if one.remedy:
            result.append(f"  remedy: {one.remedy}")
    return result
