# SPDX-License-Identifier: GPL-2.0-or-later
"""The host as the API shows it: VMs and resources, from what idletimed says of them and QEMU answered since.

No QEMU is asked here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from .. import VERSION, arena, hostview, state, status
from ..conf.resources import Resources
from ..conf.rules import Decision
from ..observed import ObserverState
from ..policy.model import Class, Policy
from ..state import DomainState
from ..status import DomainStatus, Told
from .metrics_facts import MOST_VMS
from .metrics_look import Answer, is_newer

UNKNOWN = "unknown"  # what a QEMU without background says of its resource
_CLASSES = frozenset(one.value for one in Class)


def vms(said: Mapping[str, DomainState], fresh: Mapping[str, Answer],
        observers: Mapping[str, ObserverState]) -> list[DomainStatus]:
    """All that run, by name."""
    found = (_vm(one, fresh.get(key), observers) for key, one in said.items())
    return sorted(found, key=lambda one: (one.name, one.uuid))


def _vm(said: DomainState, fresh: Answer | None, observers: Mapping[str, ObserverState]) -> DomainStatus:
    """With QEMU's last answer, where it is of this run and can be understood."""
    if fresh is not None and is_newer(fresh, said):
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            return _built(said, fresh[1], fresh[2], observers)
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        return _built(said, said.query, said.looked, observers)
    return _built(replace(said, resources=(), devices=(), query=None), None, said.looked, observers)


def _built(said: DomainState, query: Any, at: float, observers: Mapping[str, ObserverState]) -> DomainStatus:
    policy = Policy(Class(said.class_)) if said.class_ in _CLASSES else None
    facts = Told(Decision(policy, said.by, said.why, said.place), state.plan_of(said), query, False, list(said.problems),
                 bool(said.problems), said, query is said.query, observers,
                 enforced=(said.enforced, said.better, said.suspends))
    built = status.build(said.name, said.uuid, "paused" if said.stopped else "running", not said.socket, facts)
    return replace(built, control=None, figures_at=at, stopped=said.stopped)


def host(found: list[DomainStatus], off: Iterable[Mapping[str, Any]], run_dir: str, resources: Resources,
         observers: Mapping[str, ObserverState], left_out: int = 0) -> dict[str, Any]:
    """All of it. off: VMs that do not run, by name, UUID and class. left_out: how many run beyond those. Reads the boards."""
    daemon = state.daemon(run_dir)
    more = [f"{left_out} VMs are not shown, beyond {MOST_VMS}; remedy: virt-idletime status shows all"] if left_out else []
    return {
        "version": VERSION, "uri": daemon.uri if daemon else "", "problems": [*more, *(daemon.problems if daemon else ())],
        "vms": [*(_shown(one) for one in found), *off],
        "resources": [_resource(one, found) for one in hostview.resources(found, run_dir, resources, observers)],
    }


def _shown(one: DomainStatus) -> dict[str, Any]:
    values = one.as_dict()
    del values["control"]  # idletimed does not say it
    return {**values, "libvirt": one.persistent}


def _resource(one: hostview.HostResource, found: Iterable[DomainStatus]) -> dict[str, Any]:
    """What QEMUs say of it, together: each sees the same boards, and counts for itself."""
    views = [each for vm in found for each in vm.resources if each.name == one.name]
    waiting = [each for each in views if each.state not in (None, UNKNOWN)]  # a foreground VM waits for no interval
    devices = [device for vm in found for each in vm.resources if each.name == one.name
               for device in vm.devices if device.resource == each.id]
    return {
        "name": one.name, "trail": one.trail, "vms": one.domains, "foreground": one.foreground, "background": one.background,
        "problem": one.problem, "observed": one.observer is not None and one.observer.alive,
        "state": next((each.state for each in waiting), None) or _by_boards(one),
        "interval_us": max((each.interval_us for each in waiting if each.interval_us is not None), default=None),
        "auto": any(each.auto for each in waiting),
        **{name: _sum(getattr(each, name) for each in views) for name in ("collisions", "collision_cost_us")},
        **{name: _sum(getattr(device, name) for device in devices) for name in (
            "held", "in_service", "foreground_requests", "background_requests", "promotions")},
    }


def _by_boards(one: hostview.HostResource) -> str | None:
    """Where no QEMU looks, because none is background; so there is no interval."""
    try:
        busy = any(each.in_service for each in arena.read(one.path).foreground)
    except arena.ArenaError:
        return None
    return "foreground" if busy else "idle"


def _sum(values: Iterable[int | None]) -> int | None:
    """None: nothing of it is known."""
    known = [one for one in values if one is not None]
    return sum(known) if known else None
