# SPDX-License-Identifier: GPL-2.0-or-later
"""What idletimed has done to background VMs as a whole, since it started: how often, why, and what it brought.

Counted where an act has come through; read by metrics. Words are those of KNOWN, so labels are as many as there are. Context:
the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..police import memory, suspend

OUT, IN = "out", "in"

_SHORT = ("reserve", "starting", "pressure")
KNOWN: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("suspend", suspend.Act.STOP.value): ("processor", "disk", "uplink", "resource", "peers"),
    ("suspend", suspend.Act.CONT.value): ("probe", "idle", "peers", "policy"),
    ("rate", "limit"): ("foreground",),
    ("rate", "lift"): ("idle",),
    ("memory", memory.How.BALLOON.value): (*_SHORT, "calm"),
    ("memory", memory.How.RECLAIM.value): _SHORT,
    ("memory", memory.How.SAVE.value): _SHORT,
    ("memory", memory.How.START.value): ("calm",),
    ("space", "trim"): ("low-water",),
    ("space", "drop"): ("low-water",),
    ("migrate", "move"): ("processor",),
}
"""Policy and act, and its causes. A balloon whose cause is calm gives back."""


@dataclass
class Deeds:
    """taken: bytes, by policy and act. stopped_seconds: of all VMs together. migrated: VMs that came in and went out."""

    acts: Counter[tuple[str, str, str]] = field(
        default_factory=lambda: Counter({(*act, cause): 0 for act, causes in KNOWN.items() for cause in causes}))
    taken: Counter[tuple[str, str]] = field(default_factory=lambda: Counter({
        ("memory", "balloon"): 0, ("memory", "reclaim"): 0, ("memory", "save"): 0, ("space", "drop"): 0}))
    stopped_seconds: float = 0.0
    migrated: Counter[str] = field(default_factory=lambda: Counter({OUT: 0, IN: 0}))

    def done(self, policy: str, act: str, cause: str, taken: int = 0) -> None:
        """An act has come through."""
        if cause in KNOWN[policy, act]:
            self.acts[policy, act, cause] += 1
        if taken:
            self.taken[policy, act] += taken

    def moved(self, direction: str) -> None:
        """A VM came by migration, or has left."""
        self.migrated[direction] += 1

    def copy(self) -> Deeds:
        """As it is now."""
        return Deeds(self.acts.copy(), self.taken.copy(), self.stopped_seconds, self.migrated.copy())
