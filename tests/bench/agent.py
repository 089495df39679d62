"""What marking by process does to a foreground in the same VM: series, nothing asserted.

    python3 -m tests.bench.agent [reader] [ext4] [xfs] [cache] [idle] [marks] [answers] [--cases alone unheld 20ms] [--kernel 6.1]
        [--output build/bench/agent.jsonl]

reader: a foreground of 30 % bursts beside a greedy reader under `idletime run`
(its requests say "idle priority"), on a disk that serves one request at a time
in 5 ms; the device's class is `foreground` (nothing is held) or `guest`.
ext4, xfs: a foreground that writes and syncs a file, beside a writer under
`ionice -c3` on the same file system, with and without the hold.
cache: random buffered reads of a file of 96 MiB, which was read before, beside a marked process that reads 128 MiB again and
again; a guest of 256 MiB, nothing held. `hits` is the share of the foreground's reads that the disk did not see.
idle: the agent's memory, and the processor time of an agent with nothing to do.
marks: a process is marked and unmarked 10,000 times; ends with an error if something is left.
answers: instructions of a question and its answer over the loopback (two packets sent, two received), without and with
`--inherit-dscp`; its connection tracking is what the foreground pays for it.

One JSON line a run, with all parameters.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, TextIO

import numpy as np

from tests.framework import accel, agent, host, paths, series
from tests.framework.guest import Guest, Load
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot, Machine
from tests.testbed import blankfs
from tests.testbed.attach import DEVICE, RESOURCE, attach
from tests.testbed.disk import Disk, Model

DISK = Model(model="fixed", size="1G", service_us=5000)
REPEATS = 3
SECONDS = {"reader": 5.0, "fsync": 4.0, "cache": 20.0, "idle": 600.0}

FOREGROUND_READER = {"pattern": "random", "block_bytes": 4096, "intensity": 30, "seed": 1}
GREEDY_READER = {"pattern": "random", "block_bytes": 4096, "seed": 2}

FILES = {"foreground": 16 << 20, "background": 16 << 20}
FOREGROUND_SYNC = {
    "device": "/mnt/foreground", "operation": "write", "buffered": True, "fsync_every": 1, "block_bytes": 4096,
    "intensity": 30, "quantum_ms": 200, "seed": 1,
}
WRITER = {"device": "/mnt/background", "operation": "write", "block_bytes": 65536, "seed": 2}
WRITERS = {"direct": WRITER, "synced": {**WRITER, "buffered": True, "fsync_every": 8}}

INTERVALS_US = {"unheld": None, "5ms": 5000, "20ms": 20000}
CASES = ["alone", "background-alone", *INTERVALS_US]


class Subject:
    """A context manager: one guest with the agent on a slow disk, with a file system on it or not."""

    def __init__(self, boot: Boot, kind: str | None = None, model: Model = DISK, sizes: dict[str, int] = FILES) -> None:
        self._boot, self._kind, self._model, self._sizes = boot, kind, model, sizes
        self._stack = ExitStack()

    def __enter__(self) -> Subject:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            disk = stack.enter_context(Disk(self._model))
            if self._kind:
                blankfs.make(disk, self._kind)
            arguments = attach(disk, "guest", folder / "arena", "guest")
            self.machine = stack.enter_context(Machine(self._boot, "guest", arguments))
            self.agent = agent.AgentGuest(self.machine.guest)
            self.agent.start()
            self._stack = stack.pop_all()
        if self._kind:
            self._fill()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _fill(self) -> None:
        fill = [f"dd if=/dev/zero of=/mnt/{name} bs=1M count={size >> 20} conv=fsync 2>&1" for name, size in self._sizes.items()]
        self.machine.guest.run(" && ".join([f"mount -t {self._kind} -o noatime /dev/vda /mnt", *fill]), timeout_seconds=120)

    def control(self, interval_us: int | None) -> None:
        """Hold background back by an interval (us), or not at all (None)."""
        self.machine.qmp.execute(
            "qom-set", path=f"/objects/{RESOURCE}", property="interval-us", value=interval_us or 0
        )
        device_class = "foreground" if interval_us is None else "guest"
        self.machine.qmp.execute("idletime-set", device=DEVICE, **{"class": device_class})

    def counters(self) -> Any:
        """query-idletime of the disk."""
        return self.machine.qmp.execute("query-idletime")[0]["devices"][0]


def summary(load: Load | None) -> dict[str, Any] | None:
    """Operations a second and latencies (us) of a load that has ended."""
    if load is None:
        return None
    report = load.result()
    latency = load.samples()["latency_us"]
    found = {"operations": report["operations"], "per_second": report["operations"] / load.seconds}
    if len(latency):
        found |= {name: float(np.percentile(latency, share)) for name, share in (("p50_us", 50), ("p99_us", 99))}
        found["mean_us"] = float(latency.mean())
    return found


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What the counters of a device gained."""
    return {
        "foreground": after["foreground"]["requests"] - before["foreground"]["requests"],
        "background": after["background"]["requests"] - before["background"]["requests"],
        "promotions": {name: after["promotions"][name] - count for name, count in before["promotions"].items()},
    }


