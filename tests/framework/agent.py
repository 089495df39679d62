"""A guest with the agent in it: its programs, its modules, the port, and how to call it."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.framework import initramfs, kernel, paths, qemu
from tests.framework.exclusive import exclusive
from tests.framework.guest import Guest, Result

MODULES = ["nf_tables", "nft_socket", "nft_ct", "xfs"]
"""What the agent's parts and these tests need of a kernel that loads nothing by itself."""

INIT_SCRIPT = paths.ROOT / "guest-agent" / "service" / "idletime-agent.init"

SETUP = """
mkdir -p /sys/fs/cgroup /mnt
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ifconfig lo 127.0.0.1 up
chmod 666 /dev/null
printf 'root:x:0:0::/:/bin/sh\\nuser:x:1000:1000::/:/bin/sh\\nother:x:1001:1001::/:/bin/sh\\n' >/etc/passwd
chmod 666 /dev/null
printf 'root:x:0:\\nuser:x:1000:\\nother:x:1001:\\n' >/etc/group
"""

SOCKET = "/run/idletime/agent.sock"

START_SECONDS = 120.0
"""Two programs of 4 MB under TCG, on a host that may be busy."""

GONE = "while grep -q '^State:.[^ZX]' /proc/{}/status 2>&-; do usleep 10000; done"
"""Waits until a process has ended."""


def build(*targets: str) -> Path:
    """Bring the agent's programs up to date; returns their folder."""
    command = ["make", "-s", "-C", str(paths.ROOT / "guest-agent"), f"OUTPUT={paths.AGENT}", *targets]
    with exclusive(paths.AGENT.with_name(".agent.lock")):
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed\n{result.stdout}{result.stderr}")
    return paths.AGENT


def boot_with_agent(boot: qemu.Boot, guest_kernel: kernel.Kernel, network: bool = False) -> qemu.Boot:
    """The same QEMU with this kernel and a system that has the agent, and its tests that need a real kernel.

    `network`: with what a guest with a NIC needs.
    """
    folder = build("build", "guest-tests")
    programs = [folder / name for name in ("idletime", "idletime-agent", "dscp.test", "marks.test")] + [INIT_SCRIPT]
    image = initramfs.get_initramfs(guest_kernel, MODULES, programs, network)
    return replace(boot, kernel=guest_kernel.image, initramfs=image)


def as_user(user: str, command: str) -> str:
    """A shell command that runs another one as a user of the guest."""
    return f"({command})" if user == "root" else f"su {user} -c {shlex.quote(command)}"


class AgentGuest:
    """The agent in a running guest. `start()` begins it; the guest is set up once."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        guest.run(SETUP)

    def start(self, *options: str) -> None:
        """Begin the agent; returns when it answers."""
        self.guest.run(
            f"rm -f {SOCKET}; idletime-agent {shlex.join(options)} </dev/null >>/run/agent.log 2>&1 & echo $! >/run/agent.pid\n"
            f"while [ ! -S {SOCKET} ]; do [ -d /proc/$(cat /run/agent.pid) ] || {{ cat /run/agent.log; exit 1; }}; usleep 20000; done\n"
            "idletime status", START_SECONDS,
        )

    def signal(self, name: str) -> None:
        """Send the agent a signal."""
        self.guest.run(f"kill -{name} $(cat /run/agent.pid)")

    def stop(self, name: str = "TERM") -> None:
        """End the agent; returns when it is gone."""
        self.guest.run(f"pid=$(cat /run/agent.pid); kill -{name} $pid; {GONE.format('$pid')}")

    def call(self, *words: str, user: str = "root", check: bool = True, timeout_seconds: float = 60) -> Result:
        """Run `idletime` with these words, as a user."""
        command = shlex.join(["idletime", *words])
        return self.guest.run(as_user(user, command), timeout_seconds, check)

    def status(self) -> dict[str, Any]:
        """What `idletime status --json` says."""
        return json.loads(self.call("status", "--json").text)

    def begin(self, command: str, user: str = "root") -> int:
        """Start a process in the background of the guest; returns its pid."""
        return int(self.guest.run(f"{as_user(user, f'exec {command}')} </dev/null >/dev/null 2>&1 & echo $!").text)

    def end(self, *pids: int) -> None:
        """Kill processes of the guest, and wait until they are gone; nobody may have looked after them yet (state Z)."""
        for pid in pids:
            self.guest.run(f"kill -KILL {pid}; {GONE.format(pid)}", check=False)


