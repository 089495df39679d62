"""What a shared disk's log says: pure functions over the requests that it served."""

from __future__ import annotations

import heapq

import numpy as np

REQUESTS = np.dtype([
    ("client", "S16"), ("operation", "<u4"), ("bytes", "<u4"), ("offset", "<u8"),
    ("arrival_ns", "<i8"), ("start_ns", "<i8"), ("finish_ns", "<i8"),
])
"""One record of the log: `Record` in slowdisk.c. Times are CLOCK_MONOTONIC, as time.monotonic_ns()."""

READ, WRITE, FLUSH = range(3)


def of_client(requests: np.ndarray, client: str) -> np.ndarray:
    """The reads and writes of one client; a name that ends in * matches a prefix."""
    names, wanted = requests["client"], client.encode()
    found = np.char.startswith(names, wanted[:-1]) if wanted.endswith(b"*") else names == wanted
    return requests[found & (requests["operation"] != FLUSH)]


def most_at_once(requests: np.ndarray) -> int:
    """The largest number of these requests that were at the disk at the same time, waiting or in service.

    A request that arrives in the nanosecond in which another one finishes does not meet it.
    """
    times = np.concatenate([requests["arrival_ns"], requests["finish_ns"]])
    steps = np.concatenate([np.ones(len(requests), int), -np.ones(len(requests), int)])
    order = np.lexsort((steps, times))
    return int(np.cumsum(steps[order]).max(initial=0))


def waited_ns(requests: np.ndarray, channels: int = 1, service_ns: np.ndarray | None = None) -> np.ndarray:
    """How long each of these requests waited for others that are not among them, at a disk that serves `channels` at a time.

    That is its time at the disk less the time that it would have taken there
    without the others: what it would have waited for its own kind is not meant.
    `service_ns` are their service times without the others, where those differ.
    The disk's rule, as in slowdisk.c: in order of arrival, each to the channel that is free first.
    """
    services = requests["finish_ns"] - requests["start_ns"] if service_ns is None else service_ns
    free_ns = [0] * channels
    finished = np.zeros(len(requests), np.int64)
    for number, (arrival_ns, service) in enumerate(zip(requests["arrival_ns"].tolist(), services.tolist())):
        finished[number] = max(arrival_ns, free_ns[0]) + service
        heapq.heapreplace(free_ns, int(finished[number]))
    return requests["finish_ns"] - finished


CHANCES = 200
"""Moments in a service time that met_by_chance_ns() tries."""


def met_by_chance_ns(requests: np.ndarray, service_ns: int) -> float:
    """How long these requests would wait, all together, for one more request that begins at a random moment of their disk's idle time.

    The disk serves one at a time, in order of arrival; they arrive when they did. Where arrivals are Poisson of rate r and all need the
    same time S, this is r S^2 / (2 (1 - r S)) in the mean, whenever one begins that does not know when the next one comes.
    """
    ordered = requests[np.argsort(requests["arrival_ns"], kind="stable")]
    finished = np.maximum.accumulate(ordered["finish_ns"])
    first = np.flatnonzero(np.concatenate([[True], ordered["arrival_ns"][1:] > finished[:-1]])[:len(ordered)])
    gaps = ordered["arrival_ns"][first[1:]] - finished[first[1:] - 1]
    counts = np.diff(np.append(first, len(ordered)))
    before = (np.arange(CHANCES) + 0.5) * service_ns / CHANCES
    total = 0.0
    for number, gap in enumerate(gaps):
        delay, busy = service_ns - before[before < gap], number + 1
        while delay.any():
            total += float(delay.sum()) * int(counts[busy])
            delay = np.maximum(delay - gaps[busy], 0) if busy < len(gaps) else delay * 0
            busy += 1
    return total * service_ns / CHANCES / float(gaps.sum()) if gaps.sum() else float("nan")


def pauses_ns(foreground: np.ndarray, background: np.ndarray) -> np.ndarray:
    """From the end of a foreground request to the arrival of the first background one after it, if it is the next to come."""
    order = np.argsort(np.concatenate([foreground["arrival_ns"], background["arrival_ns"]]), kind="stable")
    finished = np.concatenate([foreground["finish_ns"], np.zeros(len(background), np.int64)])[order]
    arrived = np.concatenate([np.zeros(len(foreground), np.int64), background["arrival_ns"]])[order]
    follows = (finished[:-1] > 0) & (arrived[1:] > 0)
    return arrived[1:][follows] - finished[:-1][follows]


def _gaps_ns(requests: np.ndarray) -> np.ndarray:
    """From the end of each request to the arrival of the next one."""
    return requests["arrival_ns"][1:] - requests["finish_ns"][:-1]


def turnaround_ns(requests: np.ndarray, longest_ns: int) -> np.ndarray:
    """From the end of each request of one client to the arrival of its next one, gaps above `longest_ns` left out.

    For a client with one outstanding request this is the way of a reply into
    the guest and of a request out of it: all that lies between us and a disk.
    """
    gaps = _gaps_ns(requests)
    return gaps[gaps <= longest_ns]


def early(foreground: np.ndarray, background: np.ndarray, interval_ns: int, slack_ns: int) -> np.ndarray:
    """The background requests that came to the disk too early.

    Too early: while a foreground request was at the disk, or within the
    interval after the last one had finished there. `slack_ns` is the time that
    a released request needs from the gate to the disk: a foreground request
    that arrived within it was not yet to be seen when the gate decided.
    """
    known = np.searchsorted(foreground["arrival_ns"], background["arrival_ns"] - slack_ns)
    finished = np.concatenate([[np.iinfo(np.int64).min // 2], np.maximum.accumulate(foreground["finish_ns"])])
    return background[background["arrival_ns"] < finished[known] + interval_ns]


def bursts(foreground: np.ndarray, pause_ns: int) -> int:
    """How many bursts these requests are, where pauses of at least `pause_ns` part them."""
    return int((_gaps_ns(foreground) >= pause_ns).sum()) + 1


def paid(foreground: np.ndarray, background: np.ndarray, pause_ns: int) -> np.ndarray:
    """For each burst of the foreground: how many of its requests found a background request at the disk as they came."""
    there = (np.searchsorted(np.sort(background["arrival_ns"]), foreground["arrival_ns"], side="right")
             - np.searchsorted(np.sort(background["finish_ns"]), foreground["arrival_ns"], side="right"))
    burst = np.concatenate([[0], np.cumsum(_gaps_ns(foreground) >= pause_ns)])
    return np.bincount(burst, weights=there > 0).astype(int)


def overlap(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The requests of both clients from the time at which both had begun to the time at which one had ended."""
    first = max(a["arrival_ns"][0], b["arrival_ns"][0])
    last = min(a["arrival_ns"][-1], b["arrival_ns"][-1])

    def cut(requests: np.ndarray) -> np.ndarray:
        return requests[(requests["arrival_ns"] >= first) & (requests["arrival_ns"] <= last)]

    return cut(a), cut(b)
