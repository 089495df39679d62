#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes roles/*/README.md from their argument specifications; with --check it only says which are not current.

    readmes.py [--check]

Exit status 0, or 1 where a README is not current.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Iterator

import yaml

ROLES = Path(__file__).resolve().parents[1] / "roles"
HEAD = "<!-- Made by scripts/readmes.py from meta/argument_specs.yml: change that file, then run the program. -->\n"


def text(value: Any) -> str:
    """A description as Markdown: C(x) is code, newlines are spaces, bars do not end a cell."""
    words = " ".join(value if isinstance(value, list) else [str(value)])
    return re.sub(r"C\(([^()]*(?:\([^()]*\))?[^()]*)\)", r"`\1`", " ".join(words.split())).replace("|", "\\|")


def default(option: dict[str, Any]) -> str:
    """The cell of the default."""
    if option.get("required"):
        return "required"
    if "default" not in option:
        return ""
    value = option["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value not in ("", [], {}) else "empty"


def rows(options: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """A row for each variable; those in lists and dictionaries after it."""
    for name, option in options.items():
        kind = option.get("type", "str")
        if option.get("elements"):
            kind = f"{kind} of {option['elements']}"
        if option.get("choices"):
            kind = " \\| ".join(f"`{choice}`" for choice in option["choices"])
        yield f"| `{prefix}{name}` | {kind} | {default(option)} | {text(option.get('description', ''))} |"
        suffix = "[]." if option.get("elements") else "."
        yield from rows(option.get("options") or {}, f"{prefix}{name}{suffix}")


def tags(role: Path) -> list[str]:
    """The tags of the role's tasks, in order of appearance."""
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text())
    return list(dict.fromkeys(tag for task in tasks for tag in task.get("tags", [])))


def readme(role: Path) -> str:
    """The whole README of a role."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    main = specs["main"]
    lines = [HEAD, f"# Role idletime.kvm.{role.name}\n", f"{text(main['short_description'])}.\n"]
    lines += [text(line) for line in main.get("description", [])]
    lines += ["", "| variable | type | default | meaning |", "|---|---|---|---|", *rows(main["options"])]
    if tags(role):
        lines += ["", f"Tags: {', '.join(f'`{tag}`' for tag in tags(role))}."]
    if "checks" in specs:
        lines += ["", "`tasks_from: checks` makes only the checks, and changes nothing."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """See above."""
    stale = []
    for role in sorted(path for path in ROLES.iterdir() if (path / "meta" / "argument_specs.yml").exists()):
        path, wanted = role / "README.md", readme(role)
        if path.exists() and path.read_text() == wanted:
            continue
        stale.append(str(path.relative_to(ROLES.parent)))
        if "--check" not in sys.argv:
            path.write_text(wanted)
    if stale and "--check" in sys.argv:
        print(f"error: not current: {', '.join(stale)}; run ansible/scripts/readmes.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
