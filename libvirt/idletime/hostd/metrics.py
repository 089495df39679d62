# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts to metric families. Pure: what is there at one time, and the sums of the ledger, become what is served.

Unknown is left out, and never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Metric as Family

from ..gauge.said import Gauged
from .deeds import Deeds
from .metrics_facts import CLASSES, STATES, Facts, Vm
from .metrics_ledger import Ledger, Series, Sums
from .metrics_table import METRICS

US = 1e6
FIRST_BOUND_US = 100
"""Of the bins of hold times (IDLETIME_HOLD_FIRST_NS); each is twice as long as the one before."""

Sample = tuple[str, tuple[str, ...], float]
"""Name, values of the labels in the table's order, value."""

_SECONDS = frozenset({"idletime_resource_collision_cost_seconds_total"})
"""The ledger keeps integers: of these, microseconds."""


@dataclass(frozen=True)
class Tally:
    """What idletimed has counted of itself, at one time. stale: seconds after which figures are."""

    version: str
    started: float
    looks: int = 0
    failures: int = 0
    seconds: float = 0.0
    hanging: int = 0
    deeds: Deeds = field(default_factory=Deeds)
    stale: float = 0.0


def note(ledger: Ledger, facts: Facts) -> None:
    """Add what QEMUs and observers have counted since."""
    sources: list[tuple[str, ...]] = []
    newest: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for vm in facts.vms:
        for one in vm.resources or ():
            name = one["name"]
            looked_at = ledger.knows(("view", vm.key, name), vm.run)
            for source, counted in _counted(vm, one):
                ledger.note(source, vm.run, name, counted, began=looked_at and source[0] == "job")
                sources.append(source)
            observer = one.get("observer", {})
            if observer.get("state") == "seen" and newest.get(name, (0.0,))[0] < vm.looked:
                newest[name] = vm.looked, observer
    for name, (_, observer) in newest.items():
        ledger.note(("observer", name), 0, name, _observed(observer))
    ledger.keep([*sources, *(("observer", one.resource) for one in facts.observers)])


def _counted(vm: Vm, one: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[Series, int]]]:
    """Each source of a resource of a VM, and what it has counted."""
    counted: dict[Series, int] = {}
    for state, events in one.get("counters", {}).items():
        counted |= {("idletime_resource_events_total", state, event): value for event, value in events.items()}
    if counted:  # while nobody looks, collisions are not 0 but unknown
        counted |= _known("idletime_resource_collisions_total", one, "collisions")
        counted |= _known("idletime_resource_collision_cost_seconds_total", one, "collision-cost-us")
    counted |= _known("idletime_observer_lost_total", one.get("observer", {}), "died")
    yield ("view", vm.key, one["name"]), counted
    for device in one["devices"]:
        yield ("device", vm.key, one["name"], device["target"]), _holder(device)
    for job in one["jobs"]:
        yield ("job", vm.key, one["name"], job["id"]), _holder(job)


def _holder(one: Mapping[str, Any]) -> dict[Series, int]:
    """A device or a block job."""
    counted: dict[Series, int] = {}
    for class_, traffic in _traffic(one):
        counted |= {(f"idletime_resource_{what}_total", class_): value for what, value in traffic.items()}
    for member in ("promotions", "waits"):
        counted |= {(f"idletime_resource_{member}_total", why): value for why, value in one.get(member, {}).items()}
    return counted


def _known(metric: str, values: Mapping[str, Any], member: str) -> dict[Series, int]:
    return {(metric,): values[member]} if member in values else {}


def _traffic(device: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, int]]]:
    return ((class_, device[class_]) for class_ in ("foreground", "background") if class_ in device)


def _observed(observer: Mapping[str, Any]) -> dict[Series, int]:
    counted = {(f"idletime_observer_{what}_total",): value for what, value in observer.get("foreground", {}).items()}
    return counted | {(f"idletime_observer_{what}_total",): observer[what]
                      for what in ("unpaired", "healed", "missed", "requeued") if what in observer}


# ---- samples

