"""idletimed keeps an observer on a block device, and on an uplink: a foreground on stock QEMU is seen, and nobody is blind."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from tests.e2e.libvirt_fixtures import INTERVAL_US, arena_path, expect, module_stack, nic, remove, set_policy  # noqa: F401  (fixtures)
from tests.framework.domain import Domain, policy
from tests.framework.idletimed import Idletimed, answer, virt_idletime, wait_until
from tests.framework.libvirtd import CONFIG, STAGE, Libvirtd
from tests.framework.qemu import Boot, stock_qemu
from tests.testbed import observer
from tests.testbed.disk import Disk, Model
from tests.testbed.loop import LoopDisk

BG = ("background", "slow", INTERVAL_US)
PROGRAM = f"{STAGE}/bin/idletime-observer"
BACKGROUND = policy("background", f"<idletime:interval us='{INTERVAL_US}'/>")

pytestmark = [
    pytest.mark.skipif(bool(observer.missing()), reason=str(observer.missing())),
    pytest.mark.skipif(not stock_qemu(), reason="there is no QEMU without our changes: run `make deps`, or `make qemu-unpatched`"),
]

BROADCAST = """
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
line.sendto(b"x", ("10.9.9.255", 9))
"""

Make = Callable[..., Domain]


@pytest.fixture(scope="module")
def block(module_stack: ExitStack) -> str:  # noqa: F811
    """A loop device on a disk of 2 ms, there before the host, so that the host's processes see what is below it."""
    disk = module_stack.enter_context(Disk(Model(service_us=2000)))
    return module_stack.enter_context(LoopDisk(disk, "loop")).device


@pytest.fixture(scope="module")
def host(module_stack: ExitStack, boot: Boot, block: str) -> Libvirtd:  # noqa: F811
    """A libvirtd whose operator wants that device observed."""
    result = module_stack.enter_context(Libvirtd(boot, "host1", hook=True))
    (result.run / CONFIG).write_text(f'observer = "{PROGRAM}"\n')
    (result.rules / "resources.d").mkdir()
    wish(result, block, "true")
    return result


@pytest.fixture
def domain(host: Libvirtd, block: str) -> Iterator[Make]:
    """Define and boot one on the device: domain("bg", policy, stock=False). Before idletimed, so that its cgroup is there first."""
    made: list[Domain] = []

    def make(name: str, its_policy: str, stock: bool = False, group: Path | None = None, more: str = "") -> Domain:
        disk = ("<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>"
                f"<source dev='{block}'/><target dev='vda' bus='virtio'/><shareable/></disk>")
        result = Domain(host, name, its_policy, [disk, more], emulator=str(host.stock_emulator) if stock else "")
        made.append(result)
        result.define()
        result.start().booted()
        if group:
            pid = (host.run / "libvirt" / "qemu" / f"{name}.pid").read_text().strip()
            host.call("sh", "-c", f"echo {pid} > {group}/cgroup.procs")
        return result

    yield make
    for each in made:
        remove(each)


@pytest.fixture
def group() -> Iterator[Path]:
    """The background's cgroup."""
    with observer.cgroup("bg") as path:
        yield path


def wish(host: Libvirtd, block: str, observe: str) -> None:
    """What the operator says of the resource."""
    (host.rules / "resources.d/site.toml").write_text(f'[slow]\nobserve = {observe}\nmatch.path = "{block}"\n')


def seen(domain: Domain) -> dict[str, Any]:
    """What a background says of its observer."""
    return dict(domain.qmp("query-idletime")[0]["observer"])


def pid_of(host: Libvirtd) -> int | None:
    """The observer that answers in the arena."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(arena_path(host) / "observer"))
        except OSError:
            return None
        return int(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def foreground_ms(host: Libvirtd) -> int:
    """Of the last ten seconds, by the timeline of Cockpit's page."""
    _, _, body = answer(host, "/v1/timeline/slow", ".api.sock").partition("\n\n")
    found = json.loads(body)
    return sum(found.get("foreground", ())) * int(found.get("bin_ms", 0)) // 1000  # none until the VM has been looked at


def declared(host: Libvirtd) -> bool:
    """Whether background without an observer is blind."""
    return (arena_path(host) / "observed").exists()


