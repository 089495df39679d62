"""The observer on Debian's kernels, in a guest that plays the host: the programs load there, and count, and no end is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.framework import accel, initramfs, inner, paths, series
from tests.framework.qemu import Machine
from tests.observer import run

MODULES = ["loop", "sch_ingress", "cls_bpf", "dummy"]
SETUP = "mkdir -p /a /u && mount -t tmpfs t /a && mkdir /a/disk /u/up && dd if=/dev/zero of=/a/file bs=1M count=16 2>&1"
OPTIONS = pytest.mark.parametrize("options", ["", "--old-kernel"], ids=["typed", "raw"])

STRESS = """
for i in 1 2; do while :; do :; done & spinners="$spinners $!"; done
for i in 1 2 3 4; do
    dd if=/dev/zero of=/dev/loop0 bs=4k count=200 seek=$((i * 512)) conv=notrunc,fsync oflag=direct 2>/dev/null & loads="$loads $!"
    dd if=/dev/loop0 of=/dev/null bs=4k count=200 iflag=direct 2>/dev/null & loads="$loads $!"
done
wait $loads; kill $spinners
"""
"""1,600 requests and four flushes, on processors that have more to do."""


@pytest.fixture(scope="module", params=list(series.SUITES))
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A guest with the observer, and a reader of its page."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    show = folder / "show"
    overlay = paths.ROOT / "qemu-patches" / "overlay"
    subprocess.run(["cc", "-O2", f"-I{overlay}", str(Path(__file__).with_name("show.c")), "-o", str(show)], check=True)
    boot = accel.prepare()
    archive = folder / "host.tar"
    inner.pack(archive, boot.qemu, [run.PROGRAM, show])
    kernel = series.get_series(request.param)
    guests = replace(boot, kernel=kernel.image, initramfs=initramfs.get_initramfs(kernel, MODULES))
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(guests, "host", inner.disk(archive), memory_mib=1024, cpus=2, boot_seconds=400))
        inner.unpack(machine.guest)
        assert machine.guest.run("uname -r", 30).text.startswith(request.param)
        machine.guest.run(SETUP, 60)
        yield machine


def observed(host: Machine, options: str, load: str) -> str:
    """The page after a load, when nothing is in service any more."""
    host.guest.run(
        "losetup /dev/loop0 /a/file; /host/bin/idletime-observer --arena /a/disk "
        f"--disk /dev/loop0 {options} >/a/out 2>&1 & echo $! >/a/pid", 60)
    host.guest.run("for i in $(seq 600); do grep -q ^ready /a/out && break; sleep 0.2; done; grep ^ready /a/out", 300)
    host.guest.run(load, 600)
    return host.guest.run("sleep 0.5; /host/bin/show /a/disk; kill $(cat /a/pid); sleep 0.5; losetup -d /dev/loop0", 60).text


@OPTIONS
def test_a_disk_is_observed(host: Machine, options: str) -> None:
    """64 reads of 4 KiB past the page cache are 64 requests."""
    text = observed(host, options, "dd if=/dev/loop0 of=/dev/null bs=4k count=64 iflag=direct 2>&1")
    assert "loop0 in_service 0 started 64 bytes 262144 unpaired 0 healed 0" in text


@OPTIONS
def test_no_end_is_lost(host: Machine, options: str) -> None:
    """Flushes among requests on busy processors: each that began ended, and nothing was healed."""
    text = observed(host, options, STRESS)
    assert "loop0 in_service 0 started 1600 bytes 6553600 unpaired 0 healed 0" in text
