"""What the foreground path costs: operations per second of a guest on a disk that takes no time.

    python3 -m tests.bench.iops [--scsi] [--output build/bench/iops.jsonl] [--unpatched PATH] [--qemu PATH]

Compares the unpatched QEMU, the patched one with the property unset, and the
patched one as a foreground participant, on null-co, which answers at once. Three
guests are up, and one of them reads, each in its turn; each repeat starts them anew.
The disk is on virtio-blk, or on virtio-scsi.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Iterator

from tests.bench import alternate
from tests.framework import accel
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot, Machine
from tests.testbed import scsi

BLOCKDEV = "driver=null-co,size=1073741824,read-zeroes=on,node-name=disk"
LOAD = {"pattern": "random", "operation": "read", "block_bytes": 4096, "outstanding": 1, "intensity": 100}
WARM_UP_SECONDS = 1.0
"""Translating the guest's driver under TCG happens in here."""


def _device(variant: str, arena: str, on_scsi: bool) -> list[str]:
    controller = ["-device", "virtio-scsi-pci,id=scsi0"] if on_scsi else []
    device = "scsi-hd,bus=scsi0.0,drive=disk" if on_scsi else "virtio-blk-pci,drive=disk"
    if variant != "foreground":
        return [*controller, "-device", device]
    return [*controller, "-object", f"idletime-resource,id=disk0,path={arena}", "-device", f"{device},idletime=disk0"]


@contextmanager
def opened(boots: dict[str, Boot], on_scsi: bool) -> Iterator[alternate.Measure]:
    """A guest of each variant, warmed up."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-"))
        machines = {variant: _machine(stack, boot, variant, folder, on_scsi) for variant, boot in boots.items()}
        yield lambda variant, seconds: measure(machines[variant], _load(on_scsi), seconds)


def _load(on_scsi: bool) -> dict[str, Any]:
    return {**LOAD, "device": scsi.DISK} if on_scsi else LOAD


def _machine(stack: ExitStack, boot: Boot, variant: str, folder: str, on_scsi: bool) -> Machine:
    arguments = ["-blockdev", BLOCKDEV, *_device(variant, f"{folder}/arena", on_scsi)]
    machine: Machine = stack.enter_context(Machine(boot, variant, arguments))
    if on_scsi:
        scsi.wait_for_disk(machine)
    machine.guest.load(**_load(on_scsi), seconds=WARM_UP_SECONDS).result()
    return machine


def measure(machine: Machine, load: dict[str, Any], seconds: float) -> dict[str, Any]:
    """idleload's report of one run, and the processor time of the QEMU."""
    before = alternate.cpu_seconds(machine.process.pid)
    report: dict[str, Any] = machine.guest.load(**load, seconds=seconds).result()
    used = alternate.cpu_seconds(machine.process.pid) - before
    return report | {"cpu_seconds": used, "cpu_us_per_operation": used * 1e6 / (report["operations_per_second"] * seconds)}


FIGURES = (
    alternate.Figure("operations", "op/s", lambda report: report["operations_per_second"]),
    alternate.Figure("processor time an operation", "us", lambda report: report["cpu_us_per_operation"]),
)


def _compare(arguments: argparse.Namespace) -> None:
    boot = accel.prepare(arguments.qemu)
    comparison = alternate.Comparison("iops", partial(opened, on_scsi=arguments.scsi), {"load": _load(arguments.scsi)}, FIGURES)
    alternate.run(comparison, scsi.with_driver(boot) if arguments.scsi else boot, arguments)


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = alternate.parse("iops", "Cost of the foreground path.", repeats=6, rounds=12, seconds=1,
                                scsi="the disk is on virtio-scsi")
    return exit_status(lambda: _compare(arguments))


if __name__ == "__main__":
    sys.exit(main())
