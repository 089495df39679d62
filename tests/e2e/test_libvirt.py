"""The policy in a real libvirtd, with the patched QEMU and real guests: at each step QEMU does what the policy says."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    INTERVAL_US, Make, arena_path, background, compiled, domain, expect, foreground, host, idletimed,
    module_stack, nic, resource, second_disk, served, set_policy, shared_disk, shared_folder, snapshot, start,
)
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import CONFIG, Libvirtd
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

BG = ("background", "slow", INTERVAL_US)
FG = ("foreground", "slow", INTERVAL_US)


# ---- what the hook refuses; no idletimed runs yet

def test_stock_domain_is_left_alone(host: Libvirtd, domain: Make) -> None:
    """A domain without a policy starts as ever, and has nothing of ours."""
    stock = domain("stock")
    stock.define()
    before = stock.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    stock.start()
    assert stock.qmp("query-idletime") == []
    assert stock.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == before
    assert not (host.run / "idletime").exists()


@pytest.mark.parametrize("its_policy, reason", [
    (policy("background", resource("vdz")), "disk target='vdz'"),
    (background(), "virt-idletime apply refused --config"),
])
def test_hook_refuses(host: Libvirtd, domain: Make, its_policy: str, reason: str) -> None:
    """A policy that does not fit, and one that nobody has compiled: libvirt's error has our reason and remedy."""
    refused = domain("refused", its_policy)
    refused.define()
    with pytest.raises(libvirt.libvirtError, match="idletime") as error:
        refused.dom.create()
    assert reason in str(error.value)
    (host.run / CONFIG).write_text('on-misfit = "warn"\non-uncompiled = "warn"\n')
    try:
        refused.start()
    finally:
        (host.run / CONFIG).write_text(host.config)
    assert refused.qmp("query-idletime") == []


def test_hook_without_idletimed(host: Libvirtd, domain: Make, shared_disk: Disk) -> None:
    """`virt-idletime apply` and the hook suffice: the arena is made for the user of QEMU, and nobody else looks in."""
    alone = domain("alone", background())
    alone.define()
    virt_idletime(host, "apply", "alone", "--config")
    alone.start().booted()
    expect(alone, vda=BG)
    status = os.stat(arena_path(host))
    owner = os.stat(host.folder / "lib" / "qemu").st_uid
    assert (status.st_uid, status.st_mode & 0o7777) == (owner, 0o750)
    assert all((arena_path(host) / board).stat().st_uid == owner for board in ("foreground", "background"))


# ---- a domain's life

def process_of(host: Libvirtd, domain: Domain) -> tuple[str, str]:
    """User of a domain's QEMU, and its effective capabilities as the kernel prints them."""
    pid = (host.run / "libvirt" / "qemu" / f"{domain.name}.pid").read_text().strip()
    user = host.call("stat", "--format=%U", f"/proc/{pid}").stdout.strip()
    status = host.call("cat", f"/proc/{pid}/status").stdout.splitlines()
    return user, next(line.split()[1] for line in status if line.startswith("CapEff:"))


def settings(domain: Domain, *names: str) -> dict[str, tuple[object, ...]]:
    """Properties of each resource of a running domain."""
    return {resource["id"].removeprefix("idletime-"): tuple(resource[name] for name in names)
            for resource in domain.qmp("query-idletime")}


def come_to(domain: Domain, wanted: dict[str, tuple[object, ...]]) -> None:
    """Rate and shadow mode come to the policy. idletimed may still act on what it read before the policy changed; then it acts anew."""
    wait_until(lambda: settings(domain, "rate-bps", "shadow") == wanted, f"the resources have {wanted}")


def test_define_start_status(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_disk: Disk) -> None:
    """Two tenants, defined as operators write them."""
    bg, fg = (start(domain, name, its) for name, its in (("bg", background()), ("fg", foreground())))
    expect(bg, vda=BG)
    expect(fg, vda=FG)
    assert process_of(host, bg) == ("libvirt-qemu", "0" * 16)
    assert "background" in virt_idletime(host, "status", "bg")
    bg.guest.load(outstanding=4, seconds=60)
    served(shared_disk, "bg")


