"""What `make demo UPLINK=` says of an interface: facts from the kernel, nothing sent, nothing set."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import uplink
from tests.framework import paths
from tests.testbed import interface
from tests.testbed.interface import Facts, InterfaceError

PLAIN = Facts("eth0", True, 1000, "full", 1500, "igb", 4, ("mq",), (), "br0", ("vnet0", "vnet1"), False, False)


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _host(root: Path) -> Path:
    """A bond in a bridge, with two taps beside it."""
    net = "sys/class/net"
    _write(root, {
        f"{net}/bond0/mtu": "9000\n", f"{net}/bond0/carrier": "1\n", f"{net}/bond0/speed": "20000\n", f"{net}/bond0/duplex": "full\n",
        f"{net}/bond0/queues/tx-0/x": "", f"{net}/bond0/queues/tx-1/x": "", f"{net}/bond0/lower_eth0/x": "", f"{net}/bond0/lower_eth1/x": "",
        f"{net}/br0/mtu": "1500\n", f"{net}/br0/brif/bond0/x": "", f"{net}/br0/brif/vnet0/x": "", f"{net}/br0/brif/vnet1/x": "",
        f"{net}/tun0/mtu": "1400\n", f"{net}/tun0/speed": "-1\n",
        "proc/sys/net/bridge/bridge-nf-call-iptables": "1\n",
    })
    (root / net / "bond0" / "master").symlink_to("../br0")
    return root


def test_facts_of_a_bond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its speed, its parts, and who is on its bridge."""
    monkeypatch.setattr(interface, "qdiscs", lambda name: ("noqueue",))

    assert interface.read("bond0", _host(tmp_path)) == Facts(
        "bond0", True, 20000, "full", 9000, None, 2, ("noqueue",), ("eth0", "eth1"), "br0", ("vnet0", "vnet1"), False, True)


def test_unknown_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A speed of -1 is none; so is a br_netfilter that is not loaded."""
    monkeypatch.setattr(interface, "qdiscs", lambda name: ())
    (_host(tmp_path) / interface.NETFILTER).unlink()

    facts = interface.read("tun0", tmp_path)

    assert (facts.rate_mbit, facts.bridge, facts.br_netfilter, facts.link_up) == (None, None, None, False)


@pytest.mark.parametrize("name", ["eth9", "../net/bond0"])
def test_no_such_interface(tmp_path: Path, name: str) -> None:
    """The error names those that there are."""
    with pytest.raises(InterfaceError, match="no such interface; it has: bond0, br0, tun0"):
        interface.read(name, _host(tmp_path))


@pytest.mark.parametrize(("rate", "us"), [(10, 4844), (100, 2000), (10_000, 2000)])
def test_the_interval(rate: int, us: int) -> None:
    """Four packets of 1514 bytes: 4 * 1514 * 8 / 10 Mbit/s = 4844.8 us; never less than 2 ms."""
    assert uplink.interval_us(rate) == us


def test_advice() -> None:
    """A rate has to be stated where br_netfilter is on; of a bridge its port is asked for."""
    assert not any("rate =" in line for line in uplink.advice(PLAIN))
    assert any('[eth0]  rate = "1000Mbit"' in line for line in uplink.advice(replace(PLAIN, br_netfilter=True)))
    assert "is a bridge" in uplink.advice(replace(PLAIN, is_bridge=True))[0]


@pytest.mark.parametrize(("rate", "accelerator", "wanted", "modelled"), [
    (10, "tcg", None, 10), (1000, "tcg", None, 100), (1000, "kvm", None, 1000), (40_000, "kvm", None, 1000), (None, "kvm", None, 100), (1000, "tcg", 50, 50),
])
def test_the_rate_of_the_model(rate: int | None, accelerator: str, wanted: int | None, modelled: int) -> None:
    """The interface's, as far as the guests reach."""
    assert uplink.modelled_mbit(replace(PLAIN, rate_mbit=rate), accelerator, wanted)[0] == modelled


def test_it_says_what_it_does_not_do() -> None:
    """On this host's own loopback."""
    done = subprocess.run([sys.executable, "-m", "tests.bench.uplink", "lo", "--facts"], cwd=paths.ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0
    assert "Nothing was sent through lo, and nothing will be" in done.stdout
