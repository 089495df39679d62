"""Migration between two libvirtds, each with its own arenas: the destination finds its own resources."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    Make, background, domain, expect, foreground, host, idletimed, migrate, module_stack, other, remove, resource, served, set_policy,
    shared_disk, shared_folder, start,
)
from tests.framework import paths
from tests.framework.domain import POLICY, Domain
from tests.framework.idletimed import PYTHON, Idletimed, answer, wait_until
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


UPLINK = "up9"
SECONDS = 120.0
"""For what takes some seconds on a machine that does nothing else."""

OWN_NETWORK = """
mkdir /run/sys
mount -t sysfs sysfs /run/sys
for folder in class/net devices/virtual/net; do mount --bind /run/sys/$folder /sys/$folder; done
"""
"""What /sys says of the network is what the namespace has."""


def own_uplink(host: Libvirtd) -> None:  # noqa: F811
    """The default route of the namespace. May be called again."""
    if host.call("ip", "link", "show", "type", "veth").stdout:
        return
    for words in (f"link add {UPLINK} type veth peer name down9", f"address add 192.0.2.1/24 dev {UPLINK}", f"link set {UPLINK} up",
                  "link set down9 up", "route add default via 192.0.2.2"):
        host.call("ip", *words.split())
    host.call("sh", "-ec", OWN_NETWORK)


def migrations(domain: Domain) -> list[str]:
    """Resources that its migration is attached to."""
    return [one["id"].removeprefix("idletime-") for one in domain.qmp("query-idletime") if one["migrations"]]


def test_migration_is_idle_load(host: Libvirtd, idletimed: Idletimed, other: Libvirtd, domain: Make, shared_folder: Path) -> None:
    """Where its jobs are background: on the uplink of the default route, before it begins. The same by `migrate --idle`, for this
    time; a row of `jobs` while it runs."""
    own_uplink(host)
    own = foreground("<idletime:job class='background'/>")
    moving = start(domain, "moving", own)
    wait_until(lambda: migrations(moving) == [UPLINK], "migration is attached", SECONDS)
    set_policy(moving, foreground())
    wait_until(lambda: migrations(moving) == [], "migration is detached", SECONDS)
    set_policy(moving, own)
    wait_until(lambda: migrations(moving) == [UPLINK], "migration is attached again", SECONDS)
    set_policy(moving, foreground())
    assert moving.guest is not None
    moving.guest.run("dd if=/dev/urandom of=/run/fill bs=1M count=64 2>/dev/null", 60)  # it is to take a minute and more
    moving.dom.migrateSetMaxSpeed(1)  # MiB/s
    command = host.spawn([*PYTHON, "idletime", "migrate", "moving", other.uri, "--idle", "--by", "06:00", "--unsafe", "--migrate-uri",
                          f"unix://{shared_folder}/idle"], "migrate.log")
    there = Domain(other, "moving", moving.policy, moving.devices)
    rows: list[dict[str, Any]] = []

    def said() -> str:
        return (host.folder / "log" / "migrate.log").read_text()

    def is_a_row() -> bool:
        rows[:] = json.loads(host.call(*PYTHON, "idletime", "jobs", "--json", "-d", "0.5", "moving").stdout)
        return bool(rows) and rows[0]["done"] > 0 and rows[0]["by"] is not None

    try:
        wait_until(is_a_row, "the migration is a row of jobs", SECONDS)
        wait_until(lambda: "MiB sent" in said() or not command.running(), "the command says how far it is", SECONDS)
        assert "MiB sent" in said(), said()
        moving.dom.migrateSetMaxSpeed(10_000)
        assert command.wait(SECONDS) == 0 and f"moving: runs at {other.uri}\n" in said(), said()
        moving.detach()
        (row,) = rows
        assert (row["type"], row["class"], row["resource"]) == ("migration", "background", UPLINK), row
        assert "job" not in there.dom.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, POLICY, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        assert there.qmp("query-status")["running"]
        wait_until(lambda: [one["id"] for one in there.qmp("query-idletime")] == ["idletime-slow"], "its disk is attached there", SECONDS)
    finally:
        command.stop()
        remove(there)


def test_a_command_that_is_killed(host: Libvirtd, idletimed: Idletimed, other: Libvirtd, domain: Make, shared_folder: Path) -> None:
    """libvirt ends what it has begun, and idletimed puts the policy back: its next backup is not idle load."""
    own_uplink(host)
    moving = start(domain, "killed", foreground())
    assert moving.guest is not None
    moving.guest.run("dd if=/dev/urandom of=/run/fill bs=1M count=64 2>/dev/null", 60)
    moving.dom.migrateSetMaxSpeed(1)  # MiB/s
    command = host.spawn([*PYTHON, "idletime", "migrate", "killed", other.uri, "--idle", "--unsafe", "--migrate-uri",
                          f"unix://{shared_folder}/killed"], "killed.log")

    def said() -> str:
        return str(moving.dom.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, POLICY, libvirt.VIR_DOMAIN_AFFECT_LIVE))

    try:
        wait_until(lambda: moving.dom.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE, "the migration has begun", SECONDS)
        assert "job" in said()
        command.stop(signal.SIGKILL)
        wait_until(lambda: "job" not in said(), "the policy is what it was", SECONDS)
        assert moving.qmp("query-status")["running"]
    finally:
        command.stop()


MIB = 1 << 20
COPY = "drive-virtio-disk1"


def test_copies_of_disks_are_held(host: Libvirtd, idletimed: Idletimed, other: Libvirtd, domain: Make, shared_folder: Path) -> None:
    """With the jobs, by disk and uplink: until they have caught up. Nothing is lost, and the VM runs there."""
    own_uplink(host)
    here, there = shared_folder / "second.img", shared_folder / "copy.img"
    data = os.urandom(24 * MIB)
    here.write_bytes(data)
    there.touch()
    os.truncate(there, len(data))
    for image in (here, there):
        shutil.chown(image, "libvirt-qemu")
    disk = ("<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
            f"<source file='{here}'/><target dev='vdb' bus='virtio'/></disk>")
    moving = start(domain, "copied", foreground("<idletime:job class='background'/>" + resource("vdb")), disk)
    parameters = {
        libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{shared_folder}/copied", libvirt.VIR_MIGRATE_PARAM_DISKS_URI: f"unix://{shared_folder}/nbd",
        libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS: "vdb", libvirt.VIR_MIGRATE_PARAM_BANDWIDTH: 8,
        libvirt.VIR_MIGRATE_PARAM_DEST_XML: moving.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE).replace(str(here), str(there)),
    }
    flags = (libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_NON_SHARED_DISK | libvirt.VIR_MIGRATE_UNSAFE
             | libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE)

    def held() -> set[str]:
        return {one["id"] for one in moving.qmp("query-idletime") for job in one["jobs"] if job["id"] == COPY}

    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(moving.dom.migrate3, other.connection, parameters, flags)
        wait_until(lambda: held() == {"idletime-slow", f"idletime-{UPLINK}"}, "the copy is attached")
        moving.dom.migrateSetMaxSpeed(10_000)
        moved.result(60)
    arrived = Domain(other, "copied", moving.policy, moving.devices)
    moving.detach()
    try:
        assert arrived.qmp("query-status")["running"] and there.read_bytes() == data
    finally:
        remove(arrived)
