# SPDX-License-Identifier: GPL-2.0-or-later
"""What is wanted beside what is: the one model that tables and --json print. Built purely; sampled by sample()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import observed, resolve, verdict
from .conf.rules import Decision, Rules, decide_xml
from .enforced import carried_out, choice_of
from .errors import MonitorError, PolicyError, Severity
from .facts import RUN_DIR, DevicePlan, DiskJobs, Migration, Plan, ResourcePlan
from .hostd import overlay, reclaim, stopped
from .hostd.act import STOCK, STOCK_SEEN
from .jobs import JOB, MIGRATION, attached, of_libvirt
from .observed import ObserverState
from .policy.model import Class
from .policy.parse import find
from .qmp import UNKNOWN_COMMAND, DomainMonitor, Monitor, query
from .state import DomainState, digest, plan_of
from .state import domain as domain_state
from .state import linger as linger_state
from .steps import Steps, defaults, steps
from .xmltree import Element, read

BY_QEMU, KERNEL = "QEMU", "the kernel"

SILENT = ("its QEMU does not answer; figures are those of idletimed's last look; remedy: see whether it is stopped, or waits "
          "for storage that is gone")
UNASKED = "its QEMU was not asked, as others do not answer; figures are those of idletimed's last look"


@dataclass(frozen=True)
class DeviceStatus:
    """One device. Wanted by the policy: resource, class_wanted. In QEMU now: the rest; None is unknown.

    seen: whether background VMs see what it sends as foreground; a NIC with vhost passes QEMU by. seen_by: "QEMU", or "the
    kernel" where an observer sees it.
    """

    kind: str
    target: str
    device: str
    resource: str
    class_wanted: str
    class_now: str | None = None
    resource_now: str | None = None
    held: int | None = None
    in_service: int | None = None
    foreground_requests: int | None = None
    background_requests: int | None = None
    foreground_bytes: int | None = None
    background_bytes: int | None = None
    promotions: int | None = None
    seen: bool | None = None
    seen_by: str | None = None


@dataclass(frozen=True)
class BlockJob:
    """A block job, NBD export or migration that is background in QEMU now. type: what it does; disk: its target; requests:
    chunks."""

    id: str
    type: str
    disk: str
    resource: str
    held: int
    in_service: int
    requests: int
    bytes: int
    promotions: int


@dataclass(frozen=True)
class ResourceStatus:
    """One resource object of a domain; None is unknown. generation: of the arena's layout; QEMUs of other_generations use
    the same resource now, and are not seen. observer: "seen", "absent", or "lost" where observe = true."""

    id: str
    name: str
    path: str
    interval_us_wanted: int
    trail: tuple[str, ...] = ()
    state: str | None = None
    interval_us: int | None = None
    auto: bool | None = None
    shadow: bool | None = None
    rate_bps: int | None = None
    held: int | None = None
    collisions: int | None = None
    collision_cost_us: int | None = None
    generation: int | None = None
    other_generations: tuple[int, ...] = ()
    observer: str | None = None


@dataclass(frozen=True)
class DomainStatus:
    """One domain. class_ None: it is nobody's, and not attached. by: who says so ("domain", "rule", "default"), why in words.
    in_force: whether QEMU has what the policy wants; None is unknown. asked: what its guest asks for. figures_at: when
    idletimed took the figures, in seconds since 1970; None: they are QEMU's of now, or there are none. enforced: which policy
    holds it and why, as the end of a sentence about it; better: what would let a better one hold. suspends: whether it is
    stopped while the foreground needs what it uses. stopped: why idletimed has stopped or saved it, as its XML says.
    memory_given: bytes of its memory that the foreground has now; memory_low: what it keeps at least; None: it never gives.
    limited: its devices that have a limit for the foreground now; None: it never has one. jobs: of which disks block jobs
    are background, and on which resource; migration: the same. scratch: disks that may be dropped. block_jobs: those that run
    and are background. linger: whether it stays where it gets too little of the processors, and why; "" where it has enough."""

    name: str
    uuid: str
    state: str
    persistent: bool
    class_: str | None = None
    control: str | None = None
    by: str | None = None
    why: str | None = None
    in_force: bool | None = None
    devices: tuple[DeviceStatus, ...] = ()
    resources: tuple[ResourceStatus, ...] = ()
    problems: tuple[str, ...] = ()
    asked: str = ""
    figures_at: float | None = None
    enforced: str = ""
    better: str = ""
    suspends: bool = False
    stopped: str = ""
    memory_given: int | None = None
    memory_low: int | None = None
    limited: tuple[str, ...] | None = None
    jobs: tuple[DiskJobs, ...] = ()
    migration: Migration | None = None
    scratch: tuple[str, ...] = ()
    block_jobs: tuple[BlockJob, ...] = ()
    linger: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {key.rstrip("_"): value for key, value in asdict(self).items()}


@dataclass
class Told:
    """What is known of a domain before the model is built."""

    decision: Decision | None = None
    plan: Plan = field(default_factory=Plan)
    query: Sequence[Mapping[str, Any]] | None = None
    stock: bool = False
    problems: list[str] = field(default_factory=list)
    left_out: bool = False  # something that the policy says cannot be in force
    said: DomainState | None = None  # by idletimed, of this run and this policy
    old: bool = False  # the figures are those of idletimed's look
    observers: Mapping[str, ObserverState] = field(default_factory=dict)  # by resource
    enforced: tuple[str, str, bool] = ("", "", False)  # as in DomainStatus: enforced, better, suspends


def build(name: str, uuid: str, state: str, persistent: bool, facts: Told) -> DomainStatus:
    """The model from the facts. Pure."""
    policy = facts.decision.policy if facts.decision else None
    by, why = (facts.decision.by, str(facts.decision)) if facts.decision and policy else (None, None)
    if policy is None:
        return DomainStatus(name, uuid, state, persistent, problems=tuple(facts.problems))
    todo = steps(facts.plan, facts.query) if facts.query is not None else None
    resources = _resources(facts)
    devices = _devices(name, facts)
    if devices and all(one.seen_by == KERNEL for one in devices):
        facts.problems = [STOCK_SEEN if one == STOCK else one for one in facts.problems]
    problems = [*facts.problems, *map(str, todo.findings if todo else ()), *_generations(resources),
                *_unobserved(resources, facts), *_hidden(name, facts)]
    return DomainStatus(name, uuid, state, persistent, policy.class_.value, policy.control.value, by, why,
                        _in_force(facts, todo), devices, resources, tuple(dict.fromkeys(problems)),
                        facts.said.asked if facts.said else "", facts.said.looked if facts.said and facts.old else None,
                        *facts.enforced, jobs=facts.plan.jobs, migration=facts.plan.migration, block_jobs=_block_jobs(facts))


def _in_force(facts: Told, todo: Steps | None) -> bool | None:
    if facts.stock:
        return False
    if facts.said is not None and facts.old:
        return facts.said.in_force
    return None if todo is None else todo.nothing and not facts.left_out


def _devices(name: str, facts: Told) -> tuple[DeviceStatus, ...]:
    now = {device["device"]: (resource["id"], device) for resource in facts.query or () for device in
           resource["devices"]}
    result = []
    for want in facts.plan.devices:
        resource, device = now.get(want.alias, (None, None))
        wanted = (want.kind, want.target, want.alias, want.resource, want.class_.value)
        kernel = _by_kernel(name, facts, want)
        if device is None:
            result.append(DeviceStatus(*wanted, seen=True if kernel else None, seen_by=KERNEL if kernel else None))
            continue
        seen = device.get("seen", True)
        result.append(DeviceStatus(*wanted, device["class"], resource, device["held"], device["in-service"],
                                   device["foreground"]["requests"], device["background"]["requests"],
                                   device["foreground"]["bytes"], device["background"]["bytes"],
                                   sum(device["promotions"].values()), seen or kernel,
                                   BY_QEMU if seen else KERNEL if kernel else None))
    return tuple(result)


def _block_jobs(facts: Told) -> tuple[BlockJob, ...]:
    found = []
    exported = facts.said.exports if facts.said is not None else {}
    targets = {one.alias: one.target for one in facts.plan.devices}
    for one in attached(facts.query or ()):
        job = one.said
        if one.kind == MIGRATION and not job["held"] and not job["in-service"]:
            continue  # none runs
        type_, disk = (one.kind, exported.get(one.id, "")) if one.kind != JOB else of_libvirt(one.id, targets)
        found.append(BlockJob(one.id, type_ or "job", disk or one.id, one.resource, job["held"], job["in-service"],
                              job["background"]["requests"], job["background"]["bytes"], sum(job["promotions"].values())))
    return tuple(found)


def _by_kernel(domain: str, facts: Told, want: DevicePlan) -> bool:
    """Whether an observer sees a device where QEMU does not."""
    name = next((one.name for one in facts.plan.resources if one.id == want.resource), "")
    one = facts.observers.get(name)
    return one is not None and one.alive and want.class_ is Class.FOREGROUND and domain not in one.hidden and \
        f"{domain}: {want.label}" not in one.hidden_disks


def _unobserved(resources: Sequence[ResourceStatus], facts: Told) -> list[str]:
    """observe = true, and nobody does."""
    return [str(one) for resource in resources if (one := facts.observers.get(resource.name)) and one.declared and
            not one.alive]


def _hidden(domain: str, facts: Told) -> list[str]:
    """What of this domain an observer does not see."""
    return [f"{message}; remedy: {remedy}" for one in facts.observers.values() if one.alive
            for name, message, remedy in one.unseen() if name == domain]


def _resources(facts: Told) -> tuple[ResourceStatus, ...]:
    now = {resource["id"]: resource for resource in facts.query or ()}
    return tuple(_resource(facts.plan, want, now.get(want.id, {})) for want in facts.plan.resources)


def _resource(plan: Plan, want: ResourcePlan, now: Mapping[str, Any]) -> ResourceStatus:
    wanted = int({**defaults(plan, want.id), **want.properties}["interval-us"])
    return ResourceStatus(
        want.id, want.name, want.path, wanted, want.trail, now.get("state"), now.get("interval-us"), now.get("auto"),
        now.get("shadow"), now.get("rate-bps"), now.get("held"), now.get("collisions"), now.get("collision-cost-us"),
        now.get("generation"), tuple(now.get("other-generations", ())),
        now.get("observer", {}).get("state"))


def _generations(resources: Sequence[ResourceStatus]) -> list[str]:
    return [f"resource '{one.name}': its QEMU uses generation {one.generation} of the arena, others use "
            f"{', '.join(map(str, one.other_generations))}: they do not see each other; remedy: virt-idletime doctor"
            for one in resources if one.other_generations]


# ---- sampling

def facts_of(xml: str, host: resolve.Host, monitor: Monitor | None, run_dir: str = RUN_DIR,
             known: Rules = Rules()) -> Told:
    """Everything about one domain: its XML (live, if it runs), and QEMU's answer if there is a monitor."""
    facts = Told()
    try:
        found = verdict.of_domain(xml, known, host, run_dir, running=monitor is not None)
    except PolicyError as error:
        facts.problems += [str(finding) for finding in error.findings]
        return facts
    facts.decision, facts.plan = found.decision, found.plan
    wrong = [finding for finding in found.findings if finding.severity is not Severity.NOTE]
    facts.problems, facts.left_out = [str(finding) for finding in wrong], bool(wrong)
    if monitor is not None and (found.plan.devices or found.plan.jobs):
        ask(monitor, facts)
    if found.policy is not None:
        choice = choice_of(found.policy, found.devices, found.plan, not facts.stock)
        facts.plan, facts.enforced = carried_out(choice, found.plan), (choice.why, choice.remedy, choice.suspend)
        if choice.as_a_whole:
            facts.stock, facts.problems = False, [one for one in facts.problems if one != STOCK]
    return facts


