"""What the foreground path costs: operations per second of a guest on a disk that takes no time.

    python3 -m tests.bench.iops [--output build/bench/iops.jsonl] [--unpatched PATH] [--qemu PATH]

Compares the unpatched QEMU, the patched one with the property unset, and the
patched one as a foreground participant; in alternating order, each run in a new
process, on null-co, which answers at once.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
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


def measure(boot: Boot, variant: str, seconds: float) -> dict[str, Any]:
    """idleload's report of one run in a new process."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as folder:
        arguments = ["-blockdev", BLOCKDEV, *_device(variant, f"{folder}/arena")]
        with Machine(boot, variant, arguments) as machine:
            machine.guest.load(seconds=WARM_UP_SECONDS).result()
            return machine.guest.load(**LOAD, seconds=seconds).result()


@contextmanager
def opened(boots: dict[str, Boot]) -> Iterator[alternate.Measure]:
    """Nothing lives longer than a run."""
    yield lambda variant, seconds: measure(boots[variant], variant, seconds)


COMPARISON = alternate.Comparison(
    "iops", opened, {"load": LOAD}, (alternate.Figure("operations", "op/s", lambda report: report["operations_per_second"]),),
)


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = alternate.parse("iops", "Cost of the foreground path.")
    return exit_status(lambda: alternate.run(COMPARISON, accel.prepare(arguments.qemu), arguments))


if __name__ == "__main__":
    sys.exit(main())
