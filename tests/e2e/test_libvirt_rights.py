"""Who may do what to whom: QEMUs of different users on one arena, with just the rights they need, and with one less."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.libvirt_fixtures import host, module_stack  # noqa: F401  (fixtures)
from tests.framework.idletimed import wait_until
from tests.framework.libvirtd import Inside, Libvirtd

FOREGROUND, BACKGROUND, GROUP = 64001, 64002, 64000
"""Users for the two kinds of tenants, and the group that both are in."""

USERS = {"foreground": FOREGROUND, "background": BACKGROUND, "guest": FOREGROUND}


@dataclass(frozen=True)
class Rights:
    """Modes of the arena: the directory is root's, each file that of the board's writers, all of GROUP."""

    directory: int = 0o750
    foreground: int = 0o640
    foreground_lock: int = 0o600
    foreground_alive: int = 0o640
    background: int = 0o660
    background_lock: int = 0o660
    background_alive: int = 0o660


ARENA = "/run/arena"


def command(host: Libvirtd, device_class: str, user: int) -> list[str]:
    """A QEMU with one disk of this class, run by this user."""
    return [
        "setpriv", "--reuid", str(user), "--regid", str(GROUP), "--clear-groups", host.emulator,
        "-nodefaults", "-display", "none", "-machine", "q35,accel=tcg", "-S", "-qmp", "stdio",
        "-object", f"idletime-resource,id=r,path={ARENA}", "-blockdev", "driver=null-co,node-name=d,size=1048576",
        "-device", f"virtio-blk-pci,drive=d,id=d,idletime=r,idletime-class={device_class}",
    ]


def look(host: Libvirtd, device_class: str, user: int | None = None) -> tuple[int, Any]:
    """Run it for a moment: exit status, and what query-idletime or stderr says."""
    script = "".join(json.dumps({"execute": each}) + "\n" for each in ("qmp_capabilities", "query-idletime", "quit"))
    uid = USERS[device_class] if user is None else user
    result = host.call(*command(host, device_class, uid), check=False, input=script)
    if result.returncode != 0:
        return result.returncode, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return 0, next(line["return"] for line in lines if line.get("return"))


@pytest.fixture
def arena(host: Libvirtd) -> Path:
    """An arena as an operator makes it who separates the two: boards made by root, then handed out."""
    path = host.run / "arena"
    status, said = look(host, "foreground", user=0)
    assert status == 0, said
    return grant(path, Rights())


def grant(path: Path, rights: Rights) -> Path:
    """Hand out an arena."""
    for name, mode in asdict(rights).items():
        owner = {"foreground": FOREGROUND, "background": BACKGROUND}.get(name.split("_")[0], 0)
        file = path if name == "directory" else path / name.replace("_", ".")
        os.chown(file, owner, GROUP)
        os.chmod(file, mode)
    return path


@pytest.mark.parametrize("device_class", USERS)
def test_these_rights_suffice(host: Libvirtd, arena: Path, device_class: str) -> None:
    """Each starts, and sees the arena."""
    status, said = look(host, device_class)
    assert status == 0, said
    assert said[0]["path"] == ARENA and said[0]["state"] != "lost"
    assert said[0]["devices"][0]["participants"] == (2 if device_class == "guest" else 1)


@pytest.mark.parametrize("device_class, fewer, board", [
    ("foreground", Rights(directory=0o700), ARENA),
    ("background", Rights(directory=0o700), ARENA),
    ("foreground", Rights(foreground=0o440), "foreground' for writing"),
    ("background", Rights(foreground=0o600), "foreground' for reading"),
    ("background", Rights(background=0o440), "background' for writing"),
    ("guest", Rights(background=0o640), "background' for writing"),
    ("foreground", Rights(foreground_lock=0o400), "foreground.lock' for writing"),
    ("background", Rights(foreground_alive=0o600), "foreground.alive' for reading"),
    ("guest", Rights(background_lock=0o640), "background.lock' for writing"),
    ("guest", Rights(background_alive=0o600), "background.alive' for reading"),
])
def test_one_right_less_is_an_error(host: Libvirtd, arena: Path, device_class: str, fewer: Rights, board: str) -> None:
    """It does not start, and says which file it may not open."""
    grant(arena, fewer)
    status, said = look(host, device_class)
    assert status != 0
    assert board in said, said


def test_background_cannot_write_the_foreground_board(host: Libvirtd, arena: Path) -> None:
    """A background QEMU has the foreground board read-only, and its user cannot open it otherwise."""
    with ExitStack() as stack:
        # A pipe that stays open keeps the monitor on stdio alive.
        argv = ["sh", "-c", 'sleep 100 | exec "$@"', "sh", *command(host, "background", BACKGROUND)]
        inside = host.spawn(argv, "bg.log")
        stack.callback(inside.stop)
        modes = boards_of(host, inside)
    assert modes == {"foreground": "r--s", "background": "rw-s"}
    for board, status in (("foreground", 1), ("background", 0)):
        script = f"import os; os.open('{ARENA}/{board}', os.O_RDWR)"
        result = host.call("setpriv", "--reuid", str(BACKGROUND), "--regid", str(GROUP), "--clear-groups",
                           "/usr/bin/python3", "-c", script, check=False)
        assert result.returncode == status, result.stderr


def boards_of(host: Libvirtd, inside: Inside) -> dict[str, str]:
    """How the QEMU below this process maps the boards."""
    found: dict[str, str] = {}

    def mapped() -> bool:
        for pid in host.call("pgrep", "-u", str(BACKGROUND), "-f", "qemu-system", check=False).stdout.split():
            for line in host.call("cat", f"/proc/{pid}/maps", check=False).stdout.splitlines():
                if ARENA in line:
                    found[line.split("/")[-1]] = line.split()[1]
        return len(found) == 2

    wait_until(mapped, "a background QEMU maps both boards")
    return found
