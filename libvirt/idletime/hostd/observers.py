# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps idletime-observers as observe.py decides: starts, finds, replaces, stops them. Context: the event loop.

An observer outlives idletimed. It is found again by its socket in the arena, whose other end the kernel names (and whose
end is its death); there are not two, since it holds a lock beside it. Where systemd runs and has the unit, it is started
as idletime-observer@RESOURCE; elsewhere as a process of its own.

    RUN_DIR/.observers/RESOURCE.env    its options, for the unit
    RUN_DIR/.observers/RESOURCE.list   whom it leaves out, a line each; read again when it changes
    RUN_DIR/.observers/RESOURCE.log    what it said last
    ARENA/observed                     where observe = true: without an observer, background goes by deadline only. Made
                                       when it observes, so nobody is blind where none can run; removed when it does not
                                       come back within GONE_SECONDS, and when it is not wanted
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from .. import observed, whole
from ..observed import ObserverState
from ..qmp import peer_of
from ..resolve.tree import Tree
from . import observe
from .observe import Observer
from .settings import Settings

PROGRAM = "idletime-observer"
FOLDER, SOCKET, MARKER = ".observers", "observer", "observed"

START_SECONDS = 15.0
"""The kernel verifies its programs for a second; the rest is for busy hosts."""
POLL_SECONDS = 0.1

RETRY_SECONDS, RETRY_MOST_SECONDS = 1.0, 300.0
STEADY_SECONDS = 60.0
"""Who lived that long is started again at once when it dies."""
GONE_SECONDS = 10.0
STOP_SECONDS = 5.0

UNIT = "idletime-observer@{}.service"
UNIT_FILES = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
              "/lib/systemd/system")
FOLDERS = "/usr/local/lib/idletime/bin:/usr/lib/idletime/bin:/opt/idletime/lib/idletime/bin"
"""Where packages and 'make install' put it, if it is not in the PATH."""

STARTS = "it starts"
_ABSENT = "the program '{}' is not installed"
_INSTALL = "install idletime-host with its idletime-observer, or set observer in /etc/idletime/idletimed.toml"

log = logging.getLogger("idletimed")


