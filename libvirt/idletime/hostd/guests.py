# SPDX-License-Identifier: GPL-2.0-or-later
"""One running domain's agent: what it said last, what it is told, and when its silence counts. Time from the caller.

A wish is forgotten when no state has come for SILENCE_SECONDS in which the VM ran and we listened, and at once
when the guest is reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import VERSION
from ..facts import Plan
from . import protocol, rights
from .protocol import State, Wish
from .settle import Looked

SILENCE_SECONDS = 90.0


@dataclass
class Agent:
    """What is known of one guest's agent. looked: of the last look at its domain, None before there was one. last: the state
    that came last; answers: the last one that a look has taken into account."""

    session: str
    heard: float
    looked: Looked | None = None
    last: tuple[str, int] | None = None
    answers: tuple[str, int] | None = None
    asked: Wish | None = None  # not yet settled
    told: bytes = field(default=b"", repr=False)

    def hear(self, state: State, now: float) -> bool:
        """Take a state; tells whether the domain must be settled. If not, it is to be answered at once."""
        self.heard = now
        self.last = (state.session, state.sequence)
        in_force = self.asked if self.asked is not None else self.looked.wish if self.looked else None
        if state.wish != in_force or self._to_be_tried_again():
            self.asked = state.wish
        if self.asked is None:
            self.answers = self.last
        return self.asked is not None

    def _to_be_tried_again(self) -> bool:
        refused = self.looked.grant.refused if self.looked else ()
        return any(refusal.code == "failed" for refusal in refused)

    def forget(self) -> bool:
        """The guest was reset, or has been silent: it asks for nothing. Tells whether the domain must be settled."""
        self.last = self.answers = None
        if not self.asked and not (self.looked and self.looked.wish):
            return False
        self.asked = Wish()
        return True

    def tick(self, now: float, since: float) -> bool:
        """Time has passed since `since`; tells whether the domain must be settled because the guest is silent."""
        if self.looked is None or not self.looked.running:
            self.heard += now - since  # time in which the VM does not run does not count
            return False
        return now - self.heard > SILENCE_SECONDS and self.forget()

    def see(self, looked: Looked, asked: Wish | None) -> None:
        """The domain was settled with this wish."""
        self.looked = looked
        if self.asked == asked:
            self.asked, self.answers = None, self.last

    def message(self) -> bytes:
        """The policy, for the guest."""
        looked = self.looked
        if looked is None:
            nothing = rights.Grant(Plan())
            return protocol.encode(rights.message(self.session, VERSION, None, nothing, (), None, False))
        return protocol.encode(rights.message(
            self.session, VERSION, looked.policy, looked.grant, looked.devices, self.answers, looked.active))
