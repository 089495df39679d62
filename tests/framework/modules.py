"""Kernel modules: which files a module needs, in the order in which to load them."""

from __future__ import annotations

import lzma
import re
import subprocess
from pathlib import Path

SUFFIXES = (".ko", ".ko.xz", ".ko.zst")


def _name(path: Path) -> str:
    return path.name.split(".ko")[0].replace("-", "_")


def read_module(path: Path) -> bytes:
    """A module's ELF file, decompressed."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", str(path)], check=True, capture_output=True).stdout
    return path.read_bytes()


def _depends(data: bytes) -> list[str]:
    """What the module's own .modinfo says; modules.dep is only written at installation."""
    found = re.search(rb"\0depends=([^\0]*)\0", data)
    return [name.replace("-", "_") for name in found.group(1).decode().split(",") if name] if found else []


def resolve(folder: Path, wanted: list[str]) -> list[tuple[str, bytes]]:
    """(name, content) of `wanted` and of all they need, each after what it needs.

    A module that has no file is built into the kernel if modules.builtin names
    it, and is left out; otherwise it is an error.
    """
    files = {_name(path): path for path in folder.rglob("*.ko*") if path.name.endswith(SUFFIXES)}
    builtin = {_name(Path(line)) for line in (folder / "modules.builtin").read_text().split()}
    done: dict[str, bytes] = {}

    def visit(name: str) -> None:
        if name in done or name in builtin:
            return
        if name not in files:
            raise RuntimeError(f"module {name}: neither below {folder} nor built into that kernel")
        data = read_module(files[name])
        for needed in _depends(data):
            visit(needed)
        done[name] = data

    for name in wanted:
        visit(name.replace("-", "_"))
    return list(done.items())
