"""Whole background VMs are stopped while the foreground needs what they use, and go on: whoever is restarted, and never another's.

The tests wait for events, however long these take on a busy machine: what else runs here counts as foreground's use of the
processors. So all but one have these count for nothing, and look at the disk alone.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import libvirt
import pytest

from tests.e2e.libvirt_fixtures import (  # noqa: F401  (fixtures)
    INTERVAL_US, Make, domain, expect, foreground, module_stack, remove, resource, served, set_policy, shared_disk, start,
)
from tests.framework.domain import Domain, policy
from tests.framework.idletimed import PYTHON, Idletimed, answer, virt_idletime, wait_until
from tests.framework.libvirtd import CONFIG, Libvirtd
from tests.framework.qemu import Boot, stock_qemu
from tests.testbed import loop
from tests.testbed.disk import Disk

METRICS = "[metrics]\nlook-seconds = 2\n"
DISK = METRICS + "[suspend]\ncpu-percent = 0\n"
PROCESSORS = "[suspend]\ndevice-percent = 0\n"
SECONDS = 120.0
"""For an event that takes at most 20 s on a machine that does nothing else."""

LOAD_SECONDS = 900
RECORD = "urn:idletime:stopped:1"


def suspended(inner: str = "", class_: str = "background") -> str:
    """The policy of a tenant that is stopped as a whole."""
    return policy(class_, resource("vda") + inner).replace("class=", "enforce='suspend' class=", 1)


@contextmanager
def daemon(host: Libvirtd, settings: str = DISK) -> Iterator[Idletimed]:
    """idletimed with these settings, and a log of its own."""
    (host.folder / "log" / "idletimed.log").unlink(missing_ok=True)
    (host.run / CONFIG).write_text(settings)
    try:
        with Idletimed(host) as result:
            yield result
    finally:
        (host.run / CONFIG).write_text(host.config)


@pytest.fixture(scope="module")
def block(module_stack: ExitStack, shared_disk: Disk) -> str:
    """The same disk as a block device, there before the host, so that the host's processes see what is below it; "" if it cannot be."""
    return "" if loop.missing() else module_stack.enter_context(loop.LoopDisk(shared_disk, "loop")).device


@pytest.fixture(scope="module")
def host(module_stack: ExitStack, boot: Boot, block: str) -> Libvirtd:
    """A libvirtd."""
    return module_stack.enter_context(Libvirtd(boot, "host1", hook=True))


@pytest.fixture
def pair(domain: Make) -> tuple[Domain, Domain]:
    """A background VM that reads all the time, and a foreground VM that does nothing yet."""
    bg, fg = start(domain, "bg", suspended()), start(domain, "fg", foreground())
    assert bg.guest is not None
    bg.guest.load(outstanding=1, seconds=LOAD_SECONDS)
    return bg, fg


def works(fg: Domain) -> Any:
    """The foreground begins to read."""
    assert fg.guest is not None
    return fg.guest.load(outstanding=1, seconds=LOAD_SECONDS)


def paused(vm: Domain) -> bool:
    return bool(vm.dom.state()[0] == libvirt.VIR_DOMAIN_PAUSED)


def recorded(vm: Domain) -> bool:
    return RECORD in vm.dom.XMLDesc(0)


def is_stopped(vm: Domain) -> bool:
    """By idletimed."""
    return recorded(vm) and paused(vm)


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, SECONDS)


def stopped(vm: Domain) -> None:
    until(lambda: is_stopped(vm), f"{vm.name} is stopped")


def goes_on(vm: Domain) -> None:
    """For good: nothing in it says that it was ever stopped."""
    until(lambda: not paused(vm) and not recorded(vm), f"{vm.name} goes on")


def answers(vm: Domain) -> None:
    """Its guest lives."""
    assert vm.guest is not None and vm.guest.run("echo here", SECONDS).text.strip() == "here"


