# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks. Each is pure: facts in, diagnoses out, none if all is well. CHECKS is the list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..errors import Severity
from .facts import HELD, OLD, OURS, STOCK, DomainFacts, Emulator, HostFacts

_RESTART = "shut it down and start it (a reboot inside is not enough), or migrate it"
_AS_ROOT = "run this as root, without -r"
_WHAT = {STOCK: "stock: it knows nothing of Idletime", OLD: "of an older Idletime: it cannot attach devices while it runs"}


@dataclass(frozen=True)
class Diagnosis:
    """Something that is wrong (error, warning) or worth knowing (note). subject: a domain, a file, "" is the host. minutes:
    about how long the remedy takes, None where nobody can say."""

    severity: Severity
    subject: str
    message: str
    remedy: str = ""
    minutes: int | None = None
    check: str = ""


@dataclass(frozen=True)
class Report:
    """All diagnoses, the worst first; checks: the names of all that were made."""

    checks: tuple[str, ...]
    found: tuple[Diagnosis, ...]

    @property
    def status(self) -> int:
        """Exit status: 0 all is well, 1 warnings, 2 errors."""
        worst = {one.severity for one in self.found}
        return 2 if Severity.ERROR in worst else 1 if Severity.WARNING in worst else 0


_Found = Iterator[Diagnosis]
_error, _warning, _note = (partial(Diagnosis, severity) for severity in Severity)
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def examine(facts: HostFacts) -> Report:
    """All checks."""
    found = [replace(one, check=name) for name, check in CHECKS.items() for one in check(facts)]
    return Report(tuple(CHECKS), tuple(sorted(found, key=lambda one: _ORDER.index(one.severity))))


# ---- idletimed and its files

def _daemon(facts: HostFacts) -> _Found:
    if facts.alive:
        return
    say = _error if any(one.attached for one in facts.running) else _warning
    yield say("", "idletimed does not run: running domains keep what they have, nothing new is carried out",
              "systemctl enable --now idletimed", 1)


def _files(facts: HostFacts) -> _Found:
    if facts.settings_wrong:
        yield _error("", facts.settings_wrong, "correct the file: idletimed does not start with it", 5)
    for text in facts.wrong:
        yield _warning("", *_parts(text), 5)


def _run_dir(facts: HostFacts) -> _Found:
    where, mode = facts.run_dir, facts.run_mode
    if mode is None:
        if any(one.attached for one in facts.running):
            yield _error(where, "it is not there: no arena can be made",
                         "systemd-tmpfiles --create idletime.conf, or start idletimed", 1)
        return
    if mode & 0o022:
        yield _error(where, f"its mode {mode:04o} lets others make arenas", f"chmod 0711 {where}", 1)
    elif mode & 0o044:
        yield _warning(where, f"its mode {mode:04o} lets everybody open it, and hold a lock on it", f"chmod 0711 {where}", 1)
    if facts.run_type not in (None, "tmpfs", "ramfs"):
        yield _warning(where, f"it is on {facts.run_type}: arenas are written to a disk, and outlive a boot",
                       "set run-dir in /etc/idletime/idletimed.toml to a folder on tmpfs", 10)


# ---- the domains' QEMUs

def _emulator(facts: HostFacts) -> _Found:
    for one in facts.running:
        emulator = one.emulator
        if one.silent:
            yield _warning(one.name, "its QEMU does not answer, so what it knows and does now is not known",
                           "see whether it is stopped, or waits for storage that is gone")
        elif emulator is None or emulator.knows is None:
            why, remedy = ("was not asked, as others do not answer", "see to those first") if any(
                each.silent for each in facts.running) else ("was not asked", _AS_ROOT)
            yield _note(one.name, f"what its QEMU knows {why}", remedy)
        elif emulator.knows != OURS:
            yield _not_ours(one, emulator)
        elif emulator.replaced and one.attached:
            yield _note(one.name, f"it runs {emulator}, which was replaced since", f"{_RESTART}, when it suits", 5)


def _not_ours(one: DomainFacts, emulator: Emulator) -> Diagnosis:
    message = f"its QEMU ({emulator}) is {_WHAT[str(emulator.knows)]}"
    if one.suspends:
        return _note(one.name, f"{message}, so it is stopped as a whole while the foreground needs what it uses", _RESTART, 5)
    message += f", so it is not {one.class_}" if one.attached else ""
    if emulator.program_knows == STOCK:
        remedy = f"install Idletime's qemu-system-x86 ({emulator.path} is stock, too), then {_RESTART}"
        return (_error if one.attached else _note)(one.name, message, remedy, 15)
    return (_warning if one.attached else _note)(one.name, message, _RESTART, 5)


def _generations(facts: HostFacts) -> _Found:
    """QEMUs whose arenas have different layouts do not see each other. One that is older may not know of the others."""
    users: dict[str, dict[int, list[str]]] = {}
    for one, used in ((domain, used) for domain in facts.running for used in domain.generations):
        known = users.setdefault(used.resource, {})
        known.setdefault(used.own, []).append(one.name)
        for other in used.others:
            known.setdefault(other, [])
    for resource, known in sorted(users.items()):
        if len(known) > 1:
            who = "; ".join(f"{number}: {', '.join(names) or 'others'}" for number, names in sorted(known.items()))
            yield _warning(
                resource, f"{len(known)} generations of QEMU share it and do not see each other: background of one does not "
                f"wait for foreground of the other ({who})",
                "restart or migrate the domains of the older one, the foreground ones first", 5 * len(known))