def ask(monitor: Monitor, facts: Told) -> None:
    """QEMU's figures of now in place of those that are there."""
    try:
        facts.query, facts.old = query(monitor), False
    except MonitorError as error:
        facts.stock = error.reason == UNKNOWN_COMMAND
        facts.problems.append(STOCK if facts.stock else str(error))


def sample(domain: Any, state: str, xml: str, host: resolve.Host, numbers: bool,
           run_dir: str = RUN_DIR, known: Rules = Rules()) -> DomainStatus:
    """The status of one libvirt domain. numbers: ask QEMU (needs a read-write connection); else what idletimed has seen."""
    running = state in ("running", "paused")
    said = said_of(xml, domain.ID(), domain.UUIDString(), run_dir) if running else None
    facts = told(xml, said, known) if said is not None else None
    monitor = DomainMonitor(domain) if numbers and running else None
    if facts is None:
        facts = facts_of(xml, host, monitor, run_dir, known)
    elif monitor is not None and facts.plan.asks:
        ask(monitor, facts)
    facts.observers = observed.read(run_dir) if running else {}
    found = build(domain.name(), domain.UUIDString(), state, bool(domain.isPersistent()), facts)
    if said is not None:
        found = replace(found, memory_given=said.memory_given, memory_low=said.memory_low, limited=said.limited,
                        scratch=said.scratch, linger=linger_state(run_dir, found.uuid))
    why = _stopped(state, read(xml))
    return replace(found, stopped=why) if why else found


