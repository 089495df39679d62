"""The guests' kernel: Debian's cloud kernel, downloaded and unpacked below build/, never installed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.framework import paths
from tests.framework.exclusive import exclusive

META_PACKAGE = "linux-image-cloud-amd64"


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package."""

    package: str
    image: Path
    modules: Path


def run_tool(argv: list[str], where: Path, remedy: str) -> str:
    """Run a tool to its end; returns what it wrote. An error has its words and the remedy."""
    result = subprocess.run(argv, cwd=where, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed; {remedy}\n{result.stderr.strip()}")
    return result.stdout


def _kernel_package() -> str:
    """The package with the kernel itself that the meta package depends on now."""
    remedy = "it needs apt's package lists: run `apt-get update` as root"
    text = run_tool(["apt-cache", "depends", META_PACKAGE], paths.BUILD, remedy)
    found = re.search(r"Depends: (linux-image-\S+)", text)
    if not found:
        raise RuntimeError(f"apt knows no {META_PACKAGE}; {remedy}")
    return found.group(1)


def describe(folder: Path) -> Kernel:
    """The kernel of a package that was unpacked into a folder."""
    images = sorted(folder.glob("boot/vmlinuz-*"))
    modules = sorted(folder.glob("lib/modules/*")) + sorted(folder.glob("usr/lib/modules/*"))
    if len(images) != 1 or len(modules) != 1:
        raise RuntimeError(f"{folder}: expected one kernel and one set of modules; remove that folder and try again")
    return Kernel(folder.name, images[0], modules[0])


def _unpacked() -> list[Path]:
    """Kernels that are there already, the oldest name first."""
    return sorted(path.parent for path in paths.GUEST.glob("linux-image-*/.complete"))


def _download(package: str) -> Path:
    """Fetch one package; apt takes it from the archives that the system is configured for."""
    remedy = "it needs the network or a Debian mirror; with neither, put the .deb file into " + str(paths.GUEST)
    archives = sorted(paths.GUEST.glob(f"{package}_*.deb"))
    if not archives:
        run_tool(["apt-get", "download", package], paths.GUEST, remedy)
        archives = sorted(paths.GUEST.glob(f"{package}_*.deb"))
    return archives[-1]


def get_kernel() -> Kernel:
    """The guests' kernel; downloads it the first time (27 MB) and keeps it afterwards."""
    with exclusive(paths.GUEST / ".kernel.lock"):
        present = _unpacked()
        if present:
            return describe(present[-1])
        package = _kernel_package()
        folder = paths.GUEST / package
        run_tool(["dpkg", "-x", str(_download(package)), str(folder)], paths.GUEST, "is the disk full?")
        kernel = describe(folder)
        (folder / ".complete").touch()
        return kernel
