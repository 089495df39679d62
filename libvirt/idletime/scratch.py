# SPDX-License-Identifier: GPL-2.0-or-later
"""Scratch disks (<idletime:space target='vda' reclaim='yes'/>): which they are, and what speaks against a mark.

    background VM, and a disk of it        qcow2 in a local file of one name, writable, its own, with a backing file

What this allows is dropped by idletimed while space is short, so whatever is not known for sure is not allowed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .errors import Finding, Kind, Severity
from .policy.model import Class, Policy, Space
from .resolve import qcow2
from .resolve.files import mount_of
from .resolve.qcow2 import Image
from .resolve.tree import Tree
from .xmltree import Element, get

AGENT = "org.qemu.guest_agent.0"

LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs")
"""File systems that no other host writes: there nobody knows who else uses a file."""

_UNDERSTOOD = qcow2.DIRTY | qcow2.CORRUPT | qcow2.COMPRESSION | qcow2.EXTENDED_L2


@dataclass(frozen=True)
class Scratch:
    """A disk that may be dropped. discard: what its guest trims is given back to the file system."""

    target: str
    file: str
    discard: bool = False


class Unfit(Exception):
    """Why a disk is no scratch disk, and what to do about it."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}; remedy: {remedy}")


def of(root: Element, policy: Policy | None, tree: Tree,
       running: bool = True) -> tuple[tuple[Scratch, ...], tuple[Finding, ...]]:
    """The scratch disks of a domain, and what is wrong with the rest that is marked."""
    found: list[Scratch] = []
    findings: list[Finding] = []
    for said in policy.space if policy else ():
        label = f"space target='{said.target}'"

        def say(severity: Severity, message: str, remedy: str, label: str = label, line: int | None = said.line) -> None:
            findings.append(Finding(severity, Kind.FIT, message, remedy, label, line))

        try:
            one = marked(root, policy, said)
        except Unfit as error:
            fits = running or (policy is not None and policy.class_ is not Class.BACKGROUND)  # it may be background again
            say(Severity.WARNING if fits else Severity.ERROR, f"never dropped: {error.problem}", error.remedy)
            continue
        try:
            look(tree, one.file)
        except Unfit as error:  # of the host as it is now
            say(Severity.WARNING, f"never dropped: {error.problem}", error.remedy)
            continue
        if not one.discard:
            say(Severity.NOTE, "the disk cannot be trimmed, so it is dropped at once: it has no discard='unmap'",
                f"<driver name='qemu' type='qcow2' discard='unmap'/> for disk '{said.target}'")
        elif not _agents(root):
            say(Severity.NOTE, f"the disk cannot be trimmed, so it is dropped at once: there is no channel '{AGENT}'",
                f"<channel type='unix'><target type='virtio' name='{AGENT}'/></channel>, and qemu-guest-agent in the guest")
        found.append(one)
    return tuple(found), tuple(findings)


def all_marked(root: Element, policy: Policy | None) -> dict[str, Scratch]:
    """Those that the XML allows, by target. Pure."""
    found = {}
    for said in policy.space if policy else ():
        try:
            found[said.target] = marked(root, policy, said)
        except Unfit:
            continue
    return found


def marked(root: Element, policy: Policy | None, said: Space) -> Scratch:
    """The disk that a mark is about. Raises Unfit for what the XML says against it. Pure."""
    if policy is None or policy.class_ is not Class.BACKGROUND:
        raise Unfit(f"class='{policy.class_.value if policy else ''}': only disks of a background domain are",
                    "write class='background', or remove the element")
    disks = [disk for disk in root.findall("./devices/disk") if get(disk, "target", "dev") == said.target]
    if len(disks) != 1:
        known = ", ".join(get(disk, "target", "dev") for disk in root.findall("./devices/disk")) or "none"
        raise Unfit("the domain has no such disk", f"use one of its targets ({known}), or remove the element")
    disk, file = disks[0], get(disks[0], "source", "file")
    if problem := next(_against(disk, file), ""):
        raise Unfit(problem, "mark a writable disk with a qcow2 overlay of its own, <disk type='file' device='disk'>, or "
                             "remove the element")
    return Scratch(said.target, file, get(disk, "driver", "discard") == "unmap")


def _against(disk: Element, file: str) -> Iterator[str]:
    """What of a <disk> speaks against it."""
    if disk.get("type") != "file":
        yield f"type='{disk.get('type', '')}': its source is no file"
    if disk.get("device", "disk") != "disk":
        yield f"device='{disk.get('device')}'"
    if get(disk, "driver", "type") != "qcow2":
        yield f"its format is '{get(disk, 'driver', 'type') or 'raw'}', no overlay"
    for name in ("readonly", "shareable", "transient", "mirror", "encryption"):
        if disk.find(name) is not None:
            yield f"it is <{name}/>"
    if disk.find("source/encryption") is not None or disk.find("source/slices") is not None:
        yield "its source is encrypted, or a part of a file"
    if not os.path.isabs(file) or "\0" in file:
        yield f"source file='{file}' is no path"


# ---- the file

def look(tree: Tree, file: str) -> Image:
    """The overlay as it is. Raises Unfit."""
    folder = tree.real(os.path.dirname(file))
    path = os.path.join(tree.root + folder, os.path.basename(file))
    try:
        status = os.lstat(path)
    except OSError as error:
        raise Unfit(f"'{file}' cannot be looked at: {error.strerror}",
                    "run this as root on the host of the domain, and correct the path") from error
    check_file(tree, file, status)
    return check_image(file, lambda size, offset: tree.head(file, size, offset))


def check_file(tree: Tree, file: str, status: os.stat_result) -> None:
    """Raises Unfit for a file that may be another's as well."""
    if not stat.S_ISREG(status.st_mode):
        raise Unfit(f"'{file}' is a link, or no regular file", "write the path of the file itself")
    if status.st_nlink != 1:
        raise Unfit(f"'{file}' has {status.st_nlink} names (hard links)", "remove the others: whose they are is not known")
    mount = mount_of(tree, file)
    if mount is None or mount.type not in LOCAL:
        raise Unfit(f"'{file}' is on {mount.type if mount else 'an unknown file system'}: other hosts may use it",
                    f"use a local file system ({', '.join(LOCAL)})")


def check_image(file: str, read: Callable[[int, int], bytes]) -> Image:
    """Raises Unfit for an image that is no overlay, or that we could not make anew."""
    image = qcow2.image(read)
    if image is None:
        raise Unfit(f"'{file}' cannot be read as qcow2", "make it with 'qemu-img create -f qcow2 -F FORMAT -b BACKING FILE'")
    if not image.backing or not image.backing_format:
        raise Unfit(f"'{file}' names no {'backing file' if not image.backing else 'format of its backing file'}",
                    "make it an overlay: 'qemu-img create -f qcow2 -F FORMAT -b BACKING FILE'")
    if image.encrypted or image.snapshots or image.incompatible & ~_UNDERSTOOD:
        what = "is encrypted" if image.encrypted else f"has {image.snapshots} snapshots" if image.snapshots else \
            f"has features that are not understood ({image.incompatible:#x}), such as an external data file"
        raise Unfit(f"'{file}' {what}", "use a plain overlay")
    return image


def _agents(root: Element) -> list[Element]:
    return [one for one in root.findall("./devices/channel") if get(one, "target", "name") == AGENT]


def can_trim(live: Element) -> bool:
    """Whether a guest agent is connected, as live XML says."""
    return any(get(one, "target", "state") == "connected" for one in _agents(live))
