"""Where things are: all paths of the test programs come from here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.framework.exclusive import exclusive

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
GUEST = BUILD / "guest"
TOOLS = BUILD / "tests"
AGENT = BUILD / "agent"
STAGED_QEMU = BUILD / "stage" / "bin" / "qemu-system-x86_64"
STAGED_IMG = STAGED_QEMU.with_name("qemu-img")


def find_qemu(wanted: str | None = None) -> Path:
    """The QEMU to test: `wanted`, else $IDLETIME_QEMU, else the one `make qemu` staged."""
    path = Path(wanted or os.environ.get("IDLETIME_QEMU") or STAGED_QEMU)
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(
            f"{path}: no QEMU to run there; build it with `make qemu` or name one with --qemu or IDLETIME_QEMU"
        )
    return path


def find_tool(name: str, room: str) -> Path:
    """A program that `make -C tests/<room>` builds, brought up to date first: find_tool("idleload", "loadgen")."""
    path = TOOLS / name
    command = ["make", "-s", "-C", str(ROOT / "tests" / room), f"OUTPUT={TOOLS}"]
    with exclusive(TOOLS / f".{room}.lock"):
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        remedy = "are the packages of `make deps` there?"
        raise RuntimeError(f"{path}: `make -C tests/{room}` failed; {remedy}\n{result.stderr}")
    return path
