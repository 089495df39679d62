"""What the demo runs: the phases, and in which order."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Iterator

INTERVALS_US = (0, 5000, 20000, 80000)
START_US = 20000
"""Where an interval that sets itself starts: the product's default."""
BUDGETS_PERCENT = (3,)
OUTSTANDING = (1, 4)
"""Requests that the greedy background keeps outstanding: one, as in the dissertation; and a few, as real ones do."""


@dataclass(frozen=True)
class Phase:
    """One situation. `interval_us` None: nothing holds the background back."""

    foreground: bool
    outstanding: int
    interval_us: int | None = None
    budget_percent: int | None = None
    """The interval sets itself within this budget; `interval_us` is where it starts."""
    pauses: str = "even"
    """Those of the foreground: "even", or "exponential" of the same mean."""
    stock: bool = False
    """The foreground is a VM on a QEMU without our patches, and seen by the observer in the kernel."""

    @property
    def name(self) -> str:
        """A short name, unique among the phases; also that of files."""
        suffix = ("" if self.pauses == "even" else f"-{self.pauses}") + ("-stock" if self.stock else "")
        if not self.outstanding:
            return f"foreground-alone{suffix}"
        if not self.foreground:
            return f"background-{self.outstanding}-alone{suffix}"
        control = "uncontrolled" if self.interval_us is None else f"{self.interval_us}us"
        if self.budget_percent is not None:
            control = f"auto-{self.budget_percent}"
        return f"background-{self.outstanding}-{control}{suffix}"

    @property
    def control(self) -> str:
        """What holds the background back, for people."""
        if self.budget_percent is not None:
            return f"auto, budget {self.budget_percent} %"
        return "uncontrolled" if self.interval_us is None else f"interval {self.interval_us / 1000:g} ms"

    @property
    def title(self) -> str:
        """What a person reads while it runs."""
        greedy = f"greedy background ({self.outstanding} outstanding)"
        more = ("" if self.pauses == "even" else ", irregular pauses") + (", foreground on stock QEMU" if self.stock else "")
        if not self.outstanding:
            return f"foreground alone{more}"
        if not self.foreground:
            return f"{greedy} alone"
        return f"{greedy}, {self.control}{more}"

    def parameters(self) -> dict[str, Any]:
        """For the data."""
        return {"name": self.name, **asdict(self)}


def _controlled(outstanding: int, pauses: str, intervals_us: tuple[int, ...]) -> list[Phase]:
    """The same load under each interval, then under the one that sets itself."""
    fixed = [Phase(True, outstanding, interval, pauses=pauses) for interval in intervals_us]
    return fixed + [Phase(True, outstanding, START_US, budget, pauses) for budget in BUDGETS_PERCENT]


def phases(patched: bool, loads: tuple[int, ...] = OUTSTANDING) -> list[Phase]:
    """All phases, with background loads of so many outstanding requests; without our patches only those that need none."""
    result = [Phase(True, 0)]
    for outstanding in loads:
        result += [Phase(False, outstanding), Phase(True, outstanding)]
        result += _controlled(outstanding, "even", INTERVALS_US) if patched else []
    return result + irregular_phases(patched)


def irregular_phases(patched: bool) -> list[Phase]:
    """A foreground whose pauses vary: even ones of 70 ms leave nothing to an interval of 80 ms."""
    result = [Phase(True, 0, pauses="exponential"), Phase(True, 1, pauses="exponential")]
    return result + (_controlled(1, "exponential", INTERVALS_US[1:]) if patched else [])


def stock_phases() -> list[Phase]:
    """A foreground on stock QEMU: alone, beside a greedy background, and beside one that the observer lets see it."""
    both = Phase(True, 1, stock=True)
    return [Phase(True, 0, stock=True), Phase(False, 1, stock=True), both, replace(both, interval_us=START_US, budget_percent=BUDGETS_PERCENT[0])]


def schedule(order: list[Phase], repeats: int) -> Iterator[tuple[int, Phase]]:
    """(repeat, phase); every other repeat runs backwards, so that a drift of the host hits all phases alike."""
    for repeat in range(repeats):
        for phase in order if repeat % 2 == 0 else reversed(order):
            yield repeat, phase
