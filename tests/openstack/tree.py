"""The root file system of controller and hypervisors: Debian with OpenStack's packages, made once and shared as a lower layer."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.cluster import apt
from tests.cluster.base import bootstrap
from tests.cluster.place import run
from tests.framework import paths

CACHE = paths.BUILD / "openstack"

PACKAGES = [
    # the controller
    "keystone", "placement-api", "nova-api", "nova-conductor", "nova-scheduler", "glance-api", "python3-openstackclient",
    "rabbitmq-server", "mariadb-server", "uwsgi-core", "uwsgi-plugin-python3", "python3-tooz",
    # a hypervisor
    "nova-compute", "libvirt-daemon-system", "libvirt-clients", "qemu-system-x86", "qemu-utils", "python3-libvirt",
    # idletimed
    "python3-argcomplete", "python3-lxml", "python3-prometheus-client", "python3-pyroute2", "python3-rich", "python3-urwid",
    # all of them
    "curl", "iproute2", "procps", "ca-certificates", "tini", "e2fsprogs",
]
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


def get_tree() -> Path:
    """The tree; made the first time (three minutes, 1.8 GB)."""
    source = apt.main_source()
    key = hashlib.sha256("\n".join([source.suite, *PACKAGES, INSTALL]).encode()).hexdigest()[:12]
    tree = CACHE / f"tree-{key}"
    if tree.exists():
        return tree
    print(f"Making OpenStack's file system ({source.suite}; three minutes) ...", flush=True)
    return bootstrap(tree, source, _install)


def _install(tree: Path) -> None:
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    for certificate in Path("/usr/local/share/ca-certificates").rglob("*.crt"):
        shutil.copy(certificate, tree / "usr/local/share/ca-certificates")
    for file in Path("/etc/apt/apt.conf.d").iterdir():
        shutil.copy(file, tree / "etc/apt/apt.conf.d")
    script = INSTALL.replace("$PACKAGES", " ".join(PACKAGES))
    run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "install", tree, *ENVIRONMENT], MINUTES,
        env=apt.environment())
