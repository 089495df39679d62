"""What the foreground path costs: operations per second of a guest on a disk that takes no time.

    python3 -m tests.bench.iops [--output build/bench/iops.jsonl] [--unpatched PATH] [--qemu PATH]

Compares the unpatched QEMU, the patched one with the property unset, and the
patched one as a foreground participant; in alternating order, each run in a new
process, on null-co, which answers at once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.framework import accel, host, paths
from tests.framework.qemu import Boot, Machine

UNPATCHED = paths.BUILD / "unpatched" / "stage" / "bin" / "qemu-system-x86_64"
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


def run(boot: Boot, unpatched: Path, output: Path, repeats: int, seconds: float) -> None:
    """All runs, one JSON line each, then the ratios on the terminal."""
    variants = {"unpatched": replace(boot, qemu=unpatched), "unset": boot, "foreground": boot}
    rates: dict[str, list[float]] = {variant: [] for variant in variants}
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w") as lines:
        lines.write(json.dumps({"kind": "conditions", "program": "iops", "load": LOAD, **host.facts(boot)}) + "\n")
        for repeat in range(repeats):
            names = list(variants) if repeat % 2 == 0 else list(reversed(variants))
            for variant in names:
                report = measure(variants[variant], variant, seconds)
                rates[variant].append(report["operations_per_second"])
                lines.write(json.dumps({"kind": "run", "repeat": repeat, "variant": variant, "report": report}) + "\n")
                lines.flush()
                print(f"repeat {repeat + 1} of {repeats}: {variant:11} {rates[variant][-1]:9.0f} op/s", flush=True)
    base = median(rates["unpatched"])
    for variant, values in rates.items():
        print(f"{variant:11} median {median(values):9.0f} op/s, {median(values) / base:.3f} of unpatched")


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.iops", description="Cost of the foreground path.")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "bench" / "iops.jsonl")
    parser.add_argument("--unpatched", default=str(UNPATCHED), help="QEMU of `make qemu-unpatched`")
    parser.add_argument("--qemu", help="patched QEMU (the staged one)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    boot = accel.prepare(arguments.qemu)
    unpatched = paths.find_qemu(arguments.unpatched)
    run(boot, unpatched, arguments.output, arguments.repeats, arguments.seconds)


if __name__ == "__main__":
    main()
