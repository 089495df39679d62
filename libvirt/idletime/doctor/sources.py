# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the facts: libvirt, QMP, and files below one root. What cannot be read is not known, and no failure."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from .. import domains, observed, sockets, state, verdict
from ..conf import rules
from ..devices import pci_address
from ..errors import IdletimeError, MonitorError, PolicyError, Severity, printable
from ..facts import DISK, DeviceFacts, DevicePlan
from ..hostd import act
from ..hostd.settings import Settings
from ..patience import Patience
from ..plan import ID_PREFIX
from ..policy.model import Class
from ..qmp import DomainMonitor, Monitor, SocketMonitor, query
from ..resolve import Host
from ..resolve.tree import Tree
from ..steps import Have
from ..xmltree import Element, get, read
from .facts import OLD, OURS, STOCK, DomainFacts, Emulator, Generation, HostFacts, Nic

HOOKS = ("/etc/libvirt/hooks/qemu.d/idletime", "/etc/libvirt/hooks/qemu")
APPARMOR = ("/etc/apparmor.d/local/abstractions/libvirt-qemu", "/etc/apparmor.d/abstractions/libvirt-qemu")
LIVE_COMMAND, ANY_COMMAND = "idletime-attach", "query-idletime"

FIRST = 3
"""The generation of QEMUs that do not say which theirs is."""

_AT_ONCE = 4
_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
_KERNEL = ("bridge", "network", "direct", "ethernet")  # interfaces for which libvirt uses vhost unless told otherwise
_PAST = {"vhostuser": "vhost-user", "vdpa": "vhost-vdpa", "hostdev": "VFIO"}
_DISKS_PAST = {"vhostuser": "vhost-user (SPDK)", "vhostvdpa": "vhost-vdpa", "nvme": "VFIO (a disk of its own)"}
_PCI = {"01": ("storage", "requests", "disk"), "02": ("network", "packets", "interface"),
        "0c04": ("Fibre Channel", "requests", "disk")}
"""By the first digits of a PCI device's class: what it is, what goes through it, and what could be had of QEMU instead."""
_UUID = re.compile(r"(?:^|\0)-uuid\0([0-9a-f-]{36})(?:\0|$)")


def gather(connection: Any, settings: Settings, run_dir: str, patience: Patience | None, root: str = "/") -> HostFacts:
    """All facts. connection None: the host has no libvirt. patience: QEMUs may be asked, by it (by read-write connections)."""
    tree = Tree(root, run_dir)
    lookup = domains.HostLookup(connection) if connection is not None else None
    host, known = Host(root, lookup, run_dir), rules.load(tree)
    pids = _pids(tree)
    look = _Look(tree, host, known, run_dir, patience is not None, pids)
    found = [one for one in _domains(connection, look, patience) if one] if connection is not None else []
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # a QEMU that is slow to answer keeps no other waiting
        found += pool.map(lambda said: _vm(said, look), sockets.there(run_dir))
    hook, old = _hook(tree)
    mode, kind = _run_dir(tree, run_dir)
    return HostFacts(
        run_dir, "", state.daemon(run_dir) is not None,
        tuple(map(str, (*host.resources.findings, *known.findings))), hook, old, settings.strict, _bridge(tree),
        tree.text("/sys/module/apparmor/parameters/enabled") == "Y", _apparmor(tree, run_dir),
        tree.text("/sys/fs/selinux/enforce") == "1", _selinux(tree, run_dir), mode, kind,
        tuple(sorted(found, key=lambda one: one.name)), tuple(look.observers.values()))


# ---- a domain

class _Look:
    """What a look at a domain needs."""

    def __init__(self, tree: Tree, host: Host, known: rules.Rules, run_dir: str, ask: bool, pids: Mapping[str, int]):
        self.tree, self.host, self.known = tree, host, known
        self.run_dir, self.ask, self.pids = run_dir, ask, pids
        self.observers = observed.read(run_dir)


def _domains(connection: Any, look: _Look, patience: Patience | None) -> Iterator[DomainFacts | None]:
    listed, unasked = {one.UUIDString(): one for one in domains.all_of(connection)}, copy(look)
    unasked.ask = False
    found = patience.ask({uuid: partial(_asked_of, uuid, look) for uuid in listed}) if patience else {}
    late = patience.late if patience else ()
    for uuid, one in listed.items():
        if uuid in found:
            yield found[uuid]
        elif (facts := _domain(one, unasked)) is not None:
            yield replace(facts, silent=uuid in late)


def _asked_of(uuid: str, look: _Look, own: Any) -> DomainFacts | None:
    with contextlib.suppress(domains.LibvirtError):
        return _domain(own.lookupByUUIDString(uuid), look)
    return None


