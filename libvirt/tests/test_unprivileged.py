# SPDX-License-Identifier: GPL-2.0-or-later
"""Nobody but root can hold up the hook, the daemon or the command: user nobody opens and locks what it can, first."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodes
from idletime.hostd import arena
from test_hostd_hook import Run, domain, living, run  # noqa: F401  run: the hook as a program
from test_hostd_settle import Domain, Look, look, policy  # noqa: F401  look: one look of the daemon

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which needs root")

PATIENCE_SECONDS = 20  # more than LOCK_SECONDS: a wait that is bounded is not taken for one that is not
ROOM = Path(__file__).parents[1]

# Opens each name below a folder in each way that there is, locks it in each way, says what it got, and keeps it.
ATTACKER = """
import fcntl, json, os, sys
got = []
for name in sys.argv[1:]:
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            one = os.open(name, flags | os.O_NONBLOCK)
            got.append(name)
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
try:
    os.mkdir(sys.argv[1] + "/planted")
    got.append("planted")
except OSError:
    pass
print(json.dumps(got), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A run directory with an arena that nobody's way leads to (pytest's own folders are root's alone)."""
    with tempfile.TemporaryDirectory(prefix="idletime-") as name:
        os.chmod(name, 0o755)
        arena.make(f"{name}/run/sda", arena.Owner(0, 0))
        for board in ("foreground", "background"):
            (Path(name) / "run/sda" / board).write_bytes(b"")
        with living(Path(name) / "run"):
            pass
        yield Path(name) / "run"


@pytest.fixture
def attacker(run_dir: Path) -> Iterator[list[str]]:
    """User nobody, at it; gives the names that it could open. It ends when its standard input does."""
    names = [str(run_dir), *map(str, sorted(run_dir.rglob("*")))]
    python = shutil.which("python3", path="/usr/bin") or sys.executable  # one that nobody may run
    process = subprocess.Popen([python, "-c", ATTACKER, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, user="nobody", group="nogroup", extra_groups=[], cwd="/")
    assert process.stdin and process.stdout
    yield json.loads(process.stdout.readline())
    process.stdin.close()
    process.wait(PATIENCE_SECONDS)
    process.stdout.close()


def test_nothing_of_ours_can_be_opened(attacker: list[str]) -> None:
    assert attacker == []


def test_the_hook(attacker: list[str], run_dir: Path, tmp_path: Path, run: Run) -> None:  # noqa: F811
    """Whether idletimed lives is not for others to say."""
    (tmp_path / "run").symlink_to(run_dir)
    assert run(domain()).returncode == 1
    with living(run_dir):
        assert run(domain()).returncode == 0


def test_the_daemon(attacker: list[str], run_dir: Path, tmp_path: Path, look: Look) -> None:  # noqa: F811
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").symlink_to(run_dir)
    assert look(Domain(policy(resource="sdb"))).problems[:-1] == ()
    assert (run_dir / "sdb").is_dir()


def test_the_command(attacker: list[str], run_dir: Path, tmp_path: Path) -> None:
    uri = nodes.write(tmp_path / "node.xml", 1)
    for command in ("status", "resources", "list"):
        done = subprocess.run([sys.executable, "-m", "idletime", "-c", uri, "--run-dir", str(run_dir), command], cwd=ROOM,
                              capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert done.returncode == 0, done.stderr


def test_a_lock_that_root_holds_is_waited_for_and_then_said(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "LOCK_SECONDS", 0.05)
    with open(run_dir / arena.LOCK) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(arena.ArenaError, match="was locked for 0.05 s; remedy: end the process that holds it"):
            arena.make(f"{run_dir}/sdc", arena.Owner(0, 0))
    assert arena.make(f"{run_dir}/sdc", arena.Owner(0, 0))
