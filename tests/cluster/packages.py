"""The nodes' Debian: a local repository of exactly what the roles install of it, fetched by this machine's apt."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import yaml

from tests.cluster import repository
from tests.cluster.place import CACHE, ROLES, ClusterError, run

REPOSITORY = CACHE / "packages"
DOWNLOAD_SECONDS = 900.0


def role_packages() -> list[str]:
    """What the roles install on Debian: the lists `*_packages` of their vars/Debian.yml."""
    names: set[str] = set()
    for path in sorted(ROLES.glob("*/vars/Debian.yml")):
        for key, value in yaml.safe_load(path.read_text()).items():
            if key.endswith("_packages"):
                names.update(value)
    return sorted(names)


def _download(base: Path, archives: Path, wanted: list[str]) -> None:
    """All packages that the base lacks for these."""
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::status": base / "var/lib/dpkg/status", "Dir::Cache::archives": archives,
        "APT::Install-Recommends": "false", "Debug::NoLocking": "true", "APT::Sandbox::User": "root",
    }
    argv = ["apt-get", "--quiet", "--yes", "--download-only"]
    argv += [f"--option={name}={value}" for name, value in options.items()]
    run([*argv, "install", *wanted], DOWNLOAD_SECONDS)


def _index(folder: Path) -> None:
    text = run(["dpkg-scanpackages", "--multiversion", "."], cwd=folder)
    (folder / "Packages.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _wanted() -> list[list[str]]:
    """What is fetched, each list for itself: what the roles install, with the distribution's QEMU; what ours depend on."""
    return [role_packages(), [str(path) for path in repository.packages()]]


def get_repository(base: Path) -> Path:
    """The repository's folder; made again when a role or one of our packages has changed."""
    archives = REPOSITORY / base.name
    stamp = archives / "made-for"
    wanted = _wanted()
    text = "".join(f"{Path(name).name}\n" for names in wanted for name in names)
    if stamp.exists() and stamp.read_text() == text:
        return archives
    try:
        for names in wanted:
            _download(base, archives, names)
    except ClusterError as error:
        raise ClusterError(f"apt could not fetch the nodes' packages: run `apt-get update` first?\n{error}") from None
    for stray in ("partial", "lock"):
        path = archives / stray
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    _index(archives)
    stamp.write_text(text)
    return archives
