# SPDX-License-Identifier: GPL-2.0-or-later
"""Printing: the same model as lines, as a table, or as JSON. Colours only on a terminal (and not with NO_COLOR)."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..change import Outcome
from ..conf.rules import NOT_ATTACHED
from ..doctor import Report
from ..domains import HostError
from ..errors import Exit, Finding, printable
from ..facts import Plan
from ..hostview import HostResource
from ..jobview import JobStatus
from ..status import KERNEL, DeviceStatus, DomainStatus

if TYPE_CHECKING:
    from ..calibrate import Noise
    from .changes import Done

UNKNOWN = "-"
_STYLES = {"background": "cyan", "guest": "magenta", "foreground": "green", "no": "yellow", "yes": "green", "error": "red",
           "warning": "yellow"}


def file_text(name: str) -> str:
    """Text of a file that the command line names. Raises HostError."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"cannot read '{name}': {error}; remedy: give a readable file in UTF-8", Exit.USAGE) from error


def plain(value: Any) -> Any:
    """A model as what JSON knows; a name that ends in "_" loses it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name.rstrip("_"): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [plain(one) for one in value]
    return value


def result(options: argparse.Namespace, model: Any, human: list[str] | Callable[[], None]) -> None:
    """Print the model: as JSON if it was asked for, else for people."""
    if options.json:
        sys.stdout.write(json.dumps(model, indent=2) + "\n")
    elif callable(human):
        human()
    else:
        print("\n".join(human))


def findings(found: Iterable[Finding]) -> None:
    for finding in found:
        print(finding, file=sys.stderr)


def plan_lines(plan: Plan) -> list[str]:
    """What a policy comes to, a line each."""
    lines = [f"resource {resource.name}: {resource.path}" +
             (f" ({' > '.join(resource.trail)})" if resource.trail else "") for resource in plan.resources]
    names = {resource.id: resource.name for resource in plan.resources}
    lines += [f"{device.kind} {device.target}: {device.class_.value} on {names[device.resource]}"
              for device in plan.devices]
    lines += [f"block jobs of disk {disk.target}: background on {names[disk.resource]}" +
              (f", done by {disk.by}" if disk.by else "") for disk in plan.jobs]
    if (moves := plan.migration) is not None:
        lines.append(f"migration: background on {names[moves.resource]}" + (f", done by {moves.by}" if moves.by else ""))
    return lines + [f"{device.kind} {device.target}: not resolved" for device in plan.unresolved]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table without lines; None is '-', numbers stand right."""
    body = [list(row) for row in rows]
    if sys.stdout.isatty():
        _coloured(head, body)
    else:  # for pipes, where rich would take a third of the time that a status may take
        print("\n".join(line.rstrip() for line in aligned(head, body)))


