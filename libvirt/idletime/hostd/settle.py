# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings one libvirt domain to what its policy says: level-triggered, from whatever state it is in.

    facts      live XML, rules.d, resources.d, the host; what its guest asks for
    decision   verdict.py: who it is, and its plan; rights.py: the guest's wish laid over it
    act        arenas are made; act.py brings QEMU to the plan; native.py what libvirt and the kernel do of it

Context: a thread of `hands`. Nothing is done where nothing differs, so that it may be called at any time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import libvirt
from lxml import etree

from .. import domains, due, meanwhile, resolve, state, verdict
from ..conf import rules
from ..devices import CHANNEL, channel_of
from ..enforced import carried_out, choice_of
from ..errors import Finding, IdletimeError, PolicyError, Severity
from ..facts import Plan
from ..police import deadline
from ..police.enforce import Choice
from ..policy import Policy
from ..policy.model import Class, Control
from ..policy.parse import find
from ..qmp import DomainMonitor
from ..scratch import Scratch
from ..xmltree import Element, read
from . import act, arena, kept, native, overlay, rates, reclaim, rights, stopped, usage, watched, wish
from .protocol import Wish
from .settings import Settings

_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)
"""It was undefined, or stopped, while we looked."""

_NO_CHANNEL = (f"its policy lets the guest lower itself, and it has no channel {CHANNEL}; remedy: virsh attach-device DOMAIN "
               f"FILE --live --config, with <channel type='unix'><target type='virtio' name='{CHANNEL}'/></channel>")


@dataclass(frozen=True)
class Looked:
    """What a look at a domain found, and what holds now. problems: for the log, in words."""

    name: str
    active: bool = False
    running: bool = False
    policy: Policy | None = None
    devices: tuple[rights.GuestDevice, ...] = ()
    grant: rights.Grant = field(default_factory=lambda: rights.Grant(Plan()))
    wish: Wish = Wish()
    channel: str | None = None
    pid: int | None = None
    problems: tuple[str, ...] = ()
    failed: bool = False  # worth another try
    part: watched.Part | None = None  # what observers have to know of it
    choice: Choice | None = None  # what holds it; None: this look does not say
    background: bool = False  # as a whole
    accesses: tuple[usage.Access, ...] = ()  # of a background VM: what it shares
    stopped: stopped.Record | None = None  # it is in its XML that we stopped it
    limited: frozenset[str] = frozenset()  # devices that have limits of ours, as its XML says
    memory: int = 0  # bytes
    balloon: bool = False
    taken: reclaim.Record | None = None  # that we have taken memory of it
    saved: reclaim.Record | None = None  # that we have saved it, and it is to be started again
    scratch: tuple[Scratch, ...] = ()  # disks that may be dropped
    dropped: overlay.Record | None = None  # that we have dropped some, or began to
    again_seconds: float | None = None  # it has a deadline, a job with one, or a policy for a while: look again after so long
    more_to_come: bool = False  # it has a backup whose exports may follow: look again soon


def settle(connection: Any, uuid: str, wanted: Wish | None, settings: Settings, known: rules.Rules) -> Looked | None:
    """Look at a domain and act; None if it is gone. wanted: what its guest asks for now; None: what is on record."""
    try:
        domain = connection.lookupByUUIDString(uuid)
        if not domain.isActive():
            return Looked(domain.name(), saved=reclaim.saved_of(domain), dropped=overlay.dropped_of(domain))
        return _Job(connection, domain, settings, known).settled(wanted)
    except libvirt.libvirtError as error:
        if error.get_error_code() in _GONE:
            return None
        raise


def _bytes(root: Element, name: str) -> int:
    """Of live XML, which has KiB."""
    text = (root.findtext(name) or "").strip()
    return int(text) * 1024 if text.isdecimal() else 0