def test_disk(host: Libvirtd, pair: tuple[Domain, Domain], shared_disk: Disk) -> None:
    """Alone it runs; beside the foreground it is stopped, and shown so, by probes again and again; after that it goes on."""
    bg, fg = pair
    with daemon(host) as idletimed:
        until(lambda: "bg is stopped as a whole" in virt_idletime(host, "explain", "bg"), "idletimed knows it")
        served(shared_disk, "bg", 2000)  # at 2 ms each that is more than one window of 1.25 s
        assert "is stopped:" not in idletimed.log() and not paused(bg)
        load = works(fg)
        stopped(bg)
        until(lambda: "bg: idletimed has stopped it: resource slow: background" in virt_idletime(host, "status", "bg"), "shown")
        until(lambda: 'idletime_vm_stopped{vm="bg"} 1.0' in answer(host, "/metrics"), "measured")
        until(lambda: "domain 'bg' is stopped: resource slow: background" in idletimed.log(), "said")
        until(lambda: not paused(bg), "a probe")
        until(lambda: re.search(r'idletime_policy_acts_total{act="stop",cause="resource",policy="suspend"} [1-9]',
                                answer(host, "/metrics")) is not None, "counted, with its cause")
        stopped(bg)
        load.stop()
        until(lambda: "domain 'bg' goes on: no foreground needs what it uses" in idletimed.log(), "said")
        goes_on(bg)
        served(shared_disk, "bg")
        until(lambda: 'idletime_vm_stopped{vm="bg"} 0.0' in answer(host, "/metrics"), "measured")


@pytest.mark.skipif(bool(loop.missing()), reason=str(loop.missing()))
@pytest.mark.skipif(not stock_qemu(), reason="there is no QEMU without our changes: run `make deps`, or `make qemu-unpatched`")
def test_a_stock_emulator_beside_the_host(host: Libvirtd, shared_disk: Disk, block: str) -> None:
    """Nothing of it can be held, and who reads the disk is no VM: the kernel counts both."""
    disk = ("<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>"
            f"<source dev='{block}'/><target dev='vda' bus='virtio'/></disk>")
    its_policy = policy("background", resource("vda")).replace("class=", "enforce='auto' class=", 1)
    bg = Domain(host, "stock", its_policy, [disk], emulator=str(host.stock_emulator))
    try:
        bg.define()
        bg.start().booted()
        assert bg.guest is not None
        bg.guest.load(outstanding=1, seconds=LOAD_SECONDS)
        with daemon(host) as idletimed:
            until(lambda: "its QEMU is stock (enforce='auto')" in virt_idletime(host, "explain", "stock"), "idletimed knows it")
            served(shared_disk, "loop", 2000)
            assert "is stopped:" not in idletimed.log()
            reader = host.spawn(["sh", "-c", f"while :; do dd if={block} of=/dev/null bs=4k count=200 iflag=direct; done"], "dd.log")
            try:
                stopped(bg)
                why = f"domain 'stock' is stopped: disk {block.rpartition('/')[2]}: background"
                until(lambda: why in idletimed.log(), "said")
            finally:
                reader.stop(signal.SIGKILL)
            goes_on(bg)
            answers(bg)
    finally:
        remove(bg)


