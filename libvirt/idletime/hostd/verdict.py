# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a domain may start, and which arenas it needs. Pure.

    operation      what libvirt lets a hook do     what is decided
    prepare        refuse                          whether policy, host and XML fit; arenas
    migrate        refuse, other XML               the same, with resources of this host: XML compiled anew
    restore        refuse, other XML               the same
    others         nothing                         nothing

A domain without a policy is never refused and never changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..compiler import CompileResult
from ..errors import PolicyError, Severity
from .settings import Settings

REWRITES = ("migrate", "restore")
"""Operations whose hook may print other XML."""

OPERATIONS = ("prepare", *REWRITES)


@dataclass(frozen=True)
class Verdict:
    """refuse: libvirt shall not go on. messages: for the operator. xml (None: as it was). arenas: to make."""

    refuse: bool = False
    messages: tuple[str, ...] = ()
    xml: str | None = None
    arenas: tuple[str, ...] = ()


def decide(operation: str, name: str, xml: str, outcome: CompileResult | PolicyError, settings: Settings,
           before: CompileResult | None = None) -> Verdict:
    """The verdict on one domain. outcome: what the compiler made of its XML on this host; before: on this host as it
    was when the XML was compiled, None if that gives another XML."""
    if operation not in OPERATIONS:
        return Verdict()
    if isinstance(outcome, PolicyError):
        texts = tuple(f"domain '{name}': {finding}" for finding in outcome.findings)
        return Verdict(settings.on_misfit == "refuse", texts + _way_out(settings.on_misfit, "on-misfit"))
    if outcome.policy is None:
        return Verdict()
    arenas = tuple(resource.path for resource in outcome.plan.resources)
    warnings = tuple(f"domain '{name}': {finding}" for finding in outcome.findings
                     if finding.severity is not Severity.NOTE)
    if operation in REWRITES:
        return Verdict(False, warnings, outcome.xml, arenas)
    if xml == outcome.xml:  # the compiler leaves alone what is compiled, however libvirt has put it
        return Verdict(False, warnings, None, arenas)
    if before is not None:
        changed = (f"domain '{name}': this host has changed since its policy was compiled (routes, disks, resources.d): it "
                   "starts as it was compiled; remedy: none needed, idletimed compiles it for the next start",)
        return Verdict(False, warnings + changed, None, tuple(resource.path for resource in before.plan.resources))
    stale = (f"domain '{name}': its policy is not, or not as it is now on this host, in the XML that starts; remedy: "
             f"'virt-idletime apply {name} --config', or 'virt-idletime compile' for a transient domain",)
    refuse = settings.on_uncompiled == "refuse"
    return Verdict(refuse, warnings + stale + _way_out(settings.on_uncompiled, "on-uncompiled"), None, arenas)


def _way_out(action: str, setting: str) -> tuple[str, ...]:
    if action != "refuse":
        return ()
    return (f"to start such domains nevertheless, set {setting} = \"warn\" in /etc/idletime/idletimed.toml",)
