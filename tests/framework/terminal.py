"""A program in a real terminal: tmux, whose screen is read and whose keys are pressed."""

from __future__ import annotations

import re
import shlex
from typing import Callable, Sequence

from tests.framework.idletimed import wait_until

Call = Callable[..., str]
"""Runs a program to its end; what it printed."""

COLOUR = re.compile("\x1b\\[[0-9;]*m")


class Terminal:
    """A context manager. call: runs tmux where the program is to run. socket: of a tmux server of its own. size: columns, rows."""

    def __init__(self, call: Call, socket: str, argv: Sequence[str], size: tuple[int, int] = (150, 40)) -> None:
        self._call, self._socket = call, socket
        self._argv, self._size = list(argv), size

    def __enter__(self) -> Terminal:
        columns, rows = map(str, self._size)
        # What the program leaves on the screen can still be read, and its exit status.
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "sh", "-c",
                   f"{shlex.join(self._argv)}; echo status $?; exec cat")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        return self._call("env", "TERM=xterm-256color", "LC_ALL=C.UTF-8", "tmux", "-S", self._socket, *arguments)

    def press(self, *keys: str) -> None:
        """Keys as tmux names them: "c", "Enter", "Down"."""
        self._tmux("send-keys", *keys)

    def coloured(self) -> str:
        """The screen with its colours."""
        return self._tmux("capture-pane", "-p", "-e")

    def screen(self) -> str:
        return COLOUR.sub("", self.coloured())

    def shows(self, *words: str) -> str:
        """Return the screen when it shows all of these."""
        seen: list[str] = [""]

        def there() -> bool:
            seen[0] = self.screen()
            return all(re.search(word, seen[0]) for word in words)
        try:
            wait_until(there, f"the terminal shows {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{seen[0]}") from None
        return seen[0]
