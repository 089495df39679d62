# SPDX-License-Identifier: GPL-2.0-or-later
"""Threads that hang, and lines that do: what waits is waited for, nothing sleeps and hopes."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from idletime.hostd import channel as channel_room
from idletime.hostd import daemon
from idletime.hostd.channel import Channel, Ears
from idletime.hostd.hands import PATIENCE_SECONDS, Hands
from idletime.hostd.pace import BURST
from idletime.hostd.protocol import LINE_BYTES, State

WAIT_SECONDS = 20


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), WAIT_SECONDS))


class Connection:
    """A connection that may die."""

    def __init__(self) -> None:
        self.alive = True

    def isAlive(self) -> bool:
        return self.alive

    def close(self) -> None:
        self.alive = False


def test_hanging_threads_are_replaced() -> None:
    """All threads hang; after the patience others do the work; when the first come back, they end."""

    async def work() -> None:
        gate, begun = threading.Event(), threading.Barrier(3)

        def hang(_connection: Any) -> str:
            begun.wait()
            gate.wait()
            return "late"

        hands = Hands(Connection, size=2)
        late = [hands.do(hang) for _ in range(2)]
        await asyncio.to_thread(begun.wait)
        assert hands.watch(time.monotonic()) == 0
        other = hands.do(lambda _connection: "done")
        assert hands.watch(time.monotonic() + PATIENCE_SECONDS + 1) == 2
        assert await other == "done"
        assert len(hands.threads) == 4
        gate.set()
        assert await asyncio.gather(*late) == ["late", "late"]
        while len(hands.threads) > 2:
            await asyncio.sleep(0)
        hands.close()

    run(work)


def test_a_thread_may_end_while_they_are_looked_through() -> None:
    """One that comes back and finds its place taken leaves in that moment; the look goes on over the others."""

    async def work() -> None:
        hands = Hands(Connection, size=2)
        leaving = threading.Event()

        class Leaving:
            """A thread whose state is read just as another one ends."""

            replaced = False

            @property
            def since(self) -> float | None:
                ending = next(one for one in hands.threads if one is not self)
                ending.replaced = True
                hands.do(lambda _connection: leaving.set())
                hands.jobs.put(None)
                hands.jobs.put(None)
                ending.join(WAIT_SECONDS)
                return None

        hands.threads.add(Leaving())  # type: ignore[arg-type]
        assert hands.watch(time.monotonic()) == 0
        while len(hands.threads) > 1:
            await asyncio.sleep(0)
        assert leaving.is_set()

    run(work)


def test_no_more_threads_than_the_limit() -> None:
    async def work() -> None:
        gate, begun = threading.Event(), threading.Barrier(2)

        def hang(_connection: Any) -> None:
            begun.wait()
            gate.wait()

        hands = Hands(Connection, size=1, most=1)
        late = hands.do(hang)
        await asyncio.to_thread(begun.wait)
        assert hands.watch(time.monotonic() + PATIENCE_SECONDS + 1) == 1
        assert len(hands.threads) == 1
        gate.set()
        await late
        hands.close()

    run(work)


def test_a_dead_connection_is_made_anew_and_errors_are_handed_on() -> None:
    async def work() -> None:
        made: list[Connection] = []

        def connect() -> Connection:
            made.append(Connection())
            return made[-1]

        hands = Hands(connect, size=1)
        first = await hands.do(lambda connection: connection)
        assert await hands.do(lambda connection: connection) is first
        first.alive = False
        assert await hands.do(lambda connection: connection) is not first
        with pytest.raises(ZeroDivisionError):
            await hands.do(lambda _connection: 1 // 0)
        hands.close()

    run(work)


# ---- channels


class Guest:
    """QEMU's end of a channel."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.listener.setblocking(False)
        self.states: list[State] = []
        self.heard = asyncio.Event()

    async def accept(self) -> socket.socket:
        line, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        return line

    def ears(self, message: bytes = b"hello\n") -> Ears:
        def hear(state: State) -> None:
            self.states.append(state)
            self.heard.set()

        return Ears(lambda: message, hear)


