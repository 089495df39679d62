# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest may ask for, and what its VM gets: policy, devices and wish in, a lower plan out. Pure.

A guest can only demote. Its wish is laid over the policy's plan, never in its place: what the policy makes
background stays background, and the plan without a wish is the policy's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..facts import DeviceFacts, DevicePlan, Plan
from ..plan import numbers_of, queue_list
from ..policy.model import Class, Control, Policy
from .protocol import NAMES, QueueWish, Wish


@dataclass(frozen=True)
class GuestDevice:
    """A device by all the names that a guest may know it by. queues: how many it has; None if not known."""

    names: Mapping[str, str]
    plan: DevicePlan | None
    queues: int | None = None

    @property
    def label(self) -> str:
        """As a person calls it."""
        return self.names.get("target", "") or self.names.get("mac", "?")


@dataclass(frozen=True)
class Refusal:
    """A part of a wish that is not in force, and why. entry None: it is the class."""

    code: str
    reason: str
    entry: QueueWish | None = None


@dataclass(frozen=True)
class Grant:
    """What is in force of a wish; plan: of the domain with it."""

    plan: Plan
    background: bool = False
    queues: tuple[QueueWish, ...] = ()
    refused: tuple[Refusal, ...] = ()


def devices(there: Sequence[DeviceFacts], plan: Plan) -> tuple[GuestDevice, ...]:
    """The disks and interfaces of a running VM."""
    plans = {(device.kind, device.target): device for device in plan.devices}
    return tuple(GuestDevice(facts.guest_names, plans.get((facts.kind, facts.target)), facts.queues) for facts in there)


# ---- the decision

def grant(policy: Policy | None, plan: Plan, there: Sequence[GuestDevice], wish: Wish) -> Grant:
    """Lay a wish over the policy's plan."""
    if policy is None or policy.control is not Control.DEMOTE:
        return Grant(plan, refused=_all_refused(wish))
    queues: dict[str, list[QueueWish]] = {}
    granted, refused = [], []
    for entry in wish.queues:
        found = _find(there, entry, [one for one in wish.queues if one is not entry])
        if isinstance(found, Refusal):
            refused.append(found)
        else:
            granted.append(entry)
            queues.setdefault(found.alias, []).append(entry)
    lowered = tuple(_lower(device, wish.background, queues.get(device.alias, [])) for device in plan.devices)
    return Grant(replace(plan, devices=lowered), wish.background, tuple(granted), tuple(refused))


NOT_HELD = "not-held"
"""Code of a refusal: nothing on this host holds what the guest makes background, and the next state changes nothing of that."""


def refuse(granted: Grant, plan: Plan, wish: Wish, reason: str, code: str = "failed") -> Grant:
    """The policy's own plan is in force instead, as what was granted cannot be: why, in words."""
    parts: list[QueueWish | None] = [None] if wish.background and granted.background else []
    failed = tuple(Refusal(code, reason, entry) for entry in [*parts, *granted.queues])
    return Grant(plan, refused=granted.refused + failed)


def _all_refused(wish: Wish) -> tuple[Refusal, ...]:
    reason = "the policy of this VM has guest control='none'"
    parts: list[QueueWish | None] = [None] if wish.background else []
    return tuple(Refusal("control-none", reason, entry) for entry in [*parts, *wish.queues])


def _find(there: Sequence[GuestDevice], entry: QueueWish, others: Sequence[QueueWish]) -> DevicePlan | Refusal:
    """The one device that an entry names, if its queues exist."""
    key = next((name for name in NAMES if entry.device.get(name)), None)
    if key is None:
        return Refusal("invalid", f"the entry names no device by {', '.join(NAMES)}", entry)
    name = entry.device[key]
    found = [device for device in there if device.names.get(key) == (name.lower() if key == "mac" else name)]
    if not found:
        return Refusal("unknown-device", f"no device of this VM has the {key} '{name}'", entry)
    if len(found) > 1:
        return Refusal("ambiguous-device", f"{len(found)} devices of this VM have the {key} '{name}'", entry)
    if any(other.device.get(key) == name for other in others):
        return Refusal("invalid", f"the request names the device with the {key} '{name}' twice", entry)
    return _check_queues(found[0], entry)


def _check_queues(device: GuestDevice, entry: QueueWish) -> DevicePlan | Refusal:
    if device.plan is None:
        return Refusal("not-scheduled", f"device {device.label} is on no resource", entry)
    numbers = numbers_of(entry.queues)
    if numbers is None:
        return Refusal("invalid", f"'{entry.queues}' is not a queue list such as 2-3,6", entry)
    if device.queues is not None and numbers and max(numbers) >= device.queues:
        there = f"{device.label} has {device.queues} queues, 0 to {device.queues - 1}"
        return Refusal("no-such-queue", f"{there}; queue {max(numbers)} does not exist", entry)
    return device.plan


def _lower(device: DevicePlan, background: bool, entries: Sequence[QueueWish]) -> DevicePlan:
    wished: frozenset[int] = frozenset().union(*(numbers_of(entry.queues) or () for entry in entries))
    queues = device.queues
    if wished:
        queues = queue_list((numbers_of(device.queues) or frozenset()) | wished)
    return replace(device, class_=Class.BACKGROUND if background else device.class_, queues=queues)


# ---- what the guest is told

def message(session: str, version: str, policy: Policy | None, granted: Grant, there: Sequence[GuestDevice],
            answers: tuple[str, int] | None, known: bool) -> dict[str, Any]:
    """The message `policy`. known False: the domain was not looked at yet, so nothing is said of what is in force."""
    class_ = None
    if known and policy is not None:
        class_ = Class.BACKGROUND.value if granted.background else policy.class_.value
    return {
        "type": "policy", "session": session, "host": {"name": "idletimed", "version": version},
        "answers": {"session": answers[0], "sequence": answers[1]} if answers else None,
        "control": policy.control.value if policy else Control.NONE.value, "class": class_,
        "granted": {"class": "background" if granted.background else "foreground",
                    "queues": [_entry(entry) for entry in granted.queues]},
        "refused": [_refused(refusal) for refusal in granted.refused],
        **({"devices": _devices(granted.plan, there)} if known else {}),
    }


def _entry(entry: QueueWish) -> dict[str, Any]:
    return {"device": dict(entry.device), "queues": entry.queues}


def _refused(refusal: Refusal) -> dict[str, Any]:
    part = {"what": "class"} if refusal.entry is None else {"what": "queues", **_entry(refusal.entry)}
    return {**part, "code": refusal.code, "reason": refusal.reason}


def _devices(plan: Plan, there: Sequence[GuestDevice]) -> list[dict[str, Any]]:
    by_alias = {device.plan.alias: device for device in there if device.plan}
    return [
        {"device": {name: value for name, value in by_alias[device.alias].names.items() if name != "pci"},
         "class": device.class_.value, "background_queues": device.queues}
        for device in plan.devices if device.alias in by_alias
    ]
