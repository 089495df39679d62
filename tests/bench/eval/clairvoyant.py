"""What a scheduler that knows the future could give the background, from the foreground's run alone. Pure."""

from __future__ import annotations

from typing import Iterable, Sequence

import numpy as np


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans (begin, end) merged where they touch, in order."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def gaps(spans: Iterable[tuple[float, float]], seconds: float) -> np.ndarray:
    """Lengths (seconds) of the idle times between the spans, from 0 to `seconds`."""
    busy = union(spans)
    edges = [0.0, *(edge for span in busy for edge in span), seconds]
    lengths = np.array([max(0.0, end - begin) for begin, end in zip(edges[::2], edges[1::2])])
    return lengths[lengths > 0]


STEPS = 500
"""Parts of a service time in which packed() counts: it is at most so much below the optimum."""


def packed(spans: Iterable[tuple[float, float]], seconds: float, service_seconds: float, channels: int) -> float:
    """Background requests a second that fit beside the foreground's, of which each takes one of the channels from begin to end.

    Each as soon as a channel is free for all of its time. No choice is better:
    the requests are equally long, so the k-th begins no later than the k-th of
    any other choice, and leaves no less room.
    """
    step = service_seconds / STEPS
    count = int(seconds / step)
    change = np.zeros(count + 1, int)
    for begin, end in spans:
        change[min(count, int(begin / step))] += 1
        change[min(count, int(end / step) + 1)] -= 1
    free = channels - np.cumsum(change[:count])
    at = done = 0
    while at + STEPS <= count:
        taken = np.flatnonzero(free[at:at + STEPS] <= 0)
        if len(taken):
            at += int(taken[-1]) + 1
        else:
            free[at:at + STEPS] -= 1
            done += 1
    return done / seconds


def operations_per_second(samples: Sequence[np.ndarray], seconds: float, service_seconds: float) -> float:
    """Background requests a second that fit whole into the foregrounds' idle gaps.

    `samples` are the raw latencies of each foreground VM, measured alone;
    `service_seconds` is the time between two completions of the background alone.
    """
    spans = [
        (start / 1e6, (start + latency) / 1e6)
        for each in samples
        for start, latency in zip(each["start_us"].astype(float), each["latency_us"].astype(float))
    ]
    return float(np.floor(gaps(spans, seconds) / service_seconds).sum() / seconds)
