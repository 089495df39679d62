"""The guests' kernel and file system in the cluster: they boot in two seconds under TCG, and say how their disk is."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from tests.cluster.place import CACHE
from tests.framework import kernel, modules, paths
from tests.framework.initramfs import BUSYBOX, Entry, pack

IMAGES = CACHE / "guest"
MODULES = ["virtio_pci", "virtio_blk", "virtio_console", "virtio_net"]
FOLDERS = ["bin", "dev", "proc", "sys", "run", "tmp", "etc", "lib", "lib/modules"]
INIT = Path(__file__).with_name("guest-init.sh")


def _entries() -> list[Entry]:
    found = kernel.get_kernel()
    loaded = modules.resolve(found.modules, MODULES)
    program = stat.S_IFREG | 0o755
    return [
        *(Entry(folder, stat.S_IFDIR | 0o755) for folder in FOLDERS),
        Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
        Entry("bin/busybox", program, BUSYBOX.read_bytes()),
        Entry("bin/sh", stat.S_IFLNK | 0o777, b"busybox"),
        *(Entry(f"bin/{name}", program, paths.find_tool(name, "loadgen").read_bytes()) for name in ("idleload", "idleverify", "netload")),
        *(Entry(f"lib/modules/{name}.ko", program, data) for name, data in loaded),
        Entry("etc/modules", program, "".join(f"{name}\n" for name, _ in loaded).encode()),
        Entry("init", program, INIT.read_bytes()),
    ]


def get_images() -> Path:
    """The folder with `vmlinuz` and `initrd`; they are replaced only when their content changes."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    data = pack(_entries())
    initrd = IMAGES / "initrd"
    if not initrd.exists() or initrd.read_bytes() != data:
        initrd.write_bytes(data)
    shutil.copy2(kernel.get_kernel().image, IMAGES / "vmlinuz")
    return IMAGES
