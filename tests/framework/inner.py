"""A guest that plays the host: what its QEMU and the machine tests need, as an archive on a disk of it."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import tarfile
from pathlib import Path
from typing import Iterable, Sequence

from tests.framework import paths
from tests.framework.guest import Guest, Result

MODULES = ["vhost_net", "tun", "bridge", "veth", "sch_tbf", "sd_mod", "sg", "scsi_debug"]
"""Of Debian's kernel; the drivers of a host's network, and a SCSI disk in memory."""

TOOLS = ["/usr/sbin/ip", "/usr/sbin/tc", "/usr/sbin/bridge"]
FIRMWARE = ["bios-256k.bin", "kvmvapic.bin", "efi-virtio.rom"]
"""What a machine of the machine tests loads."""

MEMORY_MIB = 1536
SECONDS = 1200.0
"""A QEMU in a guest takes seconds to start under TCG; a test starts twenty."""


def build_tests(names: Sequence[str]) -> list[Path]:
    """The programs of machine tests, brought up to date: build_tests(["net-vhost"])."""
    subprocess.run([str(paths.ROOT / "tests" / "machine" / "run"), "--build", *names], check=True)
    return [paths.BUILD / "qemu" / "obj" / "tests" / "qtest" / f"idletime-{name}-test" for name in names]


def _libraries(program: Path) -> set[Path]:
    text = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    return {Path(name) for name in re.findall(r"(/\S+) \(0x", text)}


def _add(archive: tarfile.TarFile, source: Path, name: str) -> None:
    data = source.read_bytes()
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.size, entry.mode = len(data), 0o755 if os.access(source, os.X_OK) else 0o644
    archive.addfile(entry, io.BytesIO(data))


def pack(path: Path, qemu: Path, programs: Iterable[Path]) -> None:
    """Write the archive: QEMU in /host/bin, its firmware, the programs beside it, and all libraries at their paths."""
    tools = [Path(tool) for tool in TOOLS]
    binaries = [qemu, *programs, *tools]
    libraries = set().union(*(_libraries(binary) for binary in binaries))
    with tarfile.open(path, "w") as archive:
        for binary in binaries:
            _add(archive, binary, f"host/bin/{binary.name}")
        for name in FIRMWARE:
            _add(archive, qemu.parent.parent / "share" / "qemu" / name, f"host/share/qemu/{name}")
        for library in sorted(libraries):
            _add(archive, library, str(library))


def disk(path: Path) -> list[str]:
    """QEMU options: the archive as the guest's /dev/vda."""
    return [
        "-blockdev", f"driver=raw,node-name=archive,read-only=on,file.driver=file,file.filename={path}",
        "-device", "virtio-blk-pci,drive=archive",
    ]


def unpack(guest: Guest) -> None:
    """In the guest: the programs are in /host/bin."""
    guest.run("tar -x -f /dev/vda -C / && ln -sf /host/bin/ip /host/bin/tc /host/bin/bridge /bin/", 120)


def run_test(guest: Guest, name: str, environment: dict[str, str]) -> Result:
    """Run a machine test's program there; its result is TAP."""
    settings = {"QTEST_QEMU_BINARY": "/host/bin/qemu-system-x86_64", "TMPDIR": "/tmp", **environment}
    words = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
    return guest.run(f"{' '.join(words)} /host/bin/idletime-{name}-test --tap -k", SECONDS, check=False)
