"""What a background device costs the foreground device of the same I/O thread: its latency at queue depth 1.

    python3 -m tests.bench.polling [--output build/bench/polling.jsonl] [--qemu PATH] [--repeats N] [--seconds S]

A guest reads from a foreground disk that takes no time (null-co). A second disk of the same I/O thread does nothing; it
is foreground, then background, then foreground again. An event loop polls adaptively only if all of its handlers can,
so one that cannot shows in the latency of the first disk. The last phase is the same in a thread that may not poll.
A guest that thinks for longer than poll-max-ns (32 us unless given) is never polled for: under TCG give it 1000000.
One JSON line a run: the phase, idleload's report, and the processor time of the I/O thread.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Iterator

from tests.framework import accel, host, paths
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot, Machine

LOAD = {"pattern": "random", "operation": "read", "block_bytes": 4096, "outstanding": 1, "intensity": 100}
WARM_UP_SECONDS = 1.0
"""Translating the guest's driver under TCG happens in here."""

PHASES = (("before", "foreground"), ("during", "background"), ("after", "foreground"))


def _arguments(arena: Path, poll: str) -> list[str]:
    blockdev = "driver=null-co,size=1073741824,read-zeroes=on,node-name="
    device = "virtio-blk-pci,iothread=io0,idletime=disk0,drive="
    return ["-object", f"iothread,id=io0{poll}", "-object", f"idletime-resource,id=disk0,path={arena}",
            "-blockdev", f"{blockdev}d0", "-device", f"{device}d0,id=measured",
            "-blockdev", f"{blockdev}d1", "-device", f"{device}d1,id=other"]


def _thread_seconds(machine: Machine) -> float:
    """Processor time of the I/O thread so far."""
    thread = machine.qmp.execute("query-iothreads")[0]["thread-id"]
    fields = Path(f"/proc/{machine.process.pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(machine: Machine, phase: str, seconds: float) -> dict[str, Any]:
    before = _thread_seconds(machine)
    report = machine.guest.load(**LOAD, seconds=seconds).result()
    return {"phase": phase, "report": report, "thread_seconds": _thread_seconds(machine) - before}


def repeat(boot: Boot, seconds: float, poll: str) -> Iterator[dict[str, Any]]:
    """All phases, in two processes."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as folder:
        with Machine(boot, "polling", _arguments(Path(folder) / "arena", poll)) as machine:
            machine.guest.load(seconds=WARM_UP_SECONDS).result()
            for phase, name in PHASES:
                machine.qmp.execute("idletime-set", **{"device": "other", "class": name})
                yield _measure(machine, phase, seconds)
        with Machine(boot, "blocking", _arguments(Path(folder) / "arena", ",poll-max-ns=0")) as machine:
            machine.guest.load(seconds=WARM_UP_SECONDS).result()
            yield _measure(machine, "never", seconds)


def run(boot: Boot, arguments: argparse.Namespace) -> None:
    """The series, and its medians on the terminal."""
    runs: list[dict[str, Any]] = []
    poll = "" if arguments.poll_max_ns is None else f",poll-max-ns={arguments.poll_max_ns}"
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w") as lines:
        about = {"kind": "conditions", "program": "polling", "seconds": arguments.seconds,
                 "poll_max_ns": arguments.poll_max_ns, "load": LOAD, **host.facts(boot)}
        lines.write(json.dumps(about) + "\n")
        for number in range(arguments.repeats):
            for line in repeat(boot, arguments.seconds, poll):
                runs.append(line)
                lines.write(json.dumps({"kind": "run", "repeat": number, **line}) + "\n")
                lines.flush()
    for phase in [name for name, _ in PHASES] + ["never"]:
        of_phase = [line for line in runs if line["phase"] == phase]
        print(f"{phase:7} median of p50 {median(line['report']['p50_us'] for line in of_phase):.0f} us, "
              f"mean {median(line['report']['mean_us'] for line in of_phase):.1f} us, "
              f"{median(line['report']['operations_per_second'] for line in of_phase):.0f} op/s, "
              f"thread {median(line['thread_seconds'] for line in of_phase) / arguments.seconds:.0%} of a processor")


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.polling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "polling.jsonl")
    parser.add_argument("--qemu", help="patched QEMU (the staged one)")
    parser.add_argument("--repeats", type=int, default=5, help="each with new processes")
    parser.add_argument("--seconds", type=float, default=3, help="of a run")
    parser.add_argument("--poll-max-ns", type=int, help="of the I/O thread (QEMU's own default)")
    arguments = parser.parse_args()
    return exit_status(lambda: run(accel.prepare(arguments.qemu), arguments))


if __name__ == "__main__":
    sys.exit(main())