def test_its_life(host: Libvirtd, domain: Make, group: Path, block: str) -> None:
    """It comes, counts the stock foreground and not the background; is killed, found again by the next idletimed, not wanted."""
    bg, fg = domain("bg", BACKGROUND, group=group), domain("fg", policy("foreground"), stock=True)
    with Idletimed(host) as daemon:
        expect(bg, vda=BG)
        wait_until(lambda: seen(bg)["state"] == "seen" and declared(host), "it observes")
        first = pid_of(host)
        assert first is not None
        assert bg.guest is not None and fg.guest is not None
        bg.guest.load(outstanding=1, seconds=3, seed=1).result()
        assert seen(bg)["foreground"]["requests"] == 0
        done = fg.guest.load(intensity=100, outstanding=1, seconds=3, seed=2).result()["operations"]
        assert 0 < done <= seen(bg)["foreground"]["requests"]
        wait_until(lambda: "seen by the kernel" in virt_idletime(host, "status", "fg"), "status says so")
        assert "background VMs see it by the kernel" in virt_idletime(host, "status", "fg")
        load = fg.guest.load(intensity=100, outstanding=1, seconds=3, seed=3)
        wait_until(lambda: foreground_ms(host) > 100, "the timeline shows it")
        load.result()

        os.kill(first, signal.SIGKILL)
        wait_until(lambda: pid_of(host) not in (None, first) and seen(bg)["state"] == "seen", "it is back")
        second = pid_of(host)

        for number in (signal.SIGTERM, signal.SIGKILL):
            daemon.stop(number)
            assert (pid_of(host), seen(bg)["state"]) == (second, "seen")
            found = daemon.log().count("is observed")
            daemon.start()
            wait_until(lambda: daemon.log().count("is observed") > found, "it is found again")  # noqa: B023
            assert pid_of(host) == second

        wish(host, block, "false")
        wait_until(lambda: pid_of(host) is None and not declared(host), "it is gone")
        wait_until(lambda: seen(bg)["state"] == "absent", "the background knows")
        wish(host, block, "true")
        wait_until(lambda: seen(bg)["state"] == "seen" and declared(host), "it observes again")
        set_policy(bg, None)
        wait_until(lambda: pid_of(host) is None and not declared(host), "without background there is no observer")


def test_nobody_is_blind(host: Libvirtd, domain: Make, group: Path) -> None:
    """No observer where it could not tell the background from others, nor without the program: said, and the background goes on."""
    bg = domain("bg", BACKGROUND)
    with Idletimed(host) as daemon:
        expect(bg, vda=BG)
        wait_until(lambda: "the QEMU of 'bg' is in cgroup '/'" in daemon.log(), "said")
        assert "cgroup '/'" in virt_idletime(host, "status", "bg")
        assert "warning: slow: foreground that passes QEMU by is not seen" in virt_idletime(host, "doctor", check=False)
        unseen(host, bg)
    pid = (host.run / "libvirt" / "qemu" / "bg.pid").read_text().strip()
    host.call("sh", "-c", f"echo {pid} > {group}/cgroup.procs")
    (host.run / CONFIG).write_text('observer = "no-such-observer"\n')
    try:
        with Idletimed(host) as daemon:
            wait_until(lambda: "the program 'no-such-observer' is not installed; remedy" in daemon.log(), "said")
            unseen(host, bg)
    finally:
        (host.run / CONFIG).write_text(f'observer = "{PROGRAM}"\n')


def test_an_uplink(host: Libvirtd, domain: Make) -> None:
    """An interface of the host: what the host itself sends is foreground, what comes by the background's tap is left out."""
    host.call("mount", "-t", "sysfs", "sysfs", "/sys")  # of this network
    names = host.rules / "resources.d/uplink.toml"
    names.write_text('[up0]\nobserve = true\nmatch.bridge = "br0"\n')
    try:
        for line in ("link add br0 type bridge", "link add up0 type veth peer name far", "link set up0 master br0",
                     "addr add 10.9.9.1/24 dev br0", "link set br0 up", "link set up0 up", "link set far up"):
            host.call("ip", *line.split())
        inner = f"<idletime:interval us='{INTERVAL_US}'/><idletime:disk resource='none'/>"
        bg = domain("bg", policy("background", inner), more=nic(1))
        with Idletimed(host):
            expect(bg, **{"52:54:00:00:00:01": ("background", "up0", INTERVAL_US)})
            wait_until(lambda: seen(bg)["state"] == "seen", "it observes")
            (tap,) = (host.run / "idletime/.observers/up0.list").read_text().split()
            assert tap.startswith("vnet") and (arena_path(host, "up0") / "observed").exists()
            before = seen(bg)["foreground"]["requests"]
            host.call("python3", "-c", BROADCAST)
            wait_until(lambda: seen(bg)["foreground"]["requests"] > before, "the host's own packets count")
            set_policy(bg, None)
            wait_until(lambda: not (arena_path(host, "up0") / "observer").exists(), "it is gone")
    finally:
        names.unlink()
        host.call("umount", "/sys")


def unseen(host: Libvirtd, bg: Domain) -> None:
    """No observer, and no declaration that would leave the background to its deadlines."""
    assert (pid_of(host), declared(host), seen(bg)["state"]) == (None, False, "absent")
    assert bg.guest is not None and bg.guest.load(outstanding=1, seconds=1).result()["operations"] > 0
