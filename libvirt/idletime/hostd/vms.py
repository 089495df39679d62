# SPDX-License-Identifier: GPL-2.0-or-later
"""VMs that no libvirt has started: their QEMUs' QMP sockets, in a folder that the operator names.

QEMU serves one client of a socket at a time, and its management needs that line too: so each look connects, asks, acts
and leaves, within SECONDS. There are no events: sockets are looked for every few seconds, VMs every look-seconds.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import resolve, state, verdict
from ..conf import rules
from ..conf.rules import NOT_ATTACHED
from ..errors import Severity, printable
from ..facts import DISK, INTERFACE, DeviceFacts, Source
from ..police import deadline
from ..policy import Enforce
from ..qmp import Monitor, Peer, SocketMonitor
from . import act, arena, watched
from .settings import Qmp, Settings

SECONDS = 5.0
"""A look takes some 10 ms. Whose QEMU is busy with another client, or hangs, is looked at the next time."""

_NOT_STOPPED = ("enforce='{}': a VM that no libvirt has started is not stopped, only held; remedy: write enforce='interval' in "
                "rules.d, or run it with libvirt")

_NO_DEADLINE = ("by='{}': a VM that no libvirt has started has no deadline, and stays background; remedy: change the rule when "
                "it is over, or run it with libvirt")

_SCSI = re.compile(r"scsi-(hd|block|generic)")
_PASSED = ("scsi-block", "scsi-generic")
_BLK, _NET = re.compile(r"virtio-blk(-pci|-ccw|-device)?(-(non-)?transitional)?"), re.compile(
    r"virtio-net(-pci|-ccw|-device)?(-(non-)?transitional)?")
_PARENTS = ("/machine/peripheral", "/machine/peripheral-anon")


@dataclass(frozen=True)
class Vm:
    """One look at a VM: its name, what was not possible, and why; None is a VM that cannot be asked."""

    name: str
    problems: tuple[str, ...] = ()
    failed: bool = False
    part: watched.Part | None = None


def sockets(qmp: Qmp) -> dict[str, tuple[int, int]]:
    """The sockets that are there, each with what tells it from a later one of the same name."""
    found = {}
    for path in glob.glob(qmp.sockets) if qmp.sockets else []:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = (status.st_ino, status.st_ctime_ns)
    return found


def settle(path: str, settings: Settings, known: rules.Rules) -> Vm:
    """Look at the VM behind a socket, and act. Raises MonitorError."""
    with SocketMonitor(path, SECONDS) as monitor:
        name, uuid = name_of(monitor, path, settings.qmp.name), str((monitor.execute("query-uuid") or {}).get("UUID", ""))
        decision = rules.decide(rules.Facts(name, uuid, ""), None, known)
        host = resolve.Host(run_dir=settings.run_dir)
        found = verdict.of_devices(decision, devices_of(monitor), host, settings.run_dir)
        problems = [str(one) for one in found.findings if one.severity is not Severity.NOTE]
        if found.policy is not None and found.policy.enforce is not Enforce.INTERVAL:
            problems.append(_NOT_STOPPED.format(found.policy.enforce.value))
        if found.policy is not None and found.policy.by is not None:
            problems.append(_NO_DEADLINE.format(found.policy.by))
        who = arena.owner_of(settings.owner) if settings.owner else _runs_as(monitor.peer)
        for resource in found.plan.resources:
            arena.make(resource.path, who, arena.selinux_label)
        before, now = state.vm(settings.run_dir, path), time.time()
        tracks = deadline.of_record(before.deadlines) if before is not None and before.uuid == uuid else {}
        brought = act.bring(monitor, found.plan, tracks, now)
        problems += brought.words
        told = state.described(state.Subject(uuid, name, 0, ""), decision, found.plan, brought.have, problems, now)
        told = replace(told, socket=path, exports=brought.exports, deadlines=deadline.record(brought.tracks))
        try:
            state.write_domain(settings.run_dir, told)
        except OSError as error:
            problems.append(f"'virt-idletime status' does not show it: {error}")
        part = watched.part(name, monitor.peer.pid, found.devices, found.plan, brought.have, host)
        return Vm(name, tuple(problems), brought.failed or brought.pending or brought.more_to_come, part)


def _runs_as(peer: Peer) -> arena.Owner:
    """Who QEMU is now: it listens before it becomes another user (-runas), and its socket tells who it was then."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{peer.pid}/status").read_text().splitlines() if ":" in line)
        return arena.Owner(*(int(lines[name].split()[1]) for name in ("Uid", "Gid")))
    return arena.Owner(peer.uid, peer.gid)


