"""What the foreground path costs: operations per second of a guest on a disk that takes no time.

    python3 -m tests.bench.iops [--output build/bench/iops.jsonl] [--unpatched PATH] [--qemu PATH]

Compares the unpatched QEMU, the patched one with the property unset, and the
patched one as a foreground participant, on null-co, which answers at once. Three
guests are up, and one of them reads, each in its turn; each repeat starts them anew.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack, contextmanager
from typing import Any, Iterator

from tests.bench import alternate
from tests.framework import accel
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot, Machine

BLOCKDEV = "driver=null-co,size=1073741824,read-zeroes=on,node-name=disk"
LOAD = {"pattern": "random", "operation": "read", "block_bytes": 4096, "outstanding": 1, "intensity": 100}
WARM_UP_SECONDS = 1.0
"""Translating the guest's driver under TCG happens in here."""


def _device(variant: str, arena: str) -> list[str]:
    device = "virtio-blk-pci,drive=disk"
    if variant != "foreground":
        return ["-device", device]
    return ["-object", f"idletime-resource,id=disk0,path={arena}", "-device", f"{device},idletime=disk0"]


@contextmanager
def opened(boots: dict[str, Boot]) -> Iterator[alternate.Measure]:
    """A guest of each variant, warmed up."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-"))
        machines = {variant: _machine(stack, boot, variant, folder) for variant, boot in boots.items()}
        yield lambda variant, seconds: measure(machines[variant], seconds)


def _machine(stack: ExitStack, boot: Boot, variant: str, folder: str) -> Machine:
    arguments = ["-blockdev", BLOCKDEV, *_device(variant, f"{folder}/arena")]
    machine: Machine = stack.enter_context(Machine(boot, variant, arguments))
    machine.guest.load(**LOAD, seconds=WARM_UP_SECONDS).result()
    return machine


def measure(machine: Machine, seconds: float) -> dict[str, Any]:
    """idleload's report of one run, and the processor time of the QEMU."""
    before = alternate.cpu_seconds(machine.process.pid)
    report: dict[str, Any] = machine.guest.load(**LOAD, seconds=seconds).result()
    used = alternate.cpu_seconds(machine.process.pid) - before
    return report | {"cpu_seconds": used, "cpu_us_per_operation": used * 1e6 / (report["operations_per_second"] * seconds)}


COMPARISON = alternate.Comparison(
    "iops", opened, {"load": LOAD}, (
        alternate.Figure("operations", "op/s", lambda report: report["operations_per_second"]),
        alternate.Figure("processor time an operation", "us", lambda report: report["cpu_us_per_operation"]),
    ),
)


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = alternate.parse("iops", "Cost of the foreground path.", repeats=6, rounds=12, seconds=1)
    return exit_status(lambda: alternate.run(COMPARISON, accel.prepare(arguments.qemu), arguments))


if __name__ == "__main__":
    sys.exit(main())
