# SPDX-License-Identifier: GPL-2.0-or-later
"""Who a VM is, by its own policy, the rules or the default, and what follows for each of its devices.

The daemon, `check`, `status` and `explain` all ask this. It reads the host (resolve.Host) and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from . import scratch
from .conf import rules
from .devices import devices_of
from .errors import Finding, Kind, PolicyError, Severity
from .facts import RUN_DIR, DeviceFacts, Plan
from .plan import choose
from .policy import Policy
from .resolve import Host, gather
from .xmltree import Element, read

_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_TYPES = ("kvm", "qemu", "hvf")


@dataclass(frozen=True)
class Verdict:
    """decision: who it is, and why. plan: what its QEMU shall have. findings: what is left out, and why.
    scratch: disks that may be dropped."""

    decision: rules.Decision
    devices: tuple[DeviceFacts, ...] = ()
    plan: Plan = Plan()
    findings: tuple[Finding, ...] = ()
    scratch: tuple[scratch.Scratch, ...] = ()

    @property
    def policy(self) -> Policy | None:
        return self.decision.policy


def of_domain(xml: str, known: rules.Rules, host: Host, run_dir: str = RUN_DIR, running: bool = True) -> Verdict:
    """The verdict on a libvirt domain. Raises PolicyError (Kind.SYNTAX) where its XML or its own policy is wrong."""
    return of_tree(read(xml), known, host, run_dir, running)


def of_tree(root: Element, known: rules.Rules, host: Host, run_dir: str = RUN_DIR, running: bool = True,
            backup: Callable[[], Element | None] = lambda: None) -> Verdict:
    """The same for XML that was read. backup: looks for the <domainbackup> that runs."""
    if root.tag != "domain":
        raise _error(f"the XML is a '{root.tag}', not a domain",
                     "give a domain, such as 'virsh dumpxml --inactive DOMAIN' prints it", root)
    decision = rules.decide_tree(root, known)
    left = _left_over(root)
    if root.get("type") not in _TYPES:
        if decision.by != "domain":
            return Verdict(replace(decision, policy=None), findings=left)
        raise _error(f"type='{root.get('type')}' is not QEMU", "remove the policy, or use type='kvm' or type='qemu'", root)
    jobs = decision.policy is not None and decision.policy.jobs
    found = of_devices(decision, devices_of(root, backup() if jobs else None), host, run_dir, running)
    disks, wrong = scratch.of(root, decision.policy, host.tree, running)
    return replace(found, findings=tuple(_placed(one, running) for one in left + found.findings + wrong), scratch=disks)


def _placed(finding: Finding, running: bool) -> Finding:
    """Nobody looks at the lines of live XML."""
    return replace(finding, line=None) if running else finding


def of_devices(decision: rules.Decision, devices: Sequence[DeviceFacts], host: Host, run_dir: str = RUN_DIR,
               running: bool = True) -> Verdict:
    """What follows from a decision for these devices."""
    policy = decision.policy
    if policy is None:
        return Verdict(decision, tuple(devices))
    plan, findings = choose(policy, devices, gather(policy, devices, host, run_dir), running)
    return Verdict(decision, tuple(devices), plan, findings)


def _error(message: str, remedy: str, root: Element) -> PolicyError:
    return PolicyError([Finding(Severity.ERROR, Kind.FIT if root.tag == "domain" else Kind.SYNTAX, message, remedy,
                                str(root.tag) if root.tag == "domain" else "", root.sourceline)])


def _left_over(root: Element) -> tuple[Finding, ...]:
    """What earlier versions compiled into the XML. It starts with that; it is not needed, and the policy may differ."""
    for element in (*root.iter(f"{_QEMU}arg"), *root.iter(f"{_QEMU}property")):
        if "idletime" in f"{element.get('value', '')} {element.get('name', '')}":
            return (Finding(
                Severity.WARNING, Kind.FIT, "the XML has properties that an earlier version of Idletime compiled into it: the "
                "domain starts with these, until idletimed has brought it to its policy",
                f"'virsh edit {root.findtext('name')}': remove qemu:commandline and qemu:override where they name "
                "idletime, and 'compiled' from the metadata; nothing takes their place",
                str(element.tag).replace(_QEMU, "qemu:"), element.sourceline),)
    return ()