def _domain(domain: Any, look: _Look) -> DomainFacts | None:
    """None: it went away since it was listed."""
    with contextlib.suppress(IdletimeError, domains.LibvirtError):
        name, uuid, running = domain.name(), domain.UUIDString(), bool(domain.isActive())
        xml = domains.xml_of(domain)
        stored = domains.xml_of(domain, inactive=True) if domain.isPersistent() else xml
        pid = look.pids.get(uuid) if running else None
        said = state.domain(look.run_dir, uuid) if running else None
        said = said if said is not None and said.run == domain.ID() else None
        root = read(xml)
        class_, left_out, wrong, planned, devices = _verdict(xml, look, running)
        emulator = _emulator(domain, root, pid, look) if running else None
        have = _query(domain, emulator, look.ask, said)
        nics = tuple(_nics(root, planned, have, _observed(look, planned)))
        return DomainFacts(
            name, running, class_, emulator, nics, left_out, tuple(_generations(have)),
            _compiled(root) or _compiled(read(stored)), _confined(root), wrong, said.problems if said else (),
            (*_beyond(devices, have, look.host), *_passed_through(root, look.tree)) if running else (),
            said is not None and said.suspends)
    return None


def _observed(look: _Look, planned: Iterable[DevicePlan]) -> frozenset[str]:
    """Targets of foreground devices that an observer sees."""
    alive = {f"{ID_PREFIX}{name}" for name, one in look.observers.items() if one.alive}
    return frozenset(one.target for one in planned if one.resource in alive and one.class_ is Class.FOREGROUND)


def _beyond(devices: Iterable[DeviceFacts], query: Have, host: Host) -> Iterator[str]:
    """Disks whose requests pass QEMU and the kernel's block layer by."""
    seen = {device["device"] for resource in query for device in resource["devices"] if device.get("seen", True)}
    for one in devices:
        way = _way(one, host) if one.kind == DISK and one.alias not in seen else ""
        if way:
            remedy = "use a source that QEMU serves itself, on" if one.unserved else "run it on"
            yield (f"{one.label}: its requests go by {way}: nobody on this host sees them, so background does not wait; "
                   f"remedy: {remedy} Idletime's QEMU, as foreground")


def _passed_through(root: Element, tree: Tree) -> Iterator[str]:
    """PCI devices of the host that are given to the guest whole: of disks and networks, not of graphics and others."""
    for address in root.iterfind("./devices/hostdev[@type='pci']/source/address"):
        with contextlib.suppress(ValueError):  # numbers that are none
            name = pci_address(address)
            code = (tree.text(f"/sys/bus/pci/devices/{name}/class") or "").removeprefix("0x")
            kind, what, instead = _PCI.get(code[:4]) or _PCI.get(code[:2]) or ("", "", "")
            if kind:
                yield (f"hostdev pci {name} ({kind}): its {what} go by VFIO: nobody on this host sees or holds them, so "
                       "background does not wait; remedy: none is needed where nobody else uses what is behind it; else (a "
                       f"virtual function, LUNs of a shared array) give the VM a virtio {instead}")


def _way(device: DeviceFacts, host: Host) -> str:
    """How requests leave without the host's block layer, "" if they pass it."""
    source = device.source
    if source.type in _DISKS_PAST:
        return _DISKS_PAST[source.type]
    if source.type == "network":
        protocol = source.endpoint.partition(":")[0]
        return {"rbd": "librbd"}.get(protocol, f"QEMU's own client of {protocol or 'network storage'}")
    return "NFS" if (host.resolve(source).name or "").startswith("nfs-") else ""


_Judged = tuple[str | None, tuple[str, ...], tuple[str, ...], tuple[DevicePlan, ...], tuple[DeviceFacts, ...]]


def _verdict(xml: str, look: _Look, running: bool) -> _Judged:
    """Class, what is left out, what is wrong, the devices that should be attached, and all devices."""
    try:
        found = verdict.of_domain(xml, look.known, look.host, look.run_dir, running)
    except PolicyError as error:
        return None, (), tuple(map(str, error.findings)), (), ()
    left_out = tuple(str(one) for one in found.findings if one.severity is not Severity.NOTE and "compiled" not in one.message)
    return found.decision.class_, left_out, (), found.plan.devices, found.devices


def _nics(root: Element, planned: Iterable[DevicePlan], query: Have, by_kernel: frozenset[str] = frozenset()) -> Iterator[Nic]:
    classes = {one.target: one.class_.value for one in planned}
    seen = {device["device"]: device.get("seen") for resource in query for device in resource["devices"]}
    for one in root.iterfind("./devices/interface"):
        target = get(one, "mac", "address").lower()
        virtio = get(one, "model", "type").startswith("virtio")
        vhost = virtio and one.get("type") in _KERNEL and get(one, "driver", "name") != "qemu"
        yield Nic(target, vhost, _PAST.get(one.get("type", ""), ""), classes.get(target),
                  True if target in by_kernel else seen.get(get(one, "alias", "name")))


def _generations(query: Have) -> Iterator[Generation]:
    for one in query:
        yield Generation(one["path"].rpartition("/")[2], one.get("generation", FIRST), tuple(one.get("other-generations", ())))


