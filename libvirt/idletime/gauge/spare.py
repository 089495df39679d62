# SPDX-License-Identifier: GPL-2.0-or-later
"""Shares of time that were free: of the last second, minute, hour, and the forecast, as the learner in QEMU has them
(idletime/learner/spare.c); and a steady one for who decides by it. Pure; the time comes from the caller.

The steady share is for schedulers, which must not follow each breath of a host. It falls as soon as the minute or the
forecast is clearly lower, and rises only when both have been clearly higher for a while:

    minute, forecast  0.80 ... 0.80  0.62  0.61  0.79  0.80 (for RISE_SECONDS)  0.80
    steady            0.80           0.62  0.62  0.62  0.62                     0.79
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

PERIODS = 60
"""Seconds of a minute, minutes of an hour."""

MISS_MEMORY = 8
"""The forecasters' errors are averaged over about so many minutes."""

BAND = 0.05
"""Shares that differ by less are the same. The second's share of a host with a steady load varies by some hundredths."""

RISE_SECONDS = 60.0
"""A pause that is shorter is no room for a VM, which takes seconds to come and minutes to be worth it."""

KNOWN_SECONDS = 10.0
"""Before so much has been seen nothing steady is said."""


@dataclass(frozen=True)
class Spare:
    """Shares of time, 0 to 1; None is unknown."""

    second: float | None = None
    minute: float | None = None
    hour: float | None = None
    forecast: float | None = None
    steady: float | None = None


@dataclass
class _Ring:
    """Means of the last periods, each of period_seconds."""

    period_seconds: float
    shares: deque[float] = field(default_factory=lambda: deque(maxlen=PERIODS))
    free: float = 0.0
    seconds: float = 0.0

    def add(self, share: float, seconds: float) -> bool:
        """A time of this mean; whether periods have ended. A longer one spreads over them."""
        self.free, self.seconds = self.free + share * seconds, self.seconds + seconds
        periods = int(self.seconds / self.period_seconds + 1e-9)
        if periods < 1:
            return False
        mean = min(max(self.free / self.seconds, 0.0), 1.0)
        self.shares.extend([mean] * min(periods, PERIODS))
        self.free = self.seconds = 0.0
        return True

    def mean(self, last: int = PERIODS) -> float | None:
        found = list(self.shares)[-last:]
        return sum(found) / len(found) if found else None


@dataclass
class Smoother:
    """Of one resource."""

    _seconds: _Ring = field(default_factory=lambda: _Ring(1.0))
    _minutes: _Ring = field(default_factory=lambda: _Ring(60.0))
    _miss: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _said: list[float | None] = field(default_factory=lambda: [None, None])  # as the minute, as the hour
    _seen: float = 0.0
    _steady: float | None = None
    _above: float = 0.0
    _least: float = 1.0

    def add(self, share: float, seconds: float) -> None:
        """So much of a time was free."""
        if seconds <= 0:
            return
        self._seconds.add(share, seconds)
        if self._minutes.add(share, seconds):
            self._judge()
        self._seen += seconds
        self._follow(seconds)

    def _judge(self) -> None:
        truth = self._minutes.mean(1)
        for one, said in enumerate(self._said):
            if said is not None and truth is not None:
                self._miss[one] += (abs(truth - said) - self._miss[one]) / MISS_MEMORY
        self._said = [truth, self._minutes.mean()]

    def _forecast(self) -> float | None:
        """That of the two simplest forecasters which was nearer to the truth of late."""
        by_hour = self._miss[1] < self._miss[0]
        return self._seconds.mean() if self._said[0] is None else self._said[by_hour]

    def _follow(self, seconds: float) -> None:
        minute, forecast = self._seconds.mean(), self._forecast()
        if self._seen < KNOWN_SECONDS or minute is None or forecast is None:
            return
        least = min(minute, forecast)
        if self._steady is None or least < self._steady - BAND:
            self._steady, self._above, self._least = least, 0.0, 1.0
        elif least > self._steady + BAND:
            self._above, self._least = self._above + seconds, min(self._least, least)
            if self._above >= RISE_SECONDS:
                self._steady, self._above, self._least = self._least, 0.0, 1.0
        else:
            self._above, self._least = 0.0, 1.0

    @property
    def spare(self) -> Spare:
        return Spare(self._seconds.mean(1), self._seconds.mean(), self._minutes.mean(), self._forecast(), self._steady)
