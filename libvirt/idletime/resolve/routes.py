# SPDX-License-Identifier: GPL-2.0-or-later
"""By which devices packets to the Internet leave this host: the kernel is asked, nothing is sent.

The question is for the route that the kernel would take (RTM_GETROUTE with RTM_F_FIB_MATCH), so rules, metrics,
several next hops and routes more specific than 0.0.0.0/0 count as they do for packets, and a table of a million
routes costs no more than one of two.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

from .outcome import Unresolved
from .tree import Tree

DESTINATIONS = ("198.41.0.4", "2001:503:ba3e::2:30")
"""Root name server A: public, and nobody routes it in a way of its own. IPv6 counts where there is no IPv4."""

FILE = "/route.json"
"""In a tree that is not this machine's root: what `ip -json route get fibmatch 198.41.0.4` printed there."""

_FIB_MATCH = 0x2000  # RTM_F_FIB_MATCH, linux/rtnetlink.h
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ESRCH, errno.EINVAL, errno.EACCES)

Routes = Callable[[], tuple[str, ...]]


def internet(tree: Tree) -> tuple[str, ...]:
    """Names of the devices: none without a route, several with several next hops. Raises Unresolved."""
    return _recorded(tree.text(FILE) or "[]") if tree.root else _asked()


def _recorded(text: str) -> tuple[str, ...]:
    routes = json.loads(text)
    hops = [hop for route in routes for hop in route.get("nexthops", [route])]
    return tuple(dict.fromkeys(hop["dev"] for hop in hops if "dev" in hop))


def _asked() -> tuple[str, ...]:
    try:
        from pyroute2 import IPRoute  # late: it takes longer than all the rest, and few domains need it
        from pyroute2.netlink.exceptions import NetlinkError
    except ImportError:
        raise Unresolved("the host's routes cannot be read without pyroute2", "install python3-pyroute2") from None
    try:
        with IPRoute() as kernel:
            for destination in DESTINATIONS:
                try:
                    numbers = _hops(kernel.route("get", dst=destination, flags=_FIB_MATCH))
                except NetlinkError as error:
                    if error.code not in _NO_ROUTE:
                        raise
                    continue
                if numbers:
                    return tuple(_name(kernel, number) for number in numbers)
    except (OSError, NetlinkError) as error:
        raise Unresolved(f"the host's routes cannot be read: {error}", "run this as root") from error
    return ()


def _hops(answer: Any) -> list[int]:
    """Indices of the devices, each once."""
    found: list[int] = []
    for route in answer:
        several = route.get_attr("RTA_MULTIPATH") or []
        found += [hop["oif"] for hop in several] or [route.get_attr("RTA_OIF")]
    return list(dict.fromkeys(number for number in found if number))


def _name(kernel: Any, number: int) -> str:
    return str(next(iter(kernel.link("get", index=number))).get_attr("IFLA_IFNAME"))
