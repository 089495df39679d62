"""A foreground on the uplink that has no QEMU of ours, seen by the observer in the kernel: a VM on stock QEMU, or the host itself."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

from tests.bench.net.pair import ROLES, Pair, tcp_counters
from tests.framework.qemu import Boot, stock_qemu
from tests.testbed import observer
from tests.testbed.hostload import HostLoad
from tests.testbed.link import UPLINK


class ObservedPair(Pair):
    """The foreground guest's QEMU is stock. `of_host`: it is idle, and the foreground's load runs on the host."""

    of_host = False

    def _has_slot(self, role: str) -> bool:
        return role == "background"

    def _boot_of(self, role: str) -> Boot:
        stock = stock_qemu()
        assert stock, "observer.missing_beside_stock() was not asked"
        return self._boot if self._has_slot(role) else replace(self._boot, qemu=stock)

    def _observe(self, stack: ExitStack, folder: Path) -> None:
        assert self.arena, "without our patches there is nobody to tell"
        listed = folder / "background-interfaces"
        listed.write_text(self.taps[ROLES.index("background")].device + "\n")
        if self.of_host:
            self.link.give_host_address()
        self.observer = stack.enter_context(observer.Observer(
            self.arena, "--uplink", UPLINK, "--background-interfaces", str(listed), start=self.link.host.start))
        observer.await_seen(self.machines["background"])

    def _on_host(self, role: str) -> bool:
        return self.of_host and role == "foreground"

    def _retransmitted(self, role: str) -> int:
        if not self._on_host(role):
            return super()._retransmitted(role)
        return tcp_counters(self.link.host.call(Path("/proc/thread-self/net/snmp").read_bytes))["RetransSegs"]

    def _netload(self, role: str) -> Callable[..., Any]:
        if not self._on_host(role):
            return super()._netload(role)
        return lambda command, **parameters: HostLoad(
            self.link.folder, "netload", command, start=self.link.host.start, latencies=command == "ask", **parameters)


class HostPair(ObservedPair):
    """The foreground is the host itself."""

    of_host = True


WAYS: dict[str, type[Pair]] = {"slot": Pair, "stock": ObservedPair, "host": HostPair}
"""Of the foreground, by name: both VMs ours; on stock QEMU; the host itself."""
