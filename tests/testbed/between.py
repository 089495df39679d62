"""A network between two private hosts, over which one sends VMs to the other: libvirt's own way, without a socket that both see."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import Iterator

from tests.framework.libvirtd import Libvirtd

NAME = "between"


@contextmanager
def network(*hosts: Libvirtd) -> Iterator[None]:
    """Of two hosts; each says by its address where it takes migrations. Their libvirtds are started anew."""
    addresses = [f"192.0.2.{number}" for number in (1, 2)]
    _ip(hosts[0], "link", "add", NAME, "type", "veth", "peer", "name", NAME, "netns", str(hosts[1].init_pid))
    for host, address in zip(hosts, addresses, strict=True):
        _ip(host, "address", "add", f"{address}/24", "dev", NAME)
        _ip(host, "link", "set", NAME, "up")
        with (host.folder / "etc" / "qemu.conf").open("a") as file:
            file.write(f'migration_host = "{address}"\n')
        host.stop_libvirtd()
        host.start_libvirtd()
    try:
        yield
    finally:
        _ip(hosts[0], "link", "delete", NAME)


def _ip(host: Libvirtd, *words: str) -> None:
    """In its network, with this machine's numbers of processes."""
    subprocess.run(["nsenter", "--target", str(host.init_pid), "--net", "ip", *words], check=True)