@dataclass
class _Job:
    connection: Any
    domain: Any
    settings: Settings
    known: rules.Rules
    problems: list[str] = field(default_factory=list)
    failed: bool = False
    decision: rules.Decision | None = None
    have: list[dict[str, Any]] | None = None
    choice: Choice | None = None
    pending: bool = False  # a device or a block job has not left its resource yet
    more_to_come: bool = False
    exports: dict[str, str] = field(default_factory=dict)  # of each NBD export that is to be background, its disk
    tracks: dict[str, deadline.Track] = field(default_factory=dict)  # jobs that have a deadline
    due: due.Due | None = None  # when it becomes foreground
    lent: bool = False  # its policy is that of a command that runs
    began: float = field(default_factory=time.time)  # whatever QEMU says is of then or later

    def settled(self, wanted: Wish | None) -> Looked:
        name = self.domain.name()
        looked = Looked(name, active=True, running=domains.state(self.domain) == "running")
        root = None
        with self._noting():
            root = self._put_back(read(domains.xml_of(self.domain)))
            looked = replace(looked, stopped=stopped.of_domain(root), limited=rates.of_domain(root),
                             channel=channel_of(root) or None,
                             pid=native.pid_of(name, self.settings.uri), memory=_bytes(root, "memory"),
                             balloon=root.find("./devices/memballoon[@model]") is not None
                             and root.find("./devices/memballoon[@model='none']") is None, taken=reclaim.of_domain(root))
            looked = self._live(root, looked, wanted)
        if root is not None:
            self._tell(root, looked)
        return replace(looked, problems=tuple(self.problems), failed=self.failed, choice=self.choice,
                       again_seconds=self._again_seconds(), more_to_come=self.more_to_come)

    def _again_seconds(self) -> float | None:
        seconds = [deadline.PERIOD_SECONDS] if self.tracks else []
        seconds += [meanwhile.LOOK_SECONDS] if self.lent else []
        if self.due is not None and (left := self.due.at - time.time()) > 0:
            seconds.append(left)
        return min(seconds, default=None)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """A wrong policy is the operator's to mend; what libvirt, QEMU or the host refused may work later."""
        try:
            yield
        except PolicyError as error:
            self.say(error.findings)
        except (IdletimeError, OSError, ValueError, etree.XMLSyntaxError, libvirt.libvirtError) as error:
            if isinstance(error, libvirt.libvirtError) and error.get_error_code() in _GONE:
                raise
            self.problems.append(str(error))
            self.failed = True

    def say(self, findings: Iterable[Finding]) -> None:
        self.problems += [str(finding) for finding in findings if finding.severity is not Severity.NOTE]

    def _put_back(self, root: Element) -> Element:
        """What was the policy before a command that was killed. Returns the XML as it is then."""
        record = meanwhile.of_domain(root)
        if record is None:
            return root
        if not meanwhile.is_over(record):
            self.lent = True
            return root
        with self._noting():
            meanwhile.put_back(self.domain)
        return read(domains.xml_of(self.domain))

    def _tell(self, root: Element, looked: Looked) -> None:
        """For everyone to read: what holds now."""
        own = None
        with contextlib.suppress(PolicyError):
            own = find(root)
        subject = state.Subject(self.domain.UUIDString(), self.domain.name(), self.domain.ID(), state.digest(own))
        decision = self.decision or rules.Decision(None, "domain", "it cannot be read")
        told = state.described(subject, decision, looked.grant.plan, self.have, self.problems, self.began)
        told = replace(told, in_force=told.in_force and self.decision is not None and not self.pending, exports=self.exports,
                       deadlines=deadline.record(self.tracks))
        if self.choice is not None and decision.policy is not None:
            told = replace(told, enforced=self.choice.why, better=self.choice.remedy, suspends=self.choice.suspend)
        if looked.background and decision.policy is not None and decision.policy.memory is not None:
            given = max(0, looked.taken.bytes_ - _bytes(root, "currentMemory")) if looked.taken is not None else 0
            told = replace(told, memory_given=given, memory_low=decision.policy.memory.low)
        told = replace(told, scratch=tuple(one.target for one in looked.scratch) if self.settings.space.low_percent else ())
        if self.choice is not None and self.choice.rate:
            told = replace(told, limited=tuple(sorted(looked.limited)))
        if looked.stopped is not None and not looked.running:
            told = replace(told, stopped=looked.stopped.why)
        with self._noting():
            state.write_domain(self.settings.run_dir, told)

    def _live(self, root: Element, looked: Looked, wanted: Wish | None) -> Looked:
        host = resolve.Host(lookup=domains.HostLookup(self.connection), run_dir=self.settings.run_dir)
        found = verdict.of_tree(root, self.known, host, self.settings.run_dir, backup=lambda: domains.backup_of(self.domain))
        self.say(found.findings)
        self.decision, policy = found.decision, found.policy
        with self._noting():
            self._note_due(root, policy)
        with self._noting():
            self.problems += native.bring(self.domain, root, policy, looked.pid)
        choice = choice_of(policy, found.devices, found.plan, True)
        meant = carried_out(choice, found.plan)
        if not meant.asks and not domains.tainted(self.domain):
            self.choice, looked = choice, self._shared(looked, found, False, host)
            part = watched.part(looked.name, looked.pid, (), Plan(), None, host)
            asked = wanted or Wish()
            granted = rights.grant(policy, Plan(), rights.devices(found.devices, found.plan), asked)
            if not choice.as_a_whole:
                granted = rights.refuse(granted, granted.plan, asked, choice.why, rights.NOT_HELD)
            # Nobody has spoken to its QEMU yet, and there is nothing to say; to its guest there may be.
            return replace(looked, policy=policy, part=part, grant=granted, wish=asked)
        if policy is not None and policy.control is Control.DEMOTE and looked.channel is None:
            self.problems.append(_NO_CHANNEL)
        there = rights.devices(found.devices, found.plan)
        asked = self._recorded(root, policy, there, wanted)
        granted = rights.grant(policy, found.plan, there, asked)
        choice, stock = (choice_of(policy, found.devices, found.plan, ours, granted.background) for ours in (True, False))
        granted = replace(granted, plan=carried_out(choice, granted.plan))
        background = granted.background or (policy is not None and policy.class_ is Class.BACKGROUND)
        if not background or (choice.as_a_whole and stock.as_a_whole and choice.interval == stock.interval):
            self.choice = stock  # whether or not its QEMU can be asked
        with self._noting():  # what QEMU has is told even if it cannot be changed
            self._arenas(root, found.plan)
            granted = self._bring(found.plan, granted, asked)
            self.choice = choice_of(policy, found.devices, found.plan, self.have is not None, granted.background)
            granted = replace(granted, plan=carried_out(self.choice, granted.plan))
            if self.choice.as_a_whole and act.STOCK in self.problems:
                self.problems.remove(act.STOCK)  # it is stopped or limited instead
                self.problems += [act.STOCK_JOBS] if found.plan.jobs else []
        looked = self._shared(looked, found, granted.background, host)
        if self.have is None and self.choice is not None and not (self.failed or self.choice.as_a_whole):
            granted = rights.refuse(granted, granted.plan, asked, self.choice.why, rights.NOT_HELD)
        # What cannot be asked just now is as it was: observers go on.
        seen = None if self.failed and self.have is None else \
            watched.part(looked.name, looked.pid, found.devices, found.plan, self.have, host)
        return replace(looked, policy=policy, devices=there, grant=granted, wish=asked, part=seen)

    def _shared(self, looked: Looked, found: verdict.Verdict, lowered: bool, host: resolve.Host) -> Looked:
        """What of the host's use is a background VM's."""
        if found.policy is None or not (found.policy.class_ is Class.BACKGROUND or lowered):
            return looked
        if found.policy.memory is not None:
            reclaim.saved_of(self.domain)  # it was started meanwhile
        if found.policy.space:
            looked = replace(looked, scratch=found.scratch, dropped=overlay.dropped_of(self.domain))
        return replace(looked, background=True, accesses=usage.accesses(found.policy, found.devices, found.plan, host))

    def _note_due(self, root: Element, policy: Policy | None) -> None:
        """Put on record when it becomes foreground."""
        before = due.of_domain(root)
        self.due = due.after(before, policy.by if policy is not None else None, time.time())
        if self.due != before:
            kept.keep(self.domain, None if self.due is None else due.to_xml(self.due), due.PREFIX, due.NAMESPACE,
                      libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def _arenas(self, root: Element, plan: Plan) -> None:
        if not plan.resources:
            return
        who = arena.owner_of_domain(root, self.settings.owner, lambda: read(self.connection.getCapabilities()))
        for resource in plan.resources:
            arena.make(resource.path, who, arena.selinux_label)

    # ---- the guest's wish

    def _recorded(self, root: Element, policy: Policy | None, there: tuple[rights.GuestDevice, ...],
                  wanted: Wish | None) -> Wish:
        """The wish that counts. A new one is put on record first: were we killed now, it would not be lost."""
        kept = wish.of_domain(root)
        if wanted is None or wanted == kept:
            return kept
        allowed = rights.grant(policy, Plan(), there, wanted)
        record = wish.to_xml(wanted) if wanted and (allowed.background or allowed.queues) else None
        if record is not None or kept:
            self.domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, record, wish.PREFIX if record else None,
                                    wish.NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        return wanted

    def _bring(self, plan: Plan, granted: rights.Grant, asked: Wish) -> rights.Grant:
        """Bring QEMU to the plan with the wish; where it refuses that, to the policy's own."""
        monitor = DomainMonitor(self.domain)
        before, now = self._followed(granted.plan), time.time()
        brought = act.bring(monitor, granted.plan, before, now)
        lowered = {one.alias for one in granted.plan.devices if one not in plan.devices}
        causes = [text for subject, text in brought.refused.items() if subject in lowered]
        if not causes:
            self._note(brought)
            return granted
        self._note(act.bring(monitor, plan, before, now))
        return rights.refuse(granted, plan, asked, "; ".join(causes))

    def _followed(self, plan: Plan) -> dict[str, deadline.Track]:
        """Jobs of this run that have a deadline, as of the last look."""
        moves = plan.migration
        if not any(disk.by for disk in plan.jobs) and not (moves and (moves.by or moves.lets_go)):
            return {}
        said = state.domain(self.settings.run_dir, self.domain.UUIDString())
        return deadline.of_record(said.deadlines) if said is not None and said.run == self.domain.ID() else {}

    def _note(self, brought: act.Brought) -> None:
        self.problems += brought.words
        self.have, self.pending, self.more_to_come = brought.have, brought.pending, brought.more_to_come
        self.exports, self.tracks = brought.exports, brought.tracks
        self.failed = self.failed or brought.failed or brought.pending
