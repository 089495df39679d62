# SPDX-License-Identifier: GPL-2.0-or-later
"""Processor and memory of a running domain, as its policy says: by libvirt's live settings, and by the kernel's scheduler.

What was in force before is kept in the live XML (metadata urn:idletime:before:1, which ends with the domain), so that it is
put back when the policy says it no more, whoever was restarted meanwhile. What nobody asked us to set is never touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import libvirt
from lxml import etree

from ..errors import IdletimeError
from ..policy import Class, CpuClass, Policy
from ..xmltree import Element

NAMESPACE, PREFIX = "urn:idletime:before:1", "idletimeb"

MIN_SHARES = 2
"""The smallest that libvirt accepts. It is 2 of 1,024 on cgroup v1, and 2 of 100 on v2, where libvirt takes it for
cpu.weight: ten times as much. There cpu.idle makes it 3 of 1,024 (Linux 5.15), past libvirt, which knows no less."""

UNLIMITED_KIB = 9007199254740991
"""VIR_DOMAIN_MEMORY_PARAM_UNLIMITED, which the binding for Python has not."""

LAST = 19
"""The least weight of an autogroup, 15 of 1,024. The kernel makes one of each session whose processes are in no cgroup of the
processors', and who is in it competes with others by its weight: neither the idle class nor a nice value counts beyond it."""

BUSY_SECONDS = 0.1
"""The kernel takes no second weight of any autogroup sooner, without CAP_SYS_ADMIN."""

CGROUPS, PROCESSES = "/sys/fs/cgroup", "/proc"

RECORDS = {"qemu:///system": "/run/libvirt/qemu"}
"""Where libvirt writes down its running domains: process ids (NAME.pid), and all that it knows of them (NAME.xml)."""

SHARES, SOFT_LIMIT, SCHEDULER, GROUP, AUTOGROUP = "shares", "soft-limit", "scheduler", "group-idle", "autogroup"
_PATHS = {SHARES: "./cputune/shares", SOFT_LIMIT: "./memtune/soft_limit"}
_OWN_SCHEDULERS = ("vcpusched", "iothreadsched", "emulatorsched")
_SCHEDULERS = {"idle": os.SCHED_IDLE, "other": os.SCHED_OTHER}
_NEEDS = {GROUP: "let idletimed write below /sys/fs/cgroup (no ProtectControlGroups in its unit)"}
_REMEDY = "give libvirtd its cgroup controllers (cgroup_controllers in qemu.conf), or restart the domain"

Values = Mapping[str, str]
"""By what is set: its value as text, "" is none."""


def pid_of(name: str, uri: str) -> int | None:
    """The QEMU of a domain; None if that is not known."""
    folder = RECORDS.get(uri)
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"{folder}/{name}.pid").read_text()) if folder else None
    return None


# ---- the decision

