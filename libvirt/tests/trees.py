# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts as text files: expanded into a directory that Tree() takes as its root."""

from pathlib import Path


def expand(description: Path, root: Path) -> Path:
    """Make the files, links and directories that a .tree file lists below root."""
    for line in description.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        _entry(line, root)
    return root


def _entry(line: str, root: Path) -> None:
    if line.endswith("/"):
        (root / line.strip("/")).mkdir(parents=True, exist_ok=True)
        return
    path, sign, value = _split(line)
    here = root / path.lstrip("/")
    here.parent.mkdir(parents=True, exist_ok=True)
    if sign == "->":
        here.symlink_to(value)
    else:
        text = value.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\")
        here.write_text(text + "\n", encoding="utf-8")


def _split(line: str) -> tuple[str, str, str]:
    for sign in (" -> ", " = "):
        if sign in line:
            path, _, value = line.partition(sign)
            return path, sign.strip(), value
    raise ValueError(f"not a line of a tree: {line}")
