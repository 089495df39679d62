"""The demo on the operator's own disk: the same two guests, loads and table, on a file in a folder that he names.

    python3 -m tests.bench.own_disk FOLDER [--size 4G] [--quick] [--output build/demo-disk] [--qemu PATH]

`make demo DISK=FOLDER SIZE=4G` calls it. The file is filled with random data, read by the guests with direct I/O, and gone
with this program, however that ends: see tests/testbed/ownfile.py. Nothing is modelled, so the figures are this disk's; under
TCG, where KVM does not work, they are those of slow guests on it.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import ContextManager

from tests.bench import demo, pair, plan
from tests.bench.progress import Progress
from tests.framework import paths, run_folder
from tests.framework.interrupt import exit_status
from tests.framework.qemu import Boot
from tests.testbed import ownfile
from tests.testbed.disk import Model
from tests.testbed.ownfile import OwnFile
from tests.testbed.ownsize import size_of

LOADS = (1, 32)
"""Background requests outstanding: one, as in the modelled demo; and so many that an SSD is busy."""

WRITE_BYTES_PER_SECOND = 200e6
"""For the progress only; it corrects itself."""

NOTICE = """This reads from the disk as hard as two VMs can, for {minutes} minutes, also without any control, for comparison:
whatever else uses the disk will feel that. A file of {size} without a name is written first; it is gone with this program."""


class FilePair(pair.Pair):
    """The demo's two guests on one file."""

    def __init__(self, boot: Boot, file: OwnFile, quantum_ms: int) -> None:
        super().__init__(boot, Model(), quantum_ms)
        self._file = file

    def _shared(self) -> ContextManager[OwnFile]:
        return nullcontext(self._file)


class OwnDemo(demo.Demo):
    """Other loads, and a file instead of the modelled disk."""

    loads = LOADS


def _filled(stack: ExitStack, folder: Path, size: int) -> OwnFile:
    """The file, written; gone with the stack."""
    with Progress(size / WRITE_BYTES_PER_SECOND) as progress:
        progress.step(f"writing {ownfile.words_of(size)}")
        return stack.enter_context(OwnFile(folder, size, lambda done: progress.at(done / WRITE_BYTES_PER_SECOND)))


def _minutes(length: demo.Length) -> int:
    phases = length.repeats * len(plan.phases(True, LOADS))
    return round(phases * (length.seconds + demo.OVERHEAD_SECONDS) / 60)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.own_disk", description="The demo on a disk of your own.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder on the disk that the VMs' images are on")
    parser.add_argument("--size", default="", help="of the file, such as 4G; without it you are asked")
    parser.add_argument("--quick", action="store_true", help="two minutes instead of five, and noisier")
    parser.add_argument("--output", type=Path, default=paths.BUILD / "demo-disk", help="folder of the results (build/demo-disk)")
    parser.add_argument("--qemu", metavar="PATH", help="the QEMU to run (the one that `make qemu` staged)")
    return parser.parse_args()


def main() -> int:
    """Exit status: see `tests.framework.interrupt`."""
    arguments = _arguments()
    length = demo.QUICK if arguments.quick else demo.FULL
    results: list[OwnDemo] = []

    def work() -> None:
        size = size_of(arguments.folder, arguments.size)
        print(NOTICE.format(minutes=_minutes(length), size=ownfile.words_of(size)), flush=True)
        run_folder.guard()
        with ExitStack() as stack:
            file = _filled(stack, arguments.folder, size)
            results.append(OwnDemo(arguments.output, length, pair.QUANTUM_MS, lambda boot, _, quantum_ms: FilePair(boot, file, quantum_ms)))
            results[0].prepare()
            results[0].measure(arguments.qemu)
        results[0].report()

    return exit_status(work, lambda: "; ".join(f"{each.finished} finished runs are in {each.results}" for each in results))


if __name__ == "__main__":
    sys.exit(main())