def wanted(policy: Policy | None, live: Element, group: bool = False, autogroup: bool = False) -> dict[str, str]:
    """What a policy asks for. Where the domain's XML has a scheduler of its own, that stays. group: it has a cgroup of v2
    that can be idle. autogroup: it has no cgroup, but an autogroup, and a share would be refused. A VM that was made foreground
    gets its processors back, whatever else its policy says."""
    values: dict[str, str] = {}
    if policy is not None and policy.cpu is not None and policy.class_ is not Class.FOREGROUND:
        values |= {AUTOGROUP: str(LAST)} if autogroup else {SHARES: str(MIN_SHARES)}
        if group:
            values[GROUP] = "1"
        if policy.cpu is CpuClass.IDLE and not any(live.findall(f"./cputune/{one}") for one in _OWN_SCHEDULERS):
            values[SCHEDULER] = "idle"
    if policy is not None and policy.memory is not None and policy.memory.high and policy.class_ is not Class.FOREGROUND \
            and not _unified():  # of v2 libvirt would make memory.high of it, which throttles even where memory is free
        values[SOFT_LIMIT] = str(policy.memory.high // 1024)
    return values


def change(want: Values, now: Values, before: Values) -> tuple[dict[str, str], dict[str, str]]:
    """What to set, in order, and what was in force before all that is set then, or is put back. Pure."""
    to_set = {name: value for name, value in before.items() if name not in want}
    to_set |= {name: value for name, value in want.items() if now.get(name, "") != value}
    # The kernel takes no weight of a group that is idle: that ends first, and begins last.
    order = sorted(to_set, key=lambda name: name == GROUP, reverse=to_set.get(GROUP) == "0")
    order.sort(key=AUTOGROUP.__eq__)  # it may have to wait
    to_set = {name: to_set[name] for name in order}
    return to_set, {**{name: now.get(name, "") for name in want if name in to_set}, **before}


# ---- facts and act

def bring(domain: Any, live: Element, policy: Policy | None, pid: int | None) -> list[str]:
    """Set what the policy says, take back what it does not say any more; what cannot be set, in words. What was in force is on
    record until it is so again. Raises BlockingIOError and IdletimeError where the rest has to be tried again."""
    record = live.find(f"./metadata/{{{NAMESPACE}}}before")
    before = {} if record is None else {str(name): str(value) for name, value in record.attrib.items()}
    idle = _group_file(pid)
    autogroup = _autogroup_of(pid)
    want = wanted(policy, live, idle is not None, autogroup is not None)
    if not want and not before:
        return []
    now = {name: (live.findtext(path) or "").strip() for name, path in _PATHS.items()}
    now[SCHEDULER] = _scheduler_of(pid)
    now[GROUP] = idle.read_text().strip() if idle else ""
    now[AUTOGROUP] = autogroup or ""
    to_set, known = change(want, now, before)
    if known != before:
        _keep(domain, known)
    done, problems = set(), {}
    try:
        for name, value in to_set.items():
            problem = _try(domain, pid, name, value)
            if problem and (name in want or now.get(name, "") != value):
                problems[name] = problem
            else:
                done.add(name)
    finally:
        over = (done - want.keys()) | (want.keys() - before.keys() - done)  # what is as it was, and what was never set
        left = {name: value for name, value in known.items() if name not in over}
        if left != known:
            _keep(domain, left)
    if problems.keys() - want.keys():
        raise IdletimeError("; ".join(problems.values()))
    return list(problems.values())


def _keep(domain: Any, kept: Values) -> None:
    record = etree.tostring(etree.Element("before", dict(kept)), encoding="unicode") if kept else None
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, record, PREFIX if kept else None, NAMESPACE,
                       libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _try(domain: Any, pid: int | None, name: str, value: str) -> str:
    """Set one; why it is not in force, "" if it is. Raises BlockingIOError."""
    try:
        _SET[name](domain, pid, value)
        return ""
    except BlockingIOError as error:
        raise BlockingIOError(f"{name} {value} is not in force yet: {error.strerror}") from error
    except libvirt.libvirtError as error:
        return f"{name} {value} is not in force: {error.get_error_message()}; remedy: {_REMEDY}"
    except OSError as error:
        return f"{name} {value} is not in force: {error}; remedy: {_NEEDS.get(name, 'idletimed needs CAP_SYS_NICE')}"


def _set_shares(domain: Any, _pid: int | None, value: str) -> None:
    usual = 100 if _unified() else 1024
    domain.setSchedulerParametersFlags({"cpu_shares": int(value or usual)}, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _unified() -> bool:
    """Whether this host has cgroup v2 alone."""
    return Path(f"{CGROUPS}/cgroup.controllers").exists()


def _set_soft_limit(domain: Any, _pid: int | None, value: str) -> None:
    kib = int(value) if value else UNLIMITED_KIB
    domain.setMemoryParameters({"soft_limit": kib}, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _set_group(_domain: Any, pid: int | None, value: str) -> None:
    file = _group_file(pid)
    if file is not None:
        file.write_text(value)


def _group_file(pid: int | None) -> Path | None:
    """cpu.idle of a domain's own cgroup of v2, which libvirt's own below it are part of; None where there is none."""
    with contextlib.suppress(OSError):
        for line in Path(f"{PROCESSES}/{pid}/cgroup").read_text().splitlines():
            number, _, path = line.partition("::")
            own = path.partition("/libvirt/")[0]
            if number == "0" and own != path and (file := Path(f"{CGROUPS}{own}/cpu.idle")).exists():
                return file
    return None


def _autogroup_of(pid: int | None) -> str | None:
    """The nice value of its autogroup, where that is in force; None where a cgroup is, or autogroups are off. libvirt starts
    each QEMU in a session of its own, so an autogroup is a VM's own."""
    with contextlib.suppress(OSError):
        found = re.fullmatch(r"/autogroup-\d+ nice (-?\d+)\s*", Path(f"{PROCESSES}/{pid}/autogroup").read_text())
        enabled = Path(f"{PROCESSES}/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
        if found and enabled and not _has_cpu_group(pid):
            return found[1]
    return None


def _has_cpu_group(pid: int | None) -> bool:
    """Whether it competes for processors as part of a cgroup, of v1 or v2, or of one above it. Raises OSError."""
    for line in Path(f"{PROCESSES}/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and path != "/" and "cpu" in controllers.split(","):
            return True
        if number == "0" and any(_can_share(group) for group in (Path(path), *Path(path).parents) if group != Path("/")):
            return True
    return False


def _can_share(group: PurePath) -> bool:
    """A cgroup of v2 that has the controller."""
    with contextlib.suppress(OSError):  # there is no v2, or its controllers are v1's
        return "cpu" in Path(f"{CGROUPS}{group}/cgroup.controllers").read_text().split()
    return False


def _set_autogroup(_domain: Any, pid: int | None, value: str) -> None:
    for left in (3, 2, 1, 0):
        try:
            Path(f"{PROCESSES}/{pid}/autogroup").write_text(value or "0")
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(BUSY_SECONDS)


def set_scheduler(_domain: Any, pid: int | None, value: str) -> None:
    """All threads of QEMU: vCPUs, I/O threads, its own. Those that come later inherit it."""
    if pid is None:
        raise ProcessLookupError("the process of its QEMU is not known")
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(int(thread.name), _SCHEDULERS.get(value, os.SCHED_OTHER), os.sched_param(0))


_SET: Mapping[str, Callable[[Any, int | None, str], None]] = {
    SHARES: _set_shares, SOFT_LIMIT: _set_soft_limit, SCHEDULER: set_scheduler,
    GROUP: _set_group, AUTOGROUP: _set_autogroup}


def _scheduler_of(pid: int | None) -> str:
    """ "idle" where all threads are; threads of a vCPU that was plugged in may not be."""
    try:
        found = {os.sched_getscheduler(int(one.name)) for one in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return "other"
    return "idle" if found == {os.SCHED_IDLE} else "other"
