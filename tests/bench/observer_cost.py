"""What an observer costs the foreground: fio on a loop device over memory, with and without one, in turn. Asserts nothing.

    python3 -m tests.bench.observer_cost --rounds 10 --seconds 2 --output build/observer-cost.jsonl

Each line of the series is one run: IOPS, processor time a request. Last come the ratios within rounds, and the time of each
program by the kernel's own run-time statistics, which are on for these runs only. They count two readings of a clock as the
program's, so a program that does nothing runs beside it: the difference is what the observer takes. On an uplink the kernel
runs the program by itself (BPF_PROG_TEST_RUN), a million times in a row, on packets of the host and on those that a VM sent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.observer import run
from tests.observer.emptyprogram import EmptyProgram
from tests.observer.run import Observer

KINDS: dict[str, list[str]] = {
    "off": [],
    "on": ["--disk"],
    "on, a background cgroup": ["--background-cgroup", "/nobody", "--disk"],
    "on, without types": ["--old-kernel", "--disk"],
}
EVENTS = ("block_rq_issue", "block_rq_complete")
TRACING = ("17", "26")
"""BPF_PROG_TYPE_RAW_TRACEPOINT and _TRACING: what runs at EVENTS. Others that it loads run seldom, and in no order."""
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
PACKET = bytes(1514)
PACKETS = 1000000
INGRESS_AT, CONTEXT_BYTES = 36, 40
"""Of struct __sk_buff: where it has the interface on which a packet came in."""
SCHEDULER_CLASSIFIER = "3"
"""BPF_PROG_TYPE_SCHED_CLS: of its programs the one that the uplink runs."""
SENDERS = {"the host": 0, "a VM": 1}
"""By that interface; 1 is not a background VM's."""


