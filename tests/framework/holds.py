"""How long a request may be held at most, from what was measured beside it: the formula of ARCHITECTURE.md.

max-hold-ms, and the time of those before it at the cap: as many as are outstanding, taken as the longest that the block
layer saw; and the time in which drains let nothing go.
"""

from __future__ import annotations

from typing import Any

from tests.framework.qemu import Machine

BOUNDARIES_NS = [int(1e6 * 1.1**step) for step in range(100)]
"""Of the histogram that QEMU keeps: 1 ms to 12 s in steps of 10 %."""


def _backend(device: str) -> str:
    """What the block layer calls a virtio-blk-pci device."""
    return f"/machine/peripheral/{device}/virtio-backend"


def watch(machine: Machine, device: str) -> None:
    """Have QEMU count how long its requests are in service, from release to completion."""
    machine.qmp.execute("block-latency-histogram-set", id=_backend(device), boundaries=BOUNDARIES_NS)


def longest_services_ms(machine: Machine, device: str, count: int) -> list[float]:
    """The `count` longest, reads and writes together, each as the upper end of its bin."""
    stats = next(one["stats"] for one in machine.qmp.execute("query-blockstats") if one.get("qdev") == _backend(device))
    bins = [stats[name]["bins"] for name in ("rd_latency_histogram", "wr_latency_histogram") if name in stats]
    ends_ms = [end / 1e6 for end in [*BOUNDARIES_NS, BOUNDARIES_NS[-1]]]
    seen = [end for one in bins for end, times in zip(ends_ms, one) for _ in range(min(times, count))]
    return sorted(seen, reverse=True)[:count]


def figures(machine: Machine, info: dict[str, Any], before: int) -> dict[str, float]:
    """The longest hold seen and the bound, of the first device in a resource's part of query-idletime.

    `before`: requests, or pieces of large ones, that may be before it at the cap of one.
    """
    device = info["devices"][0]
    services_ms = longest_services_ms(machine, device["device"], before)
    return {
        "longest_hold_ms": device["hold"]["max-us"] / 1000, "longest_services_ms": sum(services_ms),
        "bound_ms": info["max-hold-ms"] + sum(services_ms) + device["hold"]["drained-us"] / 1000,
    }
