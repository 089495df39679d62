"""Signals that ask a program to end, as an exception, so that what it started is cleaned up."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType
from typing import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

DONE, FAILED, UNAVAILABLE, INTERRUPTED = 0, 1, 3, 130
"""Exit statuses; 130 is what a shell says of a program that Ctrl-C ended."""


class Interrupted(Exception):
    """A signal asked for the end; the text is its name."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal unwinds; later ones must not disturb the cleaning up."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)


def exit_status(
    work: Callable[[], int | None], left: Callable[[], str] = lambda: "", unavailable: tuple[type[Exception], ...] = (),
) -> int:
    """Do the work of a program until it ends or a signal asks for the end; say why on stderr.

    The work's own status, if it returns one, is passed through.
    `left` says what an interruption leaves behind.  Errors of the types `unavailable` mean that this machine lacks
    something: UNAVAILABLE; all other errors of input, files and processes: FAILED.  Context: the main thread.
    """
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return work() or DONE
    except Interrupted as reason:
        print("; ".join(filter(None, (f"\nStopped by {reason}", left()))), file=sys.stderr)
        return INTERRUPTED
    except unavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return UNAVAILABLE
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
