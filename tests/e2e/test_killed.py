"""Tests that are killed leave nothing in the temporary folder: unit tests, machine tests, tests with guests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import pytest

from tests.framework import paths
from tests.framework.process import Process

LIMIT_SECONDS = 120.0
POLL_SECONDS = 0.02

KILLERS = [signal.SIGTERM, signal.SIGKILL]


def _wait(what: str, until: Callable[[], bool], process: Process | None = None) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not until():
        assert time.monotonic() < end, f"not within {LIMIT_SECONDS} s: {what}"
        assert process is None or process.running(), process.error(f"ended before {what}")
        time.sleep(POLL_SECONDS)


def _build(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _unit() -> tuple[list[str], str]:
    program = paths.BUILD / "unit" / "plain" / "test-arena-slots"
    _build("make", "-s", "-C", str(paths.ROOT / "tests" / "unit"), f"../../{program.relative_to(paths.ROOT)}")
    return [str(program)], "**/arena/background"


def _machine() -> tuple[list[str], str]:
    obj, name = paths.BUILD / "qemu" / "obj", "tests/qtest/idletime-life-test"
    _build("ninja", "-C", str(obj), name)
    return [str(obj / name)], "**/*.img"


def _guest() -> tuple[list[str], str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name("waits.py"))], "**/console"


@pytest.mark.parametrize("number", KILLERS)
@pytest.mark.parametrize("kind", [_unit, _machine, _guest])
def test_a_killed_test_leaves_nothing(kind: Callable[[], tuple[list[str], str]], number: signal.Signals, scratch: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is killed when it has made the files that `pattern` finds, long before its end."""
    argv, pattern = kind()
    temporary = scratch / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("QTEST_QEMU_BINARY", str(paths.find_qemu()))
    test = Process(argv, scratch / "log")
    try:
        _wait("it has made files", lambda: any(temporary.glob(pattern)), test)
        test.kill(number)
        assert test.wait(LIMIT_SECONDS) == -number
        _wait("its files are gone", lambda: not os.listdir(temporary))
    finally:
        test.stop()