# ---- networks

def _vhost(facts: HostFacts) -> _Found:
    for one, nic in ((domain, nic) for domain in facts.running for nic in domain.nics):
        if nic.past:
            say = _warning if nic.class_ in HELD else _note
            yield say(one.name, f"interface {nic.target}: its packets go through {nic.past}, past QEMU: they are neither held "
                      "nor seen", "use a virtio interface on a bridge, OVS or macvtap", 10)
        elif nic.class_ == "foreground" and (nic.vhost if nic.seen is None else not nic.seen):
            yield _note(one.name, f"interface {nic.target} is foreground with vhost: its packets pass QEMU by and are not "
                        "seen, so background does not wait for them",
                        "let the uplink be observed (virt-idletime resources), or <driver name='qemu'/> in the interface, then "
                        "start the domain anew", 5)


def _observers(facts: HostFacts) -> _Found:
    """What is to be observed and is not; what nobody can see."""
    for one in facts.observers:
        if not one.alive and (one.declared or one.device):
            say = _warning if one.declared else _note
            yield say(one.resource, f"foreground that passes QEMU by is not seen: {one.problem}", one.remedy, 10)
        yield from (_warning(*unseen, 10) for unseen in one.unseen())
    if any(one.class_ in HELD for one in facts.running):
        yield from (_note(one.name, *_parts(text)) for one in facts.running for text in one.beyond)


def _bridge(facts: HostFacts) -> _Found:
    names = sorted({one.name for one in facts.running for nic in one.nics if nic.class_ in HELD})
    if facts.bridge_nf and names:
        switches = " ".join(f"net.bridge.{name}=0" for name in facts.bridge_nf)
        yield _warning(
            "", f"{', '.join(facts.bridge_nf)} on: the kernel does not tell when a packet has left a bridge, so background "
            f"packets of {', '.join(names)} are paced by the rate only",
            f"sysctl -w {switches} (not where Docker or Kubernetes filter bridged packets), or say the uplink's rate in "
            "/etc/idletime/resources.d", 2)


# ---- who may reach what

def _confinement(facts: HostFacts) -> _Found:
    names = {model: ", ".join(one.name for one in facts.running if one.confined == model and one.attached)
             for model in ("apparmor", "selinux")}
    if facts.apparmor_on and names["apparmor"] and facts.apparmor_allows is None:
        yield _note("", f"AppArmor confines {names['apparmor']}; whether it lets their QEMU open arenas is not known", _AS_ROOT)
    elif facts.apparmor_on and names["apparmor"] and not facts.apparmor_allows:
        yield _error("", f"AppArmor confines {names['apparmor']}, and does not let their QEMU open arenas",
                     "put 'include if exists <abstractions/idletime>' into /etc/apparmor.d/local/abstractions/libvirt-qemu; "
                     "it counts from a domain's next start", 10)
    if facts.selinux_on and names["selinux"] and facts.selinux_allows is False:
        yield _error("", f"SELinux confines {names['selinux']}, and {facts.run_dir} does not have the type idletime_arena_t",
                     f"semodule -i idletime.pp (confinement/selinux), then restorecon -R {facts.run_dir} and restorecon "
                     "of idletime-observer", 10)


def _hook(facts: HostFacts) -> _Found:
    if facts.strict and facts.hook is None:
        yield _error("", "strict = true, but libvirt's hook is not installed: background domains start while idletimed is dead",
                     "install lib/idletime/hooks/qemu as /etc/libvirt/hooks/qemu.d/idletime, then restart libvirtd", 5)
    elif facts.hook and facts.hook_old:
        yield _error(facts.hook, "it is the hook of an older version, which refuses domains that were not compiled",
                     f"rm {facts.hook}, or install the present one", 2)


# ---- domains

def _policies(facts: HostFacts) -> _Found:
    return (_error(one.name, *_parts(text), 5) for one in facts.domains for text in one.wrong)


def _resources(facts: HostFacts) -> _Found:
    """What is left out is not held, and as foreground it is not seen."""
    return (_warning(one.name, *_parts(text), 10) for one in facts.domains for text in one.left_out)


def _compiled(facts: HostFacts) -> _Found:
    for one in facts.domains:
        if one.compiled:
            yield _warning(one.name, "its XML carries what an earlier version of Idletime compiled into it: it starts with "
                           "that, until idletimed has brought it to its policy",
                           f"virsh edit {one.name}: remove qemu:commandline and qemu:override where they name idletime, and "
                           "'compiled' from the metadata; it counts from the next start", 5)


def _in_force(facts: HostFacts) -> _Found:
    """What idletimed says, where no other check has said it."""
    for one in facts.running:
        if one.emulator is None or one.emulator.knows not in (STOCK, OLD):
            yield from (_warning(one.name, *_parts(text)) for text in one.problems if text not in (*one.left_out, *one.wrong))


def _parts(text: str) -> tuple[str, str]:
    """A finding in words: message and remedy."""
    message, _, remedy = text.partition("; remedy: ")
    return message.removeprefix("error: ").removeprefix("warning: "), remedy


CHECKS: Mapping[str, Callable[[HostFacts], Iterable[Diagnosis]]] = {
    "idletimed": _daemon, "files": _files, "run-dir": _run_dir, "emulator": _emulator, "generations": _generations,
    "vhost": _vhost, "observers": _observers, "br_netfilter": _bridge, "confinement": _confinement, "hook": _hook,
    "policy": _policies, "resources": _resources, "compiled": _compiled, "in-force": _in_force,
}
