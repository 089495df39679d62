"""A QEMU whose core has the other rules that the dissertation names: variants 2 to 4 (Fig. 5.5), AIMD (7.2.2).

They are contenders only, so the product has none of them: a copy of its build gets rules.patch, which changes
core.c alone. There the last digit of a resource's max-hold-ms is the rule.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.framework import paths

PATCH = Path(__file__).with_name("rules.patch")
AIMD = 9
"""Its interval-us is by how many us the interval shrinks in a second."""

BUILT, FOLDER = paths.BUILD / "qemu", paths.BUILD / "rules"
PROGRAM = "qemu-system-x86_64"


def build() -> Path:
    """The emulator, after half a minute; OSError if `make qemu` has not built the product's, CalledProcessError if the patch does not fit."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    # Links stay links, and times stay: what has not changed is not compiled again.
    for part in ("src", "obj"):
        if not (BUILT / part).is_dir():
            raise FileNotFoundError(f"{BUILT / part} is missing: run `make qemu` first")
        shutil.copytree(BUILT / part, FOLDER / part, symlinks=True)
    subprocess.run(["patch", "-p1", "-s", "-d", str(FOLDER / "src"), "-i", str(PATCH)], check=True)
    subprocess.run(["ninja", "-C", str(FOLDER / "obj"), PROGRAM], check=True, stdout=subprocess.DEVNULL)
    # Where it finds the product's firmware.
    (FOLDER / "bin").mkdir()
    (FOLDER / "share").symlink_to(paths.STAGED_QEMU.parents[1] / "share")
    return (FOLDER / "obj" / PROGRAM).rename(FOLDER / "bin" / PROGRAM)
