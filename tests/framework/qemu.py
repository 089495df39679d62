"""A machine: one QEMU process with a guest in it, from start to proven end."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Sequence

from tests.framework import paths
from tests.framework.guest import Guest
from tests.framework.process import Process, tail
from tests.framework.qmp import Qmp

BOOT_SECONDS = 120.0
"""A guest boots in 2 s under TCG on an idle processor; the rest is for busy ones."""

KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off random.trust_cpu=on"


@dataclass(frozen=True)
class Boot:
    """What every machine of a session shares."""

    qemu: Path
    kernel: Path
    initramfs: Path
    accel: str


@dataclass
class Machine:
    """A context manager: enter boots the guest, leave ends QEMU and removes its files.

    `arguments` are QEMU options for what is tested: -blockdev, -object, -device.
    The monitor, the guest's control port and nothing else are added; both are
    socket pairs, so that no socket file can be left behind. `fds` are descriptors
    that the arguments name, such as those of taps; ours stay open.
    """

    boot: Boot
    name: str
    arguments: Sequence[str] = ()
    fds: Sequence[int] = ()
    machine: str = "q35"
    memory_mib: int = 256
    cpus: int = 1
    wait_for_guest: bool = True
    boot_seconds: float = BOOT_SECONDS
    guest: Guest = field(init=False)
    qmp: Qmp = field(init=False)
    process: Process = field(init=False)
    folder: Path = field(init=False)

    def start(self) -> Machine:
        """Start QEMU; returns when the guest listens. On an error nothing is left."""
        self.folder = Path(tempfile.mkdtemp(prefix="idletime-"))
        self._closers: list[Any] = [lambda: shutil.rmtree(self.folder, ignore_errors=True)]
        try:
            self._launch()
            if self.wait_for_guest:
                self.guest.wait_ready(self.boot_seconds)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End QEMU by its pid, then the channels, then the folder. May be called twice."""
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Machine:
        return self.start()

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def context(self) -> str:
        """What QEMU and the guest's console said last, for error messages."""
        console, log = self.folder / "console", self.folder / "qemu.log"
        return f"--- console of {self.name}:\n{tail(console)}\n--- QEMU of {self.name}:\n{tail(log)}"

    def _launch(self) -> None:
        monitor, monitor_end = socket.socketpair()
        control, control_end = socket.socketpair()
        with monitor_end, control_end:
            fds = (monitor_end.fileno(), control_end.fileno())
            argv = self.command_line(*fds)
            self.process = Process(argv, self.folder / "qemu.log", (*fds, *self.fds))
        self._closers.append(self.process.stop)
        self.guest = Guest(control, self.context)
        self._closers.append(self.guest.close)
        try:
            self.qmp = Qmp(monitor, self.name)
        except Exception as error:
            monitor.close()
            self.process.settle()
            raise self.process.error(f"{self.name}: no QMP session ({error})") from error
        self._closers.append(self.qmp.close)

    def command_line(self, monitor_fd: int, control_fd: int) -> list[str]:
        """The whole QEMU command line."""
        return [
            str(self.boot.qemu), "-name", self.name, "-nodefaults", "-no-user-config", "-display", "none",
            "-no-reboot", "-machine", self.machine, "-accel", self._accelerator(), "-m", str(self.memory_mib),
            "-smp", str(self.cpus), "-kernel", str(self.boot.kernel), "-initrd", str(self.boot.initramfs),
            "-append", KERNEL_OPTIONS, "-serial", f"file:{self.folder / 'console'}",
            "-chardev", f"socket,id=monitor,fd={monitor_fd}", "-mon", "chardev=monitor,mode=control",
            "-device", "virtio-serial-pci,id=control-bus", "-chardev", f"socket,id=control,fd={control_fd}",
            "-device", "virtserialport,chardev=control,name=org.idletime.test.0",
            *self.arguments,
        ]

    def _accelerator(self) -> str:
        """One thread for several TCG processors: with more, QEMU 10.0 may abort in the firmware, patched or not.

        It is QEMU's issue 1921, an assertion in iotlb_to_section().
        """
        return "tcg,thread=single" if self.boot.accel == "tcg" and self.cpus > 1 else self.boot.accel


@lru_cache
def _knows_idletime(qemu: Path, device: str) -> bool:
    text = subprocess.run([str(qemu), "-device", f"{device},help"], capture_output=True, text=True, timeout=30).stdout
    return any(line.strip().startswith("idletime=") for line in text.splitlines())


def has_idletime(qemu: Path) -> bool:
    """Whether this QEMU is a patched one: its virtio-blk knows the property `idletime`."""
    return _knows_idletime(qemu, "virtio-blk-pci")


def has_idletime_net(qemu: Path) -> bool:
    """The same of its virtio-net."""
    return _knows_idletime(qemu, "virtio-net-pci")


@lru_cache
def stock_qemu() -> Path | None:
    """A QEMU without our changes: that of `make qemu-unpatched`, else the distribution's (`make deps`); None: neither is there."""
    ours = paths.STAGED_QEMU.name
    places = (paths.BUILD / "unpatched" / "stage" / "bin" / ours, Path("/usr/bin") / ours)
    return next((place for place in places if place.exists() and not has_idletime(place)), None)


@lru_cache
def version(qemu: Path) -> str:
    """The first line of `--version`."""
    return subprocess.run([str(qemu), "--version"], capture_output=True, text=True, timeout=30).stdout.split("\n")[0]
