"""nginx in a test guest, with the pages of `tests.testbed.webclient`; Debian's, unpacked below build/, never installed."""

from __future__ import annotations

from pathlib import Path

from tests.framework import paths
from tests.framework.exclusive import exclusive
from tests.framework.guest import Guest
from tests.framework.kernel import run_tool
from tests.testbed.webclient import PAGES, page

FOLDER = paths.GUEST / "nginx"
REMEDY = "it needs the network and a Debian mirror in apt's sources"
CONFIGURATION = """
user root; worker_processes 1; pid /run/nginx.pid; error_log /run/nginx.error;
events { worker_connections 256; }
http { access_log off; sendfile on; limit_rate %d; server { listen 80 backlog=256; root /www; } }
"""


def program() -> Path:
    """Downloads it the first time (0.5 MB) and keeps it afterwards."""
    found = FOLDER / "root" / "usr" / "sbin" / "nginx"
    with exclusive(paths.GUEST / ".nginx.lock"):
        if not found.exists():
            FOLDER.mkdir(parents=True, exist_ok=True)
            run_tool(["apt-get", "download", "nginx"], FOLDER, REMEDY)
            run_tool(["dpkg", "-x", str(sorted(FOLDER.glob("nginx_*.deb"))[-1]), str(FOLDER / "root")], FOLDER, "is the disk full?")
    return found


def start(guest: Guest) -> None:
    """In a guest that has it: on port 80, with the pages in memory."""
    guest.run("mkdir -p /www /var/lib/nginx /var/log/nginx; echo root:x:0:0::/:/bin/sh >/etc/passwd; echo root:x:0: >/etc/group")
    for size in PAGES:
        guest.run(f"head -c {size} /dev/urandom >/www/{page(size)}")
    _configure(guest, 0)
    guest.run("nginx -c /run/nginx.conf", 60)


def limit(guest: Guest, bytes_per_second: int) -> None:
    """Of each connection; 0: none."""
    _configure(guest, bytes_per_second)
    guest.run("nginx -c /run/nginx.conf -s reload", 60)


def _configure(guest: Guest, bytes_per_second: int) -> None:
    guest.run(f"cat >/run/nginx.conf <<'E'\n{CONFIGURATION % bytes_per_second}E")
