"""The nodes' package source: a local repository of exactly what the roles install, fetched by this machine's apt."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import yaml

from tests.cluster import apt
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


def own_packages() -> list[Path]:
    """The Debian packages of this project that are built, which `make deb` puts into build/deb."""
    return sorted((CACHE.parent / "deb").glob("*.deb"))


def _download(base: Path, archives: Path) -> None:
    """All packages that the base lacks for the roles' lists and for our own packages' dependencies."""
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::status": base / "var/lib/dpkg/status", "Dir::Cache::archives": archives,
        "APT::Install-Recommends": "false", "Debug::NoLocking": "true", "APT::Sandbox::User": "root",
    }
    argv = ["apt-get", "--quiet", "--yes", "--download-only"]
    argv += [f"--option={name}={value}" for name, value in options.items()]
    run([*argv, "install", *role_packages(), *own_packages()], DOWNLOAD_SECONDS)


def _index(folder: Path) -> None:
    text = run(["dpkg-scanpackages", "--multiversion", "."], cwd=folder)
    (folder / "Packages.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _wanted() -> str:
    """What the repository is made for; another text means that it is made again."""
    return "\n".join([*role_packages(), *(path.name for path in own_packages())]) + "\n"


def get_repository(base: Path) -> Path:
    """The repository's folder; made again when a role or one of our packages has changed."""
    archives = REPOSITORY / base.name
    stamp = archives / "made-for"
    if stamp.exists() and stamp.read_text() == _wanted():
        return archives
    try:
        _download(base, archives)
    except ClusterError as error:
        raise ClusterError(f"apt could not fetch the nodes' packages: run `apt-get update` first?\n{error}") from None
    for stray in ("partial", "lock"):
        path = archives / stray
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    _index(archives)
    stamp.write_text(_wanted())
    return archives
