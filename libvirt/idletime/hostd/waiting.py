# SPDX-License-Identifier: GPL-2.0-or-later
"""Which domains wait to be settled, and when. Pure; the time comes from the caller.

Events only mark a domain: a thousand events for one domain that arrive while it waits, or while it is being
settled, are one more look at it. What fails is tried again, later each time. Whoever an event is about goes before those that
are only looked at because it is time: with thousands of domains these take a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RETRY_SECONDS = 2.0
RETRY_MOST_SECONDS = 60.0
"""A domain in a migration refuses commands for as long as that lasts; libvirt itself waits 30 s for its turn."""


@dataclass
class _Entry:
    due: float | None = None
    event: bool = False
    busy: bool = False
    failures: int = 0


@dataclass
class Queue:
    """The domains that want a look, by UUID, in the order in which they wanted it."""

    _entries: dict[str, _Entry] = field(default_factory=dict)

    def touch(self, uuid: str, now: float, event: bool = True) -> None:
        """Something happened to a domain; or, without an event, it is time to look at it."""
        entry = self._entries.setdefault(uuid, _Entry())
        entry.event = entry.event or event
        entry.due = now if entry.due is None else min(entry.due, now)

    def take(self, now: float) -> str | None:
        """The domain to settle next, which is then busy; None when there is none yet."""
        ready = [(not entry.event, entry.due, uuid) for uuid, entry in self._entries.items()
                 if entry.due is not None and entry.due <= now and not entry.busy]
        if not ready:
            return None
        *_, uuid = min(ready)
        entry = self._entries[uuid]
        entry.due, entry.event, entry.busy = None, False, True
        return uuid

    def done(self, uuid: str, now: float, succeeded: bool) -> None:
        """A domain was settled, or could not be."""
        entry = self._entries[uuid]
        entry.busy = False
        if succeeded:
            entry.failures = 0
            return
        delay = min(RETRY_SECONDS * 2 ** entry.failures, RETRY_MOST_SECONDS)
        entry.failures = min(entry.failures + 1, 10)
        entry.due = now + delay if entry.due is None else min(entry.due, now + delay)

    def forget(self, uuid: str) -> None:
        """A domain is gone; if something has happened to it since, that is looked at first."""
        entry = self._entries.get(uuid)
        if entry is not None and not entry.busy and entry.due is None:
            del self._entries[uuid]

    def wait_seconds(self, now: float) -> float | None:
        """Until the next domain is due; None when none is."""
        dues = [entry.due for entry in self._entries.values() if entry.due is not None and not entry.busy]
        return max(0.0, min(dues) - now) if dues else None

    def known(self) -> set[str]:
        """All domains that were ever touched and not forgotten."""
        return set(self._entries)
