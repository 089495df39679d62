# SPDX-License-Identifier: GPL-2.0-or-later
"""Printing: the same model as lines, as a table, or as JSON. Colours only on a terminal (and not with NO_COLOR)."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..compiler.result import Plan
from ..errors import Finding
from ..hostview import HostResource
from ..status import DeviceStatus, DomainStatus

UNKNOWN = "-"
_STYLES = {"background": "cyan", "guest": "magenta", "foreground": "green", "no": "yellow", "yes": "green"}
_WIDE = 1000  # not a terminal: lines are never broken


def plain(value: Any) -> Any:
    """A model as what JSON knows; a name that ends in "_" loses it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name.rstrip("_"): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, frozenset)):
        return [plain(one) for one in value]
    return value


def result(options: argparse.Namespace, model: Any, human: list[str] | Callable[[], None]) -> None:
    """Print the model: as JSON if it was asked for, else for people."""
    if options.json:
        json.dump(model, sys.stdout, indent=2)
        sys.stdout.write("\n")
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
    return lines + [f"{device.kind} {device.target}: {device.class_.value} on {names[device.resource]}"
                    for device in plan.devices]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table without lines; None is '-', numbers stand right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    grid = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for column, name in enumerate(head):
        numeric = any(isinstance(row[column], int) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(text, _STYLES.get(text, "")) for text in map(_cell, row)))
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    with console.capture() as capture:
        console.print(grid)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def _cell(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def status(found: Sequence[DomainStatus]) -> None:
    """One row a device; a domain without devices has a row of its own. Problems follow."""
    if found:
        table(("domain", "state", "device", "class", "now", "resource", "state", "interval ms", "held", "in service",
               "collisions", "in force"), [row for one in found for row in _rows(one)])
    for one in found:
        for problem in one.problems:
            print(f"{one.name}: {problem}", file=sys.stderr)


def _rows(one: DomainStatus) -> list[tuple[Any, ...]]:
    resources = {resource.id: resource for resource in one.resources}
    if not one.devices:
        return [(one.name, one.state, None, one.class_, *[None] * 7, one.in_force)]
    return [_row(one, device, resources) for device in one.devices]


def _row(one: DomainStatus, device: DeviceStatus, resources: dict[str, Any]) -> tuple[Any, ...]:
    resource = resources[device.resource]
    interval = resource.interval_us_wanted if resource.interval_us is None else resource.interval_us
    return (one.name, one.state, device.target, device.class_wanted, device.class_now, resource.name, resource.state,
            f"{interval / 1000:g}", device.held, device.in_service, resource.collisions, one.in_force)


def resources(found: Sequence[HostResource]) -> None:
    table(("resource", "arena", "foreground", "background", "domains", "stands for"), [
        (one.name, "yes" if one.arena else "no", one.foreground, one.background, ", ".join(one.domains) or None,
         " > ".join(one.trail) or None) for one in found])
