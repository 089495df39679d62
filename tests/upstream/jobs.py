"""Which of QEMU's own tests are run, and how: a job is one program, or one iotest, that can be repeated alone."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.framework import paths

UNITS = """test-bdrv-drain test-bdrv-graph-mod test-block-accounting test-block-backend test-block-iothread test-blockjob
    test-blockjob-txn test-throttle test-aio test-aio-multithread test-thread-pool test-coroutine test-nested-aio-poll
    test-timed-average test-iov test-vmstate""".split()
"""Everything of tests/unit that links the block layer's request, drain and thread code."""

QTESTS = "hd-geo-test drive_del-test".split()
"""Every qtest that starts a virtio-blk device here, or unplugs drives; and of qos-test those of virtio-blk."""

IOTESTS = {
    "-raw": "093 136 140 141 143 151 184 208 233 block-status-cache inactive-node-nbd mirror-ready-cancel-error".split(),
    "-raw -nbd": "094 119 123 147 205 241 259".split(),
    "-qcow2": """030 040 051 058 068 091 096 118 127 129 139 151 153 155 156 157 181 182 185 186 192 194 196 200 201 202 203 209 218
        223 227 234 235 238 240 245 255 256 258 262 264 267 277 280 281 296 299 300 302 307 backing-file-invalidation
        backup-discard-source commit-zero-blocks copy-before-write export-incoming-iothread graph-changes-while-io
        image-fleecing iothreads-commit-active iothreads-create iothreads-nbd-export iothreads-resize iothreads-stream
        migrate-bitmaps-postcopy-test migrate-bitmaps-test migrate-during-backup migration-permissions
        mirror-change-copy-mode mirror-top-perms nbd-multiconn nbd-qemu-allocation nbd-reconnect-on-open nbd-tls-iothread
        qcow2-internal-snapshots qsd-jobs qsd-migrate stream-error-on-reset stream-under-throttle""".split(),
}
"""Every iotest whose text names block jobs, NBD servers, throttling, drains, I/O threads, virtio-blk or migration, but those of
other formats. By the options of `check`."""


@dataclass(frozen=True)
class Tree:
    """A built QEMU: its objects, and the installed programs, which find their firmware."""

    name: str
    obj: Path
    stage: Path

    def environment(self) -> dict[str, str]:
        """What qtests and iotests take the programs from."""
        programs = self.stage / "bin"
        qemu, img = str(programs / "qemu-system-x86_64"), str(programs / "qemu-img")
        return os.environ | {
            "QTEST_QEMU_BINARY": qemu, "QTEST_QEMU_IMG": img,
            "QEMU_PROG": qemu, "QEMU_IMG_PROG": img, "QEMU_IO_PROG": str(programs / "qemu-io"),
            "QTEST_QEMU_STORAGE_DAEMON_BINARY": str(self.obj / "storage-daemon" / "qemu-storage-daemon"),
        }


TREES = {
    "unpatched": Tree("unpatched", paths.BUILD / "unpatched" / "obj", paths.BUILD / "unpatched" / "stage"),
    "patched": Tree("patched", paths.BUILD / "qemu" / "obj", paths.BUILD / "stage"),
}


@dataclass(frozen=True)
class Job:
    """A program to run in a folder of a tree's objects."""

    name: str
    folder: str
    command: tuple[str, ...]


def programs() -> list[str]:
    """What has to be built, as ninja names it."""
    return [*(f"tests/unit/{name}" for name in UNITS), *(f"tests/qtest/{name}" for name in ("qos-test", *QTESTS)),
            "qemu-nbd", "storage-daemon/qemu-storage-daemon"]


def _virtio_blk_paths(tree: Tree) -> list[str]:
    """Of the tests of all devices those of virtio-blk, each by its whole path: GLib takes no part of one."""
    found = subprocess.run(["tests/qtest/qos-test", "-l"], cwd=tree.obj, env=tree.environment(), capture_output=True,
                           text=True, check=True)
    return [line for line in found.stdout.splitlines() if line.startswith("/") and "virtio-blk" in line]


def jobs(tree: Tree) -> list[Job]:
    """All jobs; the same for both trees."""
    chosen = [word for path in _virtio_blk_paths(tree) for word in ("-p", path)]
    return [
        *(Job(name, ".", (f"tests/unit/{name}", "--tap")) for name in UNITS),
        Job("qos-test", ".", ("tests/qtest/qos-test", "--tap", "-k", *chosen)),
        *(Job(name, ".", (f"tests/qtest/{name}", "--tap", "-k")) for name in QTESTS),
        *(Job(f"iotest{options.replace(' ', '')}-{name}", "tests/qemu-iotests", ("./check", *options.split(), "-tap", name))
          for options, names in IOTESTS.items() for name in names),
    ]
