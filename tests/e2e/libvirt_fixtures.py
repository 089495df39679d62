"""Fixtures of the libvirt tests: a host, its idletimed, its disk, and the look at the scheduler."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator

import libvirt
import pytest
from lxml import etree

from tests.e2e.conftest import children
from tests.framework.domain import POLICY, Domain, disk_xml, policy
from tests.framework.idletimed import Idletimed, wait_until
from tests.framework.libvirtd import Libvirtd, quiet_libvirt
from tests.framework.qemu import Boot
from tests.testbed.disk import Disk, Model
from tests.testbed.requests import of_client

quiet_libvirt()

Make = Callable[..., Domain]

INTERVAL_US = 30000


def resource(target: str, name: str = "slow", more: str = "") -> str:
    """A disk element of the policy that names its resource: what is behind a socket cannot be found out."""
    return f"<idletime:disk target='{target}' resource='{name}' {more}/>"


def background(inner: str = "", name: str = "slow") -> str:
    """The policy of a background tenant with one disk."""
    return policy("background", f"<idletime:interval us='{INTERVAL_US}'/>{resource('vda', name)}{inner}")


def foreground(inner: str = "") -> str:
    """The policy of a foreground tenant with one disk."""
    return policy("foreground", f"<idletime:interval us='{INTERVAL_US}'/>{resource('vda')}{inner}")


def set_policy(domain: Domain, its_policy: str | None, flags: int = libvirt.VIR_DOMAIN_AFFECT_LIVE) -> None:
    """Write the policy of a running domain past our command, as `virsh metadata` does: libvirt adds the prefix. None: remove
    it."""
    bare = its_policy and its_policy.replace(f" xmlns:idletime='{POLICY}'", "").replace("idletime:", "")
    domain.dom.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, bare, "idletime" if bare else None, POLICY, flags)


def targets(domain: Domain) -> dict[str, str]:
    """Ids of a running domain's disks and interfaces, by target name or MAC address."""
    root = etree.fromstring(domain.dom.XMLDesc(0))
    found = {}
    for device in root.findall("./devices/disk") + root.findall("./devices/interface"):
        name = device.find("target").get("dev") if device.tag == "disk" else device.find("mac").get("address")
        found[name] = device.find("alias").get("name")
    return found


def scheduled(domain: Domain) -> dict[str, tuple[str, str, int]]:
    """What QEMU does with each scheduled device: class, name of the resource, interval (us)."""
    names = {alias: target for target, alias in targets(domain).items()}
    return {
        names.get(alias, alias): (state["class"], state["resource"]["id"].removeprefix("idletime-"),
                                  state["resource"]["interval-us"])
        for alias, state in domain.scheduler().items()
    }


def expect(domain: Domain, **devices: tuple[str, str, int]) -> None:
    """The scheduler comes to just this: class, resource and interval of each device, and no other device."""
    seen: dict[str, Any] = {}

    def reached() -> bool:
        seen.clear()
        seen.update(scheduled(domain))
        return seen == devices

    try:
        wait_until(reached, "the scheduler's state is the policy")
    except AssertionError:
        raise AssertionError(f"scheduler: {seen}, policy: {devices}") from None


def start(make: Make, name: str, its_policy: str, *more: str) -> Domain:
    """Define, start, boot."""
    result = make(name, its_policy, more)
    result.define()
    return result.start().booted()


def untouched(domain: Domain) -> None:
    """Nobody has spoken to the domain's monitor, and its XML has nothing of ours but the policy."""
    assert domain.dom.messages(libvirt.VIR_DOMAIN_MESSAGE_TAINTING) == []
    xml = domain.dom.XMLDesc(0)
    assert "idletime-resource" not in xml and "qemu:" not in xml


def served(disk: Disk, client: str, count: int = 10) -> None:
    """Return when the disk has served so many more requests of a client: its guest lives, and is not held for ever."""
    disk.wait_for(disk.mark(), lambda log: len(of_client(log, client)) >= count)


def nic(number: int) -> str:
    """A NIC on the host's bridge br0, without vhost."""
    return (f"<interface type='bridge'><mac address='52:54:00:00:00:0{number}'/><source bridge='br0'/>"
            "<model type='virtio'/><driver name='qemu'/></interface>")


