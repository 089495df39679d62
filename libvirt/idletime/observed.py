# SPDX-License-Identifier: GPL-2.0-or-later
"""What idletimed says of observers, for all to read: RUN_DIR/.state/observers.json, an entry a resource with background."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .state import FOLDER, read_file, replace_file

NAME = "observers"


@dataclass(frozen=True)
class ObserverState:
    """device: /dev/sda or eth0, "" where there is none. alive: it observes. declared: observe = true. hidden: VMs that it does
    not see; hidden_disks: of other VMs, each "VM: disk". problem, remedy: why it does not run, or not any more."""

    resource: str
    kind: str
    device: str = ""
    alive: bool = False
    declared: bool = False
    hidden: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""
    hidden_disks: tuple[str, ...] = ()

    def unseen(self) -> Iterator[tuple[str, str, str]]:
        """VM, message and remedy of all that it does not see."""
        for name in self.hidden:
            yield (name, f"it is in a cgroup of a VM that has its place on resource '{self.resource}', so the kernel cannot "
                   "tell it: background does not wait for it", "give each VM a cgroup of its own")
        for name, _, disk in (one.rpartition(": ") for one in self.hidden_disks):
            yield (name, f"{disk} has no place on resource '{self.resource}' and another disk of this VM has: the observer "
                   "leaves out both, as the kernel cannot tell them apart, and background does not wait for this one",
                   f"make it a disk that QEMU can hold (bus virtio, or scsi on virtio-scsi) on '{self.resource}' in the VM's "
                   "policy, or put it on another disk of the host")

    def __str__(self) -> str:
        if self.alive:
            return f"resource '{self.resource}': {self.device} is observed"
        remedy = f"; remedy: {self.remedy}" if self.remedy else ""
        return f"resource '{self.resource}': foreground that passes QEMU by is not seen: {self.problem}{remedy}"


def write(run_dir: str, found: Iterable[ObserverState]) -> None:
    """Replace what is said. Raises OSError."""
    replace_file(f"{run_dir}/{FOLDER}", NAME, {"observers": [asdict(one) for one in found]})


def read(run_dir: str) -> Mapping[str, ObserverState]:
    """By resource; nothing where nothing is said, or nothing that this version understands."""
    known = {field.name for field in fields(ObserverState)}
    with contextlib.suppress(TypeError, KeyError, AttributeError):
        entries: list[dict[str, Any]] = [
            {key: tuple(value) if isinstance(value, list) else value for key, value in one.items() if key in known}
            for one in read_file(run_dir, NAME)["observers"]]
        return {str(one["resource"]): ObserverState(**one) for one in entries}
    return {}