def samples(facts: Facts, sums: Sums, tally: Tally) -> Iterator[Sample]:
    """All but the ages, which are of the moment of a scrape."""
    yield "idletime_daemon_info", (tally.version,), 1
    yield "idletime_daemon_start_time_seconds", (), tally.started
    yield "idletime_daemon_looks_total", (), tally.looks
    yield "idletime_daemon_look_failures_total", (), tally.failures
    yield "idletime_daemon_look_seconds_total", (), tally.seconds
    yield "idletime_daemon_stale_seconds", (), tally.stale
    yield "idletime_daemon_hanging_vms", (), tally.hanging
    yield "idletime_daemon_wrong_files", (), facts.files
    yield "idletime_daemon_unread_vms", (), sum(bool(vm.misfit) for vm in facts.vms)
    yield "idletime_daemon_left_out_vms", (), facts.left_out
    yield from _of_deeds(tally.deeds)
    for class_ in (*CLASSES, "none"):
        yield "idletime_vms", (class_,), sum(vm.class_ == class_ for vm in facts.vms)
    for vm in facts.vms:
        yield from _of_vm(vm)
    yield from _of_resources(facts, sums)
    for observer in facts.observers:
        of = (observer.resource,)
        yield "idletime_observer_up", of, observer.alive
        yield "idletime_observer_possible", of, bool(observer.device)
        yield "idletime_observer_declared", of, observer.declared
        yield "idletime_observer_hidden_vms", of, len(observer.hidden)
        yield "idletime_observer_hidden_disks", of, len(observer.hidden_disks)
    if facts.gauge is not None:
        yield "idletime_spare_timestamp_seconds", (), facts.gauge.at
        for one in facts.gauge.resources:
            yield from _of_gauge(one)


def _of_deeds(deeds: Deeds) -> Iterator[Sample]:
    for act, count in deeds.acts.items():
        yield "idletime_policy_acts_total", act, count
    for of, count in deeds.taken.items():
        yield "idletime_policy_taken_bytes_total", of, count
    yield "idletime_policy_stopped_seconds_total", (), deeds.stopped_seconds
    for direction, count in deeds.migrated.items():
        yield "idletime_policy_migrated_total", (direction,), count


def _of_gauge(one: Gauged) -> Iterator[Sample]:
    yield "idletime_spare_whole", (one.resource,), one.whole
    for span in ("second", "minute", "hour", "forecast", "steady"):
        value = getattr(one.spare, span)
        if value is not None:
            yield "idletime_spare_spare_ratio", (one.resource, span), value
    if one.rate_bps:
        yield "idletime_spare_rate_bytes", (one.resource,), one.rate_bps / 8


def _of_vm(vm: Vm) -> Iterator[Sample]:
    yield "idletime_vm_info", (vm.name, vm.class_, vm.by), 1
    yield "idletime_vm_in_force", (vm.name,), vm.in_force
    yield "idletime_vm_problems", (vm.name,), vm.problems
    if vm.stopped is not None:
        yield "idletime_vm_stopped", (vm.name,), vm.stopped
    if vm.limited is not None:
        yield "idletime_vm_limited_devices", (vm.name,), vm.limited
    if vm.memory_given is not None:
        yield "idletime_vm_memory_given_bytes", (vm.name,), vm.memory_given
    yield "idletime_vm_look_timestamp_seconds", (vm.name,), vm.looked
    for one in vm.resources or ():
        yield from _of_view((vm.name, one["name"]), one)
        for device in one["devices"]:
            yield from _of_device((vm.name, one["name"], device["target"]), device)
        for job in one["jobs"]:
            yield from _of_job((vm.name, one["name"], job["target"], job["type"]), job)


def _of_view(of: tuple[str, str], one: Mapping[str, Any]) -> Iterator[Sample]:
    if "state" in one:
        for state in STATES:
            yield "idletime_view_state", (*of, state), state == one["state"]
    learned = one.get("learned", {})
    yield from _each("idletime_view", of, one, ("interval-us", "interval_seconds", US), ("auto", "auto", 1))
    if one.get("auto"):
        yield from _each("idletime_view", of, one, ("budget-percent", "budget_ratio", 100))
    yield from _each(
        "idletime_view", of, learned, ("ready", "learner_ready", 1), ("learner-us", "learner_seconds_total", US),
        ("changes", "workload_changes_total", 1), ("service-us", "service_seconds", US),
        ("slowdown-percent", "slowdown_ratio", 100), ("credit-us", "credit_seconds", US),
        ("credit-max-us", "credit_max_seconds", US))
    for span, value in learned.get("spare", {}).items():
        if span == "forecast":
            yield "idletime_view_spare_forecast_ratio", of, value
        else:
            yield "idletime_view_spare_ratio", (*of, span), value


