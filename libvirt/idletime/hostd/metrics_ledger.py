# SPDX-License-Identifier: GPL-2.0-or-later
"""Sums over VMs that come and go, which only grow. Pure.

Each source (a VM's resource, a device of a VM, an observer) counts from its own beginning. What a source has counted before
it is seen for the first time is not added, so that a restart of idletimed adds nothing twice; what it counts from then on
is. One that is seen with less than before, or in another run, has begun anew: all of that is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MOST = 256
"""Resources; of more, those are forgotten that nobody has used for longest."""

Series = tuple[str, ...]
"""Name of a metric, and its labels' values beyond the resource."""

Sums = Mapping[str, Mapping[Series, int]]
"""By resource."""


@dataclass
class _Source:
    run: int
    counted: dict[Series, int]


@dataclass
class Ledger:
    """sums: of each resource, used last comes last."""

    sums: dict[str, dict[Series, int]] = field(default_factory=dict)
    _sources: dict[tuple[str, ...], _Source] = field(default_factory=dict)

    def note(self, source: tuple[str, ...], run: int, resource: str, counted: Mapping[Series, int],
             began: bool = False) -> None:
        """A source has counted so far. began: since the last look, so all of that is new."""
        sums = self.sums[resource] = self.sums.pop(resource, {})
        known = self._sources.get(source)
        if known is None:
            known = _Source(run, {} if began else dict(counted))
        elif known.run != run:
            known = _Source(run, {})
        for series, value in counted.items():
            last = known.counted.get(series, 0)
            sums[series] = sums.get(series, 0) + (value - last if value >= last else value)
            known.counted[series] = value
        self._sources[source] = known
        while len(self.sums) > MOST:
            del self.sums[next(iter(self.sums))]

    def knows(self, source: tuple[str, ...], run: int) -> bool:
        """Whether it was there at the last look, in the same run."""
        known = self._sources.get(source)
        return known is not None and known.run == run

    def copy(self) -> Sums:
        """The sums of now."""
        return {name: dict(sums) for name, sums in self.sums.items()}

    def keep(self, sources: Iterable[tuple[str, ...]]) -> None:
        """Only these are there; the others have left, and what they counted stays."""
        there = set(sources)
        self._sources = {source: known for source, known in self._sources.items() if source in there}