def aligned(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a table, its head first, all of one length."""
    right = _numbers(head, rows)
    text = [list(map(_cell, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *text, strict=True)]
    return ["  ".join(cell.rjust(width) if at_right and row is not head else cell.ljust(width)
                      for cell, width, at_right in zip(row, widths, right, strict=True)) for row in (head, *text)]


def _numbers(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Columns that stand right."""
    return [any(isinstance(row[column], int | float) for row in rows) for column in range(len(head))]


def _coloured(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, at_right in zip(head, _numbers(head, rows), strict=True):
        grid.add_column(name, justify="right" if at_right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(text, _STYLES.get(text, "")) for text in map(_cell, row)))
    Console(highlight=False).print(grid)


def _cell(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def status(found: Sequence[DomainStatus]) -> None:
    """One row a device; a domain without devices has a row of its own. Problems follow."""
    if found:
        table(("domain", "state", "device", "class", "now", "resource", "state", "interval ms", "held", "in service",
               "collisions", "in force"), [row for one in found for row in _rows(one)])
    old = [one.figures_at for one in found if one.figures_at is not None]
    if old:
        when = time.strftime("%F %T", time.localtime(min(old)))
        print(f"note: figures are those of idletimed's last looks, the oldest of {when}", file=sys.stderr)
    for one in found:
        for problem in (*one.problems, *([f"its guest asks for: {one.asked}"] if one.asked else ())):
            _say(f"{one.name}: {problem}")
        if one.suspends:
            _say(f"{one.name} {one.enforced}")
        if one.stopped:
            _say(f"{one.name}: idletimed has stopped it: {one.stopped}")
        if one.limited:
            _say(f"{one.name}: limited for the foreground: {', '.join(one.limited)}")
        if one.memory_given:
            _say(f"{one.name}: the foreground has {one.memory_given >> 20} MiB of its memory")


def _say(text: str) -> None:
    """What others have said, a QEMU among them, is in it."""
    print(printable(text), file=sys.stderr)


def _rows(one: DomainStatus) -> list[tuple[Any, ...]]:
    resources = {resource.id: resource for resource in one.resources}
    if not one.devices:
        return [(one.name, one.state, None, one.class_, *[None] * 7, one.in_force)]
    return [_row(one, device, resources) for device in one.devices]


def _row(one: DomainStatus, device: DeviceStatus, resources: dict[str, Any]) -> tuple[Any, ...]:
    resource = resources[device.resource]
    interval = resource.interval_us_wanted if resource.interval_us is None else resource.interval_us
    now = device.class_now or _by_kernel(device)
    return (one.name, one.state, device.target, device.class_wanted, now, resource.name, resource.state,
            f"{interval / 1000:g}", device.held, device.in_service, resource.collisions, one.in_force)


def _by_kernel(device: DeviceStatus) -> str | None:
    return f"seen by {KERNEL}" if device.seen_by == KERNEL else None


def jobs(found: Sequence[JobStatus]) -> None:
    """One row a job."""
    table(("domain", "disk", "job", "done %", "MiB/s", "class", "resource", "held", "waited %", "of idle %", "end", "by"), [
        (one.domain, one.disk or None, one.type, _rounded(one.done_percent), _rounded(one.rate and one.rate / (1 << 20)),
         "urgent" if one.urgent else one.class_, one.resource, one.held, _rounded(one.waited_percent),
         _rounded(one.idle_used_percent), "diverges" if one.diverges else _at(one.end), _at(one.by)) for one in found])


def _at(seconds: float | None) -> str | None:
    return None if seconds is None else time.strftime("%F %T", time.localtime(seconds))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def resources(found: Sequence[HostResource]) -> None:
    table(("resource", "arena", "foreground", "background", "observed", "domains", "stands for", "said in"), [
        (one.name, "yes" if one.arena else "no", one.foreground, one.background, one.observer and one.observer.alive,
         ", ".join(one.domains) or None, " > ".join(one.trail) or None, one.said) for one in found])
    for one in found:
        if one.observer and one.observer.declared and not one.observer.alive:
            print(one.observer, file=sys.stderr)
    for one in found:
        if one.problem and one.generations:
            print(f"{one.name}: {one.problem}", file=sys.stderr)


# ---- changes

def changes(done: Sequence[Done], dry_run: bool) -> None:
    """A line a domain, then what is not as it should be."""
    for one in done:
        print(f"{one.name}: {_what(one, dry_run)}")
    for one in done:
        for problem in one.problems:
            print(f"{one.name}: {problem}", file=sys.stderr)


def _what(one: Done, dry_run: bool) -> str:
    if not one.changed:
        return f"nothing to change: {_own(one.after)}{_force(one)}"
    if dry_run:
        return f"would change {_own(one.before)} to {_own(one.after)}, {one.when}{_force(one)}"
    return f"{_own(one.after)}, {one.when}{_force(one)}"


def _own(class_: str | None) -> str:
    return class_ or "no policy of its own"


def _force(one: Done) -> str:
    """What it is in the end, where that is not its own policy's; on what."""
    who = ""
    if one.class_ and one.after is None:
        who = "; so it is not attached" if one.class_ == NOT_ATTACHED else f"; so it is {one.class_}, by rules.d"
    where = f" ({', '.join(one.devices)})" if one.devices else ""
    return who + where + {True: "; in force", False: "; not all in force", None: ""}[one.in_force]


def default(what: str, text: str | None, outcomes: Sequence[Outcome]) -> None:
    """The host's default, and what has become of it."""
    print(what)
    if text:
        print("".join(f"  {line}\n" for line in text.splitlines() if not line.startswith("#")), end="")
    if outcomes:
        table(("domain", "class", "in force", "devices"), [
            (one.name, one.class_, one.in_force, ", ".join(one.devices) or None) for one in outcomes])
    for one in outcomes:
        for problem in one.problems:
            print(f"{one.name}: {problem}", file=sys.stderr)


# ---- doctor

def report(found: Report) -> None:
    """What is wrong, the worst first, with its remedy; then what was looked at and is well."""
    for one in found.found:
        print(f"{one.severity.value}: {f'{one.subject}: ' if one.subject else ''}{one.message}")
        if one.remedy:
            print(f"  remedy: {one.remedy}" + (f" (about {one.minutes} min)" if one.minutes else ""))
    well = [name for name in found.checks if name not in {one.check for one in found.found}]
    if well:
        print(f"well: {', '.join(well)}")


# ---- calibrate

def calibration(options: argparse.Namespace, found: Sequence[Noise], wanted: int, now: int) -> None:
    """A row a device, and what to write down. now: what is in force."""
    def human() -> None:
        table(("device", "a second", "quiet", "most"), [
            (one.device, _rounded(one.mean), _rounded(one.quiet), _rounded(one.most)) for one in found])
        if not found:
            print("too little was seen: look for longer")
        elif wanted <= now:
            print(f"quiet-per-second = {now} is in force, and enough: no background VM is stopped for this")
        else:
            print(f"quiet-per-second = {now} is in force; write in [suspend] of /etc/idletime/idletimed.toml, and restart "
                  f"idletimed:\nquiet-per-second = {wanted}\nForeground that does less than that is not seen then; a disk of "
                  "its own for what the host writes is better.")

    result(options, {"devices": plain(list(found)), "quiet_per_second": wanted, "in_force": now}, human)
