"""The policy in a real libvirtd, with the patched QEMU and real guests: at each step QEMU does what the policy says."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import libvirt
import pytest
from lxml import etree

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    INTERVAL_US, Make, arena_path, background, domain, expect, foreground, host, idletimed, module_stack, nic, resource,
    second_disk, served, set_policy, shared_disk, shared_folder, snapshot, start, untouched,
)
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import CONFIG, Libvirtd
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

BG = ("background", "slow", INTERVAL_US)
FG = ("foreground", "slow", INTERVAL_US)

RULES = """
default = "foreground"
[[rule]]
class = "background"
name = "ci-*"
"""
NAMES = """
[slow]
interval-us = {interval}
match.host = "unix:*"
"""


# ---- before idletimed runs, and when it comes

def test_vms_that_ran_before_idletimed(host: Libvirtd, domain: Make) -> None:
    """It comes when all run: background, foreground, one that nobody marked, under load. It goes, and all stays."""
    stock, bg, fg = (start(domain, name, its) for name, its in (
        ("stock", ""), ("bg", background()), ("fg", foreground())))
    bg.guest.load(outstanding=4, seconds=300)
    for each in (stock, bg, fg):
        untouched(each)
    with Idletimed(host):
        expect(bg, vda=BG)
        expect(fg, vda=FG)
        wait_until(lambda: (host.run / "idletime/.state" / f"{stock.dom.UUIDString()}.json").exists(), "stock was looked at")
        untouched(stock)
        owner = os.stat(host.folder / "lib" / "qemu").st_uid
        status = os.stat(arena_path(host))
        assert (status.st_uid, status.st_mode & 0o7777) == (owner, 0o750)
        assert all((arena_path(host) / board).stat().st_uid == owner for board in ("foreground", "background"))
    expect(bg, vda=BG)
    assert "qemu:" not in bg.dom.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)


def test_strict(host: Libvirtd, domain: Make) -> None:
    """A background domain waits for idletimed where the operator wants that; a foreground does not, nor without the setting."""
    bg, fg = domain("bg", background()), domain("fg", foreground())
    bg.define()
    fg.define()
    (host.run / CONFIG).write_text("strict = true\n")
    try:
        with pytest.raises(libvirt.libvirtError, match="idletimed is not alive"):
            bg.dom.create()
        fg.start()
        with Idletimed(host):
            bg.start()
            expect(bg, vda=BG)
    finally:
        (host.run / CONFIG).write_text(host.config)


def test_rules(host: Libvirtd, domain: Make) -> None:
    """Nobody marked anything: the operator's files say who is what, and change while all runs."""
    (host.rules / "rules.d").mkdir()
    (host.rules / "resources.d").mkdir()
    try:
        ci, web = start(domain, "ci-7", ""), start(domain, "web", "")
        (host.rules / "resources.d/names.toml").write_text(NAMES.format(interval=INTERVAL_US))
        (host.rules / "rules.d/site.toml").write_text(RULES)
        with Idletimed(host):
            expect(ci, vda=BG)
            expect(web, vda=FG)
            assert "by the rule in" in virt_idletime(host, "explain", "ci-7")
            set_policy(ci, foreground())
            expect(ci, vda=FG)
            set_policy(ci, None)
            expect(ci, vda=BG)
            (host.rules / "resources.d/names.toml").write_text(NAMES.format(interval=7000))
            expect(ci, vda=("background", "slow", 7000))
            (host.rules / "rules.d/site.toml").write_text("default = 'none'")
            expect(ci)
            expect(web)
            (host.rules / "rules.d/site.toml").write_text("default = 'some'")
            wait_until(lambda: "default = 'some' is not known" in (host.folder / "log/idletimed.log").read_text(), "said")
    finally:
        for name in ("rules.d/site.toml", "resources.d/names.toml"):
            (host.rules / name).unlink(missing_ok=True)
        for name in ("rules.d", "resources.d"):
            (host.rules / name).rmdir()


