"""What the observer counts on an uplink: a bridge, two VMs' taps and the host itself, in namespaces."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.observer.page import Page
from tests.observer.run import Observer, wait_until

SENDER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[1]))
    for _ in range(40):
        s.sendto(bytes(100), ("10.9.0.9", 9))
"""
"""40 packets of 100 bytes and 42 of headers, of a class of traffic."""
LOWER_EFFORT = 1 << 2
"""RFC 8622, above the bits of ECN."""
ACCEPTS = """
import ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    memory = ctypes.create_string_buffer(attributes, 128)
    fd = libc.syscall(321, command, memory, 128)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd
code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, 0, 0x95, 0, 0, 0))
words = ctypes.create_string_buffer(b"GPL")
program = bpf(5, struct.pack("IIQQ", 3, 2, ctypes.addressof(code), ctypes.addressof(words)))
link = bpf(28, struct.pack("IIII", program, socket.if_nametoindex(sys.argv[1]), 47, 0))
print("accepts", flush=True)
sys.stdin.read()
"""
"""A tcx program of two instructions, as another user of the uplink has it: accept (0), exit."""
PACKETS = 40
BYTES = PACKETS * (100 + 8 + 20 + 14)
ENDS = {"vmb": "10.9.0.2", "vmf": "10.9.0.3", "up1": "10.9.0.9"}


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Bridge:
    """A host: up0 is its uplink, tapb and tapf its VMs' taps, each with a namespace behind it."""

    def __init__(self) -> None:
        self.name = f"observed{os.getpid()}"
        self.spaces = [self.name]
        self._space(self.name)
        self.inside("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        for near, far in (("tapb", "vmb"), ("tapf", "vmf"), ("up0", "up1")):
            space = self.name + far
            self._space(space)
            self.spaces.append(space)
            self.inside("link", "add", near, "type", "veth", "peer", "name", far, "netns", space)
            self.inside("link", "set", near, "master", "br0", "up")
            _ip("-n", space, "addr", "add", ENDS[far] + "/24", "dev", far)
            _ip("-n", space, "link", "set", far, "up")
        self.inside("addr", "add", "10.9.0.1/24", "dev", "br0")
        self.inside("link", "set", "br0", "up")
        # No packet but those of the tests: who has which address is known.
        address = self._address("up1")
        for space, device in ((self.name, "br0"), (self.name + "vmb", "vmb"), (self.name + "vmf", "vmf")):
            _ip("-n", space, "neigh", "replace", ENDS["up1"], "lladdr", address, "dev", device, "nud", "permanent")

    @staticmethod
    def _space(name: str) -> None:
        """A namespace without IPv6: no packets of its own."""
        _ip("netns", "add", name)
        off = "for which in all default; do echo 1 >/proc/sys/net/ipv6/conf/$which/disable_ipv6; done"
        subprocess.run(["ip", "netns", "exec", name, "sh", "-c", off], check=True)

    def _address(self, end: str) -> str:
        words = ["ip", "netns", "exec", self.name + end, "cat", f"/sys/class/net/{end}/address"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    def inside(self, *words: str) -> None:
        """`ip` on the host."""
        _ip("-n", self.name, *words)

    def send(self, end: str = "", traffic_class: int = 0) -> None:
        """The packets, from a VM or from the host."""
        sender = ["python3", "-c", SENDER, str(traffic_class)]
        subprocess.run(["ip", "netns", "exec", self.name + end, *sender], check=True)

    def close(self) -> None:
        """Nothing of it is left."""
        for space in self.spaces:
            _ip("netns", "del", space)


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    """A host."""
    made = Bridge()
    yield made
    made.close()


def _counted(page: Page, act: Callable[[], None]) -> tuple[int, int]:
    """Packets and bytes that were counted meanwhile; a few of the bridge's own (IPv6) may be among them."""
    before = page.look()
    act()
    after = page.look()
    return after.started - before.started, after.bytes - before.bytes


@pytest.mark.parametrize("kernel", [[], ["--old-kernel"]], ids=["tcx", "clsact"])
def test_packets_by_where_they_came_from(
    arena: Path, observe: Callable[..., Observer], bridge: Bridge, kernel: list[str], tmp_path: Path
) -> None:
    """Foreground: those of a VM that is not named, and the host's own unless it has marked them as lower effort; background: the
    rest."""
    listed = tmp_path / "background"
    listed.write_text("tapb\n")
    prefix = ("ip", "netns", "exec", bridge.name)
    observer = observe("--uplink", "up0", "--background-interfaces", str(listed), *kernel, prefix=prefix)
    with Page(arena) as page:
        assert (page.kind, page.label) == (2, "up0")
        noise = 12
        for end, marked, expected in (("", 0, PACKETS), ("", LOWER_EFFORT, 0), ("vmf", 0, PACKETS),
                                      ("vmf", LOWER_EFFORT, PACKETS), ("vmb", 0, 0)):
            packets, size = _counted(page, lambda end=end, marked=marked: bridge.send(end, marked))  # type: ignore[misc]
            assert expected <= packets <= expected + noise, (end, marked)
            assert size >= (BYTES if expected else 0)
        before = time.monotonic_ns()
        bridge.send("vmf")
        assert before < page.look().last_ns < time.monotonic_ns()
        assert page.look().in_service == 0
        listed.write_text("")
        wait_until(lambda: _counted(page, lambda: bridge.send("vmb"))[0] >= PACKETS)
    assert observer.end() == 0
    shown = subprocess.run(["tc", "-n", bridge.name, "filter", "show", "dev", "up0", "egress"], check=True, capture_output=True)
    assert not shown.stdout, "its filter is left"


@pytest.mark.parametrize("kernel", [[], ["--old-kernel"]], ids=["tcx", "clsact"])
def test_it_sees_what_others_accept(arena: Path, observe: Callable[..., Observer], bridge: Bridge, kernel: list[str]) -> None:
    """A filter, or a program, that was there first and ends the chain does not hide packets from it."""
    prefix = ("ip", "netns", "exec", bridge.name)
    if kernel:
        tc = ["tc", "-n", bridge.name]
        subprocess.run([*tc, "qdisc", "add", "dev", "up0", "clsact"], check=True)
        everything = ["bpf", "bytecode", "1,6 0 0 4294967295,", "classid", "1:1"]
        subprocess.run([*tc, "filter", "add", "dev", "up0", "egress", "pref", "10", *everything], check=True)
        first = None
    else:
        first = subprocess.Popen([*prefix, "python3", "-c", ACCEPTS, "up0"], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert first.stdout
        assert first.stdout.readline() == b"accepts\n"
    observer = observe("--uplink", "up0", *kernel, prefix=prefix)
    try:
        with Page(arena) as page:
            assert _counted(page, bridge.send)[0] >= PACKETS
    finally:
        observer.end()
        if first:
            first.communicate()


@pytest.mark.parametrize("kernel", [[], ["--old-kernel"]], ids=["tcx", "clsact"])
def test_two_observers_of_an_uplink(arena: Path, observe: Callable[..., Observer], bridge: Bridge, kernel: list[str], tmp_path: Path) -> None:
    """A second one at the same arena is refused, and the first one goes on seeing; one at another arena is beside it, and its end, too."""
    prefix = ("ip", "netns", "exec", bridge.name)
    observe("--uplink", "up0", *kernel, prefix=prefix)
    with Page(arena) as page:
        second = observe("--uplink", "up0", *kernel, prefix=prefix, ready=False)
        assert second.process.wait(10) == 1
        assert _counted(page, bridge.send)[0] >= PACKETS
        other = tmp_path / "other"
        other.mkdir()
        beside = observe("--uplink", "up0", *kernel, prefix=prefix, at=other)
        with Page(other) as its:
            assert _counted(its, bridge.send)[0] >= PACKETS
            assert _counted(page, bridge.send)[0] >= PACKETS
        assert beside.end() == 0
        assert _counted(page, bridge.send)[0] >= PACKETS


def test_a_filter_that_somebody_removes(arena: Path, observe: Callable[..., Observer], bridge: Bridge) -> None:
    """Its observer sees nothing any more: it ends, with words."""
    observer = observe("--uplink", "up0", "--old-kernel", prefix=("ip", "netns", "exec", bridge.name))
    subprocess.run(["tc", "-n", bridge.name, "qdisc", "del", "dev", "up0", "clsact"], check=True)
    assert observer.process.wait(10) == 1
    assert "somebody has removed the filter" in observer.said()


def test_an_uplink_that_goes(arena: Path, observe: Callable[..., Observer], bridge: Bridge) -> None:
    """Its observer ends, with words; one that is not there is refused."""
    prefix = ("ip", "netns", "exec", bridge.name)
    observer = observe("--uplink", "up0", prefix=prefix)
    bridge.inside("link", "del", "up0")
    assert observer.process.wait(10) == 1
    assert "up0 is gone" in observer.said()
    assert observe("--uplink", "up0", prefix=prefix, ready=False).process.wait(10) == 1
