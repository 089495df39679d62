# SPDX-License-Identifier: GPL-2.0-or-later
"""Which policy holds a VM, and why: what its policy says (enforce), who it is now, what its devices allow. Pure.

Only a VM that is background as a whole is ever stopped: one of class guest, or with a background disk alone, has
foreground in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .facts import DeviceFacts, Plan
from .plan import said_of
from .police.enforce import Choice, Device, Enforce, Through, Vm, choose
from .policy.model import NONE, Class, Policy

NOBODYS = Choice(False, False, False, "is nobody's: nothing holds it")


def choice_of(policy: Policy | None, devices: Iterable[DeviceFacts], plan: Plan, ours: bool, lowered: bool = False) -> Choice:
    """What is in force. plan: of its policy alone. ours: its QEMU has intervals. lowered: its guest made it background."""
    if policy is None:
        return NOBODYS
    if policy.class_ is Class.BACKGROUND or lowered:
        return choose(policy.enforce, Vm(ours, shared(policy, devices, plan)))
    if policy.class_ is Class.GUEST:
        never = "" if policy.enforce is Enforce.INTERVAL else \
            f", and enforce='{policy.enforce.value}' stops no VM with foreground in it"
        return Choice(ours and bool(plan.devices), False, False,
                      f"is held by the interval where its guest says so (class='guest'){never}")
    held = ", ".join(f"{one.kind} {one.target}" for one in plan.devices if one.class_ is not Class.FOREGROUND or one.queues)
    if held and ours:
        return Choice(True, False, False, f"is foreground but for {held}, which the interval holds")
    return choose(policy.enforce, Vm(ours, background=False))


def carried_out(choice: Choice, plan: Plan) -> Plan:
    """What QEMU shall have of a plan: its jobs and migration alone where the VM is stopped or limited instead. Attached as
    foreground it would hold itself back; jobs go on while it is stopped."""
    if choice.interval or not choice.as_a_whole:
        return plan
    of_jobs = {name for disk in plan.jobs for name in (disk.resource, *disk.also)}
    of_jobs |= {plan.migration.resource} if plan.migration else set()
    return replace(plan, resources=tuple(one for one in plan.resources if one.id in of_jobs), devices=())


def shared(policy: Policy, devices: Iterable[DeviceFacts], plan: Plan) -> Sequence[Device]:
    """Its devices that share a resource with others. What the policy leaves alone, and what has nothing to share, is none."""
    planned = {(one.kind, one.target) for one in plan.devices}
    unknown = {(one.kind, one.target) for one in plan.unresolved}
    found = []
    for one in devices:
        key, label = (one.kind, one.target), f"{one.kind} {one.target}"
        if key in planned:
            found.append(Device(label, Through.QEMU))
        elif key in unknown:
            found.append(Device(label, Through.UNKNOWN))
        elif one.unserved and said_of(policy, one)[0].resource != NONE:
            found.append(Device(label, one.through))
    return found
