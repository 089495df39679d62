# SPDX-License-Identifier: GPL-2.0-or-later
"""The API: who may what, what is answered, and what comes of a change; on its real socket, with a domain that is played."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import pytest

from idletime import arena, jobview, state
from idletime.conf import resources, rules
from idletime.hostd import api_host, metrics_look, metrics_server
from idletime.hostd.api import LEFT_SECONDS, MOST_TIMELINES, Api
from idletime.hostd.hands import Hands
from idletime.hostd.metrics_look import Counts, Looks
from idletime.hostd.metrics_server import Request
from idletime.hostd.settings import Metrics, Settings
from test_arena import write_arena
from test_change import BACKGROUND, BARE, UUID, FakeDomain, marked
from test_gauge import observer
from test_gauge import page as observer_page
from test_metrics import resource, said

WAIT_SECONDS = 60.0
OTHER = "99999999-2222-3333-4444-555555555555"
POLICY, CLASS, INTERVAL = (f"/v1/vms/{UUID}/{what}" for what in ("policy", "class", "interval"))


class Connection:
    """libvirt, with one domain that is shut off."""

    def __init__(self) -> None:
        self.domain = FakeDomain(config=BARE)

    def isAlive(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def listAllDomains(self, _flags: int = 0) -> list[Any]:
        return [self.domain]

    def lookupByUUIDString(self, uuid: str) -> Any:
        if uuid != UUID:
            error = libvirt.libvirtError("")
            error.err = (libvirt.VIR_ERR_NO_DOMAIN, 0, "no such domain", 0, "", None, None, 0, 0)
            raise error
        return self.domain


Ask = Callable[..., Any]
"""Method, path, body, uid: status and what was answered."""


def with_api(run_dir: Path, work: Callable[[Api, Connection, Ask], Any], uri: str = "test:///x") -> Any:
    """Run work(api, connection, ask) in a loop in which an API lives."""

    async def all_of_it() -> Any:
        connection = Connection()
        hands = Hands(lambda: connection, 1, 1) if uri else None
        api = Api(str(run_dir), hands, lambda: (rules.Rules(), resources.Resources()))
        settings = Settings(uri="", run_dir=str(run_dir), metrics=Metrics(socket=False))
        api.looks = Looks(settings, Counts(), lambda: None)

        async def ask(method: str, path: str, body: str = "", uid: int = 0) -> tuple[int, Any]:
            path, _, query = path.partition("?")
            answer = await api.respond(Request(method, path, tuple(query.split("&")), "", body.encode(), uid))
            return int(answer.status.split()[0]), json.loads(b"".join(answer.parts))
        try:
            await api.looks.look()
            return await work(api, connection, ask)
        finally:
            api.looks.close()
            if hands is not None:
                hands.close()
    return asyncio.run(asyncio.wait_for(all_of_it(), WAIT_SECONDS))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A VM runs on resource sda."""
    (tmp_path / state.FOLDER).mkdir()
    write_arena(tmp_path / "sda")
    place = {"id": "idletime-sda", "name": "sda", "path": str(tmp_path / "sda"), "properties": {}, "trail": ()}
    one = said("ci", "0-1", [{**resource(7), "path": str(tmp_path / "sda")}])
    state.write_domain(str(tmp_path), state.DomainState(**{**one.__dict__, "resources": (place,)}))
    return tmp_path


# ---- who may what

@pytest.mark.parametrize("method, path", [
    ("GET", POLICY), ("PUT", POLICY), ("PUT", f"{POLICY}?check"), ("DELETE", POLICY), ("PUT", CLASS), ("PUT", INTERVAL)])
@pytest.mark.parametrize("uid", [1000, None])
def test_only_root(run_dir: Path, method: str, path: str, uid: int | None) -> None:
    """Nobody else reads a policy, has one checked, or changes anything."""

    async def work(_api: Api, connection: Connection, ask: Ask) -> None:
        assert await ask(method, path, BACKGROUND, uid) == (403, {
            "problem": "only root may do this", "remedy": "get administrative access"})
        assert connection.domain.written == []
    with_api(run_dir, work)


