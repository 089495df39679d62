"""The guests' whole system: an initramfs of busybox, a few modules, the load generator and an init."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from tests.framework import modules, paths
from tests.framework.kernel import Kernel

BUSYBOX = Path("/bin/busybox")
MODULES = ["virtio_pci", "virtio_blk", "virtio_console"]
NETWORK_MODULES = ["virtio_net"]
NETWORK_PROGRAMS = ["iperf3", "ethtool"]
"""Debian's, with their libraries: real clients, beside our own load generator."""

FOLDERS = ["bin", "dev", "proc", "sys", "run", "tmp", "etc", "lib", "lib/modules"]
INIT = Path(__file__).with_name("init.sh")


@dataclass(frozen=True)
class Entry:
    """One file of the archive: mode with its type bits, content, and a device number."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def _pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _newc(entry: Entry, inode: int) -> bytes:
    """One record of cpio's "newc" format; owner root, time 0: the same input gives the same bytes."""
    name = entry.name.encode() + b"\0"
    fields = (inode, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _pad(header + name) + _pad(entry.data)


def pack(entries: list[Entry]) -> bytes:
    """A cpio archive that the kernel unpacks as its first file system."""
    records = [_newc(entry, number + 1) for number, entry in enumerate(entries)]
    return b"".join(records) + _newc(Entry("TRAILER!!!", 0), 0)


def _file(name: str, data: bytes) -> Entry:
    return Entry(name, stat.S_IFREG | 0o755, data)


def _with_libraries(path: Path) -> list[Entry]:
    """A program and the libraries of this system that it is linked with, at their paths."""
    text = subprocess.run(["ldd", str(path)], check=True, capture_output=True, text=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", text)
    return [_file(f"bin/{path.name}", path.read_bytes())] + [
        _file(library.lstrip("/"), Path(library).read_bytes()) for library in libraries
    ]


def _installed(name: str) -> Path:
    path = shutil.which(name)
    if not path:
        raise FileNotFoundError(f"{name} is missing: install the packages of `make deps`")
    return Path(path)


def _network_entries(linked: Sequence[Path]) -> list[Entry]:
    found = {"bin/netload": _file("bin/netload", paths.find_tool("netload", "loadgen").read_bytes())}
    for path in (*map(_installed, NETWORK_PROGRAMS), *linked):
        found |= {entry.name: entry for entry in _with_libraries(path)}
    folders = {str(parent) for name in found for parent in Path(name).parents} - {".", *FOLDERS}
    return [*(Entry(folder, stat.S_IFDIR | 0o755) for folder in sorted(folders)), *found.values()]


def _entries(kernel: Kernel, extra_modules: list[str], programs: Sequence[Path], network: bool, linked: Sequence[Path]) -> list[Entry]:
    wanted = MODULES + (NETWORK_MODULES if network else []) + extra_modules
    loaded = modules.resolve(kernel.modules, wanted)
    order = "".join(f"{name}\n" for name, _ in loaded).encode()
    return [
        *(Entry(folder, stat.S_IFDIR | 0o755) for folder in FOLDERS),
        Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        _file("bin/busybox", BUSYBOX.read_bytes()),
        Entry("bin/sh", stat.S_IFLNK | 0o777, b"busybox"),
        _file("bin/idleload", paths.find_tool("idleload", "loadgen").read_bytes()),
        _file("bin/idleverify", paths.find_tool("idleverify", "loadgen").read_bytes()),
        *(_network_entries(linked) if network else []),
        *(_file(f"lib/modules/{name}.ko", data) for name, data in loaded),
        *(_file(f"bin/{program.name}", program.read_bytes()) for program in programs),
        _file("etc/modules", order),
        _file("init", INIT.read_bytes()),
    ]


def get_initramfs(
    kernel: Kernel, extra_modules: list[str] | None = None, programs: Sequence[Path] = (), network: bool = False,
    linked: Sequence[Path] = (),
) -> Path:
    """The path of the archive; its name holds the hash of its content, so a stale one is never used.

    `programs` are static ones that go into the guest's /bin. `network`: with
    the driver of virtio-net and what a test of the network runs, and `linked`,
    programs with the libraries of this system.
    """
    if not BUSYBOX.exists():
        raise FileNotFoundError(f"{BUSYBOX} is missing; install busybox-static (`make deps`)")
    data = pack(_entries(kernel, extra_modules or [], programs, network, linked))
    path = paths.GUEST / f"initramfs-{hashlib.sha256(data).hexdigest()[:16]}.cpio"
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(path)
    return path
