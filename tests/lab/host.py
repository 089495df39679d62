"""A host of a lab, and the services on it: started by name, ended by recorded pid."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence

from tests.cluster import space as spaces
from tests.cluster.place import ClusterError, run
from tests.cluster.space import KINDS, Space
from tests.framework import paths
from tests.framework.process import Process, tail
from tests.lab.tree import ENVIRONMENT
from tests.testbed.observer import BLKIO

HERE = Path(__file__).parent
SOURCE = "/srv/idletime"
"""This repository, seen from inside."""
END_SECONDS = 30.0
CGROUPS = BLKIO / "idletime-lab"
"""By these a hypervisor's observer knows whose requests it sees. They exist while their host does."""
IN_GROUP = 'echo $$ >"$0/cgroup.procs"; exec "$@"'
"""Without a child of its own: the first one is the host's first process."""
QEMU_CONF = """user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = ["blkio"]
namespaces = []
remember_owner = 0
stdio_handler = "file"
"""
IDLETIMED_TOML = 'observer = "/srv/stage/bin/idletime-observer"\n[metrics]\nlook-seconds = 2\n'
SERVICE = 'echo $$ >/run/pids/"$0"; echo 0 >/sys/fs/cgroup/blkio/cgroup.procs; exec "$@"'


@dataclass
class Host:
    """A set of namespaces. folder: its layer; lower: what that is above; loops: numbers of its loop devices."""

    name: str
    folder: Path
    lower: Sequence[Path]
    loops: Sequence[str] = ()
    space: Space = field(init=False)
    services: dict[str, Process] = field(init=False, default_factory=dict)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file in its layer, before it starts: write("etc/hosts", ...)."""
        file = self.folder / "upper" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def link(self, path: str, target: str) -> None:
        """The same with a symbolic link."""
        file = self.folder / "upper" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def is_hypervisor(self) -> None:
        """Before it starts: its libvirt finds the patched QEMU, idletimed its observer."""
        self.write("etc/libvirt/qemu.conf", QEMU_CONF)
        self.write("etc/idletime/idletimed.toml", IDLETIMED_TOML)
        self.link("usr/bin/qemu-system-x86_64", "/srv/stage/bin/qemu-system-x86_64")
        # Debian 13 has a new name for a library of the release that QEMU was built on.
        if list(self.lower[-1].glob("usr/lib/*/libaio.so.1t64")):
            self.link("usr/lib/x86_64-linux-gnu/libaio.so.1", "libaio.so.1t64")

    def start(self, guest: Path) -> None:
        """Its namespaces, without a service."""
        for name in ("upper", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        ready = self.folder / "upper/var/lib/space-ready"
        ready.unlink(missing_ok=True)
        log = self.folder / "log"
        lower = ":".join(map(str, self.lower))
        words = [HERE / "space-init.sh", self.folder, lower, self.name, paths.ROOT, paths.BUILD / "stage", guest]
        # As our child: it ends with us, however we end.
        unshare, *options = spaces.COMMAND
        self._group.mkdir(parents=True, exist_ok=True)
        begin = ["sh", "-ec", IN_GROUP, str(self._group), unshare, "--cgroup", *options]
        self._parent = Process([*begin, *map(str, words), *self.loops], log)
        self.space = spaces.of_parent(self.name, self._parent.pid, self._parent.running, log)
        spaces.await_ready(self.space, ready, log)

    def end(self) -> None:
        """All that runs there is gone, and nsenter with it."""
        self.space.end()
        for service in (*self.services.values(), self._parent):
            service.stop()
        until(lambda: all(map(_removed, self._groups())), f"the cgroups of {self.name} are empty", END_SECONDS)
        _removed(CGROUPS)  # with the last host

    @property
    def _group(self) -> Path:
        return CGROUPS / self.name

    def _groups(self) -> Iterator[Path]:
        """Those below first."""
        return (Path(folder) for folder, _, _ in os.walk(self._group, topdown=False))

    def argv(self, *argv: str | Path, environment: Mapping[str, str] = {}) -> list[str]:
        """The words that run something inside."""
        return [*self.space.inside(*KINDS, "cgroup"), *ENVIRONMENT, *(f"{key}={value}" for key, value in environment.items()), *map(str, argv)]

    def call(self, *argv: str | Path, seconds: float = 120, environment: Mapping[str, str] = {}) -> str:
        """Run a command inside to its end; what it printed."""
        return run(self.argv(*argv, environment=environment), seconds)

    def sh(self, script: str, seconds: float = 120, environment: Mapping[str, str] = {}) -> str:
        """The same with a shell script."""
        return self.call("sh", "-ec", script, seconds=seconds, environment=environment)

    def log_of(self, service: str) -> Path:
        """What it has said."""
        return self.folder / f"{service}.log"

    def serve(self, name: str, *argv: str, environment: Mapping[str, str] = {}) -> None:
        """Start a service; one that ran has to have ended."""
        words = self.argv("sh", "-c", SERVICE, name, *argv, environment=environment)
        self.services[name] = Process(words, self.log_of(name))

    def idletimed(self) -> None:
        """Start it."""
        self.serve("idletimed", "python3", "-m", "idletime.hostd.daemon", "--config", "/etc/idletime/idletimed.toml",
                   environment={"PYTHONPATH": f"{SOURCE}/libvirt"})

    def stop(self, name: str, signal: str = "TERM") -> None:
        """End a service; returns when it is gone."""
        self.sh(f"kill -{signal} $(cat /run/pids/{name})")
        self.services[name].wait(END_SECONDS)
        self.services.pop(name).stop()

    def said(self, name: str) -> str:
        """For errors."""
        return f"--- {name} of {self.name}:\n{tail(self.log_of(name), 4000)}"

    def answers(self, what: str, *argv: str, seconds: float = 90) -> None:
        """Wait until a command succeeds inside."""
        def works() -> bool:
            return subprocess.run(self.argv(*argv), capture_output=True, timeout=60).returncode == 0
        until(works, f"{self.name}: {what} answers", seconds, lambda: self.said(what) if self.log_of(what).exists() else "")


def _removed(group: Path) -> bool:
    """A cgroup is busy for a moment after its last process."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def until(condition: Callable[[], object], what: str, seconds: float, said: Callable[[], str] = lambda: "") -> None:
    """Return when a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise ClusterError(f"not within {seconds:.0f} s: {what}\n{said()}")
        time.sleep(0.2)
