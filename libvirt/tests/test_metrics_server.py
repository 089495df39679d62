# SPDX-License-Identifier: GPL-2.0-or-later
"""What readers of metrics do: ask, say nothing, read nothing, flood, try to change something. The daemon's loop goes on."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import resource as limits
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser

from idletime import state
from idletime.hostd import metrics_look, metrics_server
from idletime.hostd import settings as settings_room
from idletime.hostd.metrics_look import Book, Counts, Looks
from idletime.hostd.metrics_server import Request, Response, Server, Tcp, Unix
from idletime.hostd.settings import Api, Metrics, Settings
from test_metrics import resource, said

WAIT_SECONDS = 60.0
OPENMETRICS = "application/openmetrics-text"

Start = Callable[..., Server]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.01)


def ask(path: str, request: str = "GET /metrics HTTP/1.1\r\n\r\n") -> bytes:
    """One request, the whole answer."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(WAIT_SECONDS)
        line.connect(path)
        line.sendall(request.encode("latin-1"))
        return everything(line)


def everything(line: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := line.recv(1 << 20):
            data += more
    return data


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "m.sock")


@pytest.fixture
def start(path: str) -> Iterator[Start]:
    """A server of one page on a Unix socket; ends with the test, its thread and socket too."""
    started: list[Server] = []

    def begin(size: int = 10, *more: Any) -> Server:
        page = b"x" * size
        server = Server(lambda accept: ([page], accept or "text/plain"), (Unix(path), *more))
        server.start()
        started.append(server)
        wait_until(lambda: _answers(path), "it answers")
        return server

    yield begin
    for one in started:
        one.close()
        assert one._thread is not None and not one._thread.is_alive()
    assert not os.path.exists(path)


def _answers(path: str) -> bool:
    try:
        return bool(ask(path))
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        return False


# ---- requests

