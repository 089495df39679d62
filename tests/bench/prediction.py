"""What the periodic load and a preemption interval should give, from first principles. Pure.

The dissertation's chapter 4.4 asks the same question: f(i, p) and b(i, p),
the throughput of foreground and background relative to alone, for intensity i
and interval p. This is a model of our own for its load, not that chapter's.

In each quantum Q the foreground issues requests of service time s until i * Q
has passed, then pauses for g. The background's requests take d.

* p below the time t that the foreground needs to issue its next request: each
  foreground request finds a background one in service, so s becomes s + d.
* p below g: background starts at p, p + d, ... before the pause ends. How far
  the last one reaches into the burst is uniform in (0, d]: on average d / 2,
  paid once, at the first request. A request that begins before the burst's
  end is finished, so the count is rounded up, on average by a half.
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


def _requests(busy: float, service: float) -> float:
    """In a burst that issues for `busy` seconds; the last one is finished."""
    return busy / service + 0.5


def _burst(situation: Situation, delay: float, service: float) -> tuple[float, float]:
    """Requests in a burst whose first one waits for `delay`, and how long the burst takes; seconds."""
    busy = situation.intensity * situation.quantum
    if situation.intensity >= 1:
        return situation.quantum / service, situation.quantum
    count = _requests(max(0.0, busy - delay), service)
    return count, delay + count * service


def predict(situation: Situation) -> Prediction:
    """f(i, p) and b(i, p)."""
    s, d, quantum = situation.foreground_service, situation.background_service, situation.quantum
    alone, _ = _burst(situation, 0, s)
    if situation.interval < situation.turnaround:
        count, length = _burst(situation, d / 2 if situation.intensity < 1 else 0, s + d)
        between = count
    else:
        count, length = _burst(situation, 0, s)
        if quantum - length > situation.interval:
            count, length = _burst(situation, d / 2, s)
        between = 0
    pause = quantum - length
    after = max(0.0, (pause - situation.interval) / d + 0.5) if pause > situation.interval else 0.0
    return Prediction(min(1.0, count / alone), min(1.0, (between + after) * d / quantum))
