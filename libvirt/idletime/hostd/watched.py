# SPDX-License-Identifier: GPL-2.0-or-later
"""What observers have to know of a VM: which resources its QEMU takes part in, which devices of the host these are, and by
which cgroup and which taps the kernel can tell what is the VM's. Facts; reads /proc and /sys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..facts import DISK, DeviceFacts, Plan, Resolution
from ..plan import ID_PREFIX
from ..policy.model import Class
from ..resolve import Host, block, net
from ..resolve.tree import Tree

_OF_LIBVIRT = re.compile(r"(/libvirt)?/(emulator|vcpu\d+|iothread\d+)$|/libvirt$")
"""Below the cgroup of a domain libvirt makes some for its threads."""

_DEVICE_MAPPER = re.compile(r"(?:^|\()(dm-\d+)\)?$")
"""In a trail, as "luks-a (dm-3)"."""
_PASSED = "its guest's SCSI commands are passed on (device='lun'), and belong to no cgroup"
_CHARGES = {(6, 1): 165, (6, 6): 128, (6, 12): 75, (6, 18): 14, (6, 19): 4}
"""The releases of Linux with "dm: use bio_clone_blkg_association" (7.0)."""


@dataclass(frozen=True)
class Use:
    """A device that takes part in a resource, by QEMU's own word. resource, path: name and arena. seen: it has a slot on a
    board of the arena. host: the devices of this host behind it. tap: by which its packets come to the host; "" if none
    is known. apart: why its packets, or requests, cannot be told from the host's own, "" if they can."""

    resource: str
    path: str
    kind: str
    class_: str
    seen: bool
    host: tuple[str, ...]
    tap: str = ""
    apart: str = ""
    work: bool = False  # it is a block job or an export


@dataclass(frozen=True)
class Other:
    """A disk of a VM that has no slot. label: in words. host: the devices of this host behind it."""

    label: str
    host: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A VM. cgroup: of its QEMU, as /proc has it; "" is not known. told: whether the kernel charges requests to that cgroup.
    others: its disks without a slot."""

    name: str
    cgroup: str = ""
    told: bool = True
    uses: tuple[Use, ...] = ()
    others: tuple[Other, ...] = ()


def part(name: str, pid: int | None, devices: Iterable[DeviceFacts], plan: Plan,
         query: Sequence[Mapping[str, Any]] | None, host: Host) -> Part:
    """A VM as it is now. query: what query-idletime answered, None if it was not asked or does not know it."""
    tree = Tree(host.root)
    cgroup = cgroup_of(tree, pid) if pid is not None else ""
    devices = tuple(devices)
    there = {device.alias: device for device in devices}
    paths = {resource.id: (resource.name, resource.path) for resource in plan.resources}
    uses = tuple(_use(tree, there[one["device"]], one, *paths[resource["id"]], host)
                 for resource in query or () for one in resource["devices"]
                 if resource["id"] in paths and one["device"] in there)
    uses += tuple(_jobs(tree, there, plan, query or (), paths, host))
    seen = {one["device"] for resource in query or () for one in resource["devices"] if one.get("seen", True)}
    rest = [one for one in devices if one.kind == DISK and one.alias not in seen] if uses else []
    return Part(name, cgroup, bool(cgroup) and is_told(tree, cgroup), uses, tuple(_others(tree, rest, host)))


def _jobs(tree: Tree, devices: Mapping[str, DeviceFacts], plan: Plan, query: Sequence[Mapping[str, Any]],
          paths: Mapping[str, tuple[str, str]], host: Host) -> Iterator[Use]:
    """Disks that block jobs and exports read or write: they are background there, whatever the VM's class is, and seen as the
    host's own they would wait for themselves."""
    busy = {resource["id"] for resource in query if resource.get("jobs") or resource.get("exports")}
    for one in plan.jobs:
        device = devices.get(one.alias)
        if device is None:
            continue
        for source, names in ((device.source, {one.resource}), *((copy, set(one.also)) for copy in device.copies)):
            found = host.resolve(source)
            own = one.resource if source is device.source else ID_PREFIX + (found.name or "")
            if own in names & busy & paths.keys():
                yield Use(*paths[own], DISK, Class.BACKGROUND.value, True, disks(tree, paths[own][0], source.name, found),
                          apart=written_by_kernel(tree, found), work=True)


def _others(tree: Tree, disks_: Iterable[DeviceFacts], host: Host) -> Iterator[Other]:
    for one in disks_:
        found = host.resolve(one.source)
        behind = disks(tree, found.name or "", one.source.name, found)
        if behind:
            yield Other(one.label, behind)


