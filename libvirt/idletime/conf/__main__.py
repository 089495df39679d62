# SPDX-License-Identifier: GPL-2.0-or-later
"""python3 -m idletime.conf resources|rules FILE: what is wrong in a file that is to go into that folder, for who writes it.

Exit status 1 if anything is: idletimed would leave the whole file out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import Finding
from ..resolve.tree import Tree
from . import resources, rules
from .files import File, read_one

ROOMS: dict[str, Callable[[Sequence[File]], Sequence[Finding]]] = {
    "resources": lambda files: resources.of_files(files).findings,
    "rules": lambda files: rules.of_files(files).findings,
}


def main() -> int:
    """Arguments are those of the command line."""
    if len(sys.argv) != 3 or sys.argv[1] not in ROOMS:
        print(f"usage: python3 -m idletime.conf {'|'.join(ROOMS)} FILE", file=sys.stderr)
        return 2
    findings = ROOMS[sys.argv[1]]([read_one(Tree(), str(Path(sys.argv[2]).absolute()))])
    for finding in findings:
        print(finding, file=sys.stderr)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