def measure(disk: str, seconds: float, depth: int) -> dict[str, Any]:
    """One run of random reads of 4 KiB."""
    argv = ["fio", f"--filename={disk}", "--direct=1", "--ioengine=libaio", "--name=cost", "--rw=randread", "--bs=4k",
            f"--iodepth={depth}", "--time_based", f"--runtime={int(seconds * 1000)}ms", "--size=32M", "--output-format=json"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    job = json.loads(done.stdout)["jobs"][0]
    busy = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return {"iops": job["read"]["iops"], "requests": job["read"]["total_ios"], "cpu_us": busy * 1e6 / job["read"]["total_ios"]}


def statistics_of(entry: Path) -> tuple[str, int, int] | None:
    """Of a program at an event, by its descriptor: its number, calls and time."""
    words = dict(line.split(":\t", 1) for line in entry.read_text().splitlines() if ":\t" in line)
    ran = words.get("prog_type") in TRACING and int(words["run_cnt"])
    return (words["prog_id"], int(words["run_cnt"]), int(words["run_time_ns"])) if ran else None


def programs(observer: Observer) -> list[tuple[str, int, int]]:
    """Those of the observer that ran at events, from the descriptors that it holds, in the order in which they were loaded:
    those of EVENTS, then that of requests which were given back, if any was."""
    entries = Path(f"/proc/{observer.process.pid}/fdinfo").iterdir()
    return sorted({found for found in map(statistics_of, entries) if found}, key=lambda found: int(found[0]))


def one(kind: str, disk: str, arguments: argparse.Namespace, number: int) -> dict[str, Any]:
    """A run with an observer of this kind; "off": without."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as arena:
        observer = Observer(Path(arena), *KINDS[kind], disk) if KINDS[kind] else None
        try:
            result = measure(disk, arguments.seconds, arguments.depth)
        finally:
            if observer:
                observer.close()
    return {"round": number, "kind": kind, "depth": arguments.depth, "load": os.getloadavg()[0], **result}


def own_time(disk: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The programs' time a call, statistics on, and that of a program that does nothing at the same event."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        with ExitStack() as stack:
            arena = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            observer = Observer(arena, "--background-cgroup", "/nobody", "--disk", disk)
            stack.callback(observer.close)
            empty = [stack.enter_context(EmptyProgram(event)) for event in EVENTS]
            measure(disk, arguments.seconds, arguments.depth)
            for name, program, nothing in zip(EVENTS, programs(observer)[:len(EVENTS)], empty, strict=True):
                own, its = program, statistics_of(nothing.descriptor())
                assert its
                yield {"kind": "program", "event": name, "calls": own[1], "ns": own[2] / own[1], "ns_of_nothing": its[2] / its[1]}
    finally:
        STATISTICS.write_text(before)


def packet_times() -> Iterator[dict[str, Any]]:
    """The time of the program of an uplink, a packet."""
    space = f"idletime-{os.getpid()}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        subprocess.run(["ip", "netns", "add", space], check=True)
        stack.callback(subprocess.run, ["ip", "netns", "del", space], check=True)
        subprocess.run(["ip", "-n", space, "link", "add", "up0", "type", "veth", "peer", "name", "up1"], check=True)
        (folder / "arena").mkdir()
        observer = Observer(folder / "arena", "--uplink", "up0", prefix=("ip", "netns", "exec", space))
        stack.callback(observer.close)
        program = uplink_program(observer)
        (folder / "packet").write_bytes(PACKET)
        for sender, interface in SENDERS.items():
            context = bytearray(CONTEXT_BYTES)
            context[INGRESS_AT:] = interface.to_bytes(4, "little")
            (folder / "context").write_bytes(context)
            argv = ["bpftool", "-j", "prog", "run", "id", program, "data_in", str(folder / "packet"),
                    "ctx_in", str(folder / "context"), "repeat", str(PACKETS)]
            done = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
            yield {"kind": "packet", "sender": sender, "ns": done["duration"]}


def uplink_program(observer: Observer) -> str:
    """The number of its program."""
    for entry in Path(f"/proc/{observer.process.pid}/fdinfo").iterdir():
        words = dict(line.split(":\t", 1) for line in entry.read_text().splitlines() if ":\t" in line)
        if words.get("prog_type") == SCHEDULER_CLASSIFIER:
            return words["prog_id"]
    raise RuntimeError("the observer of an uplink holds no program")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    series: list[dict[str, Any]] = []
    with ExitStack() as stack:
        disk = stack.enter_context(run.loop_device())
        measure(disk, 1, arguments.depth)
        for number in range(arguments.rounds):
            for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                series.append(one(kind, disk, arguments, number))
                print(json.dumps(series[-1]), flush=True)
        for number in range(arguments.rounds):
            for line in (*own_time(disk, arguments), *packet_times()):
                series.append({"round": number, **line})
                print(json.dumps(series[-1]), flush=True)
    for kind in list(KINDS)[1:]:
        ratios = []
        for number in range(arguments.rounds):
            of = {line["kind"]: line["iops"] for line in series if line["round"] == number and "iops" in line}
            ratios.append(of[kind] / of["off"])
        print(f"{kind}: IOPS of those without, within rounds: median {statistics.median(ratios):.3f}, "
              f"{min(ratios):.3f} to {max(ratios):.3f}")
    for event in EVENTS:
        runs = [line for line in series if line.get("event") == event]
        own, nothing = (statistics.median(line[key] for line in runs) for key in ("ns", "ns_of_nothing"))
        print(f"{event}: median of {len(runs)} runs {own:.0f} ns a call, {nothing:.0f} of a program that does nothing")
    for sender in SENDERS:
        times = [line["ns"] for line in series if line.get("sender") == sender]
        print(f"a packet of {sender}: median of {len(times)} runs of {PACKETS} {statistics.median(times):.0f} ns")
    if arguments.output:
        arguments.output.write_text("".join(json.dumps(line) + "\n" for line in series))


if __name__ == "__main__":
    main()
