"""A foreground and a background guest, in two QEMU processes, on one disk."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ContextManager, Mapping

from tests.bench.plan import Phase
from tests.framework.guest import Load
from tests.framework.qemu import Boot, Machine, has_idletime
from tests.testbed import scsi
from tests.testbed.attach import DEVICE, RESOURCE, attach
from tests.testbed.disk import Disk, Model

COMMON_LOAD = {"pattern": "random", "operation": "read", "block_bytes": 4096}
FOREGROUND_LOAD = {**COMMON_LOAD, "intensity": 30, "seed": 1}
BACKGROUND_LOAD = {**COMMON_LOAD, "intensity": 100, "seed": 2}

QUANTUM_MS = 100
"""The dissertation's quantum: the foreground is busy for the first part of each, then idle."""

LATE_SECONDS = 20.0
"""How much later than planned a load may end before we look for the cause."""

WARM_UP_SECONDS = 1.0
"""Under TCG the first requests pay for translating the guest's driver."""


class Pair:
    """A context manager: enter boots both guests, leave removes all of it. `on_scsi`: their disks are on virtio-scsi."""

    def __init__(self, boot: Boot, model: Model, quantum_ms: int = QUANTUM_MS, on_scsi: bool = False) -> None:
        self.patched = has_idletime(boot.qemu)
        self._boot, self._model, self._on_scsi = scsi.with_driver(boot) if on_scsi else boot, model, on_scsi
        self._where: dict[str, Any] = {"device": scsi.DISK} if on_scsi else {}
        self.foreground_load = {**FOREGROUND_LOAD, **self._where, "quantum_ms": quantum_ms}
        self.background_load = {**BACKGROUND_LOAD, **self._where}
        self._stack = ExitStack()

    def __enter__(self) -> Pair:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            arena = folder / "arena" if self.patched else None
            self.disk = stack.enter_context(self._shared())
            self.foreground, self.background = (
                self._machine(stack, name, arena) for name in ("foreground", "background")
            )
            self._stack = stack.pop_all()
        return self

    def _machine(self, stack: ExitStack, name: str, arena: Path | None) -> Machine:
        arguments = attach(self.disk, name, arena, name, scsi=self._on_scsi)
        machine: Machine = stack.enter_context(Machine(self._boot, name, arguments, self.disk.fds))
        if self._on_scsi:
            scsi.wait_for_disk(machine)
        return machine

    def _shared(self) -> ContextManager[Any]:
        """What the two guests read."""
        return Disk(self._model)

    def conditions(self) -> dict[str, Any]:
        """For the data."""
        return {"disk": self.disk.parameters(), "foreground_load": self.foreground_load, "background_load": self.background_load}

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def warm_up(self) -> None:
        """Run both loads for a moment and forget the result."""
        loads = [machine.guest.load(**self._where, seconds=WARM_UP_SECONDS) for machine in (self.foreground, self.background)]
        for load in loads:
            load.result()

    def control(self, interval_us: int | None, budget_percent: int | None = None) -> None:
        """Hold the background back by an interval (us), by one that sets itself (with a budget), or not at all (None)."""
        if not self.patched:
            return
        device_class = "foreground" if interval_us is None else "background"
        properties = {"interval-us": interval_us or 0, "auto": budget_percent is not None}
        if budget_percent is not None:
            properties["budget-percent"] = budget_percent
        for machine in self._controlled():
            for name, value in properties.items():
                machine.qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property=name, value=value)
        self.background.qmp.execute("idletime-set", device=DEVICE, **{"class": device_class})

    def _controlled(self) -> tuple[Machine, ...]:
        """Who has a resource of ours."""
        return self.foreground, self.background

    def begin(self, phase: Phase, seconds: float, background: Mapping[str, object] | None = None) -> dict[str, Load]:
        """Start the loads of a phase; the background first, by the time that one command takes.

        `background` are options of its load other than the usual ones.
        """
        self.control(phase.interval_us, phase.budget_percent)
        self._mark = self.disk.mark()
        loads = {}
        if phase.outstanding:
            loads["background"] = self.background.guest.load(
                **{**self.background_load, **(background or {})}, outstanding=phase.outstanding, seconds=seconds
            )
        if phase.foreground:
            loads["foreground"] = self.foreground.guest.load(
                **self.foreground_load, pauses=phase.pauses, outstanding=1, seconds=seconds
            )
        return loads

    def at_disk(self) -> dict[str, Any]:
        """What the disk saw since begin()."""
        return self.disk.account(self._mark)

    def counters(self) -> Any:
        """The background's query-idletime, or None without our patches."""
        return self.background.qmp.execute("query-idletime") if self.patched else None
