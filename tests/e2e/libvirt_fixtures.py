"""Fixtures of the libvirt tests: a host, its idletimed, its disk, and the look at the scheduler."""

from __future__ import annotations

import os
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

quiet_libvirt()

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


def set_policy(domain: Domain, its_policy: str) -> None:
    """Write the policy of a running domain past our command, as `virsh metadata` does: libvirt adds the prefix."""
    bare = its_policy.replace(f" xmlns:idletime='{POLICY}'", "").replace("idletime:", "")
    domain.dom.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, bare, "idletime", POLICY,
                           libvirt.VIR_DOMAIN_AFFECT_LIVE)


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


def compiled(domain: Domain) -> None:
    """Return when the domain's persistent XML has been compiled."""
    wait_until(lambda: "idletime-resource" in domain.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE), "compiled")


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
def shared_disk(module_stack: ExitStack) -> Disk:
    """A disk that serves one request at a time."""
    return module_stack.enter_context(Disk(Model(service_us=2000)))


@pytest.fixture
def domain(host: Libvirtd, shared_disk: Disk) -> Iterator[Callable[..., Domain]]:
    """Make a domain: domain("name", policy); it is destroyed and undefined after the test."""
    made: list[Domain] = []

    def make(name: str, its_policy: str = "", more: tuple[str, ...] = (), on: Libvirtd | None = None) -> Domain:
        result = Domain(on or host, name, its_policy, [disk_xml(shared_disk, name), *more])
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
