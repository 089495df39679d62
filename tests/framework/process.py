"""Child processes that are stopped by recorded pid, die with their parent, and are proven gone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Sequence

STOP_SECONDS = 5.0
"""Time that a process gets between SIGTERM and SIGKILL."""

TAIL_BYTES = 2000
"""How much of a log an error message quotes."""


class ProcessError(RuntimeError):
    """A child process failed or did not answer in time; the text holds what it said."""


def tail(path: Path, limit_bytes: int = TAIL_BYTES) -> str:
    """The last `limit_bytes` of a text file, or a note that there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return "(no output)"
    return data[-limit_bytes:].decode(errors="replace").strip() or "(no output)"


class Process:
    """One child in a session of its own, with stdout and stderr in one log file.

    The session keeps the terminal's Ctrl-C from the child: we stop children in
    our order. `setpriv --pdeathsig` makes the kernel kill the child if we die
    without a chance to clean up; it execs, so the pid is the child's own.
    """

    def __init__(
        self, argv: Sequence[str], log: Path, pass_fds: Sequence[int] = (), stdin: int = subprocess.DEVNULL
    ) -> None:
        self.name = Path(argv[0]).name
        self.argv = list(argv)
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                stdin=stdin, stdout=output, stderr=subprocess.STDOUT,
                pass_fds=tuple(pass_fds), start_new_session=True,
            )
        self.pid = self._child.pid
        self.pidfd = os.pidfd_open(self.pid)

    def running(self) -> bool:
        """Whether the child has not exited yet."""
        return self._child.poll() is None

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the exit; returns the exit status (negative: the signal)."""
        try:
            return self._child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} (pid {self.pid}) still runs after {timeout_seconds} s") from None

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal, if the child still runs."""
        if self.running():
            signal.pidfd_send_signal(self.pidfd, signal_number)

    def stop(self) -> None:
        """End the child: politely, then by force; returns when it is gone. May be called twice."""
        if self.pidfd < 0:
            return
        self.kill(signal.SIGTERM)
        if not select.select([self.pidfd], [], [], STOP_SECONDS)[0]:
            self.kill(signal.SIGKILL)
        self._child.wait()
        os.close(self.pidfd)
        self.pidfd = -1

    def settle(self) -> None:
        """Give a child that has closed its channels the time to exit by itself, for a truthful error()."""
        select.select([self.pidfd], [], [], STOP_SECONDS)

    def error(self, what: str) -> ProcessError:
        """An error about this child that quotes the end of its log."""
        state = "runs" if self.running() else f"exited with {self._child.returncode}"
        return ProcessError(f"{self.name} (pid {self.pid}, {state}): {what}\n--- its output:\n{tail(self.log)}")
