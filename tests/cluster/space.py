"""Namespaces: start a process 1 in new ones, look into them, and end them by recorded pid."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from tests.cluster.place import ClusterError, run
from tests.framework.process import tail

KINDS = ("mnt", "net", "pid", "uts", "ipc")
OPTIONS = {"mnt": "mount"}
"""Where nsenter's option has another name than the kernel's file."""

START_SECONDS = 30.0
END_SECONDS = 30.0
POLL_SECONDS = 0.02


def _start_time(pid: int) -> int | None:
    """Ticks since boot at which a process started: with the pid, its identity. None: no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return None


@dataclass(frozen=True)
class Space:
    """A set of namespaces, named by the process 1 in them; `inodes` outlive it, for the proof that all is gone."""

    name: str
    pid: int
    started: int
    inodes: dict[str, int]

    def alive(self) -> bool:
        """Whether process 1 still is the one we started."""
        return _start_time(self.pid) == self.started

    def inside(self, *kinds: str) -> list[str]:
        """The words that run a command in these namespaces: space.inside("net") + ["ip", "link"]."""
        return ["nsenter", *(f"--{OPTIONS.get(kind, kind)}=/proc/{self.pid}/ns/{kind}" for kind in kinds), "--"]

    def end(self) -> None:
        """Kill process 1: the kernel kills all others of its namespace, and with them go mounts and links."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.alive():
                return
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not select.select([handle], [], [], END_SECONDS)[0]:
                raise ClusterError(f"{self.name}: process 1 (pid {self.pid}) does not die; is one of its disks stuck?")
        finally:
            os.close(handle)


def _child_of(parent: int) -> int | None:
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _inodes(pid: int) -> dict[str, int]:
    return {kind: os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in KINDS}


COMMAND = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
"""Words before those of a process 1 of new namespaces; it dies with this parent of it."""


def start(name: str, argv: Sequence[str | Path], log: Path) -> Space:
    """Start `argv` as process 1 of new namespaces.

    It outlives us; only Space.end() and the machine's end stop it.
    """
    with log.open("ab") as output:
        parent = subprocess.Popen(
            [*COMMAND, *map(str, argv)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        return of_parent(name, parent.pid, lambda: parent.poll() is None, log)
    except ClusterError:
        parent.kill()
        parent.wait()
        raise


def of_parent(name: str, parent: int, runs: Callable[[], bool], log: Path) -> Space:
    """The namespaces whose process 1 is the child of a COMMAND with this pid, as soon as there is one."""
    end = time.monotonic() + START_SECONDS
    # unshare forks when it is in its new namespaces: its child is born in them.
    while not (pid := _child_of(parent)):
        if not runs() or time.monotonic() > end:
            raise ClusterError(f"{name}: no process 1 in new namespaces; its log {log} ends:\n{tail(log)}")
        time.sleep(POLL_SECONDS)
    return Space(name, pid, _start_time(pid) or 0, _inodes(pid))


def await_ready(space: Space, ready: Path, log: Path) -> None:
    """Return when process 1 has made the file `ready`."""
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if not space.alive() or time.monotonic() > end:
            state = "is not ready" if space.alive() else "ended"
            raise ClusterError(f"{space.name} {state}; its log {log} ends:\n{tail(log)}")
        time.sleep(POLL_SECONDS)


def now() -> int:
    """This moment, as processes' start times are counted."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def left_of(inodes: dict[str, int], until: int) -> list[str]:
    """Processes that still live in one of these namespaces, as "pid command".

    Those that started after `until` are not ours: the kernel gives the numbers of dropped namespaces to new ones.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = any(os.stat(folder / "ns" / kind).st_ino == inode for kind, inode in inodes.items())
            if ours and (_start_time(int(folder.name)) or until) <= until:
                found.append(f"{folder.name} {(folder / 'comm').read_text().strip()}")
        except OSError:
            continue  # ended while we looked
    return found


def connect(fabric: Space, bridge: str, node: Space, address: str) -> None:
    """A link from the node's eth0 to the bridge of the fabric."""
    plug(fabric, bridge, node, "eth0", node.name)
    inside = node.inside("net")
    run([*inside, "ip", "address", "add", address, "dev", "eth0"])
    run([*inside, "ip", "link", "set", "lo", "up"])


def plug(fabric: Space, bridge: str, node: Space, interface: str, peer: str) -> None:
    """A link from an interface of the node to the bridge of the fabric, without an address; peer: its name there."""
    run([*fabric.inside("net"), "ip", "link", "add", peer, "type", "veth", "peer", "name", interface, "netns", str(node.pid)])
    run([*fabric.inside("net"), "ip", "link", "set", peer, "master", bridge, "up"])
    run([*node.inside("net"), "ip", "link", "set", interface, "up"])
