"""The rights that the systemd unit leaves the observer suffice: it starts with these capabilities, and cannot get others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.framework import paths
from tests.observer import run
from tests.observer.page import Page
from tests.observer.run import Observer

Observe = Callable[..., Observer]
NOBODY = 65534
UNIT = paths.ROOT / "libvirt" / "systemd" / "idletime-observer@.service.in"
SEND = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))"
KEPT = {"cap_chown", "cap_dac_override", "cap_fowner"}

pytestmark = pytest.mark.skipif(not (shutil.which("setpriv") and shutil.which("capsh")), reason="setpriv or capsh is missing")


def granted() -> list[str]:
    """What the unit's bounding set has: bpf, perfmon, ..."""
    text = UNIT.read_text()
    assert "\nNoNewPrivileges=yes\n" in text
    found = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.MULTILINE)
    assert found
    return [name.removeprefix("CAP_").lower() for name in found.group(1).split()]


def confined(capabilities: list[str]) -> list[str]:
    """As the unit confines it: root with these capabilities, and no program that it starts has more."""
    bounds = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return ["setpriv", "--no-new-privs", f"--bounding-set={bounds}", "--inh-caps=-all"]


def has(pid: int, line: str) -> set[str]:
    """A set of a process's capabilities, by names."""
    status = dict(each.split(":\t", 1) for each in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in each)
    done = subprocess.run(["capsh", f"--decode={status[line].strip()}"], check=True, capture_output=True, text=True)
    return {name for name in done.stdout.strip().partition("=")[2].split(",") if name}


@pytest.fixture
def foreign(arena: Path) -> Path:
    """The arena belongs to QEMU's user, and is closed to others."""
    os.chown(arena, NOBODY, NOBODY)
    arena.chmod(0o700)
    return arena


@pytest.mark.parametrize("options", [[], ["--old-kernel"]], ids=["typed", "raw"])
def test_a_disk(foreign: Path, disk: str, observe: Observe, options: list[str]) -> None:
    """It counts, its socket belongs to QEMU's user, and what it needed for loading is gone."""
    observer = observe("--disk", disk, *options, prefix=confined(granted()))
    with Page(foreign) as page:
        run.write(disk, 10)
        assert page.look().started == 10
    assert (foreign / "observer").stat().st_uid == NOBODY
    assert has(observer.process.pid, "CapEff") == has(observer.process.pid, "CapPrm") == KEPT
    assert observer.end() == 0
    assert not (foreign / "observer").exists()


@pytest.fixture
def space() -> Iterator[list[str]]:
    """A network of its own, with loopback: what is left on that goes with it."""
    name = f"unit{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


TCX_FROM = (6, 6)
"""Below, a filter is used."""


@pytest.mark.parametrize("options, kept", [([], KEPT), (["--old-kernel"], KEPT | {"cap_net_admin"})], ids=["tcx", "clsact"])
def test_an_uplink(foreign: Path, observe: Observe, space: list[str], options: list[str], kept: set[str]) -> None:
    """The same; only a filter, which has to be removed, needs a right of the network."""
    if not options and tuple(map(int, os.uname().release.split(".")[:2])) < TCX_FROM:
        pytest.skip("this kernel has no tcx")
    observer = observe("--uplink", "lo", *options, prefix=[*space, *confined(granted())])
    with Page(foreign) as page:
        before = page.look().started
        subprocess.run([*space, "python3", "-c", SEND], check=True)
        assert page.look().started > before
    assert has(observer.process.pid, "CapEff") == kept
    assert observer.end() == 0


@pytest.mark.parametrize("lacking", ["bpf", "perfmon"])
def test_each_of_them_is_needed(arena: Path, disk: str, observe: Observe, lacking: str) -> None:
    """Without one of those for loading it does not begin."""
    rights = [name for name in granted() if name != lacking]
    observer = observe("--disk", disk, ready=False, prefix=confined(rights))
    assert observer.process.wait(run.SECONDS) == 1
    assert "the kernel does not take the programs" in observer.said()
