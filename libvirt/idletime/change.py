# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes a domain's policy and brings it into force: persistent XML, running domain, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libvirt

from . import compiler, domains, live, policy, resolve
from .compiler.want import MIN_SHARES
from .domains import HostError
from .errors import Exit, Finding, Kind, Severity
from .policy import CpuClass, Policy, edit
from .qmp import Monitor

Edit = Callable[[str], str]


def apply(connection: Any, domain: Any, edited: Edit, want_live: bool, want_config: bool,
          run_dir: str) -> list[Finding]:
    """Edit the policy and apply it. Neither flag: both, as far as they apply. Returns warnings and notes.

    With the persistent XML among what is changed, its policy is the one that is used for the running domain, too.
    Everything is compiled before anything is changed. Raises PolicyError, HostError, MonitorError.
    """
    running, persistent = bool(domain.isActive()), bool(domain.isPersistent())
    if not want_live and not want_config:
        want_live, want_config = running, persistent
    _possible(domain, want_live and not running, want_config and not persistent)
    lookup = domains.HostLookup(connection)

    def facts(xml: str) -> compiler.HostFacts:
        return resolve.gather(xml, lookup=lookup, run_dir=run_dir, emulators=lambda: domains.emulators_of(domain))

    findings: list[Finding] = []
    config = live_xml = None
    policy_text = None
    if want_config:
        stored = domains.xml_to_define(domain)
        config = edited(stored)
        compiled = compiler.compile(config, facts(config))
        findings += compiled.findings
        policy_text = edit.element_text(config)
    if want_live:
        before = domains.xml_of(domain)
        live_xml = edit.replaced(before, policy_text) if want_config else edited(before)
        plan = compiler.plan(live_xml, facts(live_xml))
    if want_config and compiled.xml != stored:
        domains.define(connection, compiled.xml)
    if want_live:
        findings += _apply_live(connection, domain, live_xml or "", plan)
    return list(dict.fromkeys(findings))


def _possible(domain: Any, not_running: bool, transient: bool) -> None:
    if not_running:
        raise HostError(f"'{domain.name()}' is not running; remedy: leave --live out, or start it first", Exit.FAILED)
    if transient:
        raise HostError(f"'{domain.name()}' is transient, it has no persistent XML; remedy: leave --config out, or "
                        "compile its XML before 'virsh create': virt-idletime compile FILE", Exit.FAILED)


def _apply_live(connection: Any, domain: Any, xml: str, plan: compiler.Plan) -> list[Finding]:
    if not domains.is_qemu(connection):
        raise HostError("only domains of QEMU can be changed live; remedy: use --config")
    wanted = policy.parse(xml)
    findings = list(live.apply(Monitor(domain), plan))
    domains.set_policy(domain, edit.element_text(xml), live=True, config=False)
    return findings + (_native(domain, wanted) if wanted else [])


def _native(domain: Any, wanted: Policy) -> list[Finding]:
    """Memory and processor of a running domain, as far as libvirt changes them live."""
    flags = libvirt.VIR_DOMAIN_AFFECT_LIVE
    findings: list[Finding] = []
    if wanted.soft_limit_bytes is not None:
        kib = wanted.soft_limit_bytes // 1024
        findings += _try(domain.setMemoryParameters, {"soft_limit": kib}, flags, f"soft-limit of {kib} KiB")
    if wanted.cpu is not None:
        what = f"cpu class '{wanted.cpu.value}'"
        findings += _try(domain.setSchedulerParametersFlags, {"cpu_shares": MIN_SHARES}, flags, what)
    if wanted.cpu is CpuClass.IDLE and "scheduler='idle'" not in domain.XMLDesc(0):
        findings.append(_later("cpu class 'idle'", "libvirt sets the scheduler at start only",
                               "restart the domain; until then it has the smallest share only"))
    return findings


def _try(call: Callable[..., Any], values: dict[str, int], flags: int, what: str) -> list[Finding]:
    try:
        call(values, flags)
        return []
    except libvirt.libvirtError as error:
        return [_later(what, str(error.get_error_message()), "restart the domain, or give libvirtd its cgroup "
                                                             "controllers (cgroup_controllers in qemu.conf)")]


def _later(what: str, why: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, Kind.LIVE, f"{what} is not in force in the running domain: {why}", remedy)
