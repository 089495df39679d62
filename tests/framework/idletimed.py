"""idletimed in a private libvirtd's namespaces, and what tests want to know of it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Callable

from tests.framework import paths
from tests.framework.libvirtd import CONFIG, Inside, Libvirtd

PYTHON = ["/usr/bin/env", f"PYTHONPATH={paths.ROOT / 'libvirt'}", "/usr/bin/python3", "-m"]
"""The distribution's Python: libvirt's binding is its."""

WAIT_SECONDS = 30.0
POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Return when a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(POLL_SECONDS)


def virt_idletime(host: Libvirtd, *arguments: str, check: bool = True) -> str:
    """Run the command inside; what it printed, errors included."""
    result = host.call(*PYTHON, "idletime", *arguments, check=check)
    return str(result.stdout + result.stderr)


def answer(host: Libvirtd, path: str, name: str = ".metrics.sock") -> str:
    """What idletimed answers on one of its sockets."""
    script = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(f'/run/idletime/{sys.argv[1]}');"
              "s.sendall(f'GET {sys.argv[2]} HTTP/1.0\\r\\n\\r\\n'.encode());\n"
              "while d := s.recv(65536): sys.stdout.write(d.decode())")
    return str(host.call("/usr/bin/python3", "-c", script, name, path).stdout)


@dataclass
class Idletimed:
    """A context manager. May be stopped, killed and started again."""

    host: Libvirtd
    process: Inside = field(init=False)

    def start(self) -> Idletimed:
        """Start it; returns when it has seen all domains."""
        self._connected = self.log().count("connected to")
        argv = [*PYTHON, "idletime.hostd.daemon", "--config", f"/run/{CONFIG}"]
        self.process = self.host.spawn(argv, "idletimed.log")
        wait_until(lambda: self.log().count("connected to") > self._connected or not self.process.running(),
                   "idletimed connects")
        assert self.process.running(), self.log()
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it; asked politely, it ends well."""
        status = self.process.stop(number)
        assert number != signal.SIGTERM or status in (0, None), f"exit status {status}: {self.log()}"

    def __enter__(self) -> Idletimed:
        return self.start()

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        assert "Traceback" not in self.log(), self.log()

    def log(self) -> str:
        """All that it said, restarts included."""
        file = self.host.folder / "log" / "idletimed.log"
        return file.read_text() if file.exists() else ""

    def cpu_seconds(self) -> float:
        """Processor time of this run, all threads, as the scheduler counts it (ns)."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def rss_mib(self) -> float:
        """Resident memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
