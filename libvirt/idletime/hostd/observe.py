# SPDX-License-Identifier: GPL-2.0-or-later
"""Which observers should run, on what, and whom they leave out. Pure.

An observer runs where somebody is background, so that nobody pays for one that has no reader. Left out is who is on the
boards of the arena already: background, guest, and foreground with a slot. If one of these cannot be told from others in
the kernel, it would count as foreground and hold up all background: then there is no observer, and that is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..facts import DISK
from .watched import Part, Use

HELD = ("background", "guest")

OFF = "observe = false"

_CGROUP = ("let each VM have a cgroup with the io controller: by libvirt, cgroup_controllers in /etc/libvirt/qemu.conf with "
           "\"blkio\"; by hand, systemd-run --scope -p IOAccounting=yes")
_KERNEL = ("keep the VM's disk on another device; have QEMU or the guest encrypt it (libvirt: <encryption format='luks'/> of "
           "the disk); or write observe = false")
_ONE = "name resources in /etc/idletime/resources.d that are one device each, or write observe = false"


@dataclass(frozen=True)
class Observer:
    """One that should run, or that cannot (problem, remedy).

    device: /dev/sda or eth0. leave_out: cgroups or interfaces. declared: observe = true. hidden: VMs that it does not see,
    since they are in a cgroup of one that is left out. hidden_disks: the same of disks without a slot, of a VM
    that is foreground and left out for another one.
    """

    resource: str
    path: str
    kind: str
    device: str = ""
    leave_out: tuple[str, ...] = ()
    declared: bool = False
    hidden: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""
    idle_class: bool = False
    """Whether requests of the I/O priority class idle are left out, too."""
    hidden_disks: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        return not self.problem


@dataclass
class _Users:
    """Of one resource."""

    uses: list[tuple[Part, Use]] = field(default_factory=list)

    @property
    def held(self) -> list[tuple[Part, Use]]:
        return [(part, use) for part, use in self.uses if use.class_ in HELD]

    @property
    def seen(self) -> list[tuple[Part, Use]]:
        return [(part, use) for part, use in self.uses if use.seen]


def decide(parts: Sequence[Part], said: Mapping[str, bool | None], idle: Collection[str] = ()) -> tuple[Observer, ...]:
    """An entry for each resource on which somebody is background and that is not said to be left alone (observe = false).
    said: what resources.d says of it; idle: resources of which it says idle-class = "background"."""
    users: dict[str, _Users] = {}
    for part in parts:
        for use in part.uses:
            users.setdefault(use.resource, _Users()).uses.append((part, use))
    found = (_one(name, users[name], parts, bool(said.get(name))) for name in sorted(users)
             if users[name].held and said.get(name) is not False)
    return tuple(replace(one, idle_class=one.kind == DISK and one.resource in idle) for one in found)


def _one(name: str, users: _Users, parts: Sequence[Part], declared: bool) -> Observer:
    use = users.held[0][1]
    devices = sorted({device for _, each in users.uses for device in each.host})
    problem, remedy = _of_devices(devices) if len(devices) != 1 else _of_users(use.kind, users)
    if problem:
        return Observer(name, use.path, use.kind, devices[0] if len(devices) == 1 else "", declared=declared,
                        problem=problem, remedy=remedy)
    if use.kind != DISK:
        return Observer(name, use.path, use.kind, devices[0], _taps(users), declared)
    groups = tuple(sorted({part.cgroup for part, _ in users.seen}))
    return Observer(name, use.path, use.kind, devices[0], groups, declared, _hidden(groups, users, parts),
                    hidden_disks=_hidden_disks(devices[0], users))


def _of_devices(devices: Sequence[str]) -> tuple[str, str]:
    if not devices:
        return "the kernel does not see it: it is no block device and no interface of this host", ""
    return f"it stands for {', '.join(devices)}, and an observer sees one device", _ONE


def _of_users(kind: str, users: _Users) -> tuple[str, str]:
    """Why the kernel cannot tell somebody who must be left out."""
    if kind == DISK:
        for part, _ in users.seen:
            if not part.told:
                where = f"cgroup '{part.cgroup}'" if part.cgroup else "a cgroup that is not known"
                return f"the QEMU of '{part.name}' is in {where}, by which the kernel cannot tell its requests", _CGROUP
        for part, use in users.held:
            if use.apart:
                return f"the kernel cannot tell the requests of '{part.name}' from the host's: {use.apart}", _KERNEL
        return "", ""
    for part, use in users.held:
        if use.apart or not use.tap:
            why = use.apart or "it has no tap that is known"
            return (f"the kernel cannot tell the packets of '{part.name}' from the host's: {why}",
                    "use a bridge that the uplink is a port of, or write observe = false")
    return "", ""


def _taps(users: _Users) -> tuple[str, ...]:
    return tuple(sorted({use.tap for _, use in users.seen if use.tap}))


def _hidden(groups: Sequence[str], users: _Users, parts: Sequence[Part]) -> tuple[str, ...]:
    there, left_out = {part.name for part, _ in users.seen}, set(groups)
    return tuple(sorted(part.name for part in parts if part.name not in there and not left_out.isdisjoint(_path(part.cgroup))))


def _path(group: str) -> Iterator[str]:
    """A cgroup, and those that it is in."""
    while group:
        yield group
        group = group.rpartition("/")[0]


def _hidden_disks(device: str, users: _Users) -> tuple[str, ...]:
    """Of a VM that is background there is nothing to see there: what it does is no foreground."""
    left_out = {part.name: part for part, use in users.seen if use.class_ != "background"}
    return tuple(f"{name}: {other.label}" for name, part in sorted(left_out.items()) for other in part.others
                 if device in other.host)


def arguments(observer: Observer, list_: str) -> list[str]:
    """The options of idletime-observer. list_: the file of those whom it leaves out."""
    what = ["--disk", observer.device, "--background-cgroups", list_] if observer.kind == DISK else \
        ["--uplink", observer.device, "--background-interfaces", list_]
    return ["--arena", observer.path, *what, *(["--idle-class-is-background"] if observer.idle_class else [])]
