"""The demo on libvirt: the same disk, loads and table; two tenants of the examples, controlled by virt-idletime alone.

The foreground is examples/libvirt/mixed-tenant.xml, whose class is `guest`: it marks nothing, so all it does is
foreground. The background is background-tenant.xml. Their policies are given to domains that boot the test guests, and run:
idletimed attaches them live.

    python3 -m tests.bench.demo_libvirt [--quick] [--output build/demo-libvirt] [--qemu PATH]

Needs root: it starts a libvirtd of its own, in namespaces of its own.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

from tests.bench import demo, pair
from tests.bench.pair import Pair
from tests.framework import paths
from tests.framework.domain import AGENT_CHANNEL, Domain, disk_xml
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import Libvirtd, quiet_libvirt
from tests.framework.qemu import Boot
from tests.testbed.disk import Disk, Model

FOREGROUND, BACKGROUND = "mixed-tenant", "background-tenant"

EXAMPLES = paths.ROOT / "examples" / "libvirt"


class LibvirtPair(Pair):
    """The demo's two guests as domains. The class and the interval are set by virt-idletime."""

    def __init__(self, boot: Boot, model: Model, quantum_ms: int = pair.QUANTUM_MS) -> None:
        super().__init__(boot, model, quantum_ms)
        if not self.patched:
            raise ValueError(f"{boot.qemu} is an unpatched QEMU: the policy of a domain needs a patched one")
        self._set: tuple[int | None, int | None] = (-1, None)

    def __enter__(self) -> LibvirtPair:
        with ExitStack() as stack:
            self.disk = stack.enter_context(Disk(self._model))
            self.host = stack.enter_context(Libvirtd(self._boot, "demo", hook=True))
            stack.enter_context(Idletimed(self.host))
            self.foreground, self.background = (self._tenant(*each) for each in (
                (FOREGROUND, "foreground"), (BACKGROUND, "background")))
            for domain in (self.foreground, self.background):
                stack.callback(domain.detach)
            self._stack = stack.pop_all()
        return self

    def _tenant(self, name: str, device_class: str) -> Any:
        """Define and start a domain without a policy, and give it one while it runs."""
        domain = Domain(self.host, name, "", [disk_xml(self.disk, device_class), AGENT_CHANNEL])
        domain.define()
        domain.start().booted()
        # This libvirtd has no cgroups, so a share of processors is said not to be in force (status 5).
        virt_idletime(self.host, "mark", name, "--policy", str(EXAMPLES / f"{name}.xml"), check=False)
        wait_until(lambda: bool(domain.scheduler()), f"{name} is attached")
        return domain

    def control(self, interval_us: int | None, budget_percent: int | None = None) -> None:
        """As an operator does it."""
        if (interval_us, budget_percent) == self._set:
            return
        self._set = interval_us, budget_percent
        if interval_us is None:
            virt_idletime(self.host, "enable", BACKGROUND, check=False)
        else:
            learned = ["auto=no"] if budget_percent is None else ["auto=yes", f"budget-percent={budget_percent}"]
            values = [f"--set={value}" for value in (f"interval-us={interval_us}", *learned)]
            virt_idletime(self.host, "mark", BACKGROUND, *values, check=False)
        wanted = "foreground" if interval_us is None else "background"
        known = None if budget_percent is not None else interval_us
        wait_until(lambda: self._is(wanted, known), "the scheduler does as it was told")

    def _is(self, device_class: str, interval_us: int | None) -> bool:
        return all(device["class"] == device_class and interval_us in (None, device["resource"]["interval-us"])
                   for device in self.background.scheduler().values())

    def counters(self) -> Any:
        """The background's query-idletime, through libvirt."""
        return self.background.qmp("query-idletime")


if __name__ == "__main__":
    quiet_libvirt()
    sys.exit(demo.main("demo-libvirt", LibvirtPair))
