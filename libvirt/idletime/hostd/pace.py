# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of a guest is read, and when: a bucket that leaks. Pure; the time comes from the caller.

A guest that writes more than its share is not read for a while. The rest waits in the guest, at the
guest's cost; the port of one guest has nothing to do with those of others.

    what                      costs
    a byte                    1
    a line, however short     at least LINE_COST: it costs us about as much as two kilobytes do
    a wish that is new        WISH_COST more: it costs libvirtd and QEMU a command each
"""

from __future__ import annotations

from dataclasses import dataclass

RATE = 16384.0
"""Bytes a second for ever. At about 4 us a kilobyte and 20 us a line this is below a thousandth of a processor."""

BURST = 131072.0
"""Two lines of the greatest length at once; an agent that has just started sends two states of some 500 bytes."""

LINE_COST = 2048.0
WISH_COST = 32768.0


@dataclass
class Pace:
    """What one guest may still send. It may run into debt by one read; it is then read no more until that is paid."""

    now: float
    credit: float = BURST

    def charge(self, now: float, cost: float) -> None:
        """Take the cost of something that was read."""
        self.credit = min(BURST, self.credit + (now - self.now) * RATE) - cost
        self.now = now

    def wait_seconds(self, now: float) -> float:
        """How long not to read: 0 when there is credit."""
        self.charge(now, 0)
        return max(0.0, -self.credit / RATE)


def line_cost(line: bytes | None) -> float:
    """What a line costs beyond its bytes."""
    return LINE_COST if line is None else max(0.0, LINE_COST - len(line))
