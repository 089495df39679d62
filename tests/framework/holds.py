"""How long a request may be held at most, from what was measured beside it: the formula of ARCHITECTURE.md.

max-hold-ms, and the time of those before it at the cap: all that are outstanding, one after another, each as long as
the longest service that the block layer saw; and the time in which drains let nothing go.
"""

from __future__ import annotations

from typing import Any

from tests.framework.qemu import Machine

BOUNDARIES_NS = [int(1e6 * 1.1**step) for step in range(100)]
"""Of the histogram that QEMU keeps: 1 ms to 12 s in steps of 10 %."""


def watch(machine: Machine, device: str) -> None:
    """Have QEMU count how long its requests are in service, from release to completion."""
    machine.qmp.execute("block-latency-histogram-set", id=device, boundaries=BOUNDARIES_NS)


def longest_service_ms(machine: Machine, device: str) -> float:
    """The upper end of the highest bin that is not empty, reads and writes together."""
    stats = next(one["stats"] for one in machine.qmp.execute("query-blockstats")
                 if one.get("qdev", "").split("/")[-2:-1] == [device] or one.get("qdev") == device)
    histograms = [stats[f"{kind}_latency_histogram"] for kind in ("rd", "wr") if f"{kind}_latency_histogram" in stats]
    used = [number for one in histograms for number, count in enumerate(one["bins"]) if count]
    return BOUNDARIES_NS[min(max(used, default=0), len(BOUNDARIES_NS) - 1)] / 1e6


def bound_ms(max_hold_ms: float, before: int, service_ms: float, drained_ms: float = 0) -> float:
    """The promise; `before`: requests, or pieces of large ones, that may be before it at the cap."""
    return max_hold_ms + before * service_ms + drained_ms


def figures(machine: Machine, info: dict[str, Any], before: int) -> dict[str, float]:
    """The longest hold seen and the bound, of the first device in a resource's part of query-idletime."""
    device = info["devices"][0]
    service_ms = longest_service_ms(machine, device["device"])
    return {
        "longest_hold_ms": device["hold"]["max-us"] / 1000, "longest_service_ms": service_ms,
        "bound_ms": bound_ms(info["max-hold-ms"], before, service_ms, device["hold"]["drained-us"] / 1000),
    }
