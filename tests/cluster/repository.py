"""Our own apt repository, as `make packages` makes it, but for this release only and with the small QEMU in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.cluster import apt
from tests.cluster.place import CACHE, HERE, run
from tests.framework.paths import ROOT

REPOSITORY = CACHE / "repository"
PROGRAMS = ROOT / "packages" / "idletime" / "build"
INDICES = ROOT / "packages" / "repository"

BUILD_SECONDS = 600.0
"""The programs take a minute the first time; the rest is for a Go that has to be fetched."""


def packages() -> list[Path]:
    """The packages that are in the repository."""
    return sorted((REPOSITORY / "pool").glob("*/*.deb"))


def get_own() -> Path:
    """The repository's folder; what has not changed since the last time is not made again."""
    environment = {**os.environ, "PACKAGES_OUTPUT": str(REPOSITORY)}
    REPOSITORY.mkdir(parents=True, exist_ok=True)
    run([PROGRAMS], BUILD_SECONDS, env=environment)
    qemu = REPOSITORY / "out" / "qemu"
    stage = ROOT / "build" / "stage" / "bin" / "qemu-system-x86_64"
    if not qemu.exists() or qemu.stat().st_mtime < stage.stat().st_mtime:
        run([HERE / "qemu-package", qemu])
    publish([*(REPOSITORY / "out" / "idletime").glob("*.deb"), *qemu.glob("*.deb")])
    return REPOSITORY


def publish(wanted: list[Path], folder: Path = REPOSITORY) -> None:
    """Make a repository of these packages; does nothing where it has them."""
    pool = folder / "pool" / apt.suite()
    has = {path.name: path.stat().st_ino for path in pool.glob("*.deb")}
    if has == {path.name: path.stat().st_ino for path in wanted} and (folder / "dists").exists():
        return
    shutil.rmtree(pool, ignore_errors=True)
    pool.mkdir(parents=True)
    for path in wanted:
        (pool / path.name).hardlink_to(path)
    run([INDICES], env={**os.environ, "PACKAGES_OUTPUT": str(folder)})