def run(subject: Subject, seconds: float, foreground: dict[str, Any] | None, background: dict[str, Any] | None,
        marked_by: str) -> dict[str, Any]:
    """One run: the background first, then the foreground; both end after the same time."""
    guest, before = subject.machine.guest, subject.counters()
    behind = guest.load(**background, seconds=seconds, prefix=marked_by) if background else None
    ahead = guest.load(**foreground, seconds=seconds) if foreground else None
    result = {"foreground": summary(ahead), "background": summary(behind)}
    return {**result, "counted": grown(before, subject.counters())}


Cases = list[tuple[str, dict[str, Any] | None, dict[str, Any] | None, int | None]]


def reader_cases() -> Cases:
    """(name, foreground, background, interval) of the greedy reader."""
    beside = [(name, FOREGROUND_READER, GREEDY_READER, interval) for name, interval in INTERVALS_US.items()]
    return [("alone", FOREGROUND_READER, None, 20000), ("background-alone", None, GREEDY_READER, 20000), *beside]


def fsync_cases(writer: dict[str, Any]) -> Cases:
    """The same for a file system."""
    beside = [(name, FOREGROUND_SYNC, writer, interval) for name, interval in INTERVALS_US.items()]
    return [("alone", FOREGROUND_SYNC, None, 20000), *beside]


def measure(subject: Subject, cases: Cases, seconds: float, marked_by: str, write: Callable[..., None]) -> None:
    """All cases, each for so long, every other time backwards, so that a drift of the host hits all alike."""
    for case in cases:
        subject.control(case[3])
        run(subject, 1.0, case[1], case[2], marked_by)
    for repeat in range(REPEATS):
        for name, foreground, background, interval_us in cases if repeat % 2 == 0 else reversed(cases):
            subject.control(interval_us)
            result = run(subject, seconds, foreground, background, marked_by)
            write(case=name, repeat=repeat, interval_us=interval_us, seconds=seconds, marked_by=marked_by,
                  loads={"foreground": foreground, "background": background}, **result)


def chosen(cases: Cases, names: list[str]) -> Cases:
    """Those that were asked for."""
    return [case for case in cases if case[0] in names]


def reader(boot: Boot, names: list[str], write: Callable[..., None]) -> None:
    """The greedy reader, marked with our own command."""
    with Subject(boot) as subject:
        measure(subject, chosen(reader_cases(), names), SECONDS["reader"], "idletime run --", partial(write, "reader"))


def fsync(kind: str, boot: Boot, names: list[str], write: Callable[..., None]) -> None:
    """A file system, two writers."""
    with Subject(boot, kind) as subject:
        for name, writer in WRITERS.items():
            line = partial(write, "fsync", filesystem=kind, writer=name)
            measure(subject, chosen(fsync_cases(writer), names), SECONDS["fsync"], "ionice -c3", line)


CACHED_BYTES, SCANNED_BYTES = 96 << 20, 128 << 20
CACHE_SERVICE_US = 1000
CACHE_DISK = Model(model="fixed", size="1G", service_us=CACHE_SERVICE_US)
COUNTED = """sh -c '"$@"; status=$?; cat /proc/$$/io >/run/counted; exit $status' sh"""
"""Runs a command, and leaves what the kernel has counted for it."""

CACHED_READER = {"device": "/mnt/foreground", "pattern": "random", "block_bytes": 4096, "buffered": True, "rate": 500, "seed": 1}
SCANNER = {"device": "/mnt/background", "pattern": "sequential", "block_bytes": 131072, "buffered": True}
CACHE_CASES = {"alone": None, "unlimited": 100, "limited": 10}
"""Percent of the guest's memory that background work keeps as page cache."""


def cache(boot: Boot, _names: list[str], write: Callable[..., None]) -> None:
    """What a marked reader leaves of the foreground's page cache."""
    sizes = {"foreground": CACHED_BYTES, "background": SCANNED_BYTES}
    with Subject(boot, "ext4", CACHE_DISK, sizes) as subject:
        subject.control(None)
        guest = subject.machine.guest
        for repeat in range(REPEATS):
            for name, percent in CACHE_CASES.items():
                subject.agent.stop()
                subject.agent.start("--page-cache", str(percent or 100))
                guest.run("echo 3 >/proc/sys/vm/drop_caches; cat /mnt/foreground /mnt/foreground >/dev/null", timeout_seconds=120)
                behind = guest.load(**SCANNER, seconds=SECONDS["cache"], prefix="idletime run --") if percent else None
                ahead = guest.load(**CACHED_READER, seconds=SECONDS["cache"], prefix=COUNTED)
                report = ahead.result()
                from_disk = int(guest.run("sed -n 's/^read_bytes: //p' /run/counted").text)
                scanned = behind.result()["bytes"] if behind else 0
                write("cache", case=name, repeat=repeat, percent=percent, seconds=SECONDS["cache"], disk=CACHE_DISK.parameters(),
                      operations=report["operations"], hits=1 - from_disk / report["bytes"], scanned_bytes=scanned,
                      mean_us=float(ahead.samples()["latency_us"].mean()))


