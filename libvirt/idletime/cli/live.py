# SPDX-License-Identifier: GPL-2.0-or-later
"""top: the live view, or the same model as tables or as JSON, one look after the other."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..domains import HostError
from ..errors import Exit
from ..top import model, table
from ..top.model import Model
from ..top.sample import Pace, Sampler
from . import show


def run(options: argparse.Namespace, connect: Callable[[], tuple[Any, bool]] | None) -> int:
    """connect: as Sampler's."""
    sampler = Sampler(connect, options.run_dir, not options.readonly)
    if options.json or options.batch:
        for one in _models(sampler, options.delay, options.count):
            (_line if options.json else _tables)(one)
    else:
        _view(options, sampler)
    return Exit.OK


def _models(sampler: Sampler, delay: float, count: int | None) -> Iterator[Model]:
    """From the second look on: rates need two."""
    pace, now, left = Pace(delay), model.after(None, sampler.look()), count
    while left is None or left > 0:
        time.sleep(pace.wait_seconds())
        now = model.after(now, sampler.look())
        left = None if left is None else left - 1
        yield now


def _line(one: Model) -> None:
    print(json.dumps(show.plain(one.as_dict())), flush=True)


def _tables(one: Model) -> None:
    print(f"{time.strftime('%F %T', time.localtime(one.look.when))}  {len(one.look.vms)} VMs, rates of {one.seconds:.1f} s")
    show.table((*table.RESOURCES, table.STRIP), [(*table.resource(row), row.strip.strip() or None) for row in one.resources])
    print()
    show.table(table.DEVICES, [table.device(row) for row in one.devices])
    print(flush=True)
    for note in one.look.notes:
        print(f"note: {note}", file=sys.stderr)


def _view(options: argparse.Namespace, sampler: Sampler) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HostError("this is no terminal; remedy: --batch or --json", Exit.USAGE)
    from ..top.view import View  # late: urwid is for this alone

    with contextlib.redirect_stderr(io.StringIO()) as notes:
        View(sampler, options.delay, lambda command: _said(options, command), show.aligned, "NO_COLOR" not in os.environ).run()
    sys.stderr.write(notes.getvalue())


def _said(options: argparse.Namespace, command: Sequence[str]) -> tuple[bool, str]:
    """Whether a command did not fail, and what it said. The view has the terminal by a file of its own."""
    from .main import main

    given = ["--settings", str(options.settings_file), "--run-dir", options.run_dir]
    given += ["--connect", options.connect] if options.connect else []
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        code = main([*given, *command])
    return code in (Exit.OK, Exit.SETTINGS), said.getvalue().strip()
