# SPDX-License-Identifier: GPL-2.0-or-later
"""cockpit-ws with the built page, for tests and for the live demo."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .idletimed import wait_until
from .libvirtd import Libvirtd
from .process import Process

DIST = paths.BUILD / "cockpit" / "dist"
WS = Path("/usr/lib/cockpit/cockpit-ws")
PAGE = "/cockpit/@localhost/idletime/index.html"
VISITOR, HOME = "visitor", Path("/run/visitor")
PACKAGES = HOME / ".local" / "share"
"""Where a visitor's own pages of Cockpit are."""


def lacking() -> list[str]:
    """What is not installed or built."""
    return [str(one) for one in (WS, DIST / "index.js") if not one.exists()]


@dataclass(frozen=True)
class Account:
    """Of somebody who logs in."""

    name: str
    password: str


def make_visitor(host: Libvirtd) -> Account:
    """An administrator whom only this host knows: the machine's own accounts are as they were."""
    account = Account(VISITOR, secrets.token_urlsafe(9))
    hashed = subprocess.run(["openssl", "passwd", "-6", "-stdin"], input=account.password, capture_output=True, text=True,
                            check=True).stdout.strip()
    lines = (("passwd", f"{VISITOR}:x:0:0:visitor:{HOME}:/bin/sh", 0o644), ("shadow", f"{VISITOR}:{hashed}:19000::::::", 0o600))
    for file, line, mode in lines:
        copy = host.run / file
        copy.touch(mode)
        copy.write_text(f"{line}\n{(Path('/etc') / file).read_text()}")
        host.call("mount", "--bind", f"/run/{file}", f"/etc/{file}")
    return account


class Cockpit:
    """cockpit-ws in the mount namespace of a host, where idletimed's socket is, and in our network, where the browser is."""

    def __init__(self, host: Libvirtd, user: str | None = "") -> None:
        """user: who is logged in; "": root; None: nobody, one has to log in."""
        self.port = _free_port()
        packages = host.folder / PACKAGES.relative_to("/")
        if not packages.exists():
            shutil.copytree(DIST, packages / "cockpit" / "idletime")
        target = str(host.init_pid)
        as_user = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"] if user else []
        session = [] if user is None else ["--local-session=cockpit-bridge"]
        self.process = Process(
            ["nsenter", "--target", target, "--mount", "--pid", "--uts", "--ipc", "--wd=/", "--", *as_user,
             "env", f"XDG_DATA_HOME={PACKAGES}", "HOME=/tmp", str(WS), "--no-tls", "--address=127.0.0.1",
             f"--port={self.port}", *session],
            host.folder / "log" / f"cockpit-{user or 'root'}.log")
        wait_until(self._answers, "cockpit-ws answers")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        assert self.process.running(), self.process.error("ended")
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self.process.stop()


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])
