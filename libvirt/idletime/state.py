# SPDX-License-Identifier: GPL-2.0-or-later
"""What idletimed says of this host, for everyone to read: small JSON files below RUN_DIR/.state.

    daemon.json   idletimed itself: its process, and what is wrong below /etc/idletime
    UUID.json     one running domain as it was looked at last: who it is and why, what it should have, what it has
    observers.json what observes this host's resources (observed.py)
    linger.json   of each VM that gets too little of the processors, whether it stays or moves, and why
    files.json    what files of rules.d and resources.d said when last nothing was wrong in them (conf/files.py)
    qmp-*.json    the same of a VM that no libvirt has started, by the path of its QMP socket

idletimed writes, the command reads. A file is replaced as a whole, so a reader waits for nobody. The folder begins with
a dot, which no resource's name does. Nothing here is needed to go on: who finds no file knows less, that is all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from lxml import etree

from . import whole
from .conf.rules import Decision
from .facts import DevicePlan, DiskJobs, Migration, Plan, ResourcePlan, Unresolved
from .policy.model import Class
from .steps import Have, steps

FOLDER = ".state"
VERSION = 1
_QMP, _LINGER, _FILES = "qmp-", "linger", "files"
NO_VMS = frozenset(f"{name}.json" for name in ("daemon", "observers", "gauge", _LINGER, _FILES))
"""Files of the folder that are about none."""

WRITTEN_SECONDS = 60.0
"""A temporary file that is older nobody writes."""

_T = TypeVar("_T", "DaemonState", "DomainState")


@dataclass(frozen=True)
class DaemonState:
    """idletimed. started: of its process, in the kernel's ticks since boot. problems: of files that were left out."""

    pid: int
    started: int
    uri: str
    version: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class DomainState:
    """One running domain.

    run: libvirt's id of this run. policy: digest() of its own policy as it was carried out, "" if it has none. class_, by,
    place, why: the decision (conf.rules.Decision). resources, devices, unresolved, jobs, migration: what it should have, each
    as a table with the plan's fields ("class" for class_). in_force: whether QEMU has that; problems say why not. query: what
    query-idletime returned then, None if QEMU does not know it. looked: when, in seconds since 1970. asked: what its guest
    asks for and is granted. enforced, better: which policy holds it and why, and what would be better, in words; "" is not
    known. suspends: whether it is stopped while the foreground needs what it uses. stopped: why it is so now, "" is not.
    memory_given: bytes of it that the foreground has now; memory_low: what it keeps at least; None: it never gives.
    limited: its devices that have a limit for the foreground now; None: it never has one. scratch: disks that may be dropped.
    exports: of each NBD export that is background, its disk.
    deadlines: of each block job that has one (police.deadline.Track), by id.
    socket: of QMP, where no libvirt has started it; then run is 0 and policy "".
    """

    uuid: str
    name: str
    run: int
    policy: str
    class_: str
    by: str
    why: str
    place: str
    in_force: bool
    looked: float
    problems: tuple[str, ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    devices: tuple[Mapping[str, Any], ...] = ()
    unresolved: tuple[Mapping[str, Any], ...] = ()
    query: tuple[Mapping[str, Any], ...] | None = None
    asked: str = ""
    socket: str = ""
    enforced: str = ""
    better: str = ""
    suspends: bool = False
    stopped: str = ""
    memory_given: int | None = None
    memory_low: int | None = None
    limited: tuple[str, ...] | None = None
    jobs: tuple[Mapping[str, Any], ...] = ()
    scratch: tuple[str, ...] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    deadlines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    migration: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Subject:
    """A run of a domain. policy: digest() of its own."""

    uuid: str
    name: str
    run: int
    policy: str


def digest(policy: etree._Element | None) -> str:
    """A policy element in a word: the same for what means the same XML; "" without one. Pure."""
    if policy is None:
        return ""
    alone = etree.fromstring(etree.tostring(policy, with_tail=False))
    for element in alone.iter():
        element.tail = None
        if isinstance(element.tag, str) and not (element.text or "").strip():
            element.text = None
        if isinstance(element.tag, str):  # a prefix means nothing
            element.tag = etree.QName(element).localname
    etree.cleanup_namespaces(alone)
    return hashlib.sha256(etree.tostring(alone, method="c14n", with_comments=False)).hexdigest()[:16]


def described(subject: Subject, decision: Decision, plan: Plan, query: Have | None, problems: Sequence[str],
              now: float, asked: str = "") -> DomainState:
    """What is to be said of a look at a domain. plan: with the guest's wish laid over it. query: what QEMU answered after
    the act, None where it was not asked or knows nothing of Idletime. Pure."""
    reached = not plan.devices if query is None else steps(plan, query).nothing
    return DomainState(
        subject.uuid, subject.name, subject.run, subject.policy, decision.class_, decision.by, decision.why, decision.place,
        reached and not problems, now, tuple(problems), _tables(plan.resources), _tables(plan.devices),
        _tables(plan.unresolved),
        None if query is None else tuple(query), asked, jobs=_tables(plan.jobs),
        migration=None if plan.migration is None else asdict(plan.migration))


def _tables(found: Sequence[ResourcePlan | DevicePlan | Unresolved | DiskJobs]) -> tuple[dict[str, Any], ...]:
    return tuple({key.rstrip("_"): value for key, value in asdict(one).items()} for one in found)


def plan_of(said: DomainState) -> Plan:
    """What a domain should have, the wish of its guest included. Raises KeyError, TypeError, ValueError for what is no plan."""
    return Plan(
        tuple(ResourcePlan(**{**one, "trail": tuple(one["trail"])}) for one in said.resources),
        tuple(DevicePlan(**{**{key: value for key, value in one.items() if key != "class"}, "class_": Class(one["class"])})
              for one in said.devices),
        tuple(Unresolved(**one) for one in said.unresolved),
        tuple(DiskJobs(**{**one, "also": tuple(one.get("also", ()))}) for one in said.jobs),
        None if said.migration is None else Migration(**said.migration))


# ---- writing: idletimed

def write_daemon(run_dir: str, problems: tuple[str, ...], uri: str, version: str) -> None:
    """Say that this process is idletimed. Makes the folder. Raises OSError."""
    folder = os.path.join(run_dir, FOLDER)
    os.makedirs(folder, 0o755, exist_ok=True)
    os.chmod(folder, 0o755)
    _write(folder, "daemon", DaemonState(os.getpid(), started(os.getpid()) or 0, uri, version, problems))


def write_domain(run_dir: str, state: DomainState) -> None:
    """Replace what is said of a domain. Raises OSError."""
    _write(os.path.join(run_dir, FOLDER), _key(state.socket) if state.socket else state.uuid, state)


def remove_domain(run_dir: str, uuid: str) -> None:
    """It does not run any more."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(run_dir, FOLDER, f"{uuid}.json"))


def keep_domains(run_dir: str, uuids: Iterable[str]) -> None:
    """Of libvirt's, only these run."""
    kept = {f"{uuid}.json" for uuid in uuids} | NO_VMS
    _remove(run_dir, lambda name: name not in kept and not name.startswith(_QMP))


def keep_vms(run_dir: str, sockets: Iterable[str]) -> None:
    """Of those without libvirt, only the VMs of these sockets are there."""
    kept = {f"{_key(socket)}.json" for socket in sockets}
    _remove(run_dir, lambda name: name.startswith(_QMP) and name not in kept)


def _remove(run_dir: str, which: Callable[[str], bool]) -> None:
    """Not what is being written, by a thread of this idletimed; of one that was killed, after a while."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder := os.path.join(run_dir, FOLDER))
    for name in filter(which, names):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            if not name.startswith(".") or time.time() - os.lstat(path).st_mtime > WRITTEN_SECONDS:
                os.unlink(path)


def _key(socket: str) -> str:
    return _QMP + hashlib.sha256(os.fsencode(socket)).hexdigest()[:16]


def write_linger(run_dir: str, says: Mapping[str, str]) -> None:
    """Replace what is said of VMs that get too little of the processors, by UUID. Raises OSError."""
    replace_file(os.path.join(run_dir, FOLDER), _LINGER, {"domains": dict(says)})


def write_files(run_dir: str, files: Mapping[str, str]) -> None:
    """Replace what the files below /etc/idletime said, by name, when last nothing was wrong in them. Raises OSError."""
    replace_file(os.path.join(run_dir, FOLDER), _FILES, {"files": dict(files)})


def remove_daemon(run_dir: str) -> None:
    """idletimed ends. What is said of domains stays: they keep what they have."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(run_dir, FOLDER, "daemon.json"))


def _write(folder: str, name: str, state: DaemonState | DomainState) -> None:
    replace_file(folder, name, asdict(state))


def replace_file(folder: str, name: str, values: Mapping[str, Any]) -> None:
    """Write folder/name.json as a whole. Raises OSError."""
    whole.write(os.path.join(folder, f"{name}.json"), json.dumps({"state-version": VERSION, **values}))


# ---- reading: the command

def daemon(run_dir: str) -> DaemonState | None:
    """idletimed, if it runs."""
    state = _read(DaemonState, run_dir, "daemon")
    return state if state is not None and started(state.pid) == state.started else None


def domain(run_dir: str, uuid: str) -> DomainState | None:
    """What is said of a domain; None where nothing is, or nothing that this version understands."""
    return _read(DomainState, run_dir, uuid)


def linger(run_dir: str, uuid: str) -> str:
    """Whether a VM that gets too little of the processors stays or moves, and why; "" where it has enough, or none says so."""
    domains = read_file(run_dir, _LINGER).get("domains") if daemon(run_dir) is not None else None
    return str(domains.get(uuid, "")) if isinstance(domains, dict) else ""


def vm(run_dir: str, socket: str) -> DomainState | None:
    """What is said of the VM behind a QMP socket."""
    return _read(DomainState, run_dir, _key(socket))


def vms(run_dir: str) -> list[DomainState]:
    """All VMs that no libvirt has started, by name."""
    found: list[DomainState | None] = []
    with contextlib.suppress(OSError):
        found = [_read(DomainState, run_dir, name.removesuffix(".json"))
                 for name in os.listdir(os.path.join(run_dir, FOLDER)) if name.startswith(_QMP)]
    return sorted((one for one in found if one is not None and one.socket), key=lambda one: (one.name, one.socket))


def read_file(run_dir: str, name: str) -> dict[str, Any]:
    """What a file says; nothing where it is not there, or this version does not understand it."""
    try:
        with open(os.path.join(run_dir, FOLDER, f"{name}.json"), encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) and data.pop("state-version", None) == VERSION else {}


def _read(kind: type[_T], run_dir: str, name: str) -> _T | None:
    known = {one.name for one in fields(kind)}
    values = {key: tuple(value) if isinstance(value, list) else value
              for key, value in read_file(run_dir, name).items() if key in known}
    try:
        return kind(**values)  # type: ignore[arg-type]
    except TypeError:
        return None


def started(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
