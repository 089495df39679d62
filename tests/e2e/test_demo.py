"""The demo as a user runs it: it can be stopped at any time, and then leaves nothing but what was finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.framework import paths
from tests.framework.qemu import Boot


def _descendants(pid: int) -> list[int]:
    """All processes below a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    below = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return below + [each for child in below for each in _descendants(child)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_demo_leaves_nothing(boot: Boot, scratch: Path, number: signal.Signals) -> None:
    """After the first finished run: status 130, one result, no process, no temporary file."""
    output = scratch / "demo"
    argv = [sys.executable, "-m", "tests.bench.demo", "--quick", "--output", str(output), "--qemu", str(boot.qemu)]
    with subprocess.Popen(argv, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        assert demo.stdout
        for line in demo.stdout:
            if "run 2 of" in line:
                break
        started = _descendants(demo.pid)
        demo.send_signal(number)
        demo.communicate(timeout=60)
    lines = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]

    assert demo.returncode == 130
    assert len(started) == 3  # a disk and two guests
    assert [pid for pid in started if os.path.exists(f"/proc/{pid}")] == []
    assert list(scratch.iterdir()) == [output]
    assert [line["kind"] for line in lines] == ["conditions", "run"]