NOBODY = """
import os, socket, sys
os.setresgid(65534, 65534, 65534); os.setgroups([]); os.setresuid(65534, 65534, 65534)
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
body = b'{"class": "background"}'
head = f"PUT /v1/vms/{sys.argv[2]}/class HTTP/1.1\\r\\nX-Uid: 0\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
line.sendall(head.encode() + body)
sys.stdout.write(line.recv(100).decode().splitlines()[0])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_the_kernel_says_who_asks(run_dir: Path) -> None:
    """On the real socket: root changes a class, nobody does not."""
    run_dir.parent.chmod(0o755)
    for folder in (run_dir, *run_dir.parents[:2]):
        folder.chmod(0o755)

    async def work(api: Api, connection: Connection, _ask: Ask) -> None:
        settings = Settings(uri="", run_dir=str(run_dir), metrics=Metrics(socket=False))
        looks = Looks(settings, Counts(), lambda: None, api.respond)
        path = f"{run_dir}/{metrics_look.API_SOCKET}"
        try:
            while not os.path.exists(path) or os.stat(path).st_mode & 0o777 != 0o666:
                await asyncio.sleep(0.01)
            program = ["/usr/bin/python3", "-c", NOBODY, path, UUID]
            ended = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, check=True)
            assert ended.stdout == "HTTP/1.1 403 Forbidden", ended
            assert connection.domain.written == []
            answer = await asyncio.to_thread(sent, path, f"PUT {CLASS}", '{"class": "background"}')
            assert answer.startswith("HTTP/1.1 200 OK")
            assert len(connection.domain.written) == 1
            assert (await asyncio.to_thread(sent, path, f"PUT {CLASS}", length=70000)).startswith("HTTP/1.1 413 ")
            assert (await asyncio.to_thread(sent, path, "GET /metrics")).startswith("HTTP/1.1 404 ")
        finally:
            looks.close()
    with_api(run_dir, work)


def sent(path: str, what: str, body: str = "", length: int | None = None) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(WAIT_SECONDS)
        line.connect(path)
        line.sendall(f"{what} HTTP/1.1\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n{body}".encode())
        data = b""
        while more := line.recv(1 << 16):
            data += more
        return data.decode()


@pytest.mark.parametrize("header", ["Content-Length: -1", "Content-Length: 1e3", "Content-Length: 9999999999",
                                    "Transfer-Encoding: chunked"])
def test_a_content_without_a_length_is_refused(header: str) -> None:
    request, length = metrics_server._parse(f"PUT {CLASS} HTTP/1.1\r\n{header}\r\n\r\n".encode())
    assert request is not None and not 0 <= length <= metrics_server.BODY_BYTES


# ---- what is answered

def test_host(run_dir: Path) -> None:
    """VMs that run and that do not, and their resource, for everybody."""

    async def work(api: Api, _connection: Connection, ask: Ask) -> None:
        status, found = await ask("GET", "/v1/host", uid=1000)
        assert status == 200 and found["may_change"] is False
        ci, off = found["vms"]
        assert (ci["name"], ci["class"], ci["by"], ci["state"], ci["libvirt"], ci["in_force"]) == (
            "ci", "background", "domain", "running", True, True)
        assert (off["name"], off["class"], off["state"]) == ("vm", None, "shut off")
        (sda,) = found["resources"]
        assert (sda["name"], sda["vms"], sda["state"], sda["collisions"], sda["interval_us"]) == (
            "sda", ["ci"], "preemption", 7, 5000)
        assert (await ask("HEAD", "/v1/host"))[0] == 200
    with_api(run_dir, work)


def test_what_qemu_answered_since(run_dir: Path) -> None:
    """Newer figures of this run take the place of idletimed's; of another run, or damaged, they do not."""
    before = said("ci", "0-1", [resource(7)])
    for run, answer, collisions in ((1, [resource(9)], 9), (2, [resource(9)], 7), (1, [{"id": "idletime-sda"}], 7),
                                    (1, "hello", 7), (1, [{"devices": 7}], 7)):
        (vm,) = api_host.vms({"0-1": before}, {"0-1": (run, answer, before.looked + 1)}, {})
        assert vm.resources[0].collisions == collisions, answer


@pytest.mark.parametrize("method, path, body, status", [
    ("GET", "/", "", 404), ("GET", "/v1/host/", "", 404), ("GET", "/v2/host", "", 404), ("POST", "/v1/host", "", 405),
    ("GET", "/v1/timeline/..", "", 404), ("GET", "/v1/timeline/none", "", 404), ("GET", "/v1/vms/ci/policy", "", 404),
    ("GET", f"/v1/vms/{OTHER}/policy", "", 404), ("PUT", CLASS, "background", 400), ("PUT", CLASS, "[]", 400),
    ("PUT", CLASS, '{"class": "idle"}', 400), ("PUT", CLASS, '{"class": ["background"]}', 400),
    ("PUT", CLASS, "[" * 60000, 400),
    ("PUT", POLICY, "", 422), ("PUT", POLICY, "<a/>", 400), ("PUT", POLICY, "\udc80", 400), ("GET", CLASS, "", 405),
    ("PUT", INTERVAL, "{}", 400), ("PUT", INTERVAL, '{"interval_us": true}', 400),
    ("PUT", INTERVAL, '{"interval_us": "5"}', 400), ("PUT", INTERVAL, '{"interval_us": 5000, "resource": 7}', 400),
    ("PUT", INTERVAL, '{"interval_us": 5000}', 409), ("PUT", INTERVAL, '{"auto": false}', 400), ("GET", INTERVAL, "", 405),
])
def test_what_cannot_be_answered(run_dir: Path, method: str, path: str, body: str, status: int) -> None:
    async def work(api: Api, connection: Connection, _ask: Ask) -> None:
        request = Request(method, path, (), "", body.encode("utf-8", "surrogateescape"), 0)
        answer = await api.respond(request)
        assert answer.status.startswith(str(status)) and "problem" in json.loads(answer.parts[0])
        assert connection.domain.written == []
    with_api(run_dir, work)


