"""What every lab is: hosts that end with it, disks of their own, and logs that stay."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, Sequence

from tests.cluster.place import ClusterError, need_root, run
from tests.testbed import observer
from tests.testbed.disk import Disk, Model
from tests.testbed.loop import LoopDisk

SERVICE_US = 5000


class Hosts(ABC):
    """A context manager. cache: the lab's folder, with run and logs below it; logs: of its hosts, beside those of services."""

    cache: Path
    logs: Sequence[str] = ()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            need_root()
            if (lacks := observer.missing()) or observer.block_controller() != observer.BLKIO:
                raise ClusterError(lacks or f"{observer.BLKIO} is not mounted: the lab has its hosts' cgroups there")
            shutil.rmtree(self.cache / "run", ignore_errors=True)
            stack.callback(self._keep_logs)
            self._make(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @abstractmethod
    def _make(self, stack: ExitStack) -> None:
        """All of it; what the stack has ends with the lab."""

    def _keep_logs(self) -> None:
        """What was said stays, and nothing else."""
        place, kept = self.cache / "run", self.cache / "logs"
        shutil.rmtree(kept, ignore_errors=True)
        for log in (log for pattern in ("log", "*.log", *self.logs) for log in place.glob(f"*/{pattern}")):
            target = kept / log.relative_to(place).parts[0] / log.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, target)
        shutil.rmtree(place, ignore_errors=True)


def loop_disk(stack: ExitStack, client: str) -> str:
    """A block device that serves one request at a time in 5 ms, as long as the stack; client: its name in the disk's log."""
    return stack.enter_context(LoopDisk(stack.enter_context(Disk(Model(service_us=SERVICE_US))), client)).device


def formatted(device: str) -> str:
    """The same device, with an empty file system."""
    run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", device], 120)
    return device
