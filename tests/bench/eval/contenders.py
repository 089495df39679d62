"""Who holds the background back: the marks of the evaluation's plots.

Facts only; rig.py applies them. All run on the same disk. The kernel's
schedulers need a block device of the host: the disk mounted with nbdfuse under
a loop device ("loop"); the others reach the disk as QEMU does, by NBD ("nbd").
io.cost needs a kernel with cgroup v2 io control: a guest plays the host there,
and both loads are cgroups in it ("guest"). io.latency is in no Debian kernel.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.eval import rules


@dataclass(frozen=True)
class Contender:
    """One setting of one mechanism; unset fields are off."""

    name: str
    family: str
    """The line of the plot that it belongs to."""
    path: str = "nbd"
    interval_us: int | None = None
    rule: int = 0
    """Of rules.py; 0: the product's."""
    budget_percent: int | None = None
    throttle_iops: int | None = None
    elevator: str = "none"
    idle_class: bool = False
    weight: int | None = None
    """Of the background's cgroup; the foreground's is 1000 (libvirt's blkiotune, bfq)."""
    io_cost: bool = False

    @property
    def learns(self) -> bool:
        """What it does depends on what it has seen."""
        return self.budget_percent is not None or self.rule == rules.AIMD

    def parameters(self) -> dict[str, Any]:
        """For the data."""
        return asdict(self)


UNCONTROLLED = Contender("uncontrolled", "uncontrolled")
UNCONTROLLED_LOOP = Contender("uncontrolled, loop", "uncontrolled", path="loop")

UNCONTROLLED_GUEST = Contender("uncontrolled, guest", "uncontrolled", path="guest")
UNCONTROLLED_ON = {each.path: each for each in (UNCONTROLLED, UNCONTROLLED_LOOP, UNCONTROLLED_GUEST)}

INTERVALS_US = (0, 1000, 5000, 20000, 50000, 80000)
BUDGETS_PERCENT = (1, 3, 5, 10, 20, 30)
THROTTLES_IOPS = (20, 60, 100)

IO_COST = Contender("io.cost, weight 1", "io.cost", path="guest", io_cost=True)
MQ_DEADLINE = Contender("mq-deadline, idle", "mq-deadline", path="loop", elevator="mq-deadline", idle_class=True)


def _intervals(all_us: tuple[int, ...]) -> tuple[Contender, ...]:
    return tuple(Contender(f"interval {us / 1000:g} ms", "fixed interval", interval_us=us) for us in all_us)


def _autos(percents: tuple[int, ...]) -> tuple[Contender, ...]:
    return tuple(Contender(f"auto {percent} %", "auto", interval_us=20000, budget_percent=percent) for percent in percents)


CONTENDERS = (
    UNCONTROLLED,
    *_intervals(INTERVALS_US),
    *_autos(BUDGETS_PERCENT),
    *(Contender(f"throttle {iops}/s", "QEMU throttle", throttle_iops=iops) for iops in THROTTLES_IOPS),
    UNCONTROLLED_LOOP,
    MQ_DEADLINE,
    Contender("bfq, idle", "bfq", path="loop", elevator="bfq", idle_class=True),
    Contender("bfq, weight 10", "bfq", path="loop", elevator="bfq", weight=10),
    UNCONTROLLED_GUEST,
    IO_COST,
    Contender("kyber, idle", "kyber", path="loop", elevator="kyber", idle_class=True),
)

VARIANTS = tuple(
    Contender(f"variant {rule}, {us / 1000:g} ms", f"variant {rule}", interval_us=us, rule=rule) for rule in (2, 3, 4) for us in (5000, 20000)
)
AIMD = tuple(Contender(f"AIMD {ms} ms/s", "AIMD", interval_us=1000 * ms, rule=rules.AIMD) for ms in (30, 100, 300))

SEEK = (UNCONTROLLED, *_intervals((5000, 20000)), *_autos((3, 5, 10)), MQ_DEADLINE)
SSD = (UNCONTROLLED, *_intervals((0, 20000)), *_autos((3, 5, 10)))
RULES = (*_intervals((5000, 20000)), *VARIANTS, *AIMD, *_autos((3, 10)), IO_COST)

QUICK = {
    "uncontrolled", "interval 0 ms", "interval 5 ms", "interval 20 ms", "auto 3 %", "throttle 60/s",
    "mq-deadline, idle", "bfq, idle", "io.cost, weight 1",
}