@pytest.mark.skipif(bool(loop.missing()), reason=str(loop.missing()))
@pytest.mark.skipif(not stock_qemu(), reason="there is no QEMU without our changes: run `make deps`, or `make qemu-unpatched`")
def test_a_rate(host: Libvirtd, shared_disk: Disk, block: str) -> None:
    """A stock emulator is limited by libvirt while somebody else reads the disk, and not after that."""
    disk = ("<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='native'/>"
            f"<source dev='{block}'/><target dev='vda' bus='virtio'/></disk>")
    its_policy = policy("background", resource("vda")).replace("class=", "enforce='rate' class=", 1)
    bg = Domain(host, "stock", its_policy, [disk], emulator=str(host.stock_emulator))

    def limit() -> int:
        return int(bg.dom.blockIoTune("vda")["total_bytes_sec"])

    try:
        bg.define()
        bg.start().booted()
        assert bg.guest is not None
        bg.guest.load(outstanding=1, seconds=LOAD_SECONDS)
        with daemon(host, METRICS + "[rate]\nhigh-kbytes = 20\nlow-kbytes = 10\nlimit-kbytes = 30\n") as idletimed:
            until(lambda: "is limited on disk vda" in virt_idletime(host, "explain", "stock"), "idletimed knows it")
            served(shared_disk, "loop", 500)
            assert "background is limited" not in idletimed.log() and limit() == 0
            reader = host.spawn(["sh", "-c", f"while :; do dd if={block} of=/dev/null bs=64k count=200 iflag=direct; done"], "dd.log")
            try:
                until(lambda: limit() == 30000, "it is limited")
                until(lambda: "stock: limited for the foreground: vda" in virt_idletime(host, "status", "stock"), "shown")
                why = f"disk {block.rpartition('/')[2]}: background is limited"
                until(lambda: why in idletimed.log(), "said")
            finally:
                reader.stop(signal.SIGKILL)
            until(lambda: limit() == 0 and "urn:idletime:rate:1" not in bg.dom.XMLDesc(0), "it is not limited any more")
            answers(bg)
            reader = host.spawn(["sh", "-c", f"while :; do dd if={block} of=/dev/null bs=64k count=200 iflag=direct; done"], "dd2.log")
            try:
                until(lambda: limit() == 30000, "it is limited again")
                bg.dom.setBlockIoTune("vda", {"total_bytes_sec": 50 << 20})  # its operator, meanwhile
            finally:
                reader.stop(signal.SIGKILL)
            until(lambda: "urn:idletime:rate:1" not in bg.dom.XMLDesc(0), "idletimed has let go of it")
            assert limit() == 50 << 20
    finally:
        remove(bg)


def test_processors(host: Libvirtd, domain: Make) -> None:
    """What the host itself runs is foreground, too."""
    bg = start(domain, "bg", suspended())
    assert bg.guest is not None
    bg.guest.start("while :; do :; done")
    with daemon(host, PROCESSORS) as idletimed:
        burners = [host.spawn(["sh", "-c", "while :; do :; done"], f"burner{number}.log") for number in range(os.cpu_count() or 1)]
        try:
            stopped(bg)
            until(lambda: "domain 'bg' is stopped: processor" in idletimed.log(), "said")
        finally:
            for one in burners:
                one.stop(signal.SIGKILL)
        until(lambda: not paused(bg), "it goes on, if only for a probe")
        answers(bg)


def test_libvirtd_goes_away(host: Libvirtd, pair: tuple[Domain, Domain]) -> None:
    """In the middle of looks: who did not answer has a policy still, and stays stopped until the foreground has ended."""
    bg, fg = pair
    with daemon(host) as idletimed:
        load = works(fg)
        stopped(bg)
        for _ in range(3):
            known = idletimed.log().count("connected to")
            idletimed.process.send(signal.SIGHUP)
            host.stop_libvirtd(signal.SIGKILL)
            host.start_libvirtd()
            until(lambda: idletimed.log().count("connected to") > known, "idletimed is back")  # noqa: B023
            stopped(bg)
        assert "goes on: its policy" not in idletimed.log()
        load.stop()
        goes_on(bg)
        until(lambda: "domain 'bg' goes on: no foreground" in idletimed.log(), "said")
        answers(bg)


def killed_while_stopped(idletimed: Idletimed, bg: Domain) -> None:
    """idletimed is killed, and leaves the VM stopped: not in a probe."""
    for _ in range(20):
        stopped(bg)
        idletimed.stop(signal.SIGKILL)
        if is_stopped(bg):
            return
        idletimed.start()
    raise AssertionError("it was always killed in a probe")


