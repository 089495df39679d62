# SPDX-License-Identifier: GPL-2.0-or-later
"""memory.low of cgroup v2: what the kernel leaves to VMs and to the groups above them.

The kernel's file says what is in force: others write it, too. Which groups have a memory.low of ours is on record in the run
directory, which ends with the host's run as they do: whoever is restarted takes back what nobody wants any more. Context: one
thread at a time; no file of these waits for a device.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..police import facts
from ..police.look import Look

FILE = ".protected"

PAGE_BYTES = 1 << 16
"""The kernel counts in pages, of so much at most, and rounds down."""


class Protection:
    """root: where /sys is; "" is the host's. run_dir: where the record is."""

    def __init__(self, root: str, run_dir: Path) -> None:
        self._files, self._cgroups, self._record = Look(root), f"{root}/sys/fs/cgroup", run_dir / FILE
        self.ours = frozenset((Look("").text(str(self._record)) or "").split("\0")) - {""}
        self._in_force: frozenset[str] = frozenset()

    def bring(self, want: Mapping[str, int]) -> dict[str, str]:
        """Give these groups so many bytes, and the others of ours none. Why one has it not, by its name. Raises OSError where
        the record cannot be written: then nothing is done."""
        known = self.ours
        if not want.keys() <= known:
            self._keep(known | want.keys())
        problems: dict[str, str] = {}
        now = {folder: self._now(folder) for folder in self.ours}
        in_force = {folder for folder, low in want.items() if _is(now[folder], low)}
        for folder in self.ours - in_force:
            if (folder in known and now[folder] is None) or (folder not in want and now[folder] == 0):
                continue  # it has ended
            try:
                Path(f"{self._cgroups}{folder}/memory.low").write_text(str(want.get(folder, 0)))
                in_force |= {folder} & want.keys()
            except OSError as error:
                problems |= {folder: error.strerror or str(error)} if folder in want else {}
        self._in_force = frozenset(in_force)
        if self.ours - want.keys():
            self._keep(frozenset(want))
        return problems

    def holds(self, folders: Iterable[str]) -> bool:
        """Whether all these are protected, as of the last bring()."""
        return self._in_force.issuperset(folders)

    def _now(self, folder: str) -> int | None:
        """None: there is none. "max" is more than any."""
        text = self._files.text(f"/sys/fs/cgroup{folder}/memory.low")
        if text is None:
            return None
        return 1 << 63 if (now := facts.number(text)) is None else now

    def _keep(self, folders: frozenset[str]) -> None:
        if folders:
            new = self._record.with_name(f"{FILE}.new")
            new.write_text("\0".join(sorted(folders)))
            os.replace(new, self._record)
        else:
            with contextlib.suppress(FileNotFoundError):
                self._record.unlink()
        self.ours = folders


def _is(now: int | None, low: int) -> bool:
    return now is not None and 0 <= low - now < PAGE_BYTES
