"""A socket that speaks in lines, read by a thread of its own."""

from __future__ import annotations

import socket
import threading
from typing import Callable


class Lines:
    """Hands each line to `take`, in the thread; `ended` is called there once, when either end has hung up."""

    def __init__(
        self, channel: socket.socket, take: Callable[[bytes], None], ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel, self._take, self._ended = channel, take, ended
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up; returns when the thread has ended."""
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._thread.join()
        self._channel.close()

    def _read(self) -> None:
        try:
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    self._take(line)
        except OSError:
            pass
        self._ended()
