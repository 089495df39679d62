"""The observer's life: killed, started again, twice, its arena lost, its device gone; who may read and who may not write."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tests.observer import run
from tests.observer.page import Page
from tests.observer.run import Observer, wait_until

Observe = Callable[..., Observer]
NOBODY = 65534
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81


def test_sigterm_ends_it_cleanly(arena: Path, disk: str, observe: Observe) -> None:
    """Status 0, the socket is gone, a reader sees the end."""
    observer = observe("--disk", disk)
    with Page(arena) as page:
        assert page.is_alive()
        assert observer.end() == 0
        assert not page.is_alive()
    assert not (arena / "observer").exists()


def test_killed_under_load_and_started_again(arena: Path, disk: str, observe: Observe) -> None:
    """Fifty times: the reader sees the end at once, the next observer serves at the same place, and counts right."""
    with run.load(disk):
        for _ in range(50):
            observer = observe("--disk", disk)
            with Page(arena) as page:
                wait_until(lambda: page.look().started > 0)
                observer.end(signal.SIGKILL)
                wait_until(lambda: not page.is_alive())
            with pytest.raises(ConnectionRefusedError):
                Page(arena)
    observe("--disk", disk)
    with Page(arena) as page:
        run.write(disk, 10)
        assert page.look().started == 10


def test_a_second_observer_is_refused(arena: Path, disk: str, observe: Observe) -> None:
    """With words, and the first one is not harmed."""
    observe("--disk", disk)
    with Page(arena) as page:
        second = observe("--disk", disk, ready=False)
        assert second.process.wait(run.SECONDS) == 1
        assert "has an observer already" in second.said()
        assert page.is_alive()
        run.write(disk, 5)
        assert page.look().started == 5
    with Page(arena):
        pass


def test_an_arena_that_goes_and_comes_back(arena: Path, disk: str, observe: Observe) -> None:
    """Who is connected stays so; the socket is there again when the directory is; it waits for one that is not there yet."""
    observer = observe("--disk", disk)
    with Page(arena) as page:
        for _ in range(3):
            run.remove(arena)
            run.write(disk, 5)
            assert page.is_alive()
            arena.mkdir()
            wait_until(lambda: (arena / "observer").exists())
            with Page(arena) as again:
                assert again.look().started == page.look().started
        (arena / "observer").unlink()
        wait_until(lambda: (arena / "observer").exists())
    observer.end()
    run.remove(arena)
    late = observe("--disk", disk)
    assert "waiting for it" in late.said()
    arena.mkdir()
    wait_until(lambda: (arena / "observer").exists())


def test_its_device_goes(arena: Path, observe: Observe, tmp_path: Path) -> None:
    """What is no device, or none that can be seen, is named with a remedy."""
    for device, words in (
        (str(tmp_path), "no block device"),
        ("/dev/null", "no block device"),
        ("/dev/none", "No such file"),
    ):
        observer = observe("--disk", device, ready=False)
        assert observer.process.wait(run.SECONDS) == 1
        assert words in observer.said()


WRONG = [[], ["--disk", "/dev/x", "--uplink", "y"], ["--disk", "x", "--background-interface", "t"], ["x"]]


@pytest.mark.parametrize("options", WRONG)
def test_wrong_options_are_named(arena: Path, observe: Observe, options: list[str]) -> None:
    """Status 2, and what to give instead."""
    observer = observe(*options, ready=False)
    assert observer.process.wait(run.SECONDS) == 2
    assert "--" in observer.said()


def test_the_socket_has_the_rights_of_the_board(arena: Path, disk: str, observe: Observe) -> None:
    """Who may read that may connect, which is writing; also of a board that comes later."""
    observe("--disk", disk)
    board = arena / "foreground"
    board.touch()
    board.chmod(0o640)
    os.chown(board, NOBODY, NOBODY)

    def rights() -> tuple[int, int, int]:
        have = (arena / "observer").stat()
        return have.st_uid, have.st_gid, stat.S_IMODE(have.st_mode)

    wait_until(lambda: rights() == (NOBODY, NOBODY, 0o660))


def test_a_reader_without_rights_reads_and_cannot_write(arena: Path, disk: str, observe: Observe) -> None:
    """As nobody, with the descriptor only."""
    observe("--disk", disk)
    with Page(arena) as page:
        run.write(disk, 7)
        child = os.fork()
        if child == 0:
            os._exit(_as_nobody(page.descriptor))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert page.look().started == 7


def _as_nobody(descriptor: int) -> int:
    """The number of the first thing that is not as it should be; 0: all is."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    failed = ctypes.c_void_p(-1).value
    both = mmap.PROT_READ | mmap.PROT_WRITE
    readable = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if readable == failed:
        return 1
    if libc.mmap(None, 4096, both, mmap.MAP_SHARED, descriptor, 0) != failed:
        return 2
    if libc.mprotect(readable, 4096, both) == 0:
        return 3
    key, value = ctypes.c_uint32(0), ctypes.create_string_buffer(4096)
    update = (ctypes.c_uint64 * 4)(descriptor, ctypes.addressof(key), ctypes.addressof(value), 0)
    if libc.syscall(321, 2, update, 32) == 0:  # bpf(BPF_MAP_UPDATE_ELEM)
        return 4
    return 0 if ctypes.string_at(readable + 128 + 16, 1) == b"\x07" else 5


