"""The demo on a disk of one's own: it refuses what it cannot measure, and leaves nothing, however it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.framework import paths
from tests.framework.qemu import Boot
from tests.report import results
from tests.testbed import ownfile, place
from tests.testbed.ownfile import OwnFile, PlaceError

SIZE = ownfile.LEAST_BYTES


@pytest.fixture
def folder(scratch: Path) -> Iterator[Path]:
    """A folder on a disk. The tests' own scratch may be memory."""
    result = paths.BUILD / f"own-disk-{os.getpid()}"
    result.mkdir()
    try:
        yield result
        assert list(result.iterdir()) == [], "a file is left"
    finally:
        result.rmdir()


def _used(folder: Path) -> int:
    """Bytes in use on the file system; others write there, too."""
    system = os.statvfs(folder)
    return (system.f_blocks - system.f_bfree) * system.f_frsize


def _demo(folder: Path, scratch: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.bench.own_disk", str(folder), "--quick", "--output", str(scratch / "demo"), *more]


def test_the_file_has_no_name_and_holds_data(folder: Path) -> None:
    """Nothing in the folder while it is used; each of its blocks has bytes of its own; it cannot be written through the descriptor."""
    with OwnFile(folder, SIZE) as file:
        assert list(folder.iterdir()) == []
        reader = os.open(f"/proc/self/fd/{file.fds[0]}", os.O_RDONLY)
        try:
            assert os.fstat(reader).st_blocks * 512 >= SIZE
            blocks = {os.pread(reader, 4096, offset) for offset in range(0, SIZE, SIZE // 64)}
        finally:
            os.close(reader)
        assert len(blocks) == 64 and bytes(4096) not in blocks
        with pytest.raises(OSError):
            os.pwrite(file.fds[0], bytes(4096), 0)


def test_a_file_system_without_nameless_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the file loses its name at once."""
    real = os.open

    def without(path: str, flags: int, *more: int, **others: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", without)
    with OwnFile(folder, SIZE) as file:
        assert list(folder.iterdir()) == []
        assert os.fstat(file.fds[0]).st_nlink == 0


@pytest.mark.parametrize(("where", "size", "said"), [
    ("/dev/shm", "64M", "is on tmpfs, which is memory and no disk"),
    ("/dev/null/nowhere", "64M", "no folder; name one on the disk"),
    ("", "1M", "too small, drives keep as much in memory; use 64 MiB or more"),
    ("", "1000T", "to spare; use less, or free some room"),
    ("", "much", "use a number with K, M, G or T, such as 4G"),
    ("", "", "nobody is at a terminal to be asked: make demo DISK="),
])
def test_what_is_refused(folder: Path, scratch: Path, where: str, size: str, said: str) -> None:
    """Each with its value and a remedy, before anything is written."""
    argv = _demo(Path(where or folder), scratch, *(["--size", size] if size else []))
    done = subprocess.run(argv, cwd=paths.ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)

    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(scratch.iterdir()) == []


def test_the_size_is_asked_at_a_terminal(folder: Path) -> None:
    """Until it fits: a word, then too little, then 64 MiB; only that is printed to stdout."""
    ours, theirs = os.openpty()
    argv = [sys.executable, "-m", "tests.testbed.ownsize", str(folder)]
    with subprocess.Popen(argv, cwd=paths.ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        os.close(theirs)
        os.write(ours, b"much\n1M\n64M\n")
        said, asking = asked.communicate(timeout=60)
    os.close(ours)

    assert (asked.returncode, int(said)) == (0, SIZE)
    assert asking.count("How large may it be?") == 3
    assert "use a number with K, M, G or T" in asking and "too small" in asking


def test_make_asks_before_it_builds() -> None:
    """A folder in memory is refused at once."""
    done = subprocess.run(["make", "demo", "DISK=/dev/shm", "SIZE=64M"], cwd=paths.ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert done.stdout == ""
    assert "is on tmpfs, which is memory and no disk" in done.stderr


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was free when it was asked, and is not any more."""
    def full(file: int, memory: object, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(PlaceError, match="after 0 bytes the file could not be written any more: No space left on device; use a smaller SIZE"):
        with OwnFile(folder, SIZE):
            pass


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /dev rw - devtmpfs udev rw
24 22 0:40 / /srv/with\\040blank rw - btrfs /dev/sdb rw
25 22 0:41 / /srv/with\\040blank/memory rw - tmpfs tmpfs rw
26 22 0:42 / /srvx rw - nfs4 server:/x rw
"""


@pytest.mark.parametrize(("folder", "kind", "source"), [
    ("/srv", "ext4", "/dev/sda1"), ("/srv/with blank/a", "btrfs", "/dev/sdb"),
    ("/srv/with blank/memory/a", "tmpfs", "tmpfs"), ("/srvx", "nfs4", "server:/x"), ("/", "ext4", "/dev/sda1"),
])
def test_the_mount_of_a_folder(folder: str, kind: str, source: str) -> None:
    """The longest mount point above it."""
    mount = place.mount_of(Path(folder), MOUNTS)
    assert (mount.kind, mount.source) == (kind, source)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_demo_leaves_nothing(boot: Boot, folder: Path, scratch: Path, number: signal.Signals) -> None:
    """While the guests read: no process, no name, and the room is free again."""
    argv = _demo(folder, scratch, "--size", "256M", "--qemu", str(boot.qemu))
    before = _used(folder)
    with subprocess.Popen(argv, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        assert demo.stdout
        for line in demo.stdout:
            if "run 2 of" in line:
                break
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        guests = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith("qemu")]
        watched = [os.pidfd_open(int(pid)) for pid in children]
        during = _used(folder)
        demo.send_signal(number)
        demo.communicate(timeout=60)
    for each in watched:
        assert _ends(each)
    lines = [json.loads(line) for line in (scratch / "demo" / "results.jsonl").read_text().splitlines()]

    assert len(guests) == 2
    assert list(scratch.iterdir()) == [scratch / "demo"]
    assert during - before > 128 << 20
    assert during - _used(folder) > 128 << 20
    assert demo.returncode == (130 if number == signal.SIGINT else -number)
    assert [line["kind"] for line in lines] == ["conditions", "run"]
    assert lines[0]["disk"]["model"] == "own" and lines[0]["disk"]["filesystem"] == place.mount_of(folder).kind
    assert lines[1]["foreground"]["operations"] > 0


def _ends(pidfd: int) -> bool:
    """Whether a process goes within ten seconds."""
    try:
        return bool(select.select([pidfd], [], [], 10)[0])
    finally:
        os.close(pidfd)


def _results(scratch: Path, reads: int) -> results.Results:
    """One run of 40 foreground and 60 background requests, on a disk that counted so many reads."""
    phase = {"name": "background-1-uncontrolled", "outstanding": 1, "interval_us": None, "pauses": "even"}
    load = {**dict.fromkeys(results.FIGURES, 1.0), "latencies": "none"}
    lines = [
        {"kind": "conditions", "disk": {"model": "own"}, "accel": "kvm", "repeats": 3},
        {"kind": "run", "phase": phase, "disk_log": {"device_reads": reads, "device_writes": 0},
         "foreground": {**load, "operations": 40}, "background": {**load, "operations": 60}},
    ]
    (scratch / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return results.load(scratch / "results.jsonl")


@pytest.mark.parametrize(("reads", "percent", "said"), [(100, 0, "meanwhile."), (99, 0, "meanwhile."), (400, 75, "repeat it when they are quiet")])
def test_the_load_of_others_is_said(scratch: Path, reads: int, percent: int, said: str) -> None:
    """Of 400 requests 300 were not the guests': 75 %. Counts that are read a moment too early give no negative share."""
    data = _results(scratch, reads)

    assert data.others_percent == percent
    assert f"Others had {percent} % of the disk's requests" in results.remarks(data)[0]
    assert said in results.remarks(data)[0]
