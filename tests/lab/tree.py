"""The root file system of a lab's hosts: Debian with some packages, made once and shared as a lower layer."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Sequence

from tests.cluster import apt
from tests.cluster.base import bootstrap
from tests.cluster.place import run

IDLETIMED = [
    "python3-argcomplete", "python3-lxml", "python3-prometheus-client", "python3-pyroute2", "python3-rich", "python3-urwid",
    "iproute2", "procps", "ca-certificates", "tini", "e2fsprogs",
]
"""What idletimed of this repository needs, and the host itself."""
MINUTES = 900.0
"""apt takes two; the rest is for slow mirrors."""

ENVIRONMENT = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
               "DEBIAN_FRONTEND=noninteractive"]
INSTALL = """
set -eu
tree=$1; shift
mount --make-rprivate /
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
chroot "$tree" "$@" apt-get -qq update
chroot "$tree" "$@" apt-get -qq -y -o APT::Sandbox::User=root --no-install-recommends install $PACKAGES
chroot "$tree" apt-get clean
"""
FILES = {
    # Nothing is started by a package.
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
    "etc/dpkg/dpkg.cfg.d/tree": "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n"
                                "path-exclude=/usr/share/locale/*\n",
}


def get_tree(cache: Path, source: apt.Source, packages: Sequence[str], about: str) -> Path:
    """The tree, below cache; made the first time. about: what is made, and how long that takes."""
    key = hashlib.sha256("\n".join([source.suite, *packages, INSTALL]).encode()).hexdigest()[:12]
    tree = cache / f"tree-{key}"
    if tree.exists():
        return tree
    print(f"Making {about} ...", flush=True)
    return bootstrap(tree, source, lambda made: _install(made, packages))


def _install(tree: Path, packages: Sequence[str]) -> None:
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    for certificate in Path("/usr/local/share/ca-certificates").rglob("*.crt"):
        shutil.copy(certificate, tree / "usr/local/share/ca-certificates")
    for file in Path("/etc/apt/apt.conf.d").iterdir():
        shutil.copy(file, tree / "etc/apt/apt.conf.d")
    script = INSTALL.replace("$PACKAGES", " ".join(packages))
    run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "install", tree, *ENVIRONMENT], MINUTES,
        env=apt.environment())
