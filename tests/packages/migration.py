#!/usr/bin/python3
"""A background VM migrates to a host without Idletime, and back: migration.py OURS STOCK MACHINE.

OURS and STOCK are emulators, MACHINE is a type that both have. Two libvirtds of this release, each in namespaces of its own
(tests/framework/libvirtd.py); only the first has idletimed. On the other the VM runs as any other; when it is back, it is
background again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.e2e.libvirt_fixtures import background, expect, migrate, served
from tests.framework import initramfs, kernel
from tests.framework.domain import Domain, disk_xml
from tests.framework.idletimed import Idletimed
from tests.framework.libvirtd import Libvirtd
from tests.framework.qemu import Boot
from tests.testbed.disk import Disk, Model

INTERVAL_US = 30000
MODULES = Path("lib/x86_64-linux-gnu/qemu")
"""Where Debian's QEMU has its modules, below /usr: found there, and not beside the program."""


class Machine(Domain):
    """A domain whose machine type both emulators have."""

    machine = ""

    def xml(self) -> str:
        """The type in the place of the newest one."""
        return super().xml().replace("machine='q35'", f"machine='{self.machine}'")


def use_own_modules(host: Libvirtd) -> None:
    """On this host are the modules of its own QEMU: it does not load those of another build, and ends where it meets them."""
    own = host.boot.qemu.resolve().parents[1] / MODULES
    host.call("mount", "--bind", str(own), str(Path("/usr") / MODULES))


def there_and_back(host: Libvirtd, plain: Libvirtd, disk: Disk, place: Path) -> None:
    """Under load all the time."""
    vm = Machine(host, "bg", background(), [disk_xml(disk, "bg")])
    vm.define()
    vm.start().booted()
    assert vm.guest is not None
    vm.guest.load(outstanding=4, seconds=600)
    expect(vm, vda=("background", "slow", INTERVAL_US))
    there = migrate(vm, plain, place)
    served(disk, "bg", 50)
    print(f"   QEMU {there.qmp('query-version')['package']} took it")
    back = migrate(there, host, place)
    expect(back, vda=("background", "slow", INTERVAL_US))
    served(disk, "bg")
    print(f"   QEMU {back.qmp('query-version')['package']} has it back, and it is background")
    back.dom.destroy()


def main() -> int:
    """Exit status 0: it went there and came back."""
    ours, stock, Machine.machine = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    guest = kernel.get_kernel()
    boot = Boot(ours, guest.image, initramfs.get_initramfs(guest, network=True), "tcg")
    place = Path(tempfile.mkdtemp(prefix="idletime-"))
    shutil.chown(place, "libvirt-qemu")
    try:
        with Libvirtd(boot, "host1") as host, Idletimed(host), Disk(Model(service_us=2000)) as disk, \
                Libvirtd(replace(boot, qemu=stock), "host2") as plain:
            use_own_modules(plain)
            there_and_back(host, plain, disk, place)
    finally:
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
