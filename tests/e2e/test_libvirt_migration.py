"""Migration between two libvirtds, each with its own arenas: the destination finds its own resources."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Callable, Iterator

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    INTERVAL_US, background, compiled, domain, expect, host, idletimed, module_stack, remove, set_policy, shared_disk,
)
from tests.framework.domain import Domain
from tests.framework.idletimed import Idletimed
from tests.framework.libvirtd import Libvirtd
from tests.framework.qemu import Boot
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

BG = ("background", "slow", INTERVAL_US)


@pytest.fixture(scope="module")
def other(module_stack: ExitStack, boot: Boot) -> Libvirtd:
    """The destination; its operator keeps arenas elsewhere."""
    result = module_stack.enter_context(Libvirtd(boot, "host2", hook=True, config='run-dir = "/run/idletime-2"\n'))
    module_stack.enter_context(Idletimed(result))
    return result


@pytest.fixture
def meeting_place() -> Iterator[Path]:
    """A folder that both hosts see, for the socket of a migration."""
    folder = Path(tempfile.mkdtemp(prefix="idletime-"))
    shutil.chown(folder, "libvirt-qemu")
    yield folder
    shutil.rmtree(folder)


def migrate(moving: Domain, to: Libvirtd, place: Path) -> Domain:
    """Move a running domain, persistent XML and all; returns it as the other host knows it."""
    parameters = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{place}/{to.name}"}
    flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    moving.dom.migrate3(to.connection, parameters, flags | libvirt.VIR_MIGRATE_UNSAFE)
    moved = Domain(to, moving.name, moving.policy, moving.devices)
    moving.detach()
    return moved


def test_there_and_back(host: Libvirtd, idletimed: Idletimed, other: Libvirtd, domain: Callable[..., Domain],
                        shared_disk: Disk, meeting_place: Path) -> None:
    """Under load, with a change before each move: class and interval travel, the arena is that of the host."""
    bg = domain("bg", background())
    bg.define()
    compiled(bg)
    bg.start().booted().guest.load(outstanding=4, seconds=300)
    set_policy(bg, background().replace("30000", "40000"))
    expect(bg, vda=("background", "slow", 40000))

    there = migrate(bg, other, meeting_place)
    try:
        expect(there, vda=("background", "slow", 40000))
        assert there.qmp("query-idletime")[0]["path"] == "/run/idletime-2/slow"
        mark = shared_disk.mark()
        shared_disk.wait_for(mark, lambda log: len(of_client(log, "bg")) >= 10)
        set_policy(there, background().replace("30000", "50000"))
        expect(there, vda=("background", "slow", 50000))
        back = migrate(there, host, meeting_place)
    finally:
        remove(there)
    expect(back, vda=("background", "slow", 50000))
    assert back.qmp("query-idletime")[0]["path"] == "/run/idletime/slow"
