"""The machines of the evaluation: foreground and background VMs on each way to the disk."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Collection, Iterator

import numpy as np

from tests.bench.eval import guesthost, trace
from tests.bench.eval.contenders import Contender
from tests.bench.eval.disks import Setting
from tests.bench.eval.workloads import DATABASE, MOUNT, TRACE, Workload
from tests.bench.pair import WARM_UP_SECONDS
from tests.framework.guest import Guest, Load
from tests.framework.qemu import Boot, Machine
from tests.testbed import filesystem, loop
from tests.testbed.attach import DEVICE, RESOURCE, attach
from tests.testbed.disk import Disk
from tests.testbed.requests import FLUSH, pauses_ns, waited_ns
from tests.testbed.seek import services_ns

FOREGROUNDS = ("foreground-0", "foreground-1")
BACKGROUND = "background"

COMMON_LOAD = {"pattern": "random", "operation": "read", "block_bytes": 4096}
HALF_BYTES = 512 << 20
"""Each half of the disk has its user, so that the disk's log tells whose a request is, whatever way it came."""
FOREGROUND_LOAD = {**COMMON_LOAD, "span_bytes": HALF_BYTES}
BACKGROUND_LOAD = {**COMMON_LOAD, "offset_bytes": HALF_BYTES, "intensity": 100, "seed": 2}
PAUSE_PERCENTILES = (10, 50, 90)
"""Of the time from the end of a foreground request to the next background one's arrival at the disk."""
CGROUP = Path("/sys/fs/cgroup/blkio")
FOREGROUND_WEIGHT = 1000
MAX_HOLD_MS = 5000
"""The product's own value."""
CHUNK_BYTES = 16384
"""A command line to the guest holds this much of a file."""


def put(guest: Guest, path: str, data: bytes) -> None:
    """Write a file in the guest."""
    guest.run(f"rm -f {path}")
    for begin in range(0, len(data), CHUNK_BYTES):
        part = base64.b64encode(data[begin:begin + CHUNK_BYTES]).decode()
        guest.run(f"echo {part} | base64 -d >>{path}")