def _of_device(of: tuple[str, str, str], device: Mapping[str, Any]) -> Iterator[Sample]:
    if "class" in device:
        yield "idletime_device_info", (*of, device["class"]), 1
    for class_, traffic in _traffic(device):
        for what, value in traffic.items():
            yield f"idletime_device_{what}_total", (*of, class_), value
    yield from _each(
        "idletime_device", of, device, ("seen", "seen", 1), ("passed", "passed_total", 1), ("dropped", "dropped_total", 1),
        ("pieces", "pieces_total", 1))
    yield from _of_holder("idletime_device", of, device)


def _of_job(of: tuple[str, ...], job: Mapping[str, Any]) -> Iterator[Sample]:
    for what, value in job.get("background", {}).items():
        yield f"idletime_job_{what}_total", of, value
    yield from _of_holder("idletime_job", of, job)


def _of_holder(prefix: str, of: tuple[str, ...], one: Mapping[str, Any]) -> Iterator[Sample]:
    """What devices and jobs have in common."""
    hold = one.get("hold", {})
    yield from _each(prefix, of, one, ("held", "held_requests", 1), ("in-service", "in_service_requests", 1))
    for cause, value in one.get("promotions", {}).items():
        yield f"{prefix}_promotions_total", (*of, cause), value
    if one.get("class") != "foreground" or any(hold.get("bins", ())):
        yield from _each(prefix, of, hold, ("max-us", "hold_max_seconds", US), ("drained-us", "drained_seconds_total", US))
        yield from _histogram(f"{prefix}_hold_seconds", of, hold.get("boundaries-us", ()), hold.get("bins", ()))


def _histogram(name: str, of: tuple[str, ...], bounds: tuple[int, ...], bins: tuple[int, ...]) -> Iterator[Sample]:
    """QEMU's bins, added up as a histogram has them. It does not count the sum of the times, so there is none. Other
    bounds than QEMU's would be labels of its own making."""
    if len(bins) != len(bounds) + 1 or bounds != tuple(FIRST_BOUND_US << bin_ for bin_ in range(len(bounds))):
        return
    total = 0
    for bound, number in zip((*bounds, None), bins, strict=True):
        total += number
        yield name, (*of, "+Inf" if bound is None else repr(bound / US)), total


def _each(prefix: str, of: tuple[str, ...], values: Mapping[str, Any], *what: tuple[str, str, float]) -> Iterator[Sample]:
    """Of each member that is there: its metric, divided by its unit."""
    for member, name, unit in what:
        if member in values:
            yield f"{prefix}_{name}", of, values[member] / unit


def _of_resources(facts: Facts, sums: Sums) -> Iterator[Sample]:
    for name, counted in sums.items():
        for series, value in counted.items():
            yield series[0], (name, *series[1:]), value / US if series[0] in _SECONDS else value
    devices: dict[tuple[str, str], int] = {}
    generations: dict[str, set[int]] = {}
    awaited: dict[str, int] = {}
    for one in (one for vm in facts.vms for one in vm.resources or ()):
        name = one["name"]
        used = [one["generation"]] if "generation" in one else []
        generations.setdefault(name, set()).update(one.get("other-generations", ()), used)
        awaited[name] = awaited.get(name, 0) + (one.get("observer", {}).get("state") == "lost")
        for class_ in CLASSES:
            devices.setdefault((name, class_), 0)
        for device in one["devices"]:
            if "class" in device:
                devices[name, device["class"]] += 1
    for of, count in devices.items():
        yield "idletime_resource_devices", of, count
    for name, found in generations.items():
        if found:
            yield "idletime_resource_generations", (name,), len(found)
        yield "idletime_observer_awaited_views", (name,), awaited[name]


# ---- families

def families(found: Iterable[Sample]) -> list[Family]:
    """Samples under their names, in the table's order. One that is there already (two VMs of one name and key) is left out: a
    reader takes all or nothing."""
    there: set[tuple[str, tuple[str, ...]]] = set()
    made = {metric.name: Family(metric.family, metric.help, metric.kind, metric.unit) for metric in METRICS}
    labels = {metric.name: metric.labels for metric in METRICS}
    for name, values, value in found:
        if (name, values) in there:
            continue
        there.add((name, values))
        family = made[name]
        if family.type == "histogram":
            *of, bound = values
            family.add_sample(f"{name}_bucket", {**dict(zip(labels[name], of, strict=True)), "le": bound}, float(value))
        else:
            family.add_sample(name, dict(zip(labels[name], values, strict=True)), float(value))
    return [family for family in made.values() if family.samples]


