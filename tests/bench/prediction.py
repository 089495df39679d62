"""What the periodic load and a preemption interval should give, from first principles. Pure.

The dissertation's chapter 4.4 asks for f(i, p) and b(i, p), the throughput of
foreground and background relative to alone, for intensity i and interval p.
Its formulas are dissertation(); predict() is a model of our own for its load:

In each quantum Q the foreground issues requests until i * Q has passed, then
pauses for g. The disk serves each in D; seen from a guest it takes s (of the
foreground) or d (of the background), as completion and next request take their
time, in which the disk is free for the other one.

* A request that begins before the burst's end is finished, so a burst has one
  request more than fit whole into it: n = floor(i * Q / s) + 1.
* p below g: background starts at p, p + d, ... before the pause ends. How far
  the last one reaches into the burst is uniform in (0, D], paid once, at the
  first request; n is averaged over it.
* p below the time t = s - D that the foreground needs to issue its next
  request: in each gap of a burst the background may start first. It has to
  wake up, WAKE; from there to t the disk would have been free, so the foreground
  loses D - (t - WAKE). CHANCE of the background's winning is fitted to the
  throughputs at p = 0, one figure for all i.
* p above g: the background never starts, and the foreground loses nothing.

Assumes: one server, constant service times, no promotions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """All in seconds, but for `intensity` (0 to 1)."""

    quantum: float
    intensity: float
    interval: float
    foreground_service: float
    background_service: float
    disk_service: float
    """What the disk itself takes of both."""

    @property
    def turnaround(self) -> float:
        """From a completion to the foreground's next request."""
        return max(0.0, self.foreground_service - self.disk_service)


@dataclass(frozen=True)
class Prediction:
    """Throughput relative to alone, 0 to 1."""

    foreground: float
    background: float


CHANCE = 0.6
"""Of the background to start in a gap between two requests of a burst, with p = 0."""
WAKE = 0.0003
"""Seconds from a completion of the foreground to the start of a request of the background, with p = 0."""
STEPS = 50
"""Points at which the uniform delay is taken."""


def _requests(busy: float, delay: float, service: float) -> float:
    """In a burst that issues for `busy` seconds and whose first request waits for `delay`."""
    return 1 + max(0.0, (busy - delay) // service)


def _delayed(busy: float, longest: float, service: float) -> float:
    """The mean of _requests() over a delay that is uniform up to `longest`."""
    delays = ((step + 0.5) / STEPS * longest for step in range(STEPS))
    return sum(_requests(busy, delay, service) for delay in delays) / STEPS


def predict(situation: Situation) -> Prediction:
    """f(i, p) and b(i, p)."""
    s, d, quantum = situation.foreground_service, situation.background_service, situation.quantum
    disk, turnaround = situation.disk_service, situation.turnaround
    busy = situation.intensity * quantum
    between = CHANCE if situation.interval < turnaround else 0.0
    mean_s = s + between * (disk - max(0.0, turnaround - WAKE))
    if situation.intensity >= 1:
        return Prediction(s / mean_s, between * d / mean_s)
    alone = _requests(busy, 0, s)
    pause = quantum - alone * s
    if pause <= situation.interval:
        return Prediction(1.0, 0.0)
    count = _delayed(busy, disk, mean_s)
    # The last one may end after the pause: half a request more in the mean, and its turnaround is not waited for.
    after = max(0.0, quantum - disk / 2 - count * mean_s - situation.interval + d - disk) / d + 0.5
    return Prediction(min(1.0, count / alone), min(1.0, (between * count + after) * d / quantum))


T_MAX = 0.1
"""Seconds: the longest time between two foreground requests, as there: the quantum."""


def dissertation(rate: float, rate_max: float, intensity: float, interval: float, literal: bool = False) -> Prediction:
    """The formulas of section 4.4. `rate` is r(i), the foreground's requests a second alone, `rate_max` that at full intensity.

    The interval begins at the start of a request there, and at its end here, so a service time is added. The time that a
    preemption costs is written as 1 / r(i); the text and figures of 4.4.2 mean a service time, 1 / r(1), which is taken if not
    `literal`. The state that the background disturbs (alpha) is left at 1. Errors: none; both are clipped to 0 to 1.
    """
    service = 1 / (rate if literal else rate_max)
    at_start = interval + 1 / rate_max
    between = (1 - intensity) * T_MAX
    if at_start < service:
        background = rate_max - rate / 2
    elif at_start > T_MAX or between <= 0:
        background = 0.0
    else:
        background = max(0.0, (rate_max - rate) * (between - at_start + service) / between)
    background = min(background, rate_max)
    return Prediction(min(1.0, (rate_max - background) / rate), background / rate_max)
