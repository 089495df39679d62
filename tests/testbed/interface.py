"""Facts about a network interface of this host, as its kernel shows them. Only reads: nothing is set, no packet is sent."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

NETFILTER = "proc/sys/net/bridge/bridge-nf-call-iptables"


class InterfaceError(ValueError):
    """There is no such interface; the text says which there are."""


@dataclass(frozen=True)
class Facts:
    """What a figure of an uplink depends on. None: the kernel does not tell."""

    name: str
    link_up: bool
    rate_mbit: int | None
    duplex: str | None
    mtu: int
    driver: str | None
    """None of an interface that is no device: a bridge, a bond, a VLAN."""
    queues: int
    qdiscs: tuple[str, ...]
    below: tuple[str, ...]
    """The interfaces that it is made of: of a bond or a VLAN."""
    bridge: str | None
    """That it is a port of."""
    neighbours: tuple[str, ...]
    """The bridge's other ports: taps of VMs, as a rule."""
    is_bridge: bool
    br_netfilter: bool | None
    """Whether bridged packets pass through iptables; None: the module is not loaded, so they do not."""


def _word(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _positive(text: str | None) -> int | None:
    """The kernel writes -1, or gives an error, for a speed that it does not know."""
    return int(text) if text and text.isdigit() and int(text) > 0 else None


def _ports(bridge: Path) -> tuple[str, ...]:
    return tuple(sorted(port.name for port in (bridge / "brif").glob("*")))


def qdiscs(name: str) -> tuple[str, ...]:
    """Kinds of the interface's queueing disciplines, the root's first; none where `tc` is missing."""
    try:
        output = subprocess.run(["tc", "-j", "qdisc", "show", "dev", name], capture_output=True, text=True, timeout=10).stdout
        return tuple(dict.fromkeys(each["kind"] for each in json.loads(output or "[]")))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()


def read(name: str, root: Path = Path("/")) -> Facts:
    """All of it."""
    everything = root / "sys/class/net"
    folder = everything / name
    if "/" in name or not (folder / "mtu").exists():
        there = ", ".join(sorted(each.name for each in everything.iterdir())) if everything.is_dir() else "none"
        raise InterfaceError(f"UPLINK={name}: this host has no such interface; it has: {there}")
    master = (folder / "master").resolve() if (folder / "master").exists() else None
    bridge = master if master and (master / "brif").is_dir() else None
    netfilter = _word(root / NETFILTER)
    return Facts(
        name, _word(folder / "carrier") == "1", _positive(_word(folder / "speed")), _word(folder / "duplex"),
        int(_word(folder / "mtu") or 0), (folder / "device/driver").resolve().name if (folder / "device/driver").exists() else None,
        len(list((folder / "queues").glob("tx-*"))), qdiscs(name), tuple(sorted(each.name[6:] for each in folder.glob("lower_*"))),
        bridge.name if bridge else None, tuple(port for port in _ports(bridge) if port != name) if bridge else (),
        (folder / "brif").is_dir(), None if netfilter is None else netfilter == "1",
    )
