# SPDX-License-Identifier: GPL-2.0-or-later
"""What the doctor's checks look at. Immutable data; None is not known."""

from __future__ import annotations

from dataclasses import dataclass

from ..observed import ObserverState

HELD = ("background", "guest")
"""Classes of which something may be held."""

STOCK, OLD, OURS = "stock", "old", "ours"
"""What a QEMU knows: nothing of Idletime; Idletime, but not how to attach devices live; all."""


@dataclass(frozen=True)
class Emulator:
    """The QEMU of a running domain. knows: of STOCK, OLD, OURS. program_knows: the same of the file that the next start
    would take, as far as a file tells (STOCK or OURS). replaced: the running program is not that file any more."""

    path: str
    version: str | None = None
    knows: str | None = None
    program_knows: str | None = None
    replaced: bool | None = None

    def __str__(self) -> str:
        return f"{self.path} {self.version}" if self.version else self.path


@dataclass(frozen=True)
class Nic:
    """An interface. vhost: its packets may go through the kernel, past QEMU. past: how else they pass QEMU, "" if they do
    not. class_: what it should be, None if it is not attached. seen: whether QEMU or an observer sees what it sends
    as foreground."""

    target: str
    vhost: bool = False
    past: str = ""
    class_: str | None = None
    seen: bool | None = None


@dataclass(frozen=True)
class Generation:
    """Of an arena's layout, that a QEMU uses of a resource; others: that other QEMUs use of it now."""

    resource: str
    own: int
    others: tuple[int, ...] = ()


@dataclass(frozen=True)
class DomainFacts:
    """A domain. class_: what it should be, "none" is not attached. left_out: devices and why they are not attached, in
    words. beyond: devices that neither QEMU nor the kernel sees, in words. generations: of the arenas that its QEMU uses.
    compiled: it carries what earlier versions compiled in. confined: "apparmor", "selinux" or "". problems: what
    idletimed says of it. suspends: whether idletimed stops it as a whole when need be. silent: its QEMU was asked, in vain."""

    name: str
    running: bool
    class_: str | None = None
    emulator: Emulator | None = None
    nics: tuple[Nic, ...] = ()
    left_out: tuple[str, ...] = ()
    generations: tuple[Generation, ...] = ()
    compiled: bool = False
    confined: str = ""
    wrong: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    suspends: bool = False
    silent: bool = False

    @property
    def attached(self) -> bool:
        return self.class_ not in (None, "none")


@dataclass(frozen=True)
class HostFacts:
    """The host. settings_wrong: what is wrong with idletimed.toml. alive: idletimed. wrong: files below /etc/idletime that were
    left out, in words. hook: libvirt's hook of ours, where it is. hook_old: it is one of a version that compiled. strict: the
    setting that needs it. bridge_nf: which of br_netfilter's switches are on. apparmor: whether domains are confined by it and
    it lets them reach arenas; selinux the same; run_mode, run_type: of the run directory, and its file system."""

    run_dir: str = "/run/idletime"
    settings_wrong: str = ""
    alive: bool = False
    wrong: tuple[str, ...] = ()
    hook: str | None = None
    hook_old: bool = False
    strict: bool = False
    bridge_nf: tuple[str, ...] = ()
    apparmor_on: bool = False
    apparmor_allows: bool | None = None
    selinux_on: bool = False
    selinux_allows: bool | None = None
    run_mode: int | None = None
    run_type: str | None = None
    domains: tuple[DomainFacts, ...] = ()
    observers: tuple[ObserverState, ...] = ()

    @property
    def running(self) -> tuple[DomainFacts, ...]:
        return tuple(one for one in self.domains if one.running)