def not_asked(path: str, settings: Settings, problem: str) -> None:
    """Say that this look came to nothing; the rest is that of the last one. Raises OSError."""
    before = state.vm(settings.run_dir, path) or state.DomainState(
        "", Path(path).stem, 0, "", NOT_ATTACHED, "default", "it could not be asked", "", False, time.time(), socket=path)
    state.write_domain(settings.run_dir, replace(before, in_force=False, problems=(problem,)))


def name_of(monitor: Monitor, path: str, pattern: str) -> str:
    """The name of a VM: from its socket's path, or as QEMU was told it; else the socket's."""
    if pattern and (match := re.search(pattern, path)):
        return str(match.group(1))
    return printable(str((monitor.execute("query-name") or {}).get("name") or Path(path).stem))


# ---- devices

def devices_of(monitor: Any) -> list[DeviceFacts]:
    """Disks and NICs of a QEMU, by what it says of itself."""
    disks = {_owner(one["qdev"]): one for one in monitor.execute("query-block") if one.get("qdev")}
    nets = None
    found = []
    for path, type_ in _children(monitor):
        if _BLK.fullmatch(type_) or (_SCSI.fullmatch(type_) and _is_virtio_scsi(monitor, path)):
            found.append(replace(_disk(monitor, path, disks.get(path) or disks.get(_id(path)) or {}), passed=type_ in _PASSED))
        elif _NET.fullmatch(type_):
            nets = _netdevs(monitor) if nets is None else nets
            found.append(_nic(monitor, path, nets))
    return found


def _children(monitor: Monitor) -> Iterator[tuple[str, str]]:
    for parent in _PARENTS:
        for child in monitor.execute("qom-list", {"path": parent}):
            type_ = child["type"]
            if type_.startswith("child<"):
                yield f"{parent}/{child['name']}", type_[len("child<"):-1]


def _is_virtio_scsi(monitor: Any, path: str) -> bool:
    """Is the controller of a SCSI disk one that is served? The bus is a child of it."""
    bus = str(monitor.execute("qom-get", {"path": path, "property": "parent_bus"}))
    return bool(monitor.execute("qom-get", {"path": bus.rpartition("/")[0], "property": "type"}) == "virtio-scsi-device")


def _id(path: str) -> str:
    """What QMP calls a device: its id; one without is called by its path."""
    return path.rsplit("/", 1)[-1] if path.startswith(_PARENTS[0] + "/") else path


def _owner(qdev: str) -> str:
    """The device that a block backend belongs to: virtio-blk-pci has it in a device within."""
    return qdev.removesuffix("/virtio-backend")


def _disk(monitor: Any, path: str, block: Mapping[str, Any]) -> DeviceFacts:
    inserted = block.get("inserted") or {}
    id_, filename = _id(path), str(inserted.get("file", ""))
    if filename.startswith(_FDSET):
        filename = _handed_over(monitor, filename)
    return DeviceFacts(DISK, id_, frozenset({id_, block.get("device", "")} - {""}), id_, source_of(
        filename, inserted.get("image") or {}))


_FDSET = "/dev/fdset/"


def _handed_over(monitor: Any, filename: str) -> str:
    """The path behind a set of descriptors that QEMU was given, as the kernel knows it; "" if that cannot be read."""
    for one in monitor.execute("query-fdsets"):
        if filename == f"{_FDSET}{one['fdset-id']}":
            for descriptor in one["fds"]:
                with contextlib.suppress(OSError):
                    return os.readlink(f"/proc/{monitor.peer.pid}/fd/{descriptor['fd']}")
    return ""