def test_idletimed_is_killed(host: Libvirtd, pair: tuple[Domain, Domain]) -> None:
    """The next one knows that it was us, and lets the VM go on; so does --release, and an idletimed that ends well."""
    bg, fg = pair
    with daemon(host) as idletimed:
        load = works(fg)
        killed_while_stopped(idletimed, bg)
        load.stop()
        load.result()
        assert is_stopped(bg)
        idletimed.start()
        goes_on(bg)
        answers(bg)

        load = works(fg)
        killed_while_stopped(idletimed, bg)
        text = host.call(*PYTHON, "idletime.hostd.daemon", "--config", f"/run/{CONFIG}", "--release").stdout
        assert text == "domain 'bg' goes on\n" and not paused(bg) and not recorded(bg)

        idletimed.start()
        stopped(bg)
        idletimed.stop()
        assert not paused(bg) and not recorded(bg)
        load.stop()
        idletimed.start()
        answers(bg)


def test_one_that_was_stopped_and_then_saved_goes_on(host: Libvirtd, pair: tuple[Domain, Domain]) -> None:
    """By whoever, while idletimed is dead: libvirt restores it paused, and says that a migration paused it."""
    bg, fg = pair
    with daemon(host) as idletimed:
        load = works(fg)
        killed_while_stopped(idletimed, bg)
        load.stop()
        load.result()
        bg.dom.managedSave()
        bg.detach()
        bg.dom.create()
        assert paused(bg) and recorded(bg)
        idletimed.start()
        until(lambda: not paused(bg) and not recorded(bg), "it goes on")


def test_what_an_operator_paused_stays_so(host: Libvirtd, pair: tuple[Domain, Domain], domain: Make) -> None:
    """While the foreground works (another one is stopped then) and after it; when idletimed ends and comes again."""
    bg, fg = pair
    other = start(domain, "other", suspended())
    assert other.guest is not None
    other.guest.load(outstanding=1, seconds=LOAD_SECONDS)

    def left_alone() -> bool:
        return paused(bg) and not recorded(bg)

    bg.dom.suspend()
    with daemon(host) as idletimed:
        load = works(fg)
        stopped(other)
        assert left_alone()
        idletimed.stop()
        assert not paused(other) and left_alone()
        idletimed.start()
        stopped(other)
        load.stop()
        goes_on(other)
        assert left_alone() and "'bg' is stopped:" not in idletimed.log()
        bg.dom.resume()
        load = works(fg)
        stopped(bg)
        load.stop()
        goes_on(bg)
        answers(bg)


def scheduler(vm: Domain) -> tuple[int, str]:
    """Class and nice value of a QEMU; the latter of its session, which is what counts where libvirt has no cgroups."""
    process = Path(f"/proc/{vm.pid}")
    grouped = any("cpu" in line.split(":")[1].split(",") and not line.endswith(":/") for line in (process / "cgroup").read_text().split())
    return os.sched_getscheduler(vm.pid), "" if grouped else (process / "autogroup").read_text().rpartition(" ")[2].strip()


def test_promoted_and_unmarked(host: Libvirtd, domain: Make, shared_disk: Disk) -> None:
    """A VM that is made foreground goes on at once, with its processors; so does one whose policy is taken out."""
    cpu = "<idletime:cpu class='idle'/>"
    bg, fg = start(domain, "bg", suspended(cpu)), start(domain, "fg", foreground())
    assert bg.guest is not None
    bg.guest.load(outstanding=1, seconds=LOAD_SECONDS)
    usual = scheduler(bg)[1]
    with daemon(host) as idletimed:
        load = works(fg)
        stopped(bg)
        until(lambda: scheduler(bg) == (os.SCHED_IDLE, usual and "19"), "idle class, and least weight")
        interval = f"<idletime:interval us='{INTERVAL_US}'/>"
        set_policy(bg, suspended(cpu + interval, "foreground"))
        goes_on(bg)
        expect(bg, vda=("foreground", "slow", INTERVAL_US))
        until(lambda: scheduler(bg) == (os.SCHED_OTHER, usual), "its own class")
        assert "goes on: its policy does not have it stopped" in idletimed.log()
        served(shared_disk, "bg")

        set_policy(bg, suspended())
        stopped(bg)
        set_policy(bg, None)
        goes_on(bg)
        served(shared_disk, "bg")
        load.stop()
