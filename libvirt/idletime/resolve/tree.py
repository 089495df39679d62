# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's files below one root, so that tests run on trees of files. All reads of this room go through here."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import PurePosixPath

from ..facts import RUN_DIR

MAX_LINKS = 40  # as the kernel allows


class Tree:
    """Paths are absolute, as the host sees them; links are followed within the root, and read once. run_dir: idletimed's."""

    def __init__(self, root: str = "/", run_dir: str = RUN_DIR):
        self.root, self.run_dir = root.rstrip("/"), run_dir
        self._links: dict[str, str | None] = {}
        self.memory: dict[str, object] = {}  # what was made of files, by name

    def real(self, path: str) -> str:
        """The path without symbolic links. What does not exist is kept as it is."""
        done, todo, links = "/", list(PurePosixPath("/" + path).parts[1:]), 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                done = os.path.dirname(done)
                continue
            here = os.path.join(done, part)
            target = self._link(here) if links < MAX_LINKS else None
            if target is None:
                done = here
                continue
            links += 1
            done = "/" if target.startswith("/") else done
            todo = [piece for piece in target.split("/") if piece not in ("", ".")] + todo
        return done

    def _link(self, path: str) -> str | None:
        if path not in self._links:
            try:
                self._links[path] = os.readlink(self.root + path)
            except OSError:
                self._links[path] = None
        return self._links[path]

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.root + self.real(path))

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted; none if it cannot be read."""
        with contextlib.suppress(OSError):
            return self.listed(path)
        return []

    def listed(self, path: str) -> list[str]:
        """Likewise; none if there is no such directory. Raises OSError where there is one that cannot be read."""
        try:
            return sorted(os.listdir(self.root + self.real(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def text(self, path: str) -> str | None:
        """Text of a file without the white space around it; None if it cannot be read."""
        text = self.whole_text(path)
        return None if text is None else text.strip()

    def whole_text(self, path: str) -> str | None:
        """Text of a file; None if it cannot be read."""
        try:
            with open(self.root + self.real(path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return None

    def replaced(self, pid: int | None) -> bool | None:
        """Whether another file has taken the place of a process's program since it began; None if that cannot be told."""
        try:
            return None if pid is None else os.readlink(f"{self.root}/proc/{pid}/exe").endswith(" (deleted)")
        except OSError:
            return None

    def head(self, path: str, size: int, offset: int = 0) -> bytes:
        """Bytes of a regular file or a block device; empty if it cannot be read."""
        real = self.root + self.real(path)
        try:
            if not _readable(os.stat(real)):  # opening a watchdog starts it
                return b""
            descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:  # a pipe may have come in its place
                return os.pread(descriptor, size, offset) if _readable(os.fstat(descriptor)) else b""
            finally:
                os.close(descriptor)
        except OSError:
            return b""

    def device_number(self, path: str) -> str | None:
        """"8:1" of a block device node; None if it is none (in a test tree nothing is one)."""
        try:
            status = os.stat(self.root + self.real(path))
        except OSError:
            return None
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if stat.S_ISBLK(status.st_mode) else None


def _readable(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)