def test_rights_are_given_back(arena: Path, disk: str, observe: Observe) -> None:
    """CHOWN, DAC_OVERRIDE and FOWNER are left, for the socket: bits 0, 1 and 3."""
    observer = observe("--disk", disk)
    text = Path(f"/proc/{observer.process.pid}/status").read_text()
    sets = dict(line.split(":\t") for line in text.splitlines() if line.startswith(("Cap", "NoNewPrivs")))
    assert {int(sets[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {0b1011}
    assert sets["NoNewPrivs"] == "1"


def test_many_clients(arena: Path, disk: str, observe: Observe) -> None:
    """Clients that talk are sent away; those above the bound too; others are served meanwhile."""
    observe("--disk", disk)
    with Page(arena) as talks:
        talks.socket.send(b"hello")
        wait_until(lambda: not talks.is_alive())
    pages = [Page(arena) for _ in range(64)]
    assert all(page.is_alive() for page in pages)
    with pytest.raises((IndexError, ConnectionError)):  # the end instead of a descriptor
        Page(arena)
    probe = "from pathlib import Path; from tests.observer.page import Page; print(Page(Path({!r})).is_alive())"
    argv = [sys.executable, "-c", probe.format(str(arena))]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "True\n"
    for page in pages:
        page.__exit__(None, None, None)
    with Page(arena) as page:
        assert page.is_alive()


def test_few_descriptors(arena: Path, disk: str, observe: Observe) -> None:
    """Where no descriptor is left it waits for one, and does not spin."""
    observer = observe("--disk", disk)
    most = len(os.listdir(f"/proc/{observer.process.pid}/fd")) + 4
    resource.prlimit(observer.process.pid, resource.RLIMIT_NOFILE, (most, most))
    stuck = []
    for _ in range(10):
        stuck.append(socket.socket(socket.AF_UNIX))
        stuck[-1].connect(str(arena / "observer"))

    def used() -> float:
        words = Path(f"/proc/{observer.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(1)
    assert used() - before < 0.2
    for each in stuck:
        each.close()
    with Page(arena) as page:
        assert page.is_alive()


def test_the_directory_is_not_trusted(arena: Path, disk: str, observe: Observe, tmp_path: Path) -> None:
    """QEMU's user owns it: a link in the socket's place, swapped in at any moment, changes nothing elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("")
    victim.chmod(0o600)
    libc = ctypes.CDLL(None, use_errno=True)
    link, name = arena / "link", arena / "observer"
    link.symlink_to(victim)
    observe("--disk", disk)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        libc.renameat2(-100, str(link).encode(), -100, str(name).encode(), 2)  # RENAME_EXCHANGE
        if not name.is_symlink() and not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(victim)
    found = victim.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)


def test_a_board_that_is_a_link(arena: Path, disk: str, observe: Observe, tmp_path: Path) -> None:
    """It is not followed: the directory's rights count then."""
    other = tmp_path / "other"
    other.write_text("")
    other.chmod(0o666)
    os.chown(other, NOBODY, NOBODY)
    (arena / "foreground").symlink_to(other)
    observe("--disk", disk)
    found = (arena / "observer").stat()
    may_read = arena.stat().st_mode & 0o444
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, may_read | may_read >> 1)


def test_nobody_shuts_it_out(arena: Path, disk: str, observe: Observe) -> None:
    """Neither a lock nor a directory in the arena, made by who owns it, keeps an observer from serving."""
    with (arena / "observer.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (arena / "observer").mkdir()
        observer = observe("--disk", disk)
        with Page(arena) as page:
            (arena / "observer").unlink()
            (arena / "observer").mkdir()
            wait_until((arena / "observer").is_socket)
            assert page.is_alive()
        assert observer.process.poll() is None
    wait_until(lambda: not [name for name in os.listdir(arena) if name.startswith(".")])


def test_the_device_disappears(arena: Path, observe: Observe) -> None:
    """A disk of the kernel that is removed ends its observer, with words."""
    free = next(n for n in range(200, 300) if not Path(f"/sys/block/loop{n}").exists())
    with Path("/dev/loop-control").open() as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, free)
        try:
            wait_until(Path(f"/dev/loop{free}").exists)
            observer = observe("--disk", f"/dev/loop{free}")
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, free)
    assert observer.process.wait(run.SECONDS) == 1
    assert any(words in observer.said() for words in ("is gone", "No such file"))


def test_its_file_is_cut_under_load(arena: Path, observe: Observe, tmp_path: Path) -> None:
    """Requests that fail are ends as others are: nothing is left in service. That a disk goes while it is busy: test_kernels.py."""
    file = tmp_path / "file"
    file.write_bytes(bytes(32 << 20))
    argv = ["losetup", "--find", "--show", str(file)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        observe("--disk", device)
        with Page(arena) as page:
            with run.load(device, None, "--rw=randread", "--continue_on_error=all"):
                wait_until(lambda: page.look().started > 500)
                os.truncate(file, 0)
                with pytest.raises(OSError, match="Input/output error"):
                    _read(device)
                before = page.look().started
                wait_until(lambda: page.look().started > before + 500)
            wait_until(lambda: page.look().in_service == 0, run.HEALED)
            assert page.look().unpaired == 0
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def _read(device: str) -> None:
    """One block, past the page cache."""
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        os.preadv(descriptor, [mmap.mmap(-1, 4096)], 0)
    finally:
        os.close(descriptor)


def _removed(control: IO[str], number: int) -> bool:
    try:
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)
    except OSError:
        return False  # somebody looks at it still
    return True


def test_a_device_comes_back_under_its_number(arena: Path, observe: Observe, tmp_path: Path) -> None:
    """So fast that the observer does not notice: it has another queue, and is seen again within two seconds."""
    file = tmp_path / "file"
    file.write_bytes(bytes(8 << 20))
    free = next(n for n in range(200, 300) if not Path(f"/sys/block/loop{n}").exists())
    device = f"/dev/loop{free}"
    with Path("/dev/loop-control").open() as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, free)
        try:
            wait_until(Path(device).exists)
            subprocess.run(["losetup", device, str(file)], check=True)
            observer = observe("--disk", device)
            with Page(arena) as page:
                run.write(device, 10)
                assert page.look().started == 10
                subprocess.run(["losetup", "--detach", device], check=True)
                wait_until(lambda: _removed(control, free))
                fcntl.ioctl(control, LOOP_CTL_ADD, free)
                wait_until(Path(device).exists)
                subprocess.run(["losetup", device, str(file)], check=True)

                def is_seen() -> bool:
                    run.write(device, 10)
                    return observer.process.poll() is not None or page.look().started > 10

                wait_until(is_seen, 2.0)
        finally:
            subprocess.run(["losetup", "--detach", device], check=False)
            wait_until(lambda: _removed(control, free))


def test_its_arena_goes_under_load(arena: Path, disk: str, observe: Observe) -> None:
    """Ten times: who reads goes on reading, who comes finds the socket again, and nothing is lost."""
    observe("--disk", disk)
    with Page(arena) as page:
        with run.load(disk):
            for _ in range(10):
                before = page.look().started
                run.remove(arena)
                wait_until(lambda before=before: page.look().started > before + 100)  # type: ignore[misc]
                arena.mkdir()
                wait_until((arena / "observer").is_socket)
                with Page(arena) as again:
                    assert again.look().started >= before
        wait_until(lambda: page.look().in_service == 0, run.HEALED)
        assert page.look().unpaired == 0


def test_its_disk_moves(arena: Path, disk: str, observe: Observe, tmp_path: Path) -> None:
    """A device that stands on another disk than at first (pvmove, a path of NVMe) ends its observer, which names both."""
    with run.loop_device() as upper, run.loop_device() as other:
        number = os.stat(upper).st_rdev
        slaves = tmp_path / "sys/devices/dm-0/slaves"
        slaves.mkdir(parents=True)
        named = tmp_path / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}"
        named.parent.mkdir(parents=True)
        named.symlink_to(slaves.parent)
        below, then = (device.removeprefix("/dev/") for device in (disk, other))
        (tmp_path / "sys" / "block").symlink_to("/sys/block")
        (slaves / below).symlink_to(f"/sys/block/{below}")
        observer = observe("--disk", upper, prefix=("env", f"OBSERVER_SYS={tmp_path / 'sys'}"))
        with Page(arena) as page:
            assert page.label == below
            (slaves / "new").symlink_to(f"/sys/block/{then}")
            (slaves / below).unlink()
            assert observer.process.wait(run.SECONDS) == 1
        assert any(words in observer.said() for words in (f"is on {then} now", "stands on several disks"))