class Rig:
    """A context manager: enter boots the machines of these ways to the disk, leave removes all of it.

    `foregrounds` is how many of them there are on each way.
    """

    def __init__(self, boot: Boot, setting: Setting, outstanding: int, ways: Collection[str], foregrounds: int) -> None:
        self._boot, self._setting, self._outstanding, self._ways = boot, setting, outstanding, ways
        self._names = (*FOREGROUNDS[:foregrounds], BACKGROUND)
        self._stack = ExitStack()
        self.loop: loop.LoopDisk | None = None
        self.without_loop = loop.missing()
        self.machines: dict[tuple[str, str], Machine] = {}

    def __enter__(self) -> Rig:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            stack.callback(self._remove_cgroups)  # when the machines that were in them are gone
            self.disk = stack.enter_context(Disk(self._setting.model))
            if any(workload.tree for workload in self._setting.workloads):
                filesystem.make(self.disk)
            if "nbd" in self._ways:
                for name in self._names:
                    self._start(stack, "nbd", name, self._participant(stack, name, folder / "arena"))
            if "loop" in self._ways and not self.without_loop:
                self.loop = stack.enter_context(loop.LoopDisk(self.disk, "loop"))
                for name in self._names:
                    self._start(stack, "loop", name, self._loop(self.loop.device))
            if "guest" in self._ways:
                self._start_guest_host(stack)
            self._warm_up()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace_: TracebackType | None) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack, way: str, name: str, arguments: list[str]) -> None:
        machine = Machine(self._boot, f"{way}-{name}", arguments)
        self.machines[way, name] = stack.enter_context(machine)
        if name == FOREGROUNDS[0]:
            put(machine.guest, TRACE, trace.for_idleload(filesystem.SIZE_MIB << 20))

    def _start_guest_host(self, stack: ExitStack) -> None:
        """One machine that is all three."""
        self._start(stack, "guest", FOREGROUNDS[0], attach(self.disk, "guest", None))
        host = self.machines["guest", FOREGROUNDS[0]]
        guesthost.prepare(host.guest)
        for name in self._names[1:]:
            self.machines["guest", name] = host

    def _warm_up(self) -> None:
        """Each machine's first moments under load go into translating its drivers: they are nobody's result."""
        for machine in {machine.name: machine for machine in self.machines.values()}.values():
            machine.guest.load(seconds=WARM_UP_SECONDS).result()

    def _participant(self, stack: ExitStack, name: str, arena: Path) -> list[str]:
        """The background's disk has a throttle filter that is off until a contender sets it."""
        options = attach(self.disk, name, arena, "background" if name == BACKGROUND else "foreground")
        if self._setting.mounted:
            mount = stack.enter_context(loop.MountedDisk(self.disk, name, loop.CONNECTIONS_MAX))
            options[1] = f"driver=file,node-name=disk,filename={mount.file},cache.direct=on,aio=threads,locking=off"
        if name != BACKGROUND:
            return options
        return [
            "-object", "throttle-group,id=cap", *options[:2],
            "-blockdev", "driver=throttle,node-name=capped,throttle-group=cap,file=disk",
            *(option.replace("drive=disk", "drive=capped") for option in options[2:]),
        ]

    @staticmethod
    def _loop(device: str) -> list[str]:
        """Linux AIO is submitted by QEMU's main thread, whose I/O class is the request's then."""
        node = f"driver=host_device,node-name=disk,filename={device},cache.direct=on,aio=native,locking=off"
        return ["-blockdev", node, "-device", f"virtio-blk-pci,drive=disk,id={DEVICE}"]

    # ---- contenders

    def apply(self, contender: Contender) -> None:
        """Put a contender's settings in force; ValueError if it cannot be done here."""
        if contender.path == "guest":
            guesthost.control(self.machines["guest", BACKGROUND].guest, contender.io_cost)
        elif contender.path == "loop":
            if self.loop is None:
                raise ValueError(str(self.without_loop))
            self._apply_kernel(self.loop, contender)
        else:
            self._apply_qemu(contender)

    def _apply_qemu(self, contender: Contender) -> None:
        background = self.machines["nbd", BACKGROUND].qmp
        cap = contender.throttle_iops or 0
        background.execute("qom-set", path="/objects/cap", property="limits", value={"iops-total": cap})
        for name in self._names:
            self._configure(self.machines["nbd", name], contender)
        held = contender.interval_us is not None
        background.execute("idletime-set", device=DEVICE, **{"class": "background" if held else "foreground"})

    @staticmethod
    def _configure(machine: Machine, contender: Contender) -> None:
        def set_(name: str, value: object) -> None:
            machine.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property=name, value=value)

        properties = machine.qmp.execute("qom-list", path=f"/objects/{RESOURCE}")
        learns = any(each["name"] == "auto" for each in properties)
        if contender.budget_percent and not learns:
            raise ValueError(f"this QEMU has no property `auto`: {contender.name} needs one that has")
        set_("max-hold-ms", MAX_HOLD_MS + contender.rule)
        set_("interval-us", contender.interval_us or 0)
        if learns:
            set_("auto", contender.budget_percent is not None)
            set_("budget-percent", contender.budget_percent or 5)

    def _apply_kernel(self, disk: loop.LoopDisk, contender: Contender) -> None:
        disk.elevator(contender.elevator)
        for name in self._names:
            self.place(name, self.machines["loop", name].process.pid, contender)

    def place(self, name: str, pid: int, contender: Contender) -> None:
        """A QEMU on the loop device is to the kernel what this contender makes of BACKGROUND, or of another one of this name."""
        idle = contender.idle_class and name == BACKGROUND
        subprocess.run(["ionice", "-c", "3" if idle else "0", "-p", str(pid)], check=True)
        self._weigh(name, pid, contender.weight)

    @staticmethod
    def _weigh(name: str, pid: int, weight: int | None) -> None:
        """Into a cgroup of this weight; with none, back to the root group."""
        if weight is None:
            if (CGROUP / "cgroup.procs").exists():
                (CGROUP / "cgroup.procs").write_text(str(pid))
            return
        group = CGROUP / f"idletime-{os.getpid()}-{name}"
        group.mkdir(exist_ok=True)
        knob = group / "blkio.bfq.weight"
        if not knob.exists():
            raise ValueError(f"{knob} is missing: this kernel has no cgroup weights of bfq")
        knob.write_text(str(weight if name == BACKGROUND else FOREGROUND_WEIGHT))
        (group / "cgroup.procs").write_text(str(pid))

    @staticmethod
    def _remove_cgroups() -> None:
        for group in CGROUP.glob(f"idletime-{os.getpid()}-*"):
            group.rmdir()

    # ---- loads

    @staticmethod
    def program(way: str, role: str, name: str) -> str:
        return f"{guesthost.ENTER} {role} {name}" if way == "guest" else name

    def background(self, way: str, seconds: float) -> Load:
        """Start the greedy load."""
        load = {"device": "/dev/vda", **BACKGROUND_LOAD, "outstanding": self._outstanding, "seconds": seconds}
        return Load(self.machines[way, BACKGROUND].guest, self.program(way, "background", "idleload"), load)

    def foreground(self, way: str, workload: Workload, part: int, seconds: float, seed: int) -> list[Load]:
        """Start one part of a workload in as many VMs as it has."""
        loads = []
        for name, parts in zip(FOREGROUNDS, workload.loads):
            guest = self.machines[way, name].guest
            common = {} if workload.tree else {"device": "/dev/vda", **FOREGROUND_LOAD}
            program = self.program(way, "foreground", workload.program)
            loads.append(Load(guest, program, {"seed": seed, **common, **parts[part], "seconds": seconds}))
        return loads

    @contextmanager
    def mounted(self, way: str, workload: Workload) -> Iterator[None]:
        """The disk's file system, where the workload needs it, with nothing of it in the guest's cache."""
        guest = self.machines[way, FOREGROUNDS[0]].guest
        if workload.tree:
            guest.run(f"mkdir -p {MOUNT}; blockdev --flushbufs /dev/vda; mount -t ext4 -o noatime /dev/vda {MOUNT}")
            guest.run("sync; echo 3 >/proc/sys/vm/drop_caches")
        try:
            yield
        finally:
            if workload.tree:
                guest.run(f"rm -f {DATABASE}*; umount {MOUNT}")

    def at_disk(self, mark: int) -> tuple[dict[str, Any], np.ndarray]:
        """What foreground requests have waited for the background at the disk since a mark(), and it for their end.

        Sums; and each foreground request's times, its waiting among them.
        """
        requests = self.disk.read(mark)
        requests = requests[requests["operation"] != FLUSH]
        foreground, background = (requests[(requests["offset"] < HALF_BYTES) == own] for own in (True, False))
        model = self._setting.model
        waited = waited_ns(foreground, model.channels or 1, services_ns(model, foreground))
        pauses = pauses_ns(foreground, background)
        sums = {
            "foreground_requests": len(foreground), "collisions": int(np.count_nonzero(waited)), "waited_us": float(waited.sum() / 1000),
            "pauses_us": np.percentile(pauses / 1000, PAUSE_PERCENTILES).tolist() if len(pauses) else None,
        }
        times = ("arrival_ns", "start_ns", "finish_ns")
        return sums, np.rec.fromarrays([*(foreground[name] for name in times), waited], names=[*times, "waited_ns"])

    def counters(self) -> Any:
        """The background's query-idletime."""
        return self.machines["nbd", BACKGROUND].qmp.execute("query-idletime")