def _stopped(state: str, root: Element) -> str:
    """Why idletimed has stopped or saved a domain; "" if it has not."""
    if state == "paused":
        record = stopped.of_domain(root)
        return record.why if record is not None else ""
    if state != "shut off":
        return ""
    saved, dropped = reclaim.of_domain(root), overlay.of_domain(root)
    if dropped is not None:
        return str(dropped)
    return f"saved to disk until memory is free again: {saved.why}" if saved is not None and saved.why else ""


def said_of(xml: str, run: int, uuid: str, run_dir: str) -> DomainState | None:
    """What idletimed says of this run of a domain with the policy that it has now; None if it has not looked since."""
    said = domain_state(run_dir, uuid)
    try:
        return said if said is not None and (said.run, said.policy) == (run, digest(find(read(xml)))) else None
    except PolicyError:
        return None


def told(xml: str, said: DomainState, known: Rules) -> Told | None:
    """The facts as idletimed has them: it knows what the guest asks for, and may look where a user may not."""
    try:
        decision = decide_xml(xml, known)
        facts = by_said(decision, said)
    except (PolicyError, KeyError, TypeError, ValueError):
        return None
    return facts if decision.class_ == said.class_ else None  # else a file below /etc/idletime has changed since


def by_said(decision: Decision, said: DomainState) -> Told:
    """The same of a VM that is decided. Raises KeyError, TypeError, ValueError for what is no plan."""
    return Told(decision, plan_of(said), said.query, False, list(said.problems), bool(said.problems), said, True,
                enforced=(said.enforced, said.better, said.suspends))
