# SPDX-License-Identifier: GPL-2.0-or-later
"""A background VM's scratch disk fills the file system that a foreground VM needs: it is dropped, and nothing else is."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Iterator

import pytest

from tests.e2e.libvirt_fixtures import module_stack, remove  # noqa: F401
from tests.e2e.test_police import answers, daemon, until
from tests.framework.domain import Domain, policy
from tests.framework.idletimed import virt_idletime
from tests.framework.libvirtd import STAGE, Libvirtd
from tests.framework.qemu import Boot

PLACE = "/run/scratch"
SIZE_MIB, LOW_PERCENT = 64, 50
RECORD = "urn:idletime:space:1"
SETTINGS = f"[space]\nlow-percent = {LOW_PERCENT}\n"
MARK = "<idletime:space target='vda' reclaim='yes'/>"


@pytest.fixture(scope="module")
def host(module_stack: ExitStack, boot: Boot) -> Libvirtd:
    """A libvirtd, and a file system of 64 MiB that only it sees."""
    result = module_stack.enter_context(Libvirtd(boot, "host1", hook=True))
    result.call("mkdir", PLACE)
    result.call("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0755", "tmpfs", PLACE)
    result.call(f"{STAGE}/bin/qemu-img", "create", "-q", "-f", "raw", f"{PLACE}/base", f"{SIZE_MIB}M")
    return result


def made(host: Libvirtd, name: str, its_policy: str) -> Domain:
    """A VM whose disk is an overlay there."""
    image = f"{PLACE}/{name}.qcow2"
    host.call(f"{STAGE}/bin/qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", f"{PLACE}/base", image)
    disk = ("<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/>"
            f"<source file='{image}'/><target dev='vda' bus='virtio'/></disk>")
    vm = Domain(host, name, its_policy, [disk], wait_seconds=1500)
    vm.define()
    return vm


@pytest.fixture
def pair(host: Libvirtd) -> Iterator[tuple[Domain, Domain]]:
    """A background VM with a scratch disk, and a foreground VM, both on that file system and on one base."""
    bg, fg = made(host, "bg", policy("background", MARK)), made(host, "fg", policy("foreground"))
    try:
        yield bg.start().booted(), fg.start().booted()
    finally:
        remove(bg)
        remove(fg)


def fill(vm: Domain, first_mib: int, count_mib: int) -> None:
    """Write what is no hole, to the disk itself."""
    assert vm.guest is not None
    vm.guest.run(f"tr '\\0' x </dev/zero | dd of=/dev/vda bs=1M seek={first_mib} count={count_mib} iflag=fullblock conv=fsync", 600)


def taken(host: Libvirtd, name: str) -> int:
    """KiB of an overlay."""
    return int(host.call("du", "-k", f"{PLACE}/{name}.qcow2").stdout.split()[0])


def inode(host: Libvirtd, name: str) -> str:
    return str(host.call("stat", "-c", "%d:%i:%U:%a", f"{PLACE}/{name}.qcow2").stdout)


def begins_with(vm: Domain) -> str:
    """What is on the disk, not in the guest's page cache."""
    assert vm.guest is not None
    text = vm.guest.run("echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/vda bs=1M skip=1 count=1 2>/dev/null | tr '\\0' 0 | head -c 4",
                        600).text
    return str(text.strip())


def test_dropped_for_the_foreground(host: Libvirtd, pair: tuple[Domain, Domain], monkeypatch: pytest.MonkeyPatch) -> None:
    """Told; not started again. The foreground has the space, and its own disk is as it was. Whoever starts the VM has it empty."""
    bg, fg = pair
    monkeypatch.setenv("PATH", f"{STAGE}/bin:{os.environ['PATH']}")  # of idletimed: qemu-img is there
    fill(fg, 1, 4)
    with daemon(host, SETTINGS) as idletimed:
        until(lambda: "scratch disk vda is trimmed, then dropped" in virt_idletime(host, "explain", "bg"), "idletimed knows it")
        fill(bg, 1, 16)
        assert bg.dom.isActive() and taken(host, "bg") > 16 << 10, "more than half is free"
        before = inode(host, "bg")
        fill(bg, 17, 14)
        until(lambda: not bg.dom.isActive() and 'done="yes"' in bg.dom.XMLDesc(0), "dropped")
        bg.detach()
        assert 'backing_format="raw"' in bg.dom.XMLDesc(0), "what was needed had the act been cut off"
        assert taken(host, "bg") < 1024 and inode(host, "bg").split(":")[:2] == before.split(":")[:2]
        assert "scratch disk vda was dropped: 2" in virt_idletime(host, "status", "bg")
        assert "domain 'bg' is stopped, and its scratch disk dropped (vda)" in idletimed.log()
        fill(fg, 5, 40)
        answers(fg)
        assert taken(host, "fg") > 44 << 10 and begins_with(fg) == "xxxx"
        assert bg.dom.isActive() == 0, "it is not started again"
        checked = host.call(f"{STAGE}/bin/qemu-img", "check", f"{PLACE}/bg.qcow2").stdout
        assert "No errors were found" in checked
    host.call("rm", f"{PLACE}/fg.qcow2")
    fg.dom.destroy()
    with daemon(host, SETTINGS):
        bg.start().booted()
        assert begins_with(bg) == "0000"
        until(lambda: RECORD not in bg.dom.XMLDesc(2), "that is forgotten")
