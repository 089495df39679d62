"""The nodes' root file system: one debootstrap tree, made once and shared by all nodes as their lower layer."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Callable

from tests.cluster import apt
from tests.cluster.place import CACHE, run

PACKAGES = [
    # what any host that Ansible can reach has
    "openssh-server", "python3", "python3-apt", "ca-certificates", "iproute2", "procps", "kmod", "udev",
    # the node itself: a process 1, and its disk controller
    "tini", "nbdkit",
]

DEBOOTSTRAP_SECONDS = 900.0
"""It takes a minute; the rest is for slow mirrors."""

APT_CONF = """\
// The test cluster has one source: the folder with the packages that the roles install.
APT::Install-Recommends "false";
Acquire::Languages "none";
"""


def _key(source: apt.Source) -> str:
    text = "\n".join([source.suite, *PACKAGES, APT_CONF])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _finish(tree: Path) -> None:
    """Leave only what is the same for all nodes: no keys, no lists, no mirror."""
    for pattern in ("etc/ssh/ssh_host_*", "var/cache/apt/archives/*.deb", "var/lib/apt/lists/*_*", "var/log/*.log"):
        for path in tree.glob(pattern):
            path.unlink()
    (tree / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/srv/packages ./\n")
    (tree / "etc/apt/apt.conf.d/90cluster").write_text(APT_CONF)
    (tree / "etc/machine-id").write_text("")


def bootstrap(tree: Path, source: apt.Source, finish: Callable[[Path], None], *options: str) -> Path:
    """Have debootstrap make a tree; it is there when it is finished, and not before."""
    partial = tree.with_name(tree.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    argv = ["debootstrap", "--variant=minbase", *options, source.suite, partial, source.uri]
    run(argv, DEBOOTSTRAP_SECONDS, env=apt.environment())
    finish(partial)
    partial.rename(tree)
    return tree


def get_base() -> Path:
    """The base tree; debootstrap makes it the first time (a minute, 330 MB)."""
    source = apt.main_source()
    tree = CACHE / f"base-{_key(source)}"
    if tree.exists():
        return tree
    print(f"Making the nodes' file system with debootstrap ({source.suite}; a minute) ...", flush=True)
    return bootstrap(tree, source, _finish, f"--include={','.join(PACKAGES)}")
