"""A shared disk that never preempts: nbdkit with the plugin slowdisk.c, on a Unix socket."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Callable

import numpy as np

from tests.framework import paths
from tests.framework.process import Process
from tests.testbed.requests import REQUESTS, most_at_once, of_client

START_SECONDS = 10.0
"""nbdkit answers within milliseconds; the rest is for a busy host."""

POLL_SECONDS = 0.01
"""How often wait_for() reads the log; a few service times of the disks that we use."""

THREADS = 64
"""Requests that nbdkit accepts from one client at a time; more than any test has outstanding."""


@dataclass(frozen=True)
class Model:
    """How the disk behaves; the fields are the plugin's parameters, None leaves its default."""

    model: str = "fixed"
    size: str = "1G"
    service_us: int | None = None
    rate: str | None = None
    seek_min_us: int | None = None
    seek_max_us: int | None = None
    overhead_us: int | None = None
    rotation: str | None = None
    channels: int | None = None
    spin_us: int | None = None
    seed: int | None = None

    def arguments(self) -> list[str]:
        """nbdkit's key=value arguments."""
        return [f"{key.replace('_', '-')}={value}" for key, value in self.parameters().items()]

    def parameters(self) -> dict[str, Any]:
        """What was set, for reports."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass
class Disk:
    """A context manager: enter starts the disk, leave ends it and removes its files."""

    model: Model = Model()
    image: Path | None = None
    """The file with the content; None: memory, gone with the disk."""
    keep_data: bool = False
    """Whether data_log gets the data of each write."""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """nbdkit's filters, each with its arguments: {"error": ["error-rate=10%"]}."""
    reconnect_seconds: int = 0
    """How long a client's requests wait for a disk that went away."""
    fds: tuple[int, ...] = field(init=False, default=())
    """None: machines come through the socket."""
    process: Process = field(init=False)
    folder: Path = field(init=False)

    def start(self) -> Disk:
        """Start nbdkit; returns when it answers. On an error nothing is left."""
        self.folder = Path(tempfile.mkdtemp(prefix="idletime-"))
        self._started = False
        try:
            self._launch()
            self._await_greeting()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End nbdkit by its pid and remove the socket and the log. May be called twice."""
        if self._started:
            self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Disk:
        return self.start()

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def socket(self) -> Path:
        """The Unix socket that clients connect to."""
        return self.folder / "socket"

    @property
    def log(self) -> Path:
        """The file with one record a request."""
        return self.folder / "log"

    @property
    def data_log(self) -> Path:
        """The file with the data of each write, in the order of the log."""
        return self.folder / "data"

    def blockdev(self, node: str, client: str) -> str:
        """The value of -blockdev for a QEMU that comes as `client` (at most 16 bytes)."""
        return (
            f"driver=nbd,node-name={node},server.type=unix,server.path={self.socket},"
            f"export={client},cache.direct=on,reconnect-delay={self.reconnect_seconds}"
        )

    def options(self, node: str, client: str) -> list[str]:
        """QEMU's options for a block node, for a machine that comes as `client`."""
        return ["-blockdev", self.blockdev(node, client)]

    def parameters(self) -> dict[str, Any]:
        """For reports."""
        return self.model.parameters()

    def account(self, mark: int) -> dict[str, Any]:
        """What a foreground and a background have asked for since mark(), and how many background requests at a time."""
        requests = self.read(mark)
        background = of_client(requests, "background")
        return {
            "foreground_requests": len(of_client(requests, "foreground")),
            "background_requests": len(background), "background_most_at_once": most_at_once(background),
        }

    def kill(self) -> None:
        """End the disk as a crash of its server does; revive() starts it again on the same image."""
        self.process.kill()
        self.process.stop()

    def revive(self) -> None:
        """Start it again after kill(), on the same socket."""
        self.socket.unlink()
        self._launch()
        self._await_greeting()

    def mark(self) -> int:
        """The number of requests logged so far; read(mark) starts there."""
        return self.log.stat().st_size // REQUESTS.itemsize if self.log.exists() else 0

    def read(self, since: int = 0) -> np.ndarray:
        """The requests from number `since` on, in the order in which they arrived at the disk."""
        if not self.log.exists():
            return np.empty(0, REQUESTS)
        with self.log.open("rb") as log:
            log.seek(since * REQUESTS.itemsize)
            data = log.read()
        return np.frombuffer(data[: len(data) // REQUESTS.itemsize * REQUESTS.itemsize], REQUESTS)

    def wait_for(self, since: int, condition: Callable[[np.ndarray], bool], timeout_seconds: float = 30) -> None:
        """Return when the requests from number `since` on fulfil a condition."""
        end = time.monotonic() + timeout_seconds
        while not condition(self.read(since)):
            if time.monotonic() > end:
                raise self.process.error(f"not seen at the disk within {timeout_seconds} s: {condition.__qualname__}")
            time.sleep(POLL_SECONDS)

    def _launch(self) -> None:
        """Socket activation: the socket listens before nbdkit runs, so that no client comes too early."""
        plugin = paths.find_tool("slowdisk.so", "testbed")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.socket))
            listener.listen(64)
            # The protocol wants fd 3 and our own pid, which only the child knows.
            script = 'exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"'
            argv = ["sh", "-c", script, "sh", "nbdkit", "-f", "-t", str(THREADS),
                    *(f"--filter={name}" for name in self.filters), str(plugin), f"log={self.log}",
                    *self._files(), *self.model.arguments(), *chain(*self.filters.values())]
            self.process = Process(argv, self.folder / "nbdkit.log", stdin=listener.fileno())
            self.process.name = "nbdkit"
        self._started = True

    def _files(self) -> list[str]:
        image = [f"image={self.image}"] if self.image else []
        return image + ([f"data-log={self.data_log}"] if self.keep_data else [])

    def _await_greeting(self) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(START_SECONDS)
            try:
                client.connect(str(self.socket))
                greeting = client.recv(8)
            except OSError as error:
                greeting = str(error).encode()
        if greeting != b"NBDMAGIC":
            self.process.settle()
            raise self.process.error(f"no NBD greeting but {greeting!r} for {self.model}")