async def read_line(line: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n") or data == b"\n":
        data += await asyncio.get_running_loop().sock_recv(line, 1)
    return data


def state(sequence: int = 1) -> bytes:
    message = {"version": 1, "type": "state", "session": "s", "sequence": sequence, "request": {}}
    return json.dumps(message).encode() + b"\n"


def test_a_line(tmp_path: Path) -> None:
    """First an empty line and the policy; states are heard; rubbish is answered once a second."""

    async def work() -> None:
        guest = Guest(tmp_path)
        one = Channel("d", guest.path, guest.ears())
        line = await guest.accept()
        assert await read_line(line) == b"\nhello\n"
        line.send(b"half of an old li\n" + state(7))
        assert json.loads(await read_line(line))["code"] == "malformed"
        await guest.heard.wait()
        assert [each.sequence for each in guest.states] == [7]
        line.send(b"rubbish\nmore\n" + state(8))
        guest.heard.clear()
        await guest.heard.wait()
        one.say(b"last\n")
        assert await read_line(line) == b"last\n", "the second error within a second was dropped"
        one.close()

    run(work)


def test_a_lost_line_is_connected_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_room, "RETRY_SECONDS", 0.01)

    async def work() -> None:
        guest = Guest(tmp_path)
        one = Channel("d", guest.path, guest.ears())
        (await guest.accept()).close()
        line = await guest.accept()
        assert await read_line(line) == b"\nhello\n"
        one.close()
        assert await asyncio.get_running_loop().sock_recv(line, 1) == b""

    run(work)


def test_no_descriptor_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is connected later, and whoever made it goes on."""
    monkeypatch.setattr(channel_room, "RETRY_SECONDS", 0.01)
    refused = []

    class Sockets(socket.socket):
        def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
            if fileno is None and len(refused) < 2:
                refused.append(type)
                raise OSError(24, "Too many open files")
            super().__init__(family, type, proto, fileno)

    async def work() -> None:
        guest = Guest(tmp_path)
        monkeypatch.setattr(channel_room.socket, "socket", Sockets)
        one = Channel("d", guest.path, guest.ears())
        assert not one.open and len(refused) == 1
        assert await read_line(await guest.accept()) == b"\nhello\n"
        one.close()

    run(work)


def test_as_many_descriptors_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each VM with an agent; where it may not have more, idletimed starts all the same."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        daemon._more_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    def refused(*_rest: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "setrlimit", refused)
    daemon._more_descriptors()


def test_only_the_domains_qemu_is_spoken_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody else's socket at the channel's path is left at once; it hears nothing."""

    async def work() -> None:
        guest = Guest(tmp_path)
        stranger = Channel("d", guest.path, guest.ears(), pid=1)
        line = await guest.accept()
        assert await asyncio.get_running_loop().sock_recv(line, 1) == b"" and not stranger.open
        stranger.close()
        mine = Channel("d", guest.path, guest.ears(), pid=os.getpid())
        assert await read_line(await guest.accept()) == b"\nhello\n"
        mine.close()

    run(work)
    assert f"domain 'd': process {os.getpid()} listens at the agent's channel" in caplog.text


def test_nobody_listens(tmp_path: Path) -> None:
    async def work() -> None:
        one = Channel("d", str(tmp_path / "none"), Ears(lambda: b"", lambda _: None))
        assert not one.open
        one.say(b"into the void\n")
        one.close()

    run(work)


def test_a_guest_that_does_not_read(tmp_path: Path) -> None:
    """Of ten thousand messages, those in the socket's buffer and the last one arrive; nothing else is kept."""

    async def work() -> None:
        guest = Guest(tmp_path)
        one = Channel("d", guest.path, guest.ears())
        line = await guest.accept()
        for number in range(10000):
            one.say(b"%08d" % number * 100 + b"\n")
        assert len(one._sending) + len(one._next) < 2000
        one.say(b"last\n")
        while (found := await read_line(line)) != b"last\n":
            assert len(found.strip()) in (800, 5)
        one.close()

    run(work)


def test_a_flood_is_not_read(tmp_path: Path) -> None:
    """A guest that writes without end gets rid of its burst and a read or two, then it waits."""

    async def work() -> None:
        guest = Guest(tmp_path)
        one = Channel("d", guest.path, guest.ears())
        line = await guest.accept()
        written, refused, flood = 0, 0, b"x" * LINE_BYTES
        while refused < 500:
            try:
                written += line.send(flood)
            except BlockingIOError:
                refused += 1
            await asyncio.sleep(0)
        room = 2 * line.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # Reading goes on at 16 KiB a second; the test takes a small part of one.
        assert written <= BURST + room + 2 * LINE_BYTES
        one.close()

    run(work)