def _use(tree: Tree, device: DeviceFacts, now: Mapping[str, Any], resource: str, path: str, host: Host) -> Use:
    found = host.resolve(device.source)
    use = (resource, path, device.kind, str(now["class"]), bool(now.get("seen", True)))
    if device.kind == DISK:
        apart = _PASSED if device.passed else written_by_kernel(tree, found)
        return Use(*use, disks(tree, resource, device.source.name, found), apart=apart)
    return Use(*use, uplinks(tree, resource, found), tap(tree, device), _apart(device, found))


def disks(tree: Tree, resource: str, source: str, found: Resolution) -> tuple[str, ...]:
    """The disk that gives the resource its name; else the physical disks; the source itself where it is a block device and
    nobody knows what is below it."""
    if resource and tree.exists(f"{block.CLASS}/{resource}"):
        return (f"/dev/{resource}",)
    disks = tuple(f"/dev/{name}" for name in found.devices if tree.exists(f"{block.CLASS}/{name}"))
    return disks or ((tree.real(source),) if source.startswith("/") and tree.device_number(source) else ())


def written_by_kernel(tree: Tree, found: Resolution) -> str:
    """What on the way to a disk writes in the kernel's name, not in the VM's; "" if nothing does. dm-integrity writes its
    journal in threads. So did dm-crypt before it was mended, without its option no_write_workqueue, which is not in /sys."""
    for label in found.trail:
        match = _DEVICE_MAPPER.search(label)
        uuid = tree.text(f"{block.CLASS}/{match.group(1)}/dm/uuid") or "" if match else ""
        if uuid.startswith(("CRYPT-INTEGRITY-", "CRYPT-SUBDEV-")):  # as cryptsetup names them, the second below LUKS2
            return f"dm-integrity ('{label}') writes in the kernel's name"
        if uuid.startswith("CRYPT-") and not charges(tree):
            return (f"dm-crypt ('{label}') writes in the kernel's name before Linux 6.1.165, 6.6.128, 6.12.75, 6.18.14, "
                    "6.19.4 and 7.0")
    return ""


def charges(tree: Tree) -> bool:
    """Whether the kernel is one that charges what device-mapper does for a request to that request's cgroup, as far as its
    number tells. Debian's own number is in the text behind it."""
    text = tree.text("/proc/version") or ""
    match = re.search(r"#.*Debian (\d+)\.(\d+)\.(\d+)", text) or re.search(r"Linux version (\d+)\.(\d+)(?:\.(\d+))?", text)
    if not match:
        return False
    major, minor, patch = (int(number or 0) for number in match.groups())
    return major >= 7 or patch >= _CHARGES.get((major, minor), patch + 1)


def uplinks(tree: Tree, resource: str, found: Resolution) -> tuple[str, ...]:
    """The interface that gives the resource its name; else where the way out ends. Of a bridge with several ways out: these."""
    if resource and tree.exists(f"{net.CLASS}/{resource}") and not tree.exists(f"{net.CLASS}/{resource}/bridge"):
        return (resource,)
    last = next((name for name in reversed(found.trail) if "/" not in name and tree.exists(f"{net.CLASS}/{name}")), None)
    if last is None:
        return ()
    return found.devices if tree.exists(f"{net.CLASS}/{last}/bridge") else (last,)


def tap(tree: Tree, device: DeviceFacts) -> str:
    names = sorted(device.names - {device.alias, device.target})
    return next((name for name in names if tree.exists(f"{net.CLASS}/{name}")), "")


def _apart(device: DeviceFacts, found: Resolution) -> str:
    if device.source.type == "direct":
        return "it is a macvtap"
    if device.source.type == "user":
        return "its packets are QEMU's own (type 'user')"
    return found.apart


# ---- cgroups

def cgroup_of(tree: Tree, pid: int) -> str:
    """The cgroup to which the kernel charges requests of a process: version 1's, where the block controller is there."""
    found: dict[str, str] = {}
    for line in (tree.text(f"/proc/{pid}/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if "blkio" in names.split(",") or number == "0":
            found["blkio" if names else ""] = path
    path = found.get("blkio", found.get("", ""))
    return _OF_LIBVIRT.sub("", path) or path


def is_told(tree: Tree, cgroup: str) -> bool:
    """Whether it is one by which requests can be told: not the root, and with the controller."""
    if cgroup in ("", "/"):
        return False
    if tree.exists(f"/sys/fs/cgroup/blkio{cgroup}"):
        return True
    return "io" in (tree.text(f"/sys/fs/cgroup{cgroup}/cgroup.controllers") or "").split()
