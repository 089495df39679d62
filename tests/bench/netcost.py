"""What the foreground's packet path costs: iperf3 of a guest over a tap whose uplink is faster than the guest.

    python3 -m tests.bench.netcost [--output build/bench/netcost.jsonl] [--unpatched PATH] [--qemu PATH]

Compares the unpatched QEMU, the patched one with the property unset, and the
patched one as a foreground participant; in alternating order, each run with
new processes. TCP, one stream, from the guest to the sink.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.iops import UNPATCHED
from tests.framework import accel, host, paths
from tests.framework.qemu import Boot, Machine
from tests.testbed.link import SINK_ADDRESS, Link, Model
from tests.testbed.nic import attach_nic, configure

LINK = Model(rate_mbit=10_000, queue_bytes=4_000_000)
"""Far above what a guest under TCG sends, so that the guest and QEMU are what is measured."""

WARM_UP_SECONDS = 1
"""Translating the guest's driver under TCG happens in here; iperf3 leaves it out of its result."""

EXTRA_SECONDS = 30
"""Time that iperf3 may need beyond what was planned."""


def measure(boot: Boot, variant: str, seconds: float) -> dict[str, Any]:
    """iperf3's own summary of one run in new processes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        link = stack.enter_context(Link(LINK))
        tap = link.add_tap(variant)
        arguments = attach_nic(tap, folder / "arena" if variant == "foreground" else None)
        machine = stack.enter_context(Machine(boot, variant, arguments, tap.fds))
        link.release(tap)
        configure(machine.guest, tap)
        server = link.start(["iperf3", "--server"], folder / "iperf3")
        stack.callback(server.stop)
        # iperf3 does not say when it listens: ask until it does.
        machine.guest.run(f"for _ in $(seq 100); do nc -w 1 {SINK_ADDRESS} 5201 </dev/null && exit; usleep 50000; done; exit 1")
        command = f"iperf3 --client {SINK_ADDRESS} --time {seconds:g} --omit {WARM_UP_SECONDS} --json --connect-timeout 5000"
        before = cpu_seconds(machine.process.pid)
        report = json.loads(machine.guest.run(command, seconds + WARM_UP_SECONDS + EXTRA_SECONDS).text)
        used = cpu_seconds(machine.process.pid) - before
    sent_bytes = sum(each["sum"]["bytes"] for each in report["intervals"])  # with those of the warm-up
    return {"received": report["end"]["sum_received"], "sent": report["end"]["sum_sent"],
            "cpu_seconds": used, "cpu_ns_per_kib": used * 1e9 / (sent_bytes / 1024)}


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used: less noisy than throughput where processors are shared."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(boot: Boot, unpatched: Path, output: Path, repeats: int, seconds: float) -> None:
    """All runs, one JSON line each, then the ratios on the terminal."""
    variants = {"unpatched": replace(boot, qemu=unpatched), "unset": boot, "foreground": boot}
    rates: dict[str, list[float]] = {variant: [] for variant in variants}
    costs: dict[str, list[float]] = {variant: [] for variant in variants}
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as lines:
        about = {"kind": "conditions", "program": "netcost", "seconds": seconds, "link": LINK.parameters()}
        lines.write(json.dumps({**about, **host.facts(boot)}) + "\n")
        for repeat in range(repeats):
            names = list(variants) if repeat % 2 == 0 else list(reversed(variants))
            for variant in names:
                report = measure(variants[variant], variant, seconds)
                rates[variant].append(report["received"]["bits_per_second"] / 1e6)
                costs[variant].append(report["cpu_ns_per_kib"])
                lines.write(json.dumps({"kind": "run", "repeat": repeat, "variant": variant, "report": report}) + "\n")
                lines.flush()
                print(f"repeat {repeat + 1} of {repeats}: {variant:11} {rates[variant][-1]:9.1f} Mbit/s, "
                      f"{costs[variant][-1]:7.0f} ns of processor time a KiB", flush=True)
    for variant in variants:
        rate, cost = (median(values[variant]) / median(values["unpatched"]) for values in (rates, costs))
        print(f"{variant:11} medians, of unpatched: throughput {rate:.3f}, processor time a byte {cost:.3f}")


def main() -> int:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.netcost", description="Cost of the foreground's packets.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "netcost.jsonl")
    parser.add_argument("--unpatched", default=str(UNPATCHED), help="QEMU of `make qemu-unpatched`")
    parser.add_argument("--qemu", help="patched QEMU (the staged one)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    try:
        boot = accel.prepare(arguments.qemu, network=True)
        run(boot, paths.find_qemu(arguments.unpatched), arguments.output, arguments.repeats, arguments.seconds)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
