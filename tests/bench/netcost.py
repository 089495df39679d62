"""What the foreground's packet path costs: iperf3 of a guest over a tap whose uplink is faster than the guest.

    python3 -m tests.bench.netcost [--output build/bench/netcost.jsonl] [--unpatched PATH] [--qemu PATH]

Compares the unpatched QEMU, the patched one with the property unset, and the
patched one as a foreground participant. Three guests are up, and one of them
sends, each in its turn. TCP, one stream, from the guest to the sink.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator

from tests.bench import alternate
from tests.framework import accel
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot, Machine
from tests.testbed.link import SINK_ADDRESS, Link, Model
from tests.testbed.namespace import NamespaceError
from tests.testbed.nic import attach_nic, configure

LINK = Model(rate_mbit=10_000, queue_bytes=4_000_000)
"""Far above what a guest under TCG sends, so that the guest and QEMU are what is measured."""

WARM_UP_SECONDS = 1
"""Translating the guest's driver under TCG happens in here; iperf3 leaves it out of its result."""

EXTRA_SECONDS = 30
"""Time that iperf3 may need beyond what was planned."""


@contextmanager
def opened(boots: dict[str, Boot]) -> Iterator[alternate.Measure]:
    """A guest of each variant on one link, and iperf3's server at the sink."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
        link = stack.enter_context(Link(LINK))
        machines = {variant: _machine(stack, link, boot, variant, folder) for variant, boot in boots.items()}
        server = link.start(["iperf3", "--server"], folder / "iperf3")
        stack.callback(server.stop)
        # iperf3 does not say when it listens: ask until it does.
        machines["unset"].guest.run(
            f"for _ in $(seq 100); do nc -w 1 {SINK_ADDRESS} 5201 </dev/null && exit; usleep 50000; done; exit 1")
        yield lambda variant, seconds: measure(machines[variant], seconds)


def _machine(stack: ExitStack, link: Link, boot: Boot, variant: str, folder: Path) -> Machine:
    tap = link.add_tap(variant)
    arguments = attach_nic(tap, folder / "arena" if variant == "foreground" else None)
    machine = stack.enter_context(Machine(boot, variant, arguments, tap.fds))
    link.release(tap)
    configure(machine.guest, tap)
    return machine


def measure(machine: Machine, seconds: float) -> dict[str, Any]:
    """iperf3's own summary of one run, and the processor time of the QEMU."""
    command = f"iperf3 --client {SINK_ADDRESS} --time {seconds:g} --omit {WARM_UP_SECONDS} --json --connect-timeout 5000"
    before = alternate.cpu_seconds(machine.process.pid)
    report = json.loads(machine.guest.run(command, seconds + WARM_UP_SECONDS + EXTRA_SECONDS).text)
    used = alternate.cpu_seconds(machine.process.pid) - before
    sent_bytes = sum(each["sum"]["bytes"] for each in report["intervals"])  # with those of the warm-up
    return {"received": report["end"]["sum_received"], "sent": report["end"]["sum_sent"],
            "cpu_seconds": used, "cpu_ns_per_kib": used * 1e9 / (sent_bytes / 1024)}


COMPARISON = alternate.Comparison(
    "netcost", opened, {"link": LINK.parameters()}, (
        alternate.Figure("throughput", "Mbit/s", lambda report: report["received"]["bits_per_second"] / 1e6),
        alternate.Figure("processor time a byte", "ns/KiB", lambda report: report["cpu_ns_per_kib"]),
    ),
)


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = alternate.parse("netcost", "Cost of the foreground's packets.", repeats=4, rounds=12, seconds=1)
    return exit_status(
        lambda: alternate.run(COMPARISON, accel.prepare(arguments.qemu, network=True), arguments), unavailable=(NamespaceError,))


if __name__ == "__main__":
    sys.exit(main())
