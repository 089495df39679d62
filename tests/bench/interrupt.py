"""Signals that ask a benchmark to end, as an exception, so that what it started is cleaned up."""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked for the end; the text is its name."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal unwinds; later ones must not disturb the cleaning up."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)


def unwind_on_signals() -> None:
    """From now on a signal that asks for the end raises Interrupted.  Context: the main thread."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)