@pytest.mark.parametrize("request_, status", [
    ("GET /metrics HTTP/1.1\r\n\r\n", "200 OK"), ("GET /metrics?x=1 HTTP/1.0\n\n", "200 OK"),
    ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
    ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"), ("GET /metrics/../../etc/shadow HTTP/1.1\r\n\r\n", "404 Not Found"),
    ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
    ("DELETE /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
    ("PUT /-/reload HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "405 Method Not Allowed"),
    ("hello\r\n\r\n", "400 Bad Request"), ("\r\n\r\n", "400 Bad Request"),
    ("\xff\xfe \0 HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
    ("GET /metrics SMTP\r\n\r\n", "400 Bad Request"),
])
def test_requests(start: Start, path: str, request_: str, status: str) -> None:
    start()
    head, _, body = ask(path, request_).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == f"HTTP/1.1 {status}"
    assert ("Allow: GET, HEAD" in lines) == status.startswith("405")
    length = int(next(line for line in lines if line.startswith("Content-Length")).split()[1])
    assert len(body) == (0 if request_.startswith("HEAD") else length)


def test_a_request_without_end_is_ended(start: Start, path: str) -> None:
    server = start()
    before = server.refused
    assert ask(path, "GET /metrics HTTP/1.1\r\n" + "X-A: b\r\n" * 5000) == b""
    wait_until(lambda: server.refused == before + 1, "counted")
    assert ask(path).startswith(b"HTTP/1.1 200")


def test_rights(start: Start, path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Everybody, or a group; a group that is not there is said, and nobody gets in."""
    other, third = str(tmp_path / "group"), str(tmp_path / "none")
    start(10, Unix(other, grp.getgrgid(os.getegid()).gr_name), Unix(third, "no-such-group"))
    wait_until(lambda: _answers(other) and "no-such-group" in caplog.text, "all three were tried")
    assert [stat.S_IMODE(os.stat(one).st_mode) for one in (path, other)] == [0o666, 0o660]
    assert not os.path.exists(third)


def test_tcp(start: Start) -> None:
    """Beside the Unix socket; where the address is taken, that one goes on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        start(10, Tcp("127.0.0.1", port), Tcp("203.0.113.7", 9))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(lambda _accept: ([b"page"], "text/plain"), (Tcp("127.0.0.1", port),))
    server.start()
    try:
        wait_until(lambda: _reached(port), "it listens")
        with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as line:
            line.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert everything(line).endswith(b"\r\n\r\npage")
    finally:
        server.close()


def _reached(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_an_address_that_comes_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metrics_server, "RETRY_SECONDS", 0.05)
    folder = tmp_path / "later"
    server = Server(lambda _accept: ([b"page"], "text/plain"), (Unix(str(folder / "s")),))
    server.start()
    try:
        folder.mkdir()
        wait_until(lambda: _answers(str(folder / "s")), "it listens")
    finally:
        server.close()


# ---- readers that do not read

def test_half_open_and_slow_ones_are_ended(start: Start, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One says nothing, one half of its request, one does not read a page that no buffer holds: each is ended, others are
    served meanwhile."""
    monkeypatch.setattr(metrics_server, "SECONDS", 1.0)
    server = start(4 << 20)
    before = server.refused
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        for line, said in zip(lines, (b"", b"GET /metrics HTT", b"GET /metrics HTTP/1.1\r\n\r\n"), strict=True):
            line.settimeout(WAIT_SECONDS)
            line.connect(path)
            line.sendall(said)
        assert len(ask(path)) > 4 << 20
        wait_until(lambda: server.refused >= before + 3, "all three are ended")
        assert everything(lines[0]) == everything(lines[1]) == b""
        assert len(everything(lines[2])) < 4 << 20
    assert _threads() == 1


def _threads() -> int:
    return sum(thread.name == "idletimed-metrics" for thread in threading.enumerate())


def test_who_says_nothing_keeps_nobody_out(start: Start, path: str) -> None:
    """More lines than are taken at a time, all silent and open: a reader is served, as the oldest are ended."""
    server = start()
    with contextlib.ExitStack() as stack:
        for _ in range(metrics_server.MOST + 8):
            line = stack.enter_context(socket.socket(socket.AF_UNIX))
            line.settimeout(WAIT_SECONDS)
            line.connect(path)
        began = time.monotonic()
        assert ask(path).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - began < metrics_server.SECONDS / 2
        assert server.refused >= 8


@contextlib.contextmanager
def api_of(path: str, seconds: float) -> Iterator[list[str]]:
    """A server of an API that takes its time; what it has carried out."""
    done: list[str] = []

    async def respond(request: Request) -> Response:
        await asyncio.to_thread(lambda: (time.sleep(seconds), done.append(request.path)))
        return Response("200 OK", "text/plain", [b"ok"])

    server = Server(lambda _accept: ([b""], ""), (Unix(path, api=True),), respond)
    server.start()
    wait_until(lambda: os.path.exists(path) and _connects(path), "it listens")
    try:
        yield done
    finally:
        server.close()


def _connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(path) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_who_floods_does_not_end_what_root_changes(path: str, tmp_path: Path) -> None:
    with api_of(path, 0.6) as done:
        for folder in (tmp_path, *tmp_path.parents[:2]):
            os.chmod(folder, 0o711)
        flood = subprocess.Popen([sys.executable, "-c", FLOOD, path, "600"], **_as_nobody())
        answers = []
        for number in range(2):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(path)  # waits for its turn: it has no time limit
                line.sendall(b"PUT /%d HTTP/1.1\r\n\r\n" % number)
                answers.append(everything(line)[:15])
        assert flood.poll() is None
        flood.kill()
        flood.wait()
    assert answers == [b"HTTP/1.1 200 OK"] * 2 and [one for one in done if one in ("/0", "/1")] == ["/0", "/1"]


def test_a_change_that_takes_too_long_may_be_carried_out(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "SECONDS", 0.3)
    with api_of(path, 1.0) as done:
        answer = ask(path, "PUT /1 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 504") and b"may be carried out" in answer
        wait_until(lambda: "/1" in done, "it is carried out")


def test_memory_is_bounded(start: Start, path: str) -> None:
    """A page of 8 MiB that sixty do not read: it is sent from where it lies, so nobody's copy is kept."""
    start(8 << 20)
    ask(path)
    before = limits.getrusage(limits.RUSAGE_SELF).ru_maxrss
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            line = stack.enter_context(socket.socket(socket.AF_UNIX))
            line.settimeout(WAIT_SECONDS)
            line.connect(path)
            line.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        with socket.socket(socket.AF_UNIX) as last:
            last.settimeout(WAIT_SECONDS)
            last.connect(path)
            last.sendall(b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert everything(last)
        assert limits.getrusage(limits.RUSAGE_SELF).ru_maxrss - before < 16 << 10


# ---- the daemon's loop

BURN = """
import sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    pass
"""

FLOOD = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
lines = []
while time.monotonic() < end:
    try:
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(0.2)
        line.connect(sys.argv[1])
        line.send(b"GET /metrics HTTP/1.1\\r\\n" + (b"\\r\\n" if len(lines) % 3 else b""))
        lines.append(line)
    except OSError:
        pass
    if len(lines) > 200:
        lines.pop(0).close()
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> str:
    """With 200 VMs in it."""
    os.mkdir(tmp_path / state.FOLDER)
    for number in range(200):
        state.write_domain(str(tmp_path), said(f"vm{number}", f"0-{number}", [resource(number)]))
    return str(tmp_path)


def _of_loop(work: Callable[[], Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 3 * WAIT_SECONDS))


async def _lateness(seconds: float) -> list[float]:
    """By how much each tick of 10 ms of a loop is late, in ms."""
    found = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        await asyncio.sleep(0.01)
        found.append((time.monotonic() - now - 0.01) * 1000)
    return sorted(found)


def test_a_flood_does_not_delay_the_loop(run_dir: str) -> None:
    """200 VMs, looks all the time, three processes that flood as nobody: the daemon's loop ticks, and a reader is served."""

    async def work() -> None:
        settings = Settings(uri="", run_dir=run_dir, metrics=Metrics(look_seconds=2))
        looks = Looks(settings, Counts(), lambda: None)
        path = f"{run_dir}/{metrics_look.SOCKET}"
        await asyncio.to_thread(wait_until, lambda: _answers(path), "it answers")
        await looks.look()
        os.chmod(run_dir, 0o711)
        for folder in Path(run_dir).parents[:2]:
            os.chmod(folder, 0o711)
        busy, _ = await _beside(BURN, path)
        flooded, seconds = await _beside(FLOOD, path)
        await asyncio.to_thread(wait_until, lambda: _answers(path), "it answers after the flood")
        page = (await asyncio.to_thread(ask, path, f"GET /metrics HTTP/1.1\r\nAccept: {OPENMETRICS}\r\n\r\n")
                ).partition(b"\r\n\r\n")[2].decode()
        found = {family.name for family in openmetrics_parser.text_string_to_metric_families(page)}
        assert "idletime_view_state" in found
        assert looks.server.refused > 0, "nobody flooded"
        print(f"lateness of a loop's ticks, ms, beside three that compute: median {_part(busy, 0.5):.1f}, of 95 % "
              f"{_part(busy, 0.95):.1f}, worst {busy[-1]:.1f}; that flood: {_part(flooded, 0.5):.1f}, "
              f"{_part(flooded, 0.95):.1f}, {flooded[-1]:.1f}; {looks.server.answered} answered, {looks.server.refused} ended, "
              f"{seconds:.2f} s of processor time")
        assert _part(flooded, 0.95) < 100 + 3 * _part(busy, 0.95), "a tick of the daemon comes every 2 s"
        assert seconds < 1.5, "of 3 s"
        looks.close()

    _of_loop(work)


async def _beside(program: str, path: str) -> tuple[list[float], float]:
    """Lateness for 3 s beside three processes of nobody's, and the processor time that this process took for it."""
    processes = [subprocess.Popen([sys.executable, "-c", program, path, "4"], **_as_nobody()) for _ in range(3)]
    try:
        await asyncio.sleep(0.5)
        began = time.process_time()
        return await _lateness(3), time.process_time() - began
    finally:
        for one in processes:
            await asyncio.to_thread(one.wait)


def _part(found: list[float], share: float) -> float:
    """Of sorted values: so many are at most this."""
    return found[int(len(found) * share)]


def _as_nobody() -> dict[str, Any]:
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


# ---- looks

def test_a_scrape_asks_nobody(run_dir: str) -> None:
    """While none is read, QEMUs are not asked; while one is, they are, by the clock; a QEMU that hangs holds up no page."""

    class Domain:
        def ID(self) -> int:
            return 1

        def isActive(self) -> bool:
            return True

    asked: list[str] = []
    gate = threading.Event()

    class Connection:
        def isAlive(self) -> bool:
            return True

        def close(self) -> None:
            pass

        def lookupByUUIDString(self, uuid: str) -> Domain:
            asked.append(uuid)
            if uuid == "0-7":
                gate.wait()
            return Domain()

    async def work() -> None:
        settings = Settings(uri="test:///", run_dir=run_dir)
        looks = Looks(settings, Counts(), Connection)
        await looks.look()
        assert asked == []
        looks.book.page("")
        assert asked == []
        await looks.look()
        assert "0-7" in asked
        text = b"".join(looks.book.page(OPENMETRICS)[0]).decode()
        for number in range(9):
            looks.book.page(f"{OPENMETRICS}; version=1.0.{number}")
        assert len(looks.book._texts) == 2, "whoever asks cannot have any number of pages kept"
        families = openmetrics_parser.text_string_to_metric_families(text)
        found = {(one.name, one.labels.get("vm")): one.value for family in families for one in family.samples}
        assert found["idletime_vm_look_timestamp_seconds", "vm7"] == 100, "as it was looked at last"
        count = asked.count("0-7")
        await looks.look()
        assert asked.count("0-7") == count, "who has not answered is not asked twice"
        gate.set()
        looks.close()

    original, metrics_look.query = metrics_look.query, lambda _monitor: [resource(5)]
    patience, metrics_look.ANSWER_SECONDS = metrics_look.ANSWER_SECONDS, 0.5
    try:
        _of_loop(work)
    finally:
        metrics_look.query, metrics_look.ANSWER_SECONDS = original, patience


def test_the_page_is_made_once_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = metrics_look.samples
    monkeypatch.setattr(metrics_look, "REST", 0)
    monkeypatch.setattr(metrics_look, "samples", lambda *facts: made.append(facts) or real(*facts))
    book = Book(Counts())
    for _ in range(5):
        parts, type_ = book.page(OPENMETRICS)
        assert type_.startswith(OPENMETRICS) and parts[1].endswith(b"# EOF\n") and b"EOF" not in parts[0]
    assert len(made) == 1
    book.page("text/plain")
    assert len(made) == 2, "another format"
    book.snapshot = metrics_look.Snapshot(time.monotonic())
    book.page("text/plain")
    assert len(made) == 3, "another look"
    monkeypatch.setattr(metrics_look, "REST", 1e6)
    for _ in range(2):
        book.snapshot = metrics_look.Snapshot(time.monotonic())
        book.page("text/plain")
    assert len(made) == 4, "not all the time"


def test_off(tmp_path: Path) -> None:
    async def work() -> None:
        looks = Looks(Settings(uri="x", run_dir=str(tmp_path), metrics=Metrics(socket=False), api=Api(False)),
                      Counts(), lambda: None)
        await asyncio.sleep(0)
        assert looks.server._thread is None
        looks.close()

    _of_loop(work)
    assert list(tmp_path.iterdir()) == []


# ---- settings

@pytest.mark.parametrize("text, words", [
    ("[metrics]\nport = 70000", "metrics.port is 70000: use 0 to 65535"),
    ("[metrics]\nlook-seconds = 1", "metrics.look-seconds is 1: use 2 to 3600"),
    ("[metrics]\naddress = 'host1'", "metrics.address is 'host1': use a number"),
    ("[metrics]\nsocket = 'yes'", "metrics.socket is 'yes': it must be of type bool"),
    ("[metrics]\nfile = 1", "there is no setting 'metrics.file'; use socket, group, port, address, look-seconds"),
    ("metrics = true", "metrics is True: write [metrics] above its settings"),
])
def test_wrong_settings(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "idletimed.toml"
    file.write_text(text)
    with pytest.raises(settings_room.SettingsError) as error:
        settings_room.load(file)
    assert words in str(error.value)


def test_the_example_is_the_defaults() -> None:
    assert settings_room.load(Path(__file__).parents[1] / "etc/idletimed.toml") == Settings()


def test_addresses() -> None:
    settings = Settings(run_dir="/r", metrics=Metrics(group="adm", port=9713, address="::1"))
    api = Unix("/r/.api.sock", api=True)
    assert metrics_look.listeners(settings) == (Unix("/r/.metrics.sock", "adm"), api, Tcp("::1", 9713))
    assert metrics_look.listeners(Settings(run_dir="/r")) == (Unix("/r/.metrics.sock"), api), "no port unless it is asked for"
    assert metrics_look.listeners(Settings(metrics=Metrics(socket=False), api=Api(False))) == ()
    assert Metrics().address == "127.0.0.1"


@pytest.mark.parametrize("resync, look, stale", [(300, 15, 900), (3600, 15, 10800), (300, 3600, 10800)])
def test_figures_are_stale_when_looks_have_failed_to_come(resync: int, look: int, stale: float) -> None:
    assert metrics_look.stale_seconds(Settings(resync_seconds=resync, metrics=Metrics(look_seconds=look))) == stale
