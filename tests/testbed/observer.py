"""idletime-observer on a block device, cgroups for who is background, and a host with VMs that are seen and not counted."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterator, Sequence

from tests.framework import paths
from tests.framework.process import Process
from tests.framework.qemu import Boot, Machine, stock_qemu
from tests.testbed import loop
from tests.testbed.attach import attach
from tests.testbed.disk import Disk, Model

BLKIO, UNIFIED = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
"""Cgroups of block requests: version 1; where there is only version 2, its root."""
START_SECONDS = 20.0
"""The verifier takes a second; the rest is for busy hosts."""
PROGRAM = "idletime-observer"


def program() -> Path:
    """The staged one, or that which IDLETIME_OBSERVER names."""
    return Path(os.environ.get("IDLETIME_OBSERVER") or paths.BUILD / "stage" / "bin" / PROGRAM)


def missing() -> str | None:
    """What this machine lacks for an observer, with the remedy; None: nothing."""
    if os.geteuid() != 0:
        return "only root may load programs into the kernel"
    if not program().exists():
        return f"{program()} is not there: run `make observer`"
    if not block_controller():
        return f"neither {BLKIO} nor a cgroup2 at {UNIFIED} with the io controller is mounted: who is background cannot be told"
    return loop.missing()


def missing_beside_stock() -> str | None:
    """The same for a foreground on a QEMU without our changes."""
    if not stock_qemu():
        return "there is no QEMU without our changes: run `make deps`, or `make qemu-unpatched`"
    return missing()


def block_controller() -> Path | None:
    """Where the cgroups of block requests are made."""
    if (BLKIO / "cgroup.procs").exists():
        return BLKIO
    controllers = UNIFIED / "cgroup.controllers"
    if not controllers.exists() or "io" not in controllers.read_text().split():
        return None
    (UNIFIED / "cgroup.subtree_control").write_text("+io")
    return UNIFIED


@contextmanager
def cgroup(*names: str) -> Iterator[Path]:
    """A cgroup of ours, and those above it; processes that are left in them go back to the root's."""
    root = block_controller()
    assert root
    made = [root]
    try:
        for name in (f"idletime-{os.getpid()}-{names[0]}", *names[1:]):
            if len(made) > 1 and root == UNIFIED:
                (made[-1] / "cgroup.subtree_control").write_text("+io")
            (made[-1] / name).mkdir()
            made.append(made[-1] / name)
        yield made[-1]
    finally:
        for each in reversed(made[1:]):
            for pid in (each / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(pid)
            each.rmdir()


def enter(group: Path, pid: int) -> None:
    """A process with all its threads; what it asks of a disk from now on is this cgroup's."""
    (group / "cgroup.procs").write_text(str(pid))


class Observer:
    """A context manager: enter returns when it observes, leave ends it. `start` begins a process, in a namespace for example."""

    def __init__(self, arena: Path, *options: str, start: Callable[[list[str], Path], Process] = Process) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="idletime-")
        self.process = start([str(program()), "--arena", str(arena), *options], Path(self._folder.name) / "log")

    def __enter__(self) -> Observer:
        end = time.monotonic() + START_SECONDS
        while "ready" not in self.process.log.read_text().splitlines():
            if time.monotonic() > end or not self.process.running():
                error = self.process.error("it does not observe")
                self.stop()
                raise error
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait(START_SECONDS)

    def stop(self) -> None:
        """May be called twice."""
        self.process.stop()
        self._folder.cleanup()


class Ends:
    """A context manager: the kernel's record of the ends of a device's requests (tracefs), beside what programs are told of them.

    There are kernels that run no program on what is done on top of process 1, and do not count that as a miss: of these ends an
    observer knows nothing, and heals. Linux as it is released is none of them.
    """

    def __init__(self, device: str) -> None:
        number = os.stat(device).st_rdev
        self._filter = f"dev == {os.major(number) << 20 | os.minor(number)} && nr_sector > 0"
        self._root = Path(tempfile.mkdtemp(prefix="idletime-"))
        self._trace = self._root / "instances" / f"idletime-{os.getpid()}"

    def __enter__(self) -> Ends:
        subprocess.run(["mount", "-t", "tracefs", "idletime", str(self._root)], check=True)
        self._trace.mkdir()
        # Threads that it begins later are recorded too, and its children, which are told by their TGID.
        for option in "event-fork", "record-tgid":
            (self._trace / "options" / option).write_text("1")
        (self._trace / "set_event_pid").write_text(" ".join(path.name for path in Path("/proc/1/task").iterdir()))
        event = self._trace / "events" / "block" / "block_rq_complete"
        (event / "filter").write_text(self._filter)
        (event / "enable").write_text("1")
        return self

    def on_process_1(self) -> int:
        """How many came while a thread of process 1 had the processor, also one that is gone."""
        return len(re.findall(r"-\d+ +\( *1\) +\[\d+\].* block_rq_complete: ", (self._trace / "trace").read_text()))

    def __exit__(self, *_: object) -> None:
        (self._trace / "events" / "enable").write_text("0")
        self._trace.rmdir()
        subprocess.run(["umount", str(self._root)], check=True)
        self._root.rmdir()