def second_disk(folder: Path) -> str:
    """A disk on an image of its own in a folder that all hosts see."""
    image = folder / "second.img"
    with image.open("wb") as file:
        file.truncate(1 << 20)
    return ("<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
            f"<source file='{image}'/><target dev='vdb' bus='virtio'/></disk>")


def snapshot(domain: Domain, target: str, overlay: Path) -> None:
    """A snapshot of one disk of a running domain: it goes on with an overlay."""
    disks = "".join(f"<disk name='{name}' snapshot='no'/>" for name in targets(domain)
                    if name.startswith("vd") and name != target)
    domain.dom.snapshotCreateXML(
        f"<domainsnapshot><disks>{disks}<disk name='{target}' snapshot='external'>"
        f"<source file='{overlay}'/></disk></disks></domainsnapshot>",
        libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA)  # libvirt migrates no domain of whose snapshots it knows
    assert str(overlay) in domain.dom.XMLDesc(0)


def migrate(moving: Domain, to: Libvirtd, place: Path) -> Domain:
    """Move a running domain, persistent XML and all; returns it as the other host knows it."""
    parameters = {libvirt.VIR_MIGRATE_PARAM_URI: f"unix://{place}/{to.name}"}
    flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    moving.dom.migrate3(to.connection, parameters, flags | libvirt.VIR_MIGRATE_UNSAFE)
    moved = Domain(to, moving.name, moving.policy, moving.devices)
    moving.detach()
    return moved


@pytest.fixture(scope="module")
def module_stack() -> Iterator[ExitStack]:
    """What the tests of a module share; afterwards no child process may be left."""
    before = children()
    with ExitStack() as stack:
        yield stack
    assert children() == before, "these child processes are left"


@pytest.fixture(scope="module")
def host(module_stack: ExitStack, boot: Boot) -> Libvirtd:
    """A libvirtd with our hook."""
    if os.geteuid() != 0:
        pytest.skip("a libvirtd of our own needs namespaces, and these need root")
    return module_stack.enter_context(Libvirtd(boot, "host1", hook=True))


@pytest.fixture(scope="module")
def idletimed(module_stack: ExitStack, host: Libvirtd) -> Idletimed:
    """Its idletimed."""
    return module_stack.enter_context(Idletimed(host))


@pytest.fixture(scope="module")
def other(module_stack: ExitStack, boot: Boot) -> Libvirtd:
    """A second host, the destination of migrations; its operator keeps arenas elsewhere."""
    result = module_stack.enter_context(Libvirtd(boot, "host2", hook=True, config='run-dir = "/run/idletime-2"\n'))
    module_stack.enter_context(Idletimed(result))
    return result


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that all hosts see, for images and for the sockets of migrations."""
    folder = Path(tempfile.mkdtemp(prefix="idletime-"))
    shutil.chown(folder, "libvirt-qemu")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_disk(module_stack: ExitStack) -> Disk:
    """A disk that serves one request at a time."""
    return module_stack.enter_context(Disk(Model(service_us=2000)))


@pytest.fixture
def domain(host: Libvirtd, shared_disk: Disk) -> Iterator[Callable[..., Domain]]:
    """Make a domain: domain("name", policy); it is destroyed and undefined after the test."""
    made: list[Domain] = []

    def make(name: str, its_policy: str = "", more: tuple[str, ...] = (), disk: Disk | None = None) -> Domain:
        result = Domain(host, name, its_policy, [disk_xml(disk or shared_disk, name), *more])
        made.append(result)
        return result

    yield make
    for each in made:
        remove(each)


def remove(domain: Domain) -> None:
    """Destroy and undefine, as far as it is there."""
    domain.detach()
    for dom in domain.host.connection.listAllDomains():
        if dom.name() == domain.name:
            if dom.isActive():
                dom.destroy()
            if dom.isPersistent():
                dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                                  | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)


def arena_path(host: Libvirtd, name: str = "slow") -> Path:
    """An arena, seen from outside."""
    return host.run / "idletime" / name
