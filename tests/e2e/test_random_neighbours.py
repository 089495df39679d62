"""Neighbours that are killed and stopped at random: the others go on within the bounds of ARCHITECTURE.md."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.e2e.test_disk import Start
from tests.e2e.test_neighbours import FOREVER_SECONDS, served_again
from tests.framework.ledger import note
from tests.framework.qemu import Machine
from tests.testbed.disk import Disk
from tests.testbed.requests import of_client

ROUNDS = int(os.environ.get("IDLETIME_ROUNDS", "6"))
"""200 for the README's table."""

MAX_HOLD_MS = 500
ROLES = ("foreground", "background")
NUMBERS = (signal.SIGKILL, signal.SIGSTOP)

OUTSTANDING = 4
"""Of each background participant; so many of the other one may be before ours at the cap."""

BOUND_MS = {
    ("foreground", signal.SIGKILL): 20 + MAX_HOLD_MS,
    ("foreground", signal.SIGSTOP): MAX_HOLD_MS,
    ("background", signal.SIGKILL): 20 + MAX_HOLD_MS,
    ("background", signal.SIGSTOP): 5000 + MAX_HOLD_MS,
}
"""Until the other background participant gets its next request, but for those before it at the cap: one look, the
deadline, a dead token's 10 ms and the next look, the lease; beside the deadline, as the other foreground may be busy
all the time. In virtual time, to the microsecond: idletime-overdue-test, idletime-time-test."""

SLACK_MS = 3000
"""For a host with more QEMUs than processors, all under TCG."""


class Cast:
    """Two foreground and two background VMs; one that was killed gets a successor."""

    def __init__(self, machine: Start, shared: Disk) -> None:
        self._machine, self._shared = machine, shared
        self._numbers = {role: 0 for role in ROLES}
        self.living: dict[str, list[Machine]] = {role: [] for role in ROLES}

    def enter(self, role: str) -> None:
        """Boot one more of a role, under load."""
        self._numbers[role] += 1
        name = f"{role[:2]}{self._numbers[role]}"
        one = self._machine(self._shared, name, role, max_hold_ms=MAX_HOLD_MS, interval_us=5000)
        load = {"intensity": 40} if role == "foreground" else {"outstanding": 4}
        one.guest.load(seconds=FOREVER_SECONDS * 20, **load)
        served_again(self._shared, name, 3)
        self.living[role].append(one)

    def leave(self, role: str, one: Machine) -> None:
        """It was killed."""
        self.living[role].remove(one)
        one.stop()


@dataclass(frozen=True)
class Next:
    """The survivor's next request after a signal, and what the disk did meanwhile."""

    took_ms: float
    before: int
    """Requests of other background participants that came to the disk after the deadline, and before it."""
    services_ms: float
    """The longest times of background requests at the disk: as many as may be before it, together."""


def wait_for_next(shared: Disk, survivor: Machine, since: int, after_ns: int, limit_ms: float) -> Next:
    """Return when the survivor's next request after `after_ns` has been served."""
    def come(log: np.ndarray) -> bool:
        return bool((of_client(log, survivor.name)["arrival_ns"] > after_ns).any())

    shared.wait_for(since, come, limit_ms / 1000)
    background = of_client(shared.read(since), "ba*")
    arrivals = background["arrival_ns"]
    ours = background["client"] == survivor.name.encode()
    came_ns = arrivals[ours & (arrivals > after_ns)].min()
    before = ~ours & (arrivals > after_ns + MAX_HOLD_MS * 1_000_000) & (arrivals < came_ns)
    services_ns = np.sort(background["finish_ns"] - arrivals)[-OUTSTANDING:].sum()
    return Next(float(came_ns - after_ns) / 1e6, int(before.sum()), float(services_ns) / 1e6)


def test_random_signals(disk: Start, machine: Start, stack: ExitStack, arena: Path) -> None:
    """SIGKILL and SIGSTOP in random order, of foreground and background; each time the other background goes on."""
    seed = int(os.environ.get("IDLETIME_SEED", "1"))
    dice = random.Random(seed)
    shared: Disk = disk(service_us=2000)
    cast = Cast(machine, shared)
    for role in ROLES + ROLES:
        cast.enter(role)
    seen: dict[tuple[str, signal.Signals], list[Next]] = {key: [] for key in BOUND_MS}
    for number in range(ROUNDS):
        # Stops are cheap, a killed one has to be booted again.
        role, number_of_signal = dice.choice(ROLES), dice.choices(NUMBERS, [1, 3])[0]
        key = (role, number_of_signal)
        victim = dice.choice(cast.living[role])
        survivor = next(one for one in cast.living["background"] if one is not victim)
        time.sleep(dice.random() * 0.05)
        since = shared.mark()
        victim.process.kill(number_of_signal)
        sent_ns = time.monotonic_ns()
        seen[key].append(wait_for_next(shared, survivor, since, sent_ns, BOUND_MS[key] + SLACK_MS))
        assert seen[key][-1].before <= OUTSTANDING, (key, seen[key][-1], f"round {number}, seed {seed}")
        if number_of_signal == signal.SIGSTOP:
            victim.process.kill(signal.SIGCONT)
            served_again(shared, victim.name, 1)
        else:
            cast.leave(role, victim)
            cast.enter(role)
        for one in (*cast.living["foreground"], *cast.living["background"]):
            assert one.process.running(), f"{one.name} died in round {number} (seed {seed})\n{one.context()}"
    for key, each in seen.items():
        if each:
            services_ms = max(one.services_ms for one in each)
            note(f"{key[1].name} of a {key[0]} neighbour", len(each), seed=seed,
                 longest_wait_ms=max(one.took_ms for one in each), most_before=max(one.before for one in each),
                 longest_services_ms=services_ms, bound_ms=BOUND_MS[key] + services_ms)
