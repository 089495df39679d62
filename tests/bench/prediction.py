"""What the periodic load and a preemption interval should give, from first principles. Pure.

The dissertation's chapter 4.4 asks the same question: f(i, p) and b(i, p),
the throughput of foreground and background relative to alone, for intensity i
and interval p. This is a model of our own for its load, not that chapter's.

In each quantum Q the foreground issues requests of service time s until i * Q
has passed, then pauses for g. The background's requests take d.

* A request that begins before the burst's end is finished, so a burst has one
  request more than fit whole into it: n = floor(i * Q / s) + 1.
* p below g: background starts at p, p + d, ... before the pause ends. How far
  the last one reaches into the burst is uniform in (0, d], paid once, at the
  first request; n is averaged over it.
* p below the time t that the foreground needs to issue its next request: in
  each gap of a burst the background may start first. It looks every 0.2 ms,
  and then has to wake up; CHANCE of its winning is fitted to one figure, the
  foreground's throughput at p = 0 and i = 30 %, and used for all i.
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
    turnaround: float = 0.0005
    """From a completion to the foreground's next request."""


@dataclass(frozen=True)
class Prediction:
    """Throughput relative to alone, 0 to 1."""

    foreground: float
    background: float


CHANCE = 0.25
"""Of the background to start in a gap between two requests of a burst, with p = 0."""
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
    busy = situation.intensity * quantum
    between = CHANCE if situation.interval < situation.turnaround else 0.0
    mean_s = s + between * d
    if situation.intensity >= 1:
        return Prediction(s / mean_s, between * d / mean_s)
    alone = _requests(busy, 0, s)
    pause = quantum - alone * s
    if pause <= situation.interval:
        return Prediction(1.0, 0.0)
    count = _delayed(busy, d, mean_s)
    after = max(0.0, quantum - d / 2 - count * mean_s - situation.interval) / d + 0.5
    return Prediction(min(1.0, count / alone), min(1.0, (between * count + after) * d / quantum))
