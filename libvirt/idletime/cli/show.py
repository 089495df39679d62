# SPDX-License-Identifier: GPL-2.0-or-later
"""Printing: the same model as lines, as a table, or as JSON. Colours only on a terminal (and not with NO_COLOR)."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib.util
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
    return lines + [f"{device.kind} {device.target}: not resolved" for device in plan.unresolved]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table without lines; None is '-', numbers stand right."""
    body = [list(row) for row in rows]
    right = [any(isinstance(row[column], int) for row in body) for column in range(len(head))]
    text = [list(map(_cell, row)) for row in body]
    (_coloured if sys.stdout.isatty() and importlib.util.find_spec("rich") else _aligned)(head, text, right)


def _aligned(head: Sequence[str], rows: list[list[str]], right: list[bool]) -> None:
    """For pipes, where rich would take a third of the time that a status may take, and where there is no rich."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (cell.rjust(width) if at_right and row is not head else cell.ljust(width)
                 for cell, width, at_right in zip(row, widths, right, strict=True))
        print("  ".join(cells).rstrip())


def _coloured(head: Sequence[str], rows: list[list[str]], right: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, at_right in zip(head, right, strict=True):
        grid.add_column(name, justify="right" if at_right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(text, _STYLES.get(text, "")) for text in row))
    Console(highlight=False).print(grid)


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
    table(("resource", "arena", "foreground", "background", "domains", "stands for", "said in"), [
        (one.name, "yes" if one.arena else "no", one.foreground, one.background, ", ".join(one.domains) or None,
         " > ".join(one.trail) or None, one.said) for one in found])