def test_a_stock_emulator(host: Libvirtd, domain: Make, shared_disk: Disk) -> None:
    """Said with its remedy; it starts, runs and is left as it is."""
    if host.stock_emulator is None:
        pytest.skip("there is no QEMU without our changes: make deps, or make qemu-unpatched")
    stock = domain("stock", background())
    stock.emulator = host.stock_emulator
    with Idletimed(host) as daemon:
        stock.define()
        stock.start().booted()
        wait_until(lambda: "domain 'stock': its QEMU is stock" in daemon.log(), "said")
        stock.guest.load(outstanding=1, seconds=60)
        served(shared_disk, "stock")


def test_a_wrong_policy_stops_nothing(host: Libvirtd, domain: Make) -> None:
    """What does not fit is said and left out; the rest is in force."""
    wrong = domain("wrong", policy("background", f"<idletime:interval us='{INTERVAL_US}'/>" + resource("vda") + resource("vdz")))
    wrong.define()
    with Idletimed(host) as daemon:
        wrong.start().booted()
        expect(wrong, vda=BG)
        wait_until(lambda: "disk target='vdz': the domain has no such disk" in daemon.log(), "said")
        set_policy(wrong, background().replace("us='30000'", "us='soon'"))
        wait_until(lambda: "us='soon' is not a whole number" in daemon.log(), "said")
        expect(wrong, vda=BG)


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
    """The interval, the class, by the command and past it; the policy goes and comes; the domain is undefined; the end."""
    bg = start(domain, "bg", background())
    virt_idletime(host, "mark", "bg", "--set", "interval-us=50000")
    expect(bg, vda=("background", "slow", 50000))
    virt_idletime(host, "mark", "bg", "--set", "auto=on", "--set", "interval-us=40000")
    assert settings(bg, "interval-us", "auto") == {"slow": (40000, True)}  # where it starts; there is nothing to learn
    virt_idletime(host, "mark", "bg", "--set", "auto=off")
    expect(bg, vda=("background", "slow", 40000))
    virt_idletime(host, "unmark", "bg")
    expect(bg)
    assert bg.qmp("query-idletime") == []
    set_policy(bg, background().replace("30000", "70000"))
    expect(bg, vda=("background", "slow", 70000))
    for _ in range(2):  # as Ansible and Terraform do at each run
        bg.define()
    bg.dom.undefine()  # it runs on, transient
    set_policy(bg, background())
    expect(bg, vda=BG)
    bg.detach()
    bg.dom.destroy()
    wait_until(lambda: "bg" not in [each.name() for each in host.connection.listAllDomains()], "gone")


DUE = "urn:idletime:due:1"


def due_of(domain: Domain) -> etree._Element:
    """When idletimed has written down that it becomes foreground."""
    return etree.fromstring(domain.dom.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, DUE, libvirt.VIR_DOMAIN_AFFECT_LIVE))


def test_a_deadline(host: Libvirtd, idletimed: Idletimed, domain: Make) -> None:
    """It is written down in the live XML, so the next idletimed keeps it: foreground by itself at that time."""
    bg = start(domain, "bg", background())
    virt_idletime(host, "mark", "bg", "--set", "by=06:00")
    expect(bg, vda=BG)
    wait_until(lambda: DUE in bg.dom.XMLDesc(), "its deadline is written down")
    assert due_of(bg).get("by") == "06:00" and time.time() < float(due_of(bg).get("at")) < time.time() + 86401
    idletimed.stop()
    soon = f'<due at="{time.time() + 5:.0f}" by="06:00"/>'
    bg.dom.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, soon, "d", DUE, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    idletimed.start()
    assert "background until 06:00" in virt_idletime(host, "explain", "bg")
    expect(bg, vda=FG)
    assert "foreground, by its own policy: its metadata has one; it was background until 06:00" in \
        virt_idletime(host, "explain", "bg")