class Device:
    """A block device, or the file below it, as what several machines share (tests.testbed.attach.Shared)."""

    fds: Sequence[int] = ()

    def __init__(self, path: str) -> None:
        self.path = path
        self.driver = "host_device" if Path(path).is_block_device() else "file"

    def options(self, node: str, client: str) -> list[str]:
        """Linux AIO: requests are submitted by QEMU's own threads, and so are of its cgroup."""
        return ["-blockdev", f"driver={self.driver},node-name={node},filename={self.path},cache.direct=on,aio=native,locking=off"]


class Host:
    """A disk of 5 ms as a block device, a cgroup of those that the observer leaves out, and machines; all ends with the stack."""

    def __init__(self, stack: ExitStack, boot: Boot, unpatched: Path, arena: Path, model: Model = Model(service_us=5000)) -> None:
        self._stack, self._boot, self._unpatched, self.arena = stack, boot, unpatched, arena
        self.group = stack.enter_context(cgroup("background"))
        self.disk = stack.enter_context(Disk(model))
        self.loop = stack.enter_context(loop.LoopDisk(self.disk, "loop"))
        self._device = Device(self.loop.device)

    def background(self, device: Device | None = None, **resource: object) -> Machine:
        """Patched, on the whole device unless a part is said; an interval of 20 ms unless another is said."""
        options = attach(device or self._device, "background", self.arena, "background", **{"interval_us": 20000, **resource})
        return self._start("background", options)

    def stock(self, device: Device | None = None) -> Machine:
        """A foreground on a QEMU without our patches, in no cgroup of ours."""
        boot = replace(self._boot, qemu=self._unpatched)
        return self._stack.enter_context(Machine(boot, "stock", attach(device or self._device, "stock", None)))

    def halves(self, folder: Path) -> tuple[Device, Device]:
        """Two partitions of the device, with nodes of their own, as there may be nobody who makes them."""
        name = Path(self.loop.device).name
        half = int(Path(f"/sys/class/block/{name}/size").read_text()) // 2
        found = []
        for number in (1, 2):
            subprocess.run(["addpart", self.loop.device, str(number), str((number - 1) * half), str(half)], check=True)
            self._stack.callback(subprocess.run, ["delpart", self.loop.device, str(number)], check=True)
            major, minor = map(int, Path(f"/sys/class/block/{name}p{number}/dev").read_text().split(":"))
            os.mknod(folder / f"half{number}", 0o600 | stat.S_IFBLK, os.makedev(major, minor))
            found.append(Device(str(folder / f"half{number}")))
        return found[0], found[1]

    def patched(self) -> Machine:
        """A foreground that has a slot, so the observer must leave it out."""
        return self._start("foreground", attach(self._device, "foreground", self.arena))

    def observer(self, device: str = "") -> Observer:
        """Of the block device, or of another one. One at a time."""
        options = ("--disk", device or self.loop.device, "--background-cgroup", str(self.group))
        return self._stack.enter_context(Observer(self.arena, *options))

    def _start(self, name: str, options: list[str]) -> Machine:
        machine = self._stack.enter_context(Machine(self._boot, name, options))
        enter(self.group, machine.process.pid)
        return machine


def await_seen(machine: Machine) -> None:
    """Return when this machine's QEMU has found its observer."""
    end = time.monotonic() + START_SECONDS
    while (found := machine.qmp.execute("query-idletime")[0]["observer"])["state"] != "seen":
        if time.monotonic() > end:
            raise RuntimeError(f"the background VM does not find its observer: {found}")
        time.sleep(0.1)
