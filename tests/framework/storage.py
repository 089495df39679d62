"""qemu-storage-daemon: block nodes and exports without a machine."""

from __future__ import annotations

import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Sequence

from tests.framework import paths
from tests.framework.process import Process
from tests.framework.qmp import Qmp

PROGRAM = paths.STAGED_QEMU.with_name("qemu-storage-daemon")


class StorageDaemon:
    """A context manager: enter starts it with these options, leave ends it. `qmp` is its monitor."""

    def __init__(self, *options: str) -> None:
        self._options: Sequence[str] = options
        self._stack = ExitStack()

    def __enter__(self) -> StorageDaemon:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storage-")))
            ours, its = socket.socketpair()
            with its:
                monitor = ("--chardev", f"socket,id=monitor,fd={its.fileno()}", "--monitor", "chardev=monitor")
                process = Process([str(PROGRAM), *monitor, *self._options], folder / "log", (its.fileno(),))
            stack.callback(process.stop)
            try:
                self.qmp = Qmp(ours, PROGRAM.name)
            except Exception as error:
                ours.close()
                process.settle()
                raise process.error(f"no QMP session ({error})") from error
            stack.callback(self.qmp.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