# ---- changes

def test_changes(run_dir: Path) -> None:
    """A class, a policy that is checked and then given, and none again."""

    async def work(_api: Api, connection: Connection, ask: Ask) -> None:
        status, found = await ask("PUT", CLASS, '{"class": "background"}')
        assert (status, found["changed"], found["written"], found["class"]) == (200, True, True, "background")
        assert 'class="background"' in connection.domain.written[-1][0]
        status, found = await ask("PUT", f"{POLICY}?check", BACKGROUND)
        assert (status, found["written"], len(connection.domain.written)) == (200, False, 1)
        wrong = BACKGROUND.replace('class="background"', 'class="slow"')
        status, found = await ask("PUT", POLICY, wrong)
        assert status == 422 and "class='slow'" in found["findings"][0]["message"] and found["findings"][0]["remedy"]
        assert len(connection.domain.written) == 1
        assert (await ask("PUT", POLICY, BACKGROUND))[0] == 200
        connection.domain.xml[True] = marked()
        status, found = await ask("PUT", INTERVAL, '{"interval_us": 7000}')
        assert status == 200 and '<idletime:interval us="7000" auto="no"/>' in found["policy"]
        status, found = await ask("PUT", INTERVAL, '{"interval_us": 9000, "resource": "sda"}')
        assert status == 200 and '<idletime:interval resource="sda" us="9000" auto="no"/>' in found["policy"]
        assert (await ask("PUT", INTERVAL, '{"interval_us": -1}'))[0] == 422
        assert (await ask("PUT", INTERVAL, '{"interval_us": 1, "resource": "a b"}'))[0] == 422
        status, found = await ask("PUT", INTERVAL, '{"auto": true}')
        assert status == 200 and 'auto="yes"' in found["policy"]
        assert (await ask("DELETE", POLICY))[0] == 200
    with_api(run_dir, work)


def test_without_libvirt(run_dir: Path) -> None:
    async def work(_api: Api, _connection: Connection, ask: Ask) -> None:
        assert (await ask("PUT", CLASS, '{"class": "background"}'))[0] == 409
        assert (await ask("GET", "/v1/host"))[0] == 200
    with_api(run_dir, work, uri="")


# ---- timelines

