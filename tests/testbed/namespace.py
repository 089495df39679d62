"""A network namespace of our own, entered by one thread; it is gone when that thread and all its devices are."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Sequence, TypeVar

from tests.framework.process import Process

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100

COMMAND_SECONDS = 20.0
"""ip and tc answer within milliseconds."""

T = TypeVar("T")


class NamespaceError(RuntimeError):
    """This machine cannot give us a network of our own; the text says what is missing."""


def _unshare() -> None:
    """Move the calling thread into a new network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NamespaceError(f"no network namespace for us ({reason}): run this as root, on a kernel with CONFIG_NET_NS")


class Namespace:
    """A context manager: enter makes the namespace, leave lets it go, with all that is in it.

    What call() runs, runs in a thread inside; processes that it starts are inside, too. No file or mount
    names the namespace, so the kernel removes it with its last user, however we end.
    """

    def __init__(self) -> None:
        self._inside = ThreadPoolExecutor(max_workers=1)

    def __enter__(self) -> Namespace:
        try:
            self.call(_unshare)
            self.fd: int = self.call(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            self.command("ip", "link", "set", "lo", "up")
        except BaseException:
            self._inside.shutdown()
            raise
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._inside.shutdown()
        os.close(self.fd)

    @property
    def path(self) -> str:
        """How `ip link ... netns` of another namespace of this process names this one."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread inside, and return its result."""
        return self._inside.submit(function).result()

    def start(self, argv: Sequence[str], log: Path, pass_fds: Sequence[int] = ()) -> Process:
        """Start a process inside."""
        return self.call(lambda: Process(argv, log, pass_fds))

    def command(self, *argv: str) -> str:
        """Run ip, tc and the like inside; returns what they print."""
        try:
            result = self.call(lambda: subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_SECONDS))
        except FileNotFoundError:
            raise NamespaceError(f"{argv[0]} is missing: install the packages of `make deps`") from None
        if result.returncode != 0:
            raise NamespaceError(f"`{' '.join(argv)}` failed: {result.stderr.strip()}")
        return result.stdout

    def sysctl(self, name: str, value: int) -> None:
        """Set a network sysctl of this namespace, e.g. net/ipv6/conf/all/disable_ipv6."""
        path = Path("/proc/sys") / name
        self.call(lambda: path.write_text(f"{value}\n"))

    def has_sysctl(self, name: str) -> bool:
        """Whether this kernel has it."""
        return self.call((Path("/proc/sys") / name).exists)

    def tap(self, name: str, queues: int = 1, vnet_header: bool = True) -> list[int]:
        """Make a tap; returns one open file descriptor a queue. It goes when the last of them is closed."""
        return self.call(lambda: _open_tap(name, queues, vnet_header))


def _open_tap(name: str, queues: int, vnet_header: bool) -> list[int]:
    flags = IFF_TAP | IFF_NO_PI | (IFF_VNET_HDR if vnet_header else 0) | (IFF_MULTI_QUEUE if queues > 1 else 0)
    fds: list[int] = []
    try:
        for _ in range(queues):
            fds.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            fcntl.ioctl(fds[-1], TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    except OSError as error:
        for fd in fds:
            os.close(fd)
        raise NamespaceError(f"no tap {name}: {error}: load the module tun, and run this as root") from error
    return fds


def number_of(value: Any) -> int:
    """A counter of `tc -j`, which leaves some out when they are 0."""
    return int(value or 0)