def test_live_change_and_undefine(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:
    """The interval, the class, both by the command; a policy that is written past it; and the end."""
    bg = start(domain, "bg", background())
    virt_idletime(host, "set", "bg", "interval-us=50000")
    expect(bg, vda=("background", "slow", 50000))
    virt_idletime(host, "set", "bg", "interval-us=40000", "auto=on")
    assert settings(bg, "interval-us", "auto") == {"slow": (40000, True)}  # where it starts; there is nothing to learn
    virt_idletime(host, "set", "bg", "auto=off")
    expect(bg, vda=("background", "slow", 40000))
    virt_idletime(host, "unmark", "bg")
    wait_until(lambda: all(device["class"] != "background" for device in bg.scheduler().values()), "unmarked")
    virt_idletime(host, "mark", "bg")
    wait_until(lambda: all(device["class"] == "background" for device in bg.scheduler().values()), "marked")
    set_policy(bg, background().replace("30000", "70000"))
    expect(bg, vda=("background", "slow", 70000))
    for _ in range(2):  # as Ansible and Terraform do at each run
        bg.define()
        compiled(bg)
    bg.dom.undefine()  # it runs on, transient
    expect(bg, vda=("background", "slow", 70000))
    bg.detach()
    bg.dom.destroy()
    wait_until(lambda: "bg" not in [each.name() for each in host.connection.listAllDomains()], "gone")


def test_hotplug(idletimed: Idletimed, domain: Make, shared_disk: Disk) -> None:
    """A disk that is plugged in is background before its first request; a NIC works; out again."""
    bg = start(domain, "bg", background(resource("vdb")).replace(resource("vdb"), ""))
    mark = shared_disk.mark()
    second = disk_xml(shared_disk, "bg-vdb", "vdb")
    nic = "<interface type='user'><mac address='52:54:00:00:00:07'/><model type='virtio'/></interface>"
    bg.dom.attachDeviceFlags(second, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    expect(bg, vda=BG, vdb=BG)
    assert bg.guest is not None
    bg.guest.run("while [ ! -b /dev/vdb ]; do usleep 10000; done; dd if=/dev/vdb of=/dev/null bs=4k count=1")
    bg.dom.attachDeviceFlags(nic, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    expect(bg, vda=BG, vdb=BG)
    issued = bg.scheduler()[next(alias for alias in bg.scheduler() if "vda" not in alias)]
    assert len(of_client(shared_disk.read(mark), "bg-vdb")) > 0
    assert issued["class"] == "background"
    bg.dom.detachDeviceFlags(second, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    expect(bg, vda=BG)


def test_nics(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:
    """A background NIC from the start, and one that is plugged in, on a resource of their own; its rate, shadow mode."""
    host.call("ip", "link", "add", "br0", "type", "bridge")
    on_uplink = ("background", "uplink", INTERVAL_US)
    bg = start(domain, "bg", background("<idletime:interface resource='uplink'/>"), nic(1))
    expect(bg, vda=BG, **{"52:54:00:00:00:01": on_uplink})
    bg.dom.attachDeviceFlags(nic(2), libvirt.VIR_DOMAIN_AFFECT_LIVE)
    expect(bg, vda=BG, **{"52:54:00:00:00:01": on_uplink, "52:54:00:00:00:02": on_uplink})
    bg.dom.detachDeviceFlags(nic(2), libvirt.VIR_DOMAIN_AFFECT_LIVE)
    expect(bg, vda=BG, **{"52:54:00:00:00:01": on_uplink})
    virt_idletime(host, "set", "bg", "rate-bps=50000000", "shadow=on")
    come_to(bg, {"slow": (0, True), "uplink": (50000000, True)})
    virt_idletime(host, "set", "bg", "shadow=off", "--resource", "uplink")
    come_to(bg, {"slow": (0, True), "uplink": (50000000, False)})
    bg.detach()
    bg.dom.destroy()
    bg.dom.create()
    come_to(bg, {"slow": (0, True), "uplink": (50000000, False)})


def test_suspend_save_restore(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_disk: Disk) -> None:
    """Suspend and resume, managed save and restore: changed while it slept, it comes back as the policy now says."""
    bg = start(domain, "bg", background())
    bg.guest.load(outstanding=4, seconds=300)
    served(shared_disk, "bg")
    bg.dom.suspend()
    expect(bg, vda=BG)
    bg.dom.resume()
    expect(bg, vda=BG)
    served(shared_disk, "bg")
    bg.dom.managedSave()
    bg.detach()
    bg.dom.create()  # from the image
    expect(bg, vda=BG)
    served(shared_disk, "bg")


def test_snapshot(idletimed: Idletimed, domain: Make, shared_disk: Disk, shared_folder: Path) -> None:
    """A snapshot of a second disk while the first is under load: the second goes on as background on its overlay."""
    bg = start(domain, "bg", background(resource("vdb")), second_disk(shared_folder))
    bg.guest.load(outstanding=4, seconds=300)
    expect(bg, vda=BG, vdb=BG)
    snapshot(bg, "vdb", shared_folder / "second.overlay")
    expect(bg, vda=BG, vdb=BG)
    served(shared_disk, "bg")
    bg.guest.run("dd if=/dev/vdb of=/dev/null bs=4k count=1 iflag=direct")


# ---- what may go away

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_restarts_under_load(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_disk: Disk,
                             number: signal.Signals) -> None:
    """idletimed and libvirtd end, politely or not: what runs stays as set, and changes made meanwhile take hold."""
    bg = start(domain, "bg", background())
    bg.guest.load(outstanding=4, seconds=300)
    idletimed.stop(number)
    expect(bg, vda=BG)
    served(shared_disk, "bg")
    set_policy(bg, background().replace("30000", "40000"))
    expect(bg, vda=BG)  # nobody is there to do it
    idletimed.start()
    expect(bg, vda=("background", "slow", 40000))
    host.stop_libvirtd(number)
    served(shared_disk, "bg")
    host.start_libvirtd()
    expect(bg, vda=("background", "slow", 40000))
    wait_until(lambda: idletimed.log().count("connected to") > 1, "idletimed connects again")
    virt_idletime(host, "set", "bg", "--live", "interval-us=60000")
    expect(bg, vda=("background", "slow", 60000))


def test_thousands_of_events(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:
    """3,000 changes as fast as libvirt takes them, while idletimed stands still for a part: the last one holds."""
    bg = start(domain, "bg", background())
    idletimed.process.send(signal.SIGSTOP)
    for number in range(3000):
        if number == 2000:
            idletimed.process.send(signal.SIGCONT)
        set_policy(bg, background().replace("30000", str(10000 + number)))
    expect(bg, vda=("background", "slow", 12999))
