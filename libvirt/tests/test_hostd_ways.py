# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon notices when the ways out of the host change; in a network namespace with this machine's kernel."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from idletime.hostd import ways

ROOM = Path(__file__).parents[1]

# Prints a line for each change: the watch is told to be quick, and each step is waited for, never slept for.
PROGRAM = """
import asyncio, subprocess
from idletime.hostd import ways

ways.SETTLE_SECONDS = 0.05
looks = []

def look():
    found = ways.Uplinks(ways.Tree("/")).ways_out()
    looks.append(sorted(found))
    return found

async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)

async def main():
    changes = []
    watch = ways.Watch(lambda: changes.append([one for one in looks[-1] if one[0] == 'default']), look)
    await until(lambda: looks)
    for number, command in enumerate(COMMANDS):
        seen, told = len(looks), len(changes)
        subprocess.run(command, shell=True, check=True)
        await until(lambda: len(looks) > seen and (len(changes) > told or command in QUIET))
        print(command, "->", changes[told:], flush=True)
    watch.close()

asyncio.run(asyncio.wait_for(main(), 30))
"""
SETUP = "ip link add u0 type veth peer name p0; ip link set p0 up; ip link set u0 up; ip addr add 10.9.0.2/24 dev u0"
QUIET = "ip route add 10.77.0.0/16 via 10.9.0.1"
COMMANDS = ["ip route add default via 10.9.0.1", QUIET, "ip route del default"]


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_a_default_route_that_comes_and_goes() -> None:
    code = f"COMMANDS = {COMMANDS!r}\nQUIET = {[QUIET]!r}\n{PROGRAM}"
    done = subprocess.run(["unshare", "--net", "sh", "-c", f'{SETUP}; exec {sys.executable} -c "$CODE"'], cwd=ROOM,
                          env={**os.environ, "CODE": code}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "ip route add default via 10.9.0.1 -> [[('default', 'u0')]]",
        f"{QUIET} -> []",
        "ip route del default -> [[('default',)]]",
    ]


def test_where_the_kernel_may_not_be_asked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An old unit without AF_NETLINK: it is said, and nothing else happens."""

    def refused(*_: object) -> None:
        raise OSError(97, "Address family not supported by protocol")

    async def work() -> None:
        ways.Watch(lambda: None).close()

    monkeypatch.setattr(ways.Watch, "_listen", refused)
    asyncio.run(work())
    assert "changes of routes are not seen" in caplog.text
