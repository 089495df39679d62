"""Background VMs give memory back while the foreground is short of it, and have it back after that; the last resort is a save.

What the host has is a file over /proc/meminfo: so a test says when it is short, whatever else runs on this machine.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from typing import Iterator

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import foreground, module_stack, remove, resource, set_policy, shared_disk  # noqa: F401
from tests.e2e.test_police import answers, daemon, until
from tests.framework import accel
from tests.framework.domain import Domain, disk_xml, policy
from tests.framework.idletimed import answer, virt_idletime
from tests.framework.libvirtd import Libvirtd
from tests.framework.qemu import Boot
from tests.testbed.disk import Disk

TOTAL_MIB, RESERVE_MIB, PLENTY_MIB = 20000, 1000, 5000
SIZE_MIB, LOW_MIB = 384, 192
RECORD = "urn:idletime:memory:1"


def settings(within: int, calm: int = 2) -> str:
    return f"[metrics]\nlook-seconds = 2\n[memory]\ncalm-seconds = {calm}\nwithin-seconds = {within}\n"


@pytest.fixture(scope="module")
def host(module_stack: ExitStack, boot: Boot) -> Libvirtd:
    """A libvirtd with our hook, guests whose kernel has a balloon, and a host that has what meminfo() says."""
    guest = accel.with_modules(boot, ["virtio_balloon"])
    result = module_stack.enter_context(Libvirtd(guest, "host1", hook=True))
    meminfo(result, PLENTY_MIB)
    result.call("mount", "--bind", "/run/meminfo", "/proc/meminfo")
    return result


def meminfo(host: Libvirtd, available_mib: int) -> None:
    (host.run / "meminfo").write_text(f"MemTotal: {TOTAL_MIB * 1024} kB\nMemAvailable: {available_mib * 1024} kB\n")


@pytest.fixture
def bg(host: Libvirtd, shared_disk: Disk) -> Iterator[Domain]:
    """A background VM whose guest has used most of its memory, and does not need it any more."""
    its_policy = policy("background", resource("vda") + f"<idletime:memory low='{LOW_MIB}MiB'/>")
    vm = Domain(host, "bg", its_policy, [disk_xml(shared_disk, "bg")], SIZE_MIB, balloon="virtio", wait_seconds=1500)
    meminfo(host, PLENTY_MIB)
    vm.define()
    vm.start().booted()
    assert vm.guest is not None
    vm.guest.run("dd if=/dev/zero of=/tmp/used bs=1M count=120 && rm /tmp/used", 600)
    yield vm
    meminfo(host, PLENTY_MIB)
    remove(vm)


def target(vm: Domain) -> int:
    """Of its balloon, in MiB."""
    return int(vm.qmp("query-balloon")["actual"]) >> 20


def short(host: Libvirtd) -> None:
    """100 MiB less than it should be, and no more come however much is given."""
    meminfo(host, RESERVE_MIB - 100)


def test_given_and_back(host: Libvirtd, bg: Domain) -> None:
    """Told in status and metrics; the next idletimed knows what it had. It has that back when nothing is short any more."""
    def gives() -> None:
        """What it has then stays so: nobody is saved however slow this machine is."""
        short(host)
        until(lambda: target(bg) <= SIZE_MIB - 32, "it gives")
        meminfo(host, PLENTY_MIB)

    def has_all() -> bool:
        return target(bg) == SIZE_MIB and RECORD not in bg.dom.XMLDesc(0)

    with daemon(host, settings(30, 3600)) as idletimed:
        gives()
        until(lambda: "the foreground has " in idletimed_says(host, "status"), "shown")
        assert f"down to {LOW_MIB} MiB, " in idletimed_says(host, "explain")
        until(lambda: 'idletime_vm_memory_given_bytes{vm="bg"} 0.0' not in answer(host, "/metrics"), "measured")
        assert f'bytes="{SIZE_MIB << 20}"' in bg.dom.XMLDesc(0)
        assert "domain 'bg': balloon" in idletimed.log() and "saved" not in idletimed.log()
        assert LOW_MIB <= target(bg)
    with daemon(host, settings(30)):
        until(has_all, "it has what it had")
        answers(bg)


def test_promoted_has_it_back(host: Libvirtd, bg: Domain) -> None:
    """At once, and not when nothing has been short for a while."""
    with daemon(host, settings(30)) as idletimed:
        short(host)
        until(lambda: target(bg) <= SIZE_MIB - 32, "it gives")
        meminfo(host, PLENTY_MIB)
        set_policy(bg, foreground())
        until(lambda: target(bg) == SIZE_MIB and RECORD not in bg.dom.XMLDesc(0), "the foreground gives nothing")
        assert "its policy takes none" in idletimed.log()


def idletimed_says(host: Libvirtd, what: str) -> str:
    return virt_idletime(host, what, "bg")


def test_saved_and_started_again(host: Libvirtd, bg: Domain) -> None:
    """Where the stated time was not enough. It goes on where it was."""
    assert bg.guest is not None
    bg.guest.run("echo kept >/run/kept", 60)
    with daemon(host, settings(3)) as idletimed:
        short(host)
        until(lambda: not bg.dom.isActive() and bool(bg.dom.hasManagedSaveImage()), "saved")
        until(lambda: "idletimed has stopped it: saved to disk until memory is free again: the foreground is short of 100 MiB"
              in idletimed_says(host, "status"), "shown")
        bg.detach()
        meminfo(host, PLENTY_MIB)
        until(lambda: bool(bg.dom.isActive()), "started")
        bg.attach()
        assert bg.guest is not None and bg.guest.run("cat /run/kept", 60).text.strip() == "kept"
        until(lambda: target(bg) == SIZE_MIB, "it has what it had")
        assert "domain 'bg' is started again" in idletimed.log()
        until(lambda: "stopped it" not in idletimed_says(host, "status"), "forgotten")


def test_a_foreground_starts(host: Libvirtd, bg: Domain, shared_disk: Disk) -> None:
    """It waits until a background VM has given what it needs, and no longer."""
    fg = Domain(host, "fg", foreground(), [disk_xml(shared_disk, "fg")], wait_seconds=1500)
    fg.define()
    try:
        with daemon(host, settings(30)) as idletimed:
            until(lambda: (host.run / "idletime" / ".gives").exists(), "idletimed knows who gives")
            meminfo(host, RESERVE_MIB + fg.memory_mib - 50)
            seen: list[bool] = []

            def gives() -> None:
                with closing(libvirt.open(host.uri)) as own:  # libvirt may lose an answer where two threads share a connection
                    until(lambda: own.lookupByName("bg").info()[2] >> 10 <= SIZE_MIB - 50, "it gives")
                seen.append((host.run / "libvirt" / "qemu" / "fg.pid").exists())
                meminfo(host, PLENTY_MIB)

            giving = threading.Thread(target=gives)
            giving.start()
            fg.start().booted()
            giving.join()
            assert seen == [False], "it had to wait, without a QEMU"
            answers(fg)
            answers(bg)
            assert "saved" not in idletimed.log()
            assert list((host.run / "idletime" / ".starting").iterdir()) == []
    finally:
        remove(fg)