def test_jobs(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate is known from the second look on; who asks twice in a second is told the same, and libvirtd not asked."""
    looks = [jobview.Look(time.monotonic() - 5, (jobview.Seen("ci", "vda", "backup", 20, 100),)),
             jobview.Look(time.monotonic(), (jobview.Seen("ci", "vda", "backup", 60, 100),), silent=("web",))]
    monkeypatch.setattr(jobview, "look", lambda *_: looks.pop(0))

    async def work(_api: Api, _connection: Connection, ask: Ask) -> None:
        status, found = await ask("GET", "/v1/jobs", uid=1000)
        assert status == 200 and (found["jobs"][0]["done"], found["jobs"][0]["rate"], found["silent"]) == (20, None, [])
        for _ in range(2):
            _, found = await ask("GET", "/v1/jobs", uid=1000)
            assert found["jobs"][0]["rate"] == pytest.approx(8, rel=0.1) and found["jobs"][0]["done_percent"] == 60
            assert found["silent"] == ["web"]
    with_api(run_dir, work)


def test_a_rate_is_not_since_another_job_of_long_ago(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [jobview.Look(time.monotonic() - 3600, (jobview.Seen("ci", "vda", "backup", 20, 100),)),
             jobview.Look(time.monotonic(), (jobview.Seen("ci", "vda", "backup", 60, 100),))]
    monkeypatch.setattr(jobview, "look", lambda *_: looks.pop(0))

    async def work(_api: Api, _connection: Connection, ask: Ask) -> None:
        for done in (20, 60):
            _, found = await ask("GET", "/v1/jobs", uid=1000)
            assert (found["jobs"][0]["done"], found["jobs"][0]["rate"]) == (done, None)
    with_api(run_dir, work)


def test_one_look_for_jobs_at_a_time(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A VM that hangs keeps one thread waiting, not one for each who asks; who goes leaves the look to the others."""
    answers, began = threading.Event(), []

    def look(*_: Any) -> jobview.Look:
        began.append(time.monotonic())
        assert answers.wait(WAIT_SECONDS)
        return jobview.Look(time.monotonic(), (jobview.Seen("ci", "vda", "backup", 20, 100),))
    monkeypatch.setattr(jobview, "look", look)

    async def work(_api: Api, _connection: Connection, ask: Ask) -> None:
        asked = [asyncio.create_task(ask("GET", "/v1/jobs", uid=1000)) for _ in range(8)]
        while not began:
            await asyncio.sleep(0.01)
        asked.pop(0).cancel()
        asked += [asyncio.create_task(ask("GET", "/v1/jobs", uid=1000)) for _ in range(8)]
        await asyncio.sleep(0)
        answers.set()
        assert [(status, len(found["jobs"])) for status, found in await asyncio.gather(*asked)] == [(200, 1)] * 15
        assert len(began) == 1
    with_api(run_dir, work)


def test_timeline(run_dir: Path) -> None:
    """It is kept while somebody asks, and not longer; of so many resources at a time."""

    async def work(api: Api, _connection: Connection, ask: Ask) -> None:
        status, found = await ask("GET", "/v1/timeline/sda", uid=1000)
        assert (status, found["resource"], found["problem"], found["bin_ms"]) == (200, "sda", "", 20)
        end = found["first"] + len(found["foreground"])
        while not (found := (await ask("GET", f"/v1/timeline/sda?since={end}"))[1])["foreground"]:
            await asyncio.sleep(0.01)
        assert found["first"] == end
        assert (await ask("GET", f"/v1/timeline/sda?since={'9' * 400}"))[0] == 200
        followed = api._timelines["sda"]
        api._timelines.update({str(number): followed for number in range(MOST_TIMELINES)})
        del api._timelines["sda"]
        assert (await ask("GET", "/v1/timeline/sda"))[0] == 503
        followed.asked = time.monotonic() - LEFT_SECONDS
        assert followed.task is not None
        await followed.task
    with_api(run_dir, work)


def test_what_an_observer_sees_is_in_a_timeline(run_dir: Path) -> None:
    """Foreground without a slot, seen in the kernel."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    seen = observer_page(ring=[now - 100_000_000 << 1 | 1, now - 60_000_000 << 1])

    async def work(_api: Api, _connection: Connection, ask: Ask) -> None:
        assert sum((await ask("GET", "/v1/timeline/sda"))[1]["foreground"]) == 0
        while sum((await ask("GET", "/v1/timeline/sda"))[1]["foreground"]) < 1990:  # 40 ms are two bins, in thousandths
            await asyncio.sleep(0.01)
    with observer(str(run_dir / "sda"), seen):
        with_api(run_dir, work)


def test_boards_that_go(run_dir: Path) -> None:
    """A timeline says what is wrong, and goes on when it is mended."""

    async def work(api: Api, _connection: Connection, ask: Ask) -> None:
        (run_dir / "sda/foreground").write_bytes(b"")
        assert "too short" in (await ask("GET", "/v1/timeline/sda"))[1]["problem"]
        write_arena(run_dir / "sda")
        api._timelines["sda"].look()
        assert (await ask("GET", "/v1/timeline/sda"))[1]["problem"] == ""
    with_api(run_dir, work)


def test_a_moment_of_the_boards(tmp_path: Path) -> None:
    """The ring of a slot, from where it was read last; background, and its interval."""
    write_arena(tmp_path)
    for name in ("foreground", "background"):
        (tmp_path / f"{name}.alive").unlink()
    board = bytearray((tmp_path / "foreground").read_bytes())
    ring = 4096 + 1024 * 64 + 64  # of slot 0
    for number, (at, busy) in enumerate([(10, 1), (20, 0), (30, 1)]):
        board[ring + 8 * number:ring + 8 * number + 8] = (at << 1 | busy).to_bytes(8, "little")
    board[4096 + 32:4096 + 40] = (3).to_bytes(8, "little")  # its head
    (tmp_path / "foreground").write_bytes(board.ljust(4096 + 1024 * 64 + 3 * 4096, b"\0"))
    first = arena.moment(str(tmp_path), {}).foreground[0]
    assert (first.head, first.first, first.all) == (3, 0, ((10, True), (20, False), (30, True)))
    assert arena.moment(str(tmp_path), {0: 2}).foreground[0].all == ((30, True),)
    assert arena.moment(str(tmp_path), {0: 9}).foreground[0].first == 0, "somebody else's"
    seen = arena.moment(str(tmp_path), {0: 3})
    assert seen.foreground[0].all == () and seen.started == {0: 9, 1: 10} and seen.waiting == 2 and seen.interval_us == 0