def test_taken_back_under_load(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_disk: Disk) -> None:
    """Held behind a foreground that never pauses, released when the policy goes, held again when it comes back."""
    bg, fg = start(domain, "bg", background()), start(domain, "fg", foreground())
    expect(bg, vda=BG)
    expect(fg, vda=FG)
    bg.guest.load(outstanding=4, seconds=300)
    served(shared_disk, "bg")
    fg.guest.load(outstanding=1, seconds=300)
    wait_until(lambda: held(bg) > 0, "the background is held")
    set_policy(bg, None)
    expect(bg)
    served(shared_disk, "bg", 50)
    set_policy(bg, background())
    expect(bg, vda=BG)
    wait_until(lambda: held(bg) > 0, "the background is held again")


def held(domain: Domain) -> int:
    return sum(resource["held"] for resource in domain.qmp("query-idletime"))


def test_another_resource(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_disk: Disk) -> None:
    """The policy names another one, under load: the device moves, and what nobody is on any more is gone."""
    bg = start(domain, "bg", background())
    bg.guest.load(outstanding=4, seconds=300)
    expect(bg, vda=BG)
    set_policy(bg, background(name="other"))
    expect(bg, vda=("background", "other", INTERVAL_US))
    wait_until(lambda: [one["id"] for one in bg.qmp("query-idletime")] == ["idletime-other"], "the first one is gone")
    served(shared_disk, "bg")


def test_hotplug(idletimed: Idletimed, domain: Make, shared_disk: Disk) -> None:
    """A disk that is plugged in is background at once; a NIC works; out again."""
    bg = start(domain, "bg", background(resource("vdb")))
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
    virt_idletime(host, "mark", "bg", "--set", "rate-bps=50000000", "--set", "shadow=on")
    come_to(bg, {"slow": (0, True), "uplink": (50000000, True)})
    bg.detach()
    bg.dom.destroy()
    bg.dom.create()
    come_to(bg, {"slow": (0, True), "uplink": (50000000, True)})


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


def test_a_disk_that_goes_elsewhere(host: Libvirtd, idletimed: Idletimed, domain: Make, shared_folder: Path) -> None:
    """An overlay in a folder of another resource, and back by a commit and by a copy: its resource follows at once, not at
    the resync, of 300 s."""
    def folder(name: str) -> Path:
        path = shared_folder / name
        path.mkdir()
        shutil.chown(path, "libvirt-qemu")
        return path

    there, here = folder("there"), folder("here")
    (host.rules / "resources.d").mkdir()
    names = host.rules / "resources.d/names.toml"
    names.write_text(f'[slow]\nmatch.host = "unix:*"\n[here]\nmatch.path = "{here}/*"\n[there]\nmatch.path = "{there}/*"\n')
    its_policy = policy("background", f"<idletime:interval us='{INTERVAL_US}'/>")
    on = {name: ("background", name, INTERVAL_US) for name in ("here", "there")}
    try:
        bg = start(domain, "bg", its_policy, second_disk(here))
        bg.guest.load(outstanding=4, seconds=300)
        expect(bg, vda=BG, vdb=on["here"])
        snapshot(bg, "vdb", there / "overlay")
        expect(bg, vda=BG, vdb=on["there"])
        bg.dom.blockCommit("vdb", None, None, 0, libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE)
        pivot(bg, "vdb")
        expect(bg, vda=BG, vdb=on["here"])
        bg.dom.blockCopy("vdb", f"<disk type='file'><source file='{there}/copy'/><driver type='raw'/></disk>",
                         {}, libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB)
        pivot(bg, "vdb")
        expect(bg, vda=BG, vdb=on["there"])
    finally:
        names.unlink()
        names.parent.rmdir()


def pivot(domain: Domain, target: str) -> None:
    """End a block job of a running domain when all is copied: the disk goes on with what it was copied to."""
    def ready() -> bool:
        mirror = etree.fromstring(domain.dom.XMLDesc(0)).xpath(f"./devices/disk[target/@dev='{target}']/mirror")
        return bool(mirror) and mirror[0].get("ready") == "yes"

    wait_until(ready, f"the block job of {target} is ready")
    domain.dom.blockJobAbort(target, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)


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
    virt_idletime(host, "mark", "bg", "--set", "interval-us=60000")
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