class Observers:
    """All of them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = Path(settings.run_dir, FOLDER)
        self._all: dict[str, _Kept] = {}
        self._told: list[ObserverState] | None = None
        self._said: tuple[str, ...] = ()

    def want(self, wanted: Iterable[Observer]) -> None:
        """Bring all to this. To be called when all VMs are known: what is not wanted is stopped."""
        by_name = {one.resource: one for one in wanted}
        there = {path.stem for path in self.folder.glob("*.env")}
        for name in there | by_name.keys() | self._all.keys():
            if name not in self._all:
                self._all[name] = _Kept(self, name)
            self._all[name].want(by_name.get(name))
        self.tell()

    def close(self) -> None:
        """Look after them no more; they run on."""
        for one in self._all.values():
            one.close()

    def tell(self) -> None:
        """Say how they are: in the file, and in the log what is new."""
        self._all = {name: one for name, one in self._all.items() if not one.done}
        states = [one.state() for _, one in sorted(self._all.items()) if one.wanted]
        if states == self._told:
            return
        self._told = states
        wrong = {str(one): one.declared for one in states
                 if not one.alive and (one.declared or one.device) and one.problem != STARTS}
        for problem, declared in wrong.items():
            if problem not in self._said:
                log.log(logging.WARNING if declared else logging.INFO, "%s", problem)
        self._said = tuple(wrong)
        with contextlib.suppress(OSError):
            observed.write(self.settings.run_dir, states)


class _Kept:
    """The observer of one resource."""

    def __init__(self, all_: Observers, name: str) -> None:
        self._all, self.name = all_, name
        self.wanted: Observer | None = None
        self.alive, self.problem, self.remedy = False, "", ""
        self.done = False
        self._changed = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._died: float | None = None
        self._mute = False  # what was started last served nobody in time
        self._task = asyncio.create_task(self._follow())

    def want(self, wanted: Observer | None) -> None:
        if self.done:
            self.done, self._task = False, asyncio.create_task(self._follow())
        if wanted != self.wanted:
            self._changed.set()
        self.wanted = wanted
        self._mark()

    def close(self) -> None:
        self._task.cancel()

    def state(self) -> ObserverState:
        assert self.wanted is not None
        one = self.wanted
        problem, remedy = (one.problem, one.remedy) if not one.runs else (self.problem, self.remedy)
        if one.runs and not self.alive and not problem:
            problem = STARTS
        return ObserverState(self.name, one.kind, one.device, self.alive, one.declared, one.hidden,
                             "" if self.alive else problem, "" if self.alive else remedy, one.hidden_disks)

    # ---- its life

    async def _follow(self) -> None:
        delay = RETRY_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            try:
                began = loop.time()
                ended = await self._once()
            except Exception as error:  # whatever it is, the next round comes
                log.debug("resource '%s'", self.name, exc_info=True)
                ended = self._failed(f"{type(error).__name__}: {error}", "")
            if ended:
                return
            if self._changed.is_set():
                delay = RETRY_SECONDS
                continue
            delay = RETRY_SECONDS if loop.time() - began > STEADY_SECONDS else delay
            await self._pause(delay)
            delay = min(2 * delay, RETRY_MOST_SECONDS)

    async def _once(self) -> bool:
        """One round: find it or start it, and wait until it ends or something else is wanted. True: nothing is left to do."""
        wanted = self.wanted if self.wanted is not None and self.wanted.runs else None
        line = await self._found()
        if wanted is None:
            await self._stop(line)
            self._forget()
            if self.wanted is not None:  # one that cannot run: until that changes
                await self._changed.wait()
            self.done = self.wanted is None
            self._all.tell()
            return self.done
        self._write(wanted)
        if line is not None and not self._is(line, wanted):
            await self._stop(line)
            line = None
        if line is None:
            line = await self._start(wanted)
        if line is None:
            return False
        with contextlib.closing(line):
            self._lives()
            await self._watch(line, wanted)
        return False

    async def _watch(self, line: socket.socket, wanted: Observer) -> None:
        """Until it ends, or something other than its list changes."""
        loop = asyncio.get_running_loop()
        end = asyncio.ensure_future(_ended(loop, line))
        try:
            while True:
                change = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({end, change}, return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if end.done():
                    self._dies()
                    return
                if self.wanted is None or not self.wanted.runs or self._arguments(self.wanted) != self._arguments(wanted):
                    return
                self._changed.clear()
                self._write(self.wanted)
                self._mark()
        finally:
            end.cancel()

    def _lives(self) -> None:
        self.alive, self.problem, self.remedy, self._died = True, "", "", None
        self._mark()
        log.info("resource '%s': %s is observed", self.name, self.wanted.device if self.wanted else "")
        self._all.tell()

    def _dies(self) -> None:
        self.alive, self._died = False, asyncio.get_running_loop().time()
        self._reap()
        self._failed(self._last_words() or "the observer ended", "")

    def _failed(self, problem: str, remedy: str) -> bool:
        self.alive = False
        self.problem, self.remedy = problem, remedy or f"see {self._file('log')}; it is started again"
        self._all.tell()
        return False

    async def _pause(self, seconds: float) -> None:
        """Until it is to be started again; meanwhile nobody stays blind."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0 and not self._changed.is_set():
            self._mark()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(left, 1.0))

    # ---- start and stop

    async def _start(self, wanted: Observer) -> socket.socket | None:
        program = self._all.settings.observer
        by_systemd = _unit_there(self._all.settings)
        found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{FOLDERS}")
        if not by_systemd and found is None:
            self._failed(_ABSENT.format(program), _INSTALL)
            return None
        if by_systemd:
            await self._systemd("restart" if self._mute else "start")
        elif self._process is None:
            with open(self._file("log"), "wb") as said:
                self._process = subprocess.Popen([str(found), *self._arguments(wanted)], stdin=subprocess.DEVNULL,
                                                 stdout=said, stderr=said, start_new_session=True, cwd="/")
        return await self._comes()

    async def _systemd(self, what: str) -> None:
        await asyncio.to_thread(subprocess.run, ["systemctl", what, "--no-block", UNIT.format(self.name)], check=False,
                                stdin=subprocess.DEVNULL, capture_output=True, timeout=STOP_SECONDS)

    async def _comes(self) -> socket.socket | None:
        loop = asyncio.get_running_loop()
        until = loop.time() + START_SECONDS
        while loop.time() < until:
            line = await self._found()
            if line is not None:
                self._mute = False
                return line
            self._mark()
            if self._reap():
                break
            await asyncio.sleep(POLL_SECONDS)
        self._mute = True
        self._failed(self._last_words() or f"it did not begin to observe within {START_SECONDS:g} s", "")
        return None

    async def _found(self) -> socket.socket | None:
        """A line to the observer that lives: its end is the observer's. Only what runs as us can be one."""
        loop = asyncio.get_running_loop()
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            await loop.sock_connect(line, str(self._arena() / SOCKET))
            if peer_of(line).uid == os.geteuid():
                return line
        except OSError:
            pass
        line.close()
        return None

    def _is(self, line: socket.socket, wanted: Observer) -> bool:
        """Whether what lives does what is wanted, and is the program that would be started."""
        pid = peer_of(line).pid
        return self._options(pid) == self._arguments(wanted) and not Tree("/").replaced(pid)

    async def _stop(self, line: socket.socket | None) -> None:
        """Ends it; the process behind an arena's socket is ended only if it is one of ours for this arena. systemd may be about
        to start one that nobody finds yet, again and again."""
        self.alive = False
        self._mark()
        if _unit_there(self._all.settings):
            await self._systemd("stop")
        if line is None:
            return
        with contextlib.closing(line):
            if self._options(pid := peer_of(line).pid)[:2] != ["--arena", str(self._arena())]:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_ended(asyncio.get_running_loop(), line), STOP_SECONDS)
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        while not self._reap() and self._process is not None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(POLL_SECONDS)

    def _options(self, pid: int) -> list[str]:
        """With which options a process observes; none if it is no observer."""
        command = _command_of(pid)
        names = (PROGRAM, Path(self._all.settings.observer).name)
        at = next((at for at, word in enumerate(command[:2]) if Path(word).name in names), None)  # a script has its shell first
        return [] if at is None else command[at + 1:]

    def _reap(self) -> bool:
        """Whether the process that we started has ended."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            return True
        return False

    # ---- files

    def _arena(self) -> Path:
        return Path(self.wanted.path if self.wanted else f"{self._all.settings.run_dir}/{self.name}")

    def _file(self, kind: str) -> str:
        return str(self._all.folder / f"{self.name}.{kind}")

    def _arguments(self, wanted: Observer) -> list[str]:
        return observe.arguments(wanted, self._file("list"))

    def _write(self, wanted: Observer) -> None:
        self._all.folder.mkdir(mode=0o755, exist_ok=True)
        _replace(self._file("list"), wanted.leave_out)
        _replace(self._file("env"), [f'OBSERVE="{" ".join(self._arguments(wanted))}"'])

    def _forget(self) -> None:
        for kind in ("env", "list", "log"):
            with contextlib.suppress(OSError):
                os.unlink(self._file(kind))

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, IndexError):
            text = Path(self._file("log")).read_text(errors="replace").strip().splitlines()[-1]
            return "" if text == "ready" else text.removeprefix("idletime-observer: ")[:500]
        return ""

    def _mark(self) -> None:
        """Make the marker where it belongs, and nowhere else."""
        gone = self._died is None or asyncio.get_running_loop().time() - self._died > GONE_SECONDS
        wanted = self.wanted is not None and self.wanted.declared and self.wanted.runs
        mark(self._arena(), bool(wanted and (self.alive or not gone)))


def mark(arena: Path, declared: bool) -> None:
    """Make or remove an arena's file `observed`. The folder is its QEMU's user's: nothing is followed."""
    with contextlib.suppress(OSError):
        folder = os.open(arena, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if declared:
                os.close(os.open(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644,
                                 dir_fd=folder))
            else:
                os.unlink(MARKER, dir_fd=folder)
        finally:
            os.close(folder)


def _replace(path: str, lines: Sequence[str]) -> None:
    """Write a file by rename, where it differs."""
    text = "".join(f"{line}\n" for line in lines)
    with contextlib.suppress(OSError):
        if Path(path).read_text() == text:
            return
    whole.write(path, text)


async def _ended(loop: asyncio.AbstractEventLoop, line: socket.socket) -> None:
    """Return when the other end is gone. What it hands over is not taken: a page is nothing to us."""
    with contextlib.suppress(OSError):
        while await loop.sock_recv(line, 64):
            pass


def _command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _unit_there(settings: Settings) -> bool:
    """Whether systemd starts observers: it runs, it has the unit, and the unit may write where arenas are."""
    return settings.run_dir == "/run/idletime" and os.path.isdir("/run/systemd/system") and any(
        os.path.exists(f"{folder}/{UNIT.format('')}") for folder in UNIT_FILES)