def source_of(filename: str, image: Mapping[str, Any]) -> Source:
    """What is behind a block node, from its file name: a path, a URI, or json:{...}. image: of query-block."""
    kind = str(image.get("format", ""))
    below = image.get("backing-image") or {}
    backing = (source_of(str(below.get("filename", "")), below),) if below else ()
    if filename.startswith("json:"):
        return replace(_of_json(filename[5:]), format=kind, backing=backing)
    match = re.match(r"([a-z0-9+]+):(?://)?([^/?]*)/?([^?]*)(?:\?(.*))?", filename)
    if filename.startswith("/") or not match:
        return Source(DISK, "file" if filename else "", filename, format=kind, backing=backing)
    protocol, host, name, query = match.groups(default="")
    unix = re.search(r"(?:^|&)socket=([^&]*)", query)
    host = f"unix:{unix.group(1)}" if unix else host
    if protocol == "rbd":
        return Source(DISK, "network", f"{host}/{name.split(':')[0]}", "rbd", kind, backing)
    return Source(DISK, "network", name, ":".join(filter(None, (protocol.split("+")[0], host))), kind, backing)


def _of_json(text: str) -> Source:
    try:
        node = json.loads(text)
    except ValueError:
        return Source(DISK, "")
    while isinstance(node, dict) and isinstance(node.get("file"), dict):
        node = node["file"]
    if not isinstance(node, dict):
        return Source(DISK, "")
    if "filename" in node:
        return Source(DISK, "file", str(node["filename"]))
    servers = node.get("server") or {}
    server: Mapping[str, Any] = servers[0] if isinstance(servers, list) else servers
    where = f"unix:{server['path']}" if "path" in server else ":".join(
        str(server[part]) for part in ("host", "port") if server.get(part))
    name = "/".join(str(node[part]) for part in ("pool", "image") if node.get(part)) or str(node.get("export", ""))
    return Source(DISK, "network", name, ":".join(filter(None, (str(node.get("driver", "")), where))))


def _nic(monitor: Any, path: str, nets: Mapping[str, str]) -> DeviceFacts:
    id_ = _id(path)
    mac = str(monitor.execute("qom-get", {"path": path, "property": "mac"})).lower()
    peer = str(monitor.execute("qom-get", {"path": path, "property": "netdev"}))
    tap = nets.get(peer, "")
    source = Source(INTERFACE, "ethernet", tap) if tap != _USER else Source(INTERFACE, "user")
    return DeviceFacts(INTERFACE, mac, frozenset({id_, mac, tap} - {"", _USER}), id_, source)


_USER = "user"
_NETDEV = re.compile(r"^[ \\]*([^\s:]+): index=\d+,type=(\w+),(.*)$")


def _netdevs(monitor: SocketMonitor) -> dict[str, str]:
    """Tap of each netdev. Only the monitor for people says it; where the tap was handed over as a descriptor, the kernel."""
    text = str(monitor.execute("human-monitor-command", {"command-line": "info network"}))
    found = {}
    for line in text.splitlines():
        match = _NETDEV.match(line.strip("\r"))
        if not match:
            continue
        name, type_, rest = match.groups()
        ifname, number = re.search(r"ifname=([^,\s]+)", rest), re.search(r"\bfd=(\d+)", rest)
        if type_ == "user":
            found[name] = _USER
        elif type_ == "tap" and ifname:
            found[name] = ifname.group(1)
        elif type_ == "tap" and number:
            found[name] = _tap_of(monitor.peer.pid, int(number.group(1)))
    return found


def _tap_of(pid: int, descriptor: int) -> str:
    """Name of the tap behind a descriptor of a process, "" if that cannot be known."""
    try:
        match = re.search(r"^iff:\s*(\S+)", Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1) if match else ""
