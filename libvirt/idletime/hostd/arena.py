# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the directories of arenas, with owner, mode and label; who the owner is.

The parent, /run/idletime, belongs to root: nobody else adds or removes an arena, and nobody else can open anything of
ours in there, so nobody can lock it. An arena belongs to the user of QEMU, who makes the boards in it; nobody else may
look into it. Nothing is followed that is not a directory: a symbolic link where an arena should be is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import pwd
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..xmltree import Element

PARENT_MODE = 0o711
ARENA_MODE = 0o750

LOCK, LOCK_MODE = ".lock", 0o600
LOCK_SECONDS = 5.0
"""Who makes an arena holds the lock for less than a millisecond. A hook must not wait for ever: libvirtd waits for it."""

_POLL_SECONDS = 0.01

SELINUX_TYPE = "idletime_arena_t"

NAME_CHARACTERS = 255


class ArenaError(OSError):
    """An arena cannot be made; the text names it and says what to do."""


@dataclass(frozen=True)
class Owner:
    """Who runs QEMU."""

    uid: int
    gid: int


def make(path: str, owner: Owner, label: Callable[[Path], None] | None = None) -> bool:
    """Make an arena's directory if it is not there; tells whether it was made. `label` gives it its SELinux type.

    One that is there is left as it is: an operator may have made it, with rights of his own. Raises ArenaError.
    Safe to call at once from several processes.
    """
    target = Path(path)
    if not target.is_absolute() or ".." in target.parts or len(target.name) > NAME_CHARACTERS:
        raise ArenaError(f"'{path}' is no path for an arena: it must be absolute, without '..'")
    with _locked(_make_parent(target.parent)):
        try:
            os.mkdir(target, ARENA_MODE)
        except FileExistsError:
            _check(target)
            return False
        except OSError as error:
            raise ArenaError(f"cannot make the arena {path}: {error.strerror}; remedy: run this as root") from error
        _hand_over(target, owner)
        if label:
            label(target)
    return True


def _make_parent(parent: Path) -> Path:
    """Usually there by tmpfiles.d; /run itself must be there."""
    try:
        os.mkdir(parent, PARENT_MODE)
        os.chmod(parent, PARENT_MODE)  # the umask had a say
    except FileExistsError:
        pass
    except OSError as error:
        raise ArenaError(f"cannot make {parent}, the parent of all arenas: {error.strerror}") from error
    return parent


def present(run_dir: str | Path) -> frozenset[str]:
    """The names of the arenas that are there. QEMU's user cannot make one that somebody removed."""
    with contextlib.suppress(OSError), os.scandir(run_dir) as found:
        return frozenset(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    return frozenset()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One maker at a time: nobody finds an arena that has not got its owner yet. Raises ArenaError."""
    file = folder / LOCK
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, LOCK_MODE)
    except OSError as error:
        raise ArenaError(f"cannot open {file}: {error.strerror}; remedy: run this as root") from error
    try:
        _lock(descriptor, file)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path) -> None:
    """Only root opens the file, so only a fault of ours can hold the lock for long: then it is an error."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.monotonic() >= until:
            raise ArenaError(f"{file} was locked for {LOCK_SECONDS:g} s; remedy: end the process that holds it (fuser {file})")
        time.sleep(_POLL_SECONDS)


def _check(target: Path) -> None:
    if not stat.S_ISDIR(os.lstat(target).st_mode):
        raise ArenaError(f"{target} is no directory, so it cannot be an arena; remedy: remove what is there")


def _hand_over(target: Path, owner: Owner) -> None:
    try:
        os.chown(target, owner.uid, owner.gid, follow_symlinks=False)
        os.chmod(target, ARENA_MODE)
    except OSError as error:
        os.rmdir(target)
        what = f"cannot give {target} to uid {owner.uid}: {error.strerror}"
        raise ArenaError(f"{what}; remedy: run this as root") from error


def selinux_label(path: Path) -> None:
    """Give a new arena its type, where SELinux is in force; without the policy module it stays as it is."""
    if not Path("/sys/fs/selinux/enforce").exists():
        return
    try:
        context = os.getxattr(path, "security.selinux").rstrip(b"\0").decode().split(":")
        context[2] = SELINUX_TYPE
        os.setxattr(path, "security.selinux", ":".join(context).encode() + b"\0")
    except (OSError, IndexError):
        pass  # no module, or no right: restorecon and the module's file contexts do it


# ---- the owner

def owner_of(text: str) -> Owner:
    """ "user:group", names or numbers ("+64055:+64055", as libvirt writes them). Raises ValueError."""
    user, _, group = text.partition(":")
    try:
        uid = int(user) if user.lstrip("+").isdecimal() else pwd.getpwnam(user).pw_uid
        if not group:
            return Owner(uid, pwd.getpwuid(uid).pw_gid)
        return Owner(uid, int(group) if group.lstrip("+").isdecimal() else grp.getgrnam(group).gr_gid)
    except KeyError as error:
        raise ValueError(f"the owner of arenas, '{text}': {error.args[0]}; use an existing user and group") from None


def owner_of_domain(live: Element, setting: str, capabilities: Callable[[], Element]) -> Owner:
    """Who runs the QEMU of a domain: the setting, else its label, else libvirt's own for domains. Raises ValueError."""
    label = setting or live.findtext("./seclabel[@model='dac']/label") or \
        capabilities().findtext("./host/secmodel[model='dac']/baselabel[@type='kvm']")
    return owner_of(label) if label else Owner(0, 0)
