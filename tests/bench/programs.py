"""Real programs in a foreground VM beside background VMs: paper 004, Figures 8 and 9, and paper 003, Figure 13.

    python3 -m tests.bench.programs [--repeats 1] [--output build/bench/programs] [--qemu PATH]

Three domains of a libvirtd of our own, with idletimed, on all processors of this host, and with the disk of tests.bench.police (one
request at a time, 5 ms). It has two file systems, each a small Debian: one for the foreground, one for a background VM. In the
foreground, with cold caches,

    fftw        fftw-wisdom plans transforms: it computes
    make        gcc compiles a program of this repository
    grep        pcre2grep looks for a word in all header files
    desktop     a person opens files and searches in them, and thinks: 24 events, of which the response times are added up

and in the background

    burner      two VMs compute without a pause (Figure 8)
    fsck        one VM checks its file system, again and again (Figure 9)
    batch       one VM computes, then packs a tree of files, again and again (Figure 13)

No control; priority, which is the idle class of the processor alone (the papers' nice and low priority); EII and IPD of paper 004
on processors and disk; and held: the learned interval with a budget of 3 %, and the idle class. Each run is right after the
program alone. What the background does is its requests on the disk, or its time on processors, a second, of what it does alone.
As root; the file systems are made the first time (a minute, 400 MB from Debian). One JSON line a run; what is there is not run
again. Each VM has a cgroup of its own (v1's controller "cpu"): the idle class comes with the smallest share, as the policy has it.
`python3 -m tests.report.programs FILE` makes table and plot.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench import police
from tests.bench.cpu import USUAL_SHARES, Group, native
from tests.bench.police import ALONE, AUTO, EII, IDLE_SECONDS, IPD, MODEL, NONE, WARM_UP_SECONDS
from tests.bench.resume import ResultsFile, work_off
from tests.cluster import apt
from tests.framework import accel, initramfs, kernel, paths, run_folder
from tests.framework.domain import Domain, policy
from tests.framework.idletimed import wait_until
from tests.framework.interrupt import exit_status
from tests.framework.libvirtd import Libvirtd, quiet_libvirt
from tests.framework.qemu import Boot
from tests.lab.tree import get_tree
from tests.report import programs as report
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

PRIORITY, HELD = "priority", "held"
WAYS = (NONE, PRIORITY, EII, IPD, HELD)
FFTW, MAKE, GREP, DESKTOP = "fftw", "make", "grep", "desktop"
BURNER, FSCK, BATCH = "burner", "fsck", "batch"
PAIRS = (*((program, BURNER) for program in (FFTW, MAKE, GREP)), *((program, FSCK) for program in (FFTW, MAKE, GREP)), (DESKTOP, BATCH))
PACKAGES = ["gcc", "libc6-dev", "make", "libfftw3-bin", "pcre2-utils", "e2fsprogs"]
SECTOR, MIB = 512, 1 << 20
TABLE_OFFSET, ENTRY_BYTES, LINUX = 446, 16, 0x83
"""Of a partition table in the first sector."""
SYSTEM_MIB = 640
INSIDE = "chroot /mnt env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root"
PROGRAMS = {
    FFTW: "fftw-wisdom -n -m -o /dev/null cof1000 cof1024 cof2048 cof2187 cof3125 cof4096 cof6561 cof8192 cof10000",
    MAKE: "sh -c 'rm -rf /out; make -C /src /out/netload OUTPUT=/out >/dev/null'",
    GREP: "sh -c 'pcre2grep -r -c a-word-that-is-nowhere /usr/include >/dev/null; test $? = 1'",
}
COLD = "sync; echo 3 >/proc/sys/vm/drop_caches"
LOADS = {
    BURNER: "cpuload --intensity 100 --seconds 3600",
    FSCK: f"while :; do {COLD}; {INSIDE} e2fsck -fn /dev/vda2; done",
    BATCH: f"while :; do cpuload --intensity 100 --seconds 3; {COLD}; {INSIDE} sh -c 'tar cf - /usr/include /etc | gzip -1 >/dev/null'; done",
}
OPENED, OPENED_MIB, THINK_SECONDS = 8, 1, 0.7
TEXT_MIB = 3
PROGRAM_SECONDS, BACKGROUND_SECONDS, LIMIT_SECONDS = 15.0, 20.0, 600.0


@dataclass(frozen=True)
class Cell:
    """One run. program "": the background alone."""

    program: str
    background: str
    way: str
    repeat: int

    @property
    def key(self) -> str:
        """Unique in the plan."""
        return f"{self.program}-{self.background}-{self.way}-{self.repeat}".replace(" ", "")

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        return f"{self.program or 'nobody'} beside {self.background}, {self.way}"

    @property
    def seconds(self) -> float:
        """How long it takes, about."""
        return 2 * PROGRAM_SECONDS + 10 if self.program else BACKGROUND_SECONDS


def plan(repeats: int) -> list[Cell]:
    """All ways of a pair follow each other."""
    return [*(Cell("", background, ALONE, 0) for background in LOADS),
            *(Cell(*pair, way, repeat) for repeat in range(repeats) for pair in PAIRS for way in WAYS)]


class Rig(police.Rig):
    """A foreground VM and two background VMs. Each has the disk; the second of these leaves it alone."""

    names = ("fg", "bg", "bg2")
    thresholds = ""
    in_force = False  # this libvirtd has no cgroups: what they have of a policy is the bench's

    @staticmethod
    def _boot(qemu: str | None) -> Boot:
        load = paths.find_tool("cpuload", "loadgen")
        return replace(accel.prepare(qemu), initramfs=initramfs.get_initramfs(kernel.get_kernel(), ["ext4"], programs=[load]))

    def _prepare(self, stack: ExitStack, boot: Boot) -> Libvirtd:
        self._groups: dict[str, Group] = {}
        image = paths.BUILD / "bench/programs.img"
        image.parent.mkdir(parents=True, exist_ok=True)
        stack.callback(image.unlink, missing_ok=True)
        make_disk(image)
        self._disk = stack.enter_context(Disk(replace(MODEL, size=str(image.stat().st_size)), image=image))
        return stack.enter_context(Libvirtd(boot, "programs", hook=True))

    def _started(self, domain: Domain, number: int) -> None:
        assert domain.guest
        if number < 2:  # what is background has the second partition
            domain.guest.run(f"mkdir -p /mnt; mount -o noatime /dev/vda{number + 1} /mnt; mount -t devtmpfs dev /mnt/dev; "
                             "mount -t proc proc /mnt/proc")
        if number == 0:
            domain.guest.run(f"yes 'what is nowhere is not here' | head -c {TEXT_MIB * MIB} >/tmp/text")

    def _policy(self, way: str) -> str:
        disk = "<idletime:disk target='vda' resource='slow'{}/>"
        idle = "<idletime:cpu class='idle'/>"
        if way == PRIORITY:
            return policy("background", idle + disk.format(" class='foreground'"))
        if way == HELD:
            return super()._policy(AUTO).replace("</idletime:policy>", f"{idle}</idletime:policy>")
        return super()._policy(way)

    def _domain(self, name: str, number: int) -> Domain:
        domain = super()._domain(name, number)
        self._groups[name] = self._stack.enter_context(Group(name, domain.pid))
        return domain

    def _control(self, way: str) -> None:
        super()._control(way)
        idle = way in (PRIORITY, HELD)
        for domain in self.backgrounds:
            self._groups[domain.name].weigh(native.MIN_SHARES if idle else USUAL_SHARES)
        wanted = os.SCHED_IDLE if idle else os.SCHED_OTHER
        wait_until(lambda: all(os.sched_getscheduler(domain.pid) == wanted for domain in self.backgrounds), "their class is in force",
                   IDLE_SECONDS)

    # ---- what the domains do

    def _time(self, program: str) -> float:
        """How long the foreground needs for it, in seconds."""
        assert self.foreground.guest
        if program == DESKTOP:
            return self._person()
        self.foreground.guest.run(COLD)
        began = time.monotonic()
        self.foreground.guest.run(f"{INSIDE} {PROGRAMS[program]}", LIMIT_SECONDS)
        return time.monotonic() - began

    def _person(self) -> float:
        """Of each file another piece is read, cold; the text is in memory."""
        assert self.foreground.guest
        waited = 0.0
        for number in range(OPENED):
            self.foreground.guest.run(COLD)
            for event in (f"dd if=/mnt/big of=/dev/null bs=64k count={OPENED_MIB * 16} skip={number * OPENED_MIB * 16} 2>/dev/null",
                          "grep -c elsewhere /tmp/text", "grep -c here$ /tmp/text"):
                time.sleep(THINK_SECONDS)
                began = time.monotonic()
                self.foreground.guest.run(event, LIMIT_SECONDS, check=False)
                waited += time.monotonic() - began
        return waited

    @contextmanager
    def _company(self, background: str) -> Iterator[None]:
        guests = [domain.guest for domain in self.backgrounds[:2 if background == BURNER else 1]]
        for guest in guests:
            assert guest
            guest.start(_session(LOADS[background]))
        try:
            time.sleep(WARM_UP_SECONDS)
            yield
        finally:
            wait_until(self._runs, "all background VMs run", IDLE_SECONDS)
            for guest in guests:
                assert guest
                guest.run("kill -9 -$(cat /run/group)", IDLE_SECONDS, check=False)

    def run(self, cell: Any, seconds: float) -> dict[str, Any]:
        """Of a pair: the times alone and beside it, and what the background did meanwhile; of a background alone: that."""
        self._control(ALONE)
        wait_until(self._runs, "all background VMs run", IDLE_SECONDS)
        alone = self._time(cell.program) if cell.program else 0.0
        self._control(cell.way)
        with self._company(cell.background):
            mark, used, began = self._disk.mark(), self._used(), time.monotonic()
            if cell.program:
                took = self._time(cell.program)
            else:
                time.sleep(seconds)
                took = seconds
            passed = time.monotonic() - began
            return {"alone_seconds": alone, "seconds": took,
                    "requests_per_second": len(of_client(self._disk.read(mark), "bg")) / passed,
                    "processors": (self._used() - used) / passed}

    def _used(self) -> float:
        """Processor seconds of all background VMs so far."""
        return sum(domain.dom.info()[4] / 1e9 for domain in self.backgrounds)


def _session(load: str) -> str:
    """A command of a session of its own, whose number is in /run/group."""
    return f"cat >/run/load <<'END'\necho $$ >/run/group\n{load}\nEND\nsetsid sh /run/load >/dev/null 2>&1"


def make_disk(image: Path) -> None:
    """Two partitions, each with the same Debian."""
    tree = get_tree(paths.BUILD / "bench/programs", apt.Source(apt.main_source().uri, apt.suite()), PACKAGES,
                    "the programs' file system (half a minute, 380 MB)")
    shutil.rmtree(tree / "src", ignore_errors=True)
    shutil.copytree(paths.ROOT / "tests/loadgen", tree / "src")
    with (tree / "big").open("wb") as file:
        file.write(b"what is nowhere\n" * (OPENED * OPENED_MIB * MIB // 16))
    with image.open("wb") as file:
        file.truncate((2 * SYSTEM_MIB + 1) * MIB)
    starts = [MIB, (SYSTEM_MIB + 1) * MIB]
    entries = b"".join(struct.pack("<4xB3xII", LINUX, start // SECTOR, SYSTEM_MIB * MIB // SECTOR) for start in starts)
    with image.open("r+b") as file:
        file.seek(TABLE_OFFSET)
        file.write(entries.ljust(4 * ENTRY_BYTES, b"\0") + b"\x55\xaa")
    for start in starts:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", f"offset={start},lazy_itable_init=0,lazy_journal_init=0", "-d", str(tree), str(image),
                        f"{SYSTEM_MIB}M"], check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.programs", description="Programs beside background VMs.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench/programs", help="folder of the results")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--qemu", metavar="PATH", help="the patched QEMU (the staged one)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    results = ResultsFile(arguments.output / "programs.jsonl")

    def work() -> None:
        run_folder.guard()
        if missing := results.missing(plan(arguments.repeats)):
            with ExitStack() as stack:
                rig = Rig(stack, arguments.qemu)
                results.write("conditions", **rig.parameters(), **rig.facts)
                work_off(missing, lambda cell: cell.seconds,
                         lambda cell: results.write("run", key=cell.key, cell=asdict(cell), **rig.run(cell, BACKGROUND_SECONDS)))
        report.report(results.path)

    return exit_status(work, lambda: f"the finished runs are in {results.path}; the same command goes on")


if __name__ == "__main__":
    quiet_libvirt()
    sys.exit(main())
