# SPDX-License-Identifier: GPL-2.0-or-later
"""trace: logs of QEMU's trace events as one file that Perfetto opens."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from ..domains import HostError
from ..errors import Exit
from ..trace import chrome
from ..trace.log import NoTimes, events
from ..trace.slices import COLLISION, HELD, SCSI, SERVICE, Slice, slices


def run(options: argparse.Namespace) -> int:
    logs = dict(zip(_names(options.logs), map(_slices, options.logs), strict=True))
    for name, found in logs.items():
        count = [sum(one.name.startswith(what) for one in found) for what in (HELD, SERVICE, COLLISION)]
        commands = sum(one.track == SCSI for one in found)
        print(f"{name}: {count[0]} releases, {count[1] + count[2]} ends of service, {count[2]} of them collisions, "
              f"{sum(one.track == 'foreground' for one in found)} requests of the foreground"
              f"{f', {commands} SCSI commands' if commands else ''}", file=sys.stderr)
    if not any(logs.values()):
        raise HostError("there is no event of Idletime in it; remedy: idletime-qemu(7), TRACE EVENTS, says how they are logged",
                        Exit.USAGE)
    text = json.dumps(chrome.document(logs))
    if options.output is None:
        print(text)
    else:
        try:
            Path(options.output).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise HostError(f"cannot write '{options.output}': {error.strerror}", Exit.USAGE) from error
    return Exit.OK


def _names(logs: list[str]) -> list[str]:
    """Of files, as short as they tell them apart."""
    short = [Path(one).stem for one in logs]
    names = short if len(set(short)) == len(short) else logs
    if len(set(names)) < len(names):
        raise HostError("a log is named twice; remedy: leave one out", Exit.USAGE)
    return names


def _slices(log: str) -> list[Slice]:
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            return list(slices(events(file)))
    except OSError as error:
        raise HostError(f"cannot read '{log}': {os.strerror(error.errno or 0)}; remedy: give a readable log",
                        Exit.USAGE) from error
    except NoTimes:
        raise HostError(f"'{log}' does not say when its events were; remedy: start QEMU with -msg timestamp=on, as libvirt "
                        "does", Exit.USAGE) from None