INSTRUCTION_NS = 4
ICOUNT = ["-icount", "shift=2,sleep=off"]
"""The guest's clock counts its instructions, 4 ns each (a slow processor), and skips pauses: how busy the host is means nothing."""

USAGE = """
set -- $(cat /proc/uptime); up=$1
set -- $(cat /proc/$(cat /run/agent.pid)/stat); shift 13
echo $up $(($1 + $2)) $(cat /proc/$(cat /run/agent.pid)/task/*/status | sed -n 's/^voluntary_ctxt_switches:.//p' | paste -s -d + | bc)
"""


def usage(guest: Guest) -> tuple[float, int, int]:
    """Uptime (s), ticks of processor time, and times that a thread of the agent has slept."""
    up, ticks, switches = guest.run(USAGE).text.split()
    return float(up), int(ticks), int(switches)


def idle(boot: Boot, _names: list[str], write: Callable[..., None]) -> None:
    """Memory, processor time and wake-ups of an agent with nothing to do, without and with a rule."""
    memory = "grep -E 'VmRSS|VmHWM|RssAnon' /proc/$(cat /run/agent.pid)/status"
    with Machine(boot, "idle", ICOUNT) as machine:
        guest, subject = machine.guest, agent.AgentGuest(machine.guest)
        subject.start()
        for rules in ("", "rules:\n  - executable: /bin/nothing\n"):
            guest.run(f"mkdir -p /etc/idletime; printf '{rules}' >/etc/idletime/rules.yaml")
            subject.signal("HUP")
            guest.run("sleep 60", timeout_seconds=120)
            before = usage(guest)
            guest.run(f"sleep {SECONDS['idle']:.0f}", timeout_seconds=SECONDS["idle"] + 60)
            took, ticks, switches = (now - then for now, then in zip(usage(guest), before))
            kib = {line.split(":")[0]: int(line.split()[1]) for line in guest.run(memory).text.splitlines()}
            write("idle", rules=bool(rules), seconds=took, processor_seconds=ticks / 100, share=ticks / 100 / took,
                  wakeups_per_second=switches / took, kib=kib, icount=ICOUNT[1],
                  processes=int(guest.run("ls -d /proc/[0-9]* | wc -l").text))


MARKS = 10_000
MARKS_SECONDS = 1500.0
"""About 120 s on a processor of its own; most of it is the guest's kernel under TCG."""


def marks(boot: Boot, _names: list[str], write: Callable[..., None]) -> None:
    """The test of the package itself, in a guest whose clock skips pauses: moving to another cgroup waits for a grace period."""
    with Machine(boot, "marks", ICOUNT) as machine:
        agent.AgentGuest(machine.guest)
        command = f"cd /run; IDLETIME_TEST_CGROUP=/sys/fs/cgroup IDLETIME_TEST_MARKS={MARKS} marks.test -test.v -test.run KernelMany"
        text = machine.guest.run(command, MARKS_SECONDS).text
        write("marks", count=MARKS, icount=ICOUNT[1], result=[line for line in text.splitlines() if line.startswith("---")])


def answers(boot: Boot, _names: list[str], write: Callable[..., None]) -> None:
    """Go's benchmark of the package itself; the clock counts instructions."""
    with Machine(boot, "answers", ICOUNT) as machine:
        agent.AgentGuest(machine.guest)
        command = "cd /run; IDLETIME_TEST_CGROUP=/sys/fs/cgroup dscp.test -test.run '^$' -test.bench KernelAnswer -test.benchtime 10000x"
        text = machine.guest.run(command, 600.0).text
        found = re.findall(r"^BenchmarkKernelAnswer/(\w+)\S*\s+(\d+)\s+([\d.]+) ns/op", text, re.MULTILINE)
        for name, count, nanoseconds in found:
            write("answers", case=name, count=int(count), icount=ICOUNT[1], instructions=float(nanoseconds) / INSTRUCTION_NS)


PARTS = {"reader": reader, **{kind: partial(fsync, kind) for kind in blankfs.MAKE}, "cache": cache, "idle": idle, "marks": marks,
         "answers": answers}


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.agent", description="Marks by process: series.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (all)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="those to measure (all)")
    parser.add_argument("--kernel", choices=list(series.SUITES), default="6.1", help="series of the guest's kernel (6.1)")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "agent.jsonl", help="appended to")
    arguments = parser.parse_args()
    return exit_status(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    boot = agent.boot_with_agent(accel.prepare(), series.get_series(arguments.kernel))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("a") as output:
        _line(output, "conditions", disk=DISK.parameters(), repeats=REPEATS, **host.facts(boot))
        for part in arguments.parts or PARTS:
            print(f"== {part}", flush=True)
            PARTS[part](boot, arguments.cases, lambda kind, **values: _line(output, kind, **values))


def _line(output: TextIO, kind: str, **values: Any) -> None:
    output.write(json.dumps({"kind": kind, "program": "agent", **values}) + "\n")
    output.flush()
    print(json.dumps({"kind": kind, **{name: value for name, value in values.items() if name != "loads"}}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
