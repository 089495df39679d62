"""Migration between two libvirtds, each with its own arenas: the destination finds its own resources."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    Make, background, domain, expect, host, idletimed, migrate, module_stack, other, remove, served, set_policy,
    shared_disk, shared_folder, start,
)
from tests.framework import paths
from tests.framework.idletimed import Idletimed, answer, wait_until
from tests.framework.libvirtd import Libvirtd
from tests.testbed.disk import Disk


def test_there_and_back(host: Libvirtd, idletimed: Idletimed, other: Libvirtd, domain: Make,
                        shared_disk: Disk, shared_folder: Path) -> None:
    """Under load, with a change before each move: class and interval travel, the arena is that of the host."""
    bg = start(domain, "bg", background())
    bg.guest.load(outstanding=4, seconds=300)
    set_policy(bg, background().replace("30000", "40000"))
    expect(bg, vda=("background", "slow", 40000))

    there = migrate(bg, other, shared_folder)
    try:
        expect(there, vda=("background", "slow", 40000))
        assert there.qmp("query-idletime")[0]["path"] == "/run/idletime-2/slow"
        served(shared_disk, "bg")
        set_policy(there, background().replace("30000", "50000"))
        expect(there, vda=("background", "slow", 50000))
        back = migrate(there, host, shared_folder)
    finally:
        remove(there)
    expect(back, vda=("background", "slow", 50000))
    assert back.qmp("query-idletime")[0]["path"] == "/run/idletime/slow"
    wait_until(lambda: all(re.search(rf'idletime_policy_migrated_total{{direction="{way}"}} [1-9]', answer(host, "/metrics"))
                           for way in ("in", "out")), "both ways are counted")


def test_to_a_host_without_idletime_and_back(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_disk: Disk,
                                             shared_folder: Path) -> None:
    """The same emulator path, a stock QEMU, no daemon: it runs there as any VM, and is background again when it is back."""
    stock = paths.BUILD / "unpatched" / "stage" / "bin" / host.boot.qemu.name
    if not stock.exists():
        pytest.skip("no QEMU without our changes was built: make qemu-unpatched")
    bg = start(domain, "bg", background())
    bg.guest.load(outstanding=4, seconds=300)
    expect(bg, vda=("background", "slow", 30000))
    with Libvirtd(replace(host.boot, qemu=stock), "host3") as plain:
        there = migrate(bg, plain, shared_folder)
        try:
            served(shared_disk, "bg", 50)
            back = migrate(there, host, shared_folder)
        finally:
            remove(there)
    expect(back, vda=("background", "slow", 30000))
    served(shared_disk, "bg")
