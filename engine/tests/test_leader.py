# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of several evictors leads, by the servers that tooz knows: real ones, where they are installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from idletime_openstack import leader
from idletime_openstack.leader import Elected, LeaderError

LEASE_SECONDS = 3
TIMES = f"lock_timeout={LEASE_SECONDS}&membership_timeout={LEASE_SECONDS}"
PROGRAM = """
import logging, sys
from idletime_openstack.leader import Elected
logging.basicConfig(stream=sys.stdout)
leader = Elected(sys.argv[1], sys.argv[2])
for _ in sys.stdin:
    try:
        print(leader.leads(), flush=True)
    except Exception as error:
        print("unknown:", error, flush=True)
leader.stop()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def redis(folder: Path, port: int) -> tuple[list[str], str, str]:
    return (["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)], "redis",
            f"redis://127.0.0.1:{port}?{TIMES}")


def etcd(folder: Path, port: int) -> tuple[list[str], str, str]:
    url, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return (["etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
            "etcd3gw", f"etcd3+{url}?{TIMES}")


def memcached(folder: Path, port: int) -> tuple[list[str], str, str]:
    return (["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(port)], "pymemcache",
            f"memcached://127.0.0.1:{port}?{TIMES}&leader_timeout={LEASE_SECONDS}")


@contextmanager
def serving(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        try:
            wait(lambda: answers(port))
            yield one
        finally:
            one.send_signal(signal.SIGCONT)
            one.kill()


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait(what: Callable[[], object], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


class Candidate:
    """A process of its own that is asked whether it leads."""

    def __init__(self, url: str, name: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-c", PROGRAM, url, name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=environment)
        self.said = ""

    def leads(self) -> bool:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        while (line := self.process.stdout.readline()) not in ("True\n", "False\n"):
            assert line, "it ended"
            self.said += line
            if line.startswith("unknown:"):
                return False
        return line == "True\n"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=[redis, etcd, memcached], ids=lambda one: one.__name__)
def url(request, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    command, client, found = request.param(tmp_path, port)
    if shutil.which(command[0]) is None or find_spec(client) is None:
        pytest.skip(f"{command[0]} or its client {client} is not installed; remedy: make engine-test, and apt install "
                    "redis-server etcd-server memcached")
    with serving(command, port) as server:
        yield found, server


@pytest.fixture
def two(url) -> Iterator[tuple[Candidate, Candidate]]:
    both = Candidate(url[0], "first"), Candidate(url[0], "second")
    try:
        yield both
    finally:
        for one in both:
            one.end()


def test_one_leads_and_the_other_one_after_its_end(two) -> None:
    """Killed: after its lease; over many of its own leases it does not lose the lead."""
    first, second = two
    assert first.leads() and not second.leads()
    end = time.monotonic() + 2.5 * LEASE_SECONDS
    while time.monotonic() < end:
        assert first.leads() and not second.leads()
        time.sleep(0.3)
    first.process.kill()
    wait(second.leads)


def test_who_was_stopped_for_longer_than_its_lease_leads_no_more(two) -> None:
    first, second = two
    assert first.leads()
    first.process.send_signal(signal.SIGSTOP)
    wait(second.leads)
    first.process.send_signal(signal.SIGCONT)
    assert not first.leads() and second.leads()


def test_of_a_server_that_was_away_one_leads(url, two) -> None:
    """It hangs for longer than a lease, and says then whose the lock is: of one, at most."""
    first, second = two
    assert first.leads() and not second.leads()
    url[1].send_signal(signal.SIGSTOP)
    time.sleep(1.5 * LEASE_SECONDS)
    url[1].send_signal(signal.SIGCONT)

    def one_leads() -> bool:
        said = [first.leads(), second.leads()]
        assert sum(said) < 2, first.said + second.said
        return any(said)
    wait(one_leads)


def test_a_beat_that_is_answered_too_late(monkeypatch) -> None:
    """It begins before the lease ends and is answered after that; etcd does not say that there was nothing to prolong."""
    lease = 0.3
    clock, beats = [0.0], [0.97 * lease, 1.03 * lease]
    monkeypatch.setattr(leader, "_now", lambda: clock[0])
    done = threading.Event()

    def beat() -> float:
        if beats:
            clock[0] = beats.pop(0)
        else:
            done.set()
        return lease
    heart = leader._Heart(beat)
    assert heart.in_time() and done.wait(10)
    heart.stop()
    assert not heart.in_time()


def test_who_had_to_ask_anew_begins_anew(tmp_path, caplog) -> None:
    """Another one may have led meanwhile."""
    one = Elected(f"file://{tmp_path}", "one")
    assert one.leads()
    assert one._heart is not None
    one._heart.lease_seconds, one._heart._late = 1.0, True
    assert not one.leads() and "asks for it anew" in caplog.text
    assert one.leads()
    one.stop()


@pytest.mark.skipif(find_spec("pymysql") is None, reason="pymysql is not installed; remedy: make engine-test")
def test_a_driver_that_does_not_tell_is_refused(monkeypatch) -> None:
    """A lock of MySQL ends with its connection, of which nobody is told."""
    import pymysql
    monkeypatch.setattr(pymysql, "Connect", lambda **_: pymysql.connections.Connection(defer_connect=True))
    with pytest.raises(LeaderError, match="does not say so; remedy: redis://") as raised:
        Elected("mysql://user:secret@127.0.0.1/db").leads()
    assert "'mysql://user:***@127.0.0.1/db'" in str(raised.value)
