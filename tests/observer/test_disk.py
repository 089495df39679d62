"""What the observer counts on a disk, on this machine's kernel."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.framework.ledger import note
from tests.observer import run
from tests.observer.page import MAGIC, Page
from tests.observer.run import Observer, wait_until
from tests.testbed.observer import Ends, cgroup

Observe = Callable[..., Observer]
ALL_TOLD = 10
"""So often is tried what needs each end to be told: see Ends."""
KERNELS = pytest.mark.parametrize("kernel", [[], ["--old-kernel"]], ids=["typed", "raw"])


@KERNELS
def test_what_is_counted_is_what_was_done(arena: Path, disk: str, observe: Observe, kernel: list[str]) -> None:
    """250 direct writes of 4 KiB: 250 requests, 1,024,000 bytes, 500 transitions of which the ring keeps 256."""
    observe("--disk", disk, *kernel)
    with Page(arena) as page:
        assert (page.magic, page.version, page.kind, page.label) == (MAGIC, 1, 1, disk.removeprefix("/dev/"))
        for _ in range(ALL_TOLD):
            first, before = page.look(), time.monotonic_ns()
            with Ends(disk) as ends:
                run.write(disk, 250)
                after = time.monotonic_ns()
                wait_until(lambda: page.look().in_service == 0)
                look = page.look()
                assert (look.started - first.started, look.bytes - first.bytes) == (250, 250 * 4096)
                if not ends.on_process_1():
                    break
        assert look.ring_head - first.ring_head == 500
        assert before < look.last_ns < after
        assert 0 < look.service_ns - first.service_ns < after - before  # one at a time
        ring = page.ring()
        assert [busy for _, busy in ring] == [True, False] * 128
        assert ring == sorted(ring)


@KERNELS
def test_background_is_not_counted(arena: Path, disk: str, observe: Observe, kernel: list[str]) -> None:
    """Neither the cgroup that is named nor those below; what is beside it is."""
    with cgroup("test", "vm") as group, cgroup("other") as other:
        observe("--disk", disk, "--background-cgroup", str(group.parent), *kernel)
        with Page(arena) as page:
            run.write(disk, 100, group=group)
            assert page.look().started == 0
            assert page.look().all_in_service == 0
            run.write(disk, 30, group=other)
            assert page.look().started == 30


def test_cgroups_come_and_go_while_it_runs(arena: Path, disk: str, observe: Observe, tmp_path: Path) -> None:
    """A line in the file makes a cgroup background, without it it is foreground: under load nothing leaks."""
    listed = tmp_path / "background"
    listed.write_text("")

    def seen(page: Page, group: Path) -> int:
        before = page.look().started
        run.write(disk, 20, group=group)
        return page.look().started - before

    with cgroup("test") as group, run.load(disk):
        observe("--disk", disk, "--background-cgroups", str(listed))
        with Page(arena) as page:
            wait_until(lambda: page.look().started > 1000)
    with cgroup("test") as group, Page(arena) as page:
        assert seen(page, group) == 20
        for _ in range(3):
            listed.write_text(f"{group}\n")
            wait_until(lambda: seen(page, group) == 0)
            listed.write_text("# nobody\n")
            wait_until(lambda: seen(page, group) == 20)
        wait_until(lambda: page.look().in_service == 0)
        listed.write_text(f"{group}\n")
        wait_until(lambda: seen(page, group) == 0)
        listed.unlink()
        time.sleep(0.8)  # three looks at the set: who is in it stays
        assert seen(page, group) == 0


@pytest.mark.parametrize("names", [("test",), ("test", "vm")])
def test_a_cgroup_that_comes_back_leaves_nothing_behind(
        arena: Path, disk: str, observe: Observe, tmp_path: Path, names: tuple[str, ...]) -> None:
    """It writes all the time, and is background, foreground and background again, by itself or by the one above it in turn: no
    begin without its end."""
    listed = tmp_path / "background"
    with cgroup(*names) as group:
        groups = [group.parent, group] if len(names) > 1 else [group]
        listed.write_text(f"{groups[0]}\n")
        observe("--disk", disk, "--background-cgroups", str(listed))
        with Page(arena) as page, Ends(disk) as ends:
            for number in range(4):
                with run.load(disk, group):
                    listed.write_text("# nobody\n")
                    before = page.look().started
                    wait_until(lambda before=before: page.look().started > before + 500)  # type: ignore[misc]
                    listed.write_text(f"{groups[(number + 1) % len(groups)]}\n")
                    wait_until(lambda: _stands_still(page))
                    look = page.look()
                    assert look.in_service == 0 or ends.on_process_1()
                wait_until(lambda: page.look().in_service == 0, run.HEALED)
                look = page.look()
                assert look.unpaired == 0
                assert look.healed <= ends.on_process_1()


def _stands_still(page: Page) -> bool:
    before = page.look().started
    time.sleep(0.2)
    return page.look().started == before


@pytest.mark.parametrize("controllers", ["cpu memory\n", ""])
def test_a_listed_cgroup_without_io_is_named(arena: Path, disk: str, observe: Observe, tmp_path: Path, controllers: str) -> None:
    """The kernel does not tell its requests from others: a new line in the file is checked as an option is."""
    group = tmp_path / "sys"
    group.mkdir()
    (group / "cgroup.controllers").write_text(controllers)
    listed = tmp_path / "background"
    listed.write_text("")
    observer = observe("--disk", disk, "--background-cgroups", str(listed))
    listed.write_text("/sys/../" + str(group) + "\n")
    wait_until(lambda: "has no io controller" in observer.said())


def test_idle_class_is_background_if_one_says_so(arena: Path, disk: str, observe: Observe) -> None:
    """ionice -c3 counts, but for an observer that was told."""
    for options, expected in ([], 50), (["--idle-class-is-background"], 0):
        observer = observe("--disk", disk, *options)
        with Page(arena) as page:
            subprocess.run(["ionice", "-c3", "python3", "-c", run.WRITER, disk, "50", "4096"], check=True)
            assert page.look().started == expected
        observer.end()


def _node(name: str, folder: Path) -> str:
    """A block device by a name of the kernel, also where nobody makes nodes of partitions."""
    major, minor = Path(f"/sys/class/block/{name}/dev").read_text().split(":")
    path = folder / name
    os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(int(major), int(minor)))
    return str(path)


def test_a_partition_is_its_disk(arena: Path, observe: Observe, tmp_path: Path) -> None:
    """Observed by a partition, requests to another one count: the device is what is contended for."""
    with run.loop_device() as device:
        for number, first in ("1", "2048"), ("2", "65536"):
            subprocess.run(["addpart", device, number, first, "32768"], check=True)
        name = device.removeprefix("/dev/")
        observer = observe("--disk", _node(f"{name}p1", tmp_path))
        with Page(arena) as page:
            assert page.label == name
            run.write(_node(f"{name}p2", tmp_path), 10)
            assert page.look().started == 10
        observer.end()
        subprocess.run(["partx", "--delete", device], check=True)


def test_in_service_is_zero_whenever_it_is_idle(arena: Path, disk: str, observe: Observe) -> None:
    """Four submitters on all processors, flushes among them: what is lost is found within a second, and why is known."""
    observe("--disk", disk)
    with Page(arena) as page, Ends(disk) as ends:
        for _ in range(4):
            run.fio(disk, "--rw=randrw", "--bs=4k", "--iodepth=32", "--numjobs=4", "--fsync=64", "--size=16M",
                    "--number_ios=8000")
            wait_until(lambda: page.look().in_service == 0, run.HEALED)
        look = page.look()
        # Never more ends than begins, and the sum of times is that of requests that ended: some seconds.
        assert look.unpaired == 0
        assert 0 < look.service_ns < 600e9
        assert look.healed <= ends.on_process_1()
        note("observer: requests of four submitters, each idle time in service 0", look.started, healed=look.healed,
             missed=look.missed)


def test_it_starts_in_the_middle_of_a_load(arena: Path, disk: str, observe: Observe) -> None:
    """Requests that were made before it came do not count, at neither end."""
    for _ in range(5):
        with run.load(disk):
            observer = observe("--disk", disk)
            with Page(arena) as page:
                wait_until(lambda: page.look().started > 500)
        with Page(arena) as page:
            wait_until(lambda: page.look().in_service == 0, run.HEALED)
            assert page.look().unpaired == 0
        assert observer.end() == 0


def test_background_is_in_service_of_all(arena: Path, disk: str, observe: Observe) -> None:
    """What the kernel's own count is held against has both classes; after load on both it is 0 at idle, foreground too."""
    with cgroup("test") as group:
        observe("--disk", disk, "--background-cgroup", str(group))
        with Page(arena) as page:
            with run.load(disk), run.load(disk, group):
                wait_until(lambda: page.look().all_in_service > page.look().in_service > 0)
            wait_until(lambda: (page.look().in_service, page.look().all_in_service) == (0, 0), run.HEALED)
            assert page.look().unpaired == 0


def test_without_iostats_it_refuses(arena: Path, disk: str, observe: Observe) -> None:
    """Requests would not know when they were made: refused with the remedy; switched off later, it is said once."""
    iostats = Path(f"/sys/block/{disk.removeprefix('/dev/')}/queue/iostats")
    iostats.write_text("0")
    try:
        refused = observe("--disk", disk, ready=False)
        assert refused.process.wait(run.SECONDS) == 1
        assert "write 1 into it" in refused.said()
        iostats.write_text("1")
        observer = observe("--disk", disk)
        iostats.write_text("0")
        wait_until(lambda: "has queue/iostats 0 now" in observer.said())
    finally:
        iostats.write_text("1")
    with Page(arena) as page:
        run.write(disk, 5)
        assert page.look().started == 5