def _compiled(root: Element) -> bool:
    kept = (str(one.tag) for one in root.iterfind("./metadata/*"))
    given = (f"{one.get('value', '')} {one.get('name', '')}"
             for one in (*root.iter(f"{_QEMU}arg"), *root.iter(f"{_QEMU}property")))
    return any(tag.startswith("{urn:idletime:compiled:") for tag in kept) or any("idletime" in text for text in given)


def _confined(root: Element) -> str:
    return next((model for model in ("apparmor", "selinux") if root.findtext(f"./seclabel[@model='{model}']/label")), "")


def _vm(said: state.DomainState, look: _Look) -> DomainFacts:
    """One that no libvirt has started."""
    class_ = sockets.decision(said, look.known).class_
    heard = Emulator("QEMU", None, STOCK if act.STOCK in said.problems else OLD if act.OLD in said.problems else None
                     if said.query is None else OURS)
    have: Have = said.query or ()
    if look.ask:
        with contextlib.suppress(MonitorError), SocketMonitor(said.socket, sockets.SECONDS) as monitor:
            version, knows = _asked(monitor)
            path = look.tree.real(f"/proc/{monitor.peer.pid}/exe")
            heard = Emulator(path, version, knows, program_knows(look.tree, path), look.tree.replaced(monitor.peer.pid))
            have = query(monitor) if knows in (OLD, OURS) else ()
    return DomainFacts(said.name, True, class_, heard, generations=tuple(_generations(have)), problems=said.problems)


# ---- its QEMU

def _emulator(domain: Any, root: Element, pid: int | None, look: _Look) -> Emulator | None:
    path = root.findtext("./devices/emulator")
    if not path:
        return None
    version, knows = _asked(DomainMonitor(domain)) if look.ask else (None, None)
    return Emulator(path, version, knows, program_knows(look.tree, path), look.tree.replaced(pid))


def _asked(monitor: Monitor) -> tuple[str | None, str | None]:
    """Version and what it knows."""
    try:
        version = monitor.execute("query-version")
        names = {str(one["name"]) for one in monitor.execute("query-commands")}
        number = ".".join(str(version["qemu"][part]) for part in ("major", "minor", "micro"))
        package = str(version.get("package") or "").strip()
    except (MonitorError, KeyError, TypeError, AttributeError, ValueError):
        return None, None
    knows = OURS if LIVE_COMMAND in names else OLD if ANY_COMMAND in names else STOCK
    return printable(f"{number} ({package})" if package else number), knows


def _query(domain: Any, emulator: Emulator | None, ask: bool, said: state.DomainState | None) -> Have:
    """What query-idletime answers, or what idletimed has heard last."""
    if ask and emulator is not None and emulator.knows in (OLD, OURS):
        with contextlib.suppress(MonitorError):
            return query(DomainMonitor(domain))
    return (said.query or ()) if said is not None else ()


def program_knows(tree: Tree, path: str) -> str | None:
    """What a program knows, by the names of commands in it. It is read and not run: its name may come from anybody."""
    with contextlib.suppress(OSError, ValueError), open(tree.root + tree.real(path), "rb") as file, \
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"\x7fELF":
            return None  # a script: what it starts is not known
        return OURS if data.find(LIVE_COMMAND.encode()) >= 0 else STOCK
    return None


def _pids(tree: Tree) -> dict[str, int]:
    """Processes of QEMU by the UUID on their command line."""
    found = {}
    for name in tree.names("/proc"):
        if name.isdecimal() and (match := _UUID.search(tree.whole_text(f"/proc/{name}/cmdline") or "")):
            found[match.group(1)] = int(name)
    return found


# ---- the host

def _hook(tree: Tree) -> tuple[str | None, bool]:
    """Where ours is, and whether it is one that wanted domains compiled: that one also looked at restores."""
    for path in HOOKS:
        text = tree.text(path) or ""
        if "idletime" in text:
            return path, "restore/begin" in text
    return None, False


def _bridge(tree: Tree) -> tuple[str, ...]:
    names = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables")
    return tuple(name for name in names if tree.text(f"/proc/sys/net/bridge/{name}") == "1")


def _apparmor(tree: Tree, run_dir: str) -> bool | None:
    texts = [tree.text(path) for path in APPARMOR if tree.exists(path)]
    if any(text is not None and ("abstractions/idletime" in text or f"{run_dir}/" in text) for text in texts):
        return True
    return None if None in texts else False


def _selinux(tree: Tree, run_dir: str) -> bool | None:
    try:
        return b"idletime_arena_t" in os.getxattr(tree.root + run_dir, "security.selinux")
    except OSError:
        return None


def _run_dir(tree: Tree, run_dir: str) -> tuple[int | None, str | None]:
    """Mode, and type of file system."""
    try:
        mode = os.stat(tree.root + run_dir).st_mode & 0o7777
    except OSError:
        return None, None
    mounts = [line.split()[1:3] for line in (tree.text("/proc/mounts") or "").splitlines() if len(line.split()) > 2]
    within = [(len(path), kind) for path, kind in mounts if f"{run_dir}/".startswith(path.rstrip("/") + "/")]
    return mode, max(within)[1] if within else None


