"""The control channel into a guest: run commands there, several at a time, and fetch files."""

from __future__ import annotations

import base64
import itertools
import json
import shlex
import socket
import threading
from concurrent.futures import Future, TimeoutError as FutureTimeout, wait
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from tests.framework.lines import Lines

COMMAND_SECONDS = 30.0
"""Time that a short command may take; generous, because guests under TCG share processors."""

SAMPLES = np.dtype([("start_us", "<u4"), ("latency_us", "<u4")])
"""The raw latencies that the load generators write."""


class GuestError(RuntimeError):
    """A guest did not answer in time, or a command in it failed."""


@dataclass(frozen=True)
class Result:
    """What a command in the guest left: exit status, stdout and stderr together."""

    status: int
    output: bytes

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode(errors="replace")


class Guest:
    """Our end of the port org.idletime.test.0; see init.sh for the lines that pass it.

    `context` gives a text about the machine (console, log) for error messages.
    """

    def __init__(self, channel: socket.socket, context: Callable[[], str]) -> None:
        self._channel = channel
        self._context = context
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Result]] = {}
        self._lock = threading.Lock()
        self._hello: Future[None] = Future()
        self._lines = Lines(channel, lambda line: self._dispatch(line.split()), self._fail_pending)

    def close(self) -> None:
        """Give up the channel; pending commands fail."""
        self._lines.close()

    def expect_hello(self) -> None:
        """The guest is about to boot again; wait_ready() waits for that. Pending commands never answer."""
        self._hello = Future()

    def wait_ready(self, timeout_seconds: float) -> None:
        """Return once the guest's init listens."""
        self._wait(self._hello, timeout_seconds, "boot")

    def start(self, command: str) -> Future[Result]:
        """Begin a shell command; the future holds its result."""
        number = next(self._numbers)
        future: Future[Result] = Future()
        with self._lock:
            self._pending[number] = future
        line = b"%d %s\n" % (number, base64.b64encode(command.encode()))
        try:
            self._channel.sendall(line)
        except OSError as error:
            raise GuestError(f"the guest's channel is gone ({error})\n{self._context()}") from error
        return future

    def run(self, command: str, timeout_seconds: float = COMMAND_SECONDS, check: bool = True) -> Result:
        """Run a shell command to its end; with `check`, a status other than 0 is an error."""
        return self.finish(self.start(command), command, timeout_seconds, check)

    def finish(self, future: Future[Result], what: str, timeout_seconds: float, check: bool = True) -> Result:
        """The result of a command that start() began."""
        result = self._wait(future, timeout_seconds, what)
        if check and result.status != 0:
            raise GuestError(f"in the guest, `{what}` ended with {result.status}: {result.text.strip()}")
        return result

    def read(self, path: str, timeout_seconds: float = COMMAND_SECONDS) -> bytes:
        """The content of a file of the guest."""
        return self.run(f"cat {shlex.quote(path)}", timeout_seconds).output

    def load(self, prefix: str = "", **parameters: object) -> Load:
        """Begin idleload; parameters are its options, e.g. block_bytes=4096; `prefix` is a command that executes it."""
        return Load(self, f"{prefix} idleload".strip(), {"device": "/dev/vda", **parameters})

    def netload(self, command: str, **parameters: object) -> Load:
        """Begin netload: "send" or "ask"; parameters are its options, e.g. host="10.9.0.1"."""
        return Load(self, f"netload {command}", parameters, latencies=command == "ask")

    def _wait(self, future: Future[Any], timeout_seconds: float, what: str) -> Any:
        try:
            return future.result(timeout_seconds)
        except FutureTimeout:
            message = f"the guest gave no answer to `{what}` within {timeout_seconds} s\n{self._context()}"
            raise GuestError(message) from None
        except EOFError:
            raise GuestError(f"the guest went away during `{what}`\n{self._context()}") from None

    def _fail_pending(self) -> None:
        with self._lock:
            waiting = [self._hello, *self._pending.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(EOFError())

    def _dispatch(self, words: list[bytes]) -> None:
        if words == [b"hello"]:
            if not self._hello.done():
                self._hello.set_result(None)
            return
        with self._lock:
            future = self._pending.pop(int(words[0]), None) if words else None
        if future:
            output = base64.b64decode(words[2]) if len(words) > 2 else b""
            future.set_result(Result(int(words[1]), output))


class Load:
    """One run of a load generator in a guest."""

    _numbers = itertools.count(1)

    def __init__(self, guest: Guest, program: str, parameters: dict[str, object], latencies: bool = True) -> None:
        self._guest = guest
        self.seconds = float(str(parameters.get("seconds", 10)))
        number = next(self._numbers)
        self._latencies, self._pidfile = f"/run/latency.{number}", f"/run/load.{number}"
        options = {**({"latency_file": self._latencies} if latencies else {}), **parameters}
        self.command = f"{program} " + " ".join(
            f"--{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
            for name, value in options.items()
        )
        self._future = guest.start(f"echo $$ >{self._pidfile}; exec {self.command}")

    def stop(self) -> None:
        """Ask for an early end (SIGTERM); the result is still reported."""
        self._guest.run(f"kill -TERM $(cat {self._pidfile})", check=False)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end, at most so long; tells whether it came."""
        return bool(wait([self._future], timeout_seconds).done)

    def result(self, extra_seconds: float = COMMAND_SECONDS) -> dict[str, Any]:
        """The generator's report; waits for the planned end and at most `extra_seconds` more."""
        result = self._guest.finish(self._future, self.command, self.seconds + extra_seconds)
        return json.loads(result.text.splitlines()[-1])

    def samples(self) -> np.ndarray:
        """Start and latency (us) of each request, in order of start; removes the guest's file."""
        data = self._guest.read(self._latencies)
        self._guest.run(f"rm -f {self._latencies} {self._pidfile}")
        return np.frombuffer(data, SAMPLES)
