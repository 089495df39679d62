"""A foreground on the uplink that has no QEMU of ours, seen by the observer in the kernel: a VM on stock QEMU, or the host itself."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import numpy as np

from tests.bench.net.pair import ROLES, Pair, tcp_counters
from tests.framework import paths
from tests.framework.guest import SAMPLES
from tests.framework.process import ProcessError
from tests.framework.qemu import Boot, stock_qemu
from tests.testbed import observer
from tests.testbed.link import BRIDGE, PREFIX, UPLINK

HOST_ADDRESS = "10.9.0.5"
LATE_SECONDS = 30.0
"""How much later than planned a load may end before we look for the cause."""


def missing() -> str | None:
    """What this machine lacks for it, with the remedy; None: nothing."""
    if not stock_qemu():
        return "there is no QEMU without our changes: run `make deps`, or `make qemu-unpatched`"
    return observer.missing()


class HostLoad:
    """netload as a process of the host, with the interface of a guest's load."""

    def __init__(self, pair: Pair, number: int, command: str, **parameters: object) -> None:
        self._latencies = pair.link.folder / f"latency.{number}"
        self.seconds = float(str(parameters["seconds"]))
        options = {**parameters, **({"latency_file": self._latencies} if command == "ask" else {})}
        argv = [str(paths.find_tool("netload", "loadgen")), command]
        argv += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self._process = pair.link.host.start(argv, pair.link.folder / f"load.{number}")

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end, at most so long; tells whether it came."""
        try:
            self._process.wait(timeout_seconds)
        except ProcessError:
            return False
        return True

    def result(self) -> dict[str, Any]:
        """Its report, at its end."""
        if not self.wait(self.seconds + LATE_SECONDS):
            self._process.stop()
            raise self._process.error("netload on the host does not end")
        return dict(json.loads(self._process.log.read_text().splitlines()[-1]))

    def samples(self) -> np.ndarray:
        """As those of guests."""
        return np.frombuffer(self._latencies.read_bytes(), SAMPLES)


class ObservedPair(Pair):
    """The foreground guest's QEMU is stock. `of_host`: it is idle, and the foreground's load runs on the host."""

    of_host = False

    def _has_slot(self, role: str) -> bool:
        return role == "background"

    def _boot_of(self, role: str) -> Boot:
        stock = stock_qemu()
        assert stock, "missing() was not asked"
        return self._boot if self._has_slot(role) else replace(self._boot, qemu=stock)

    def _observe(self, stack: ExitStack, folder: Path) -> None:
        assert self._arena, "without our patches there is nobody to tell"
        listed = folder / "background-interfaces"
        listed.write_text(self._taps[ROLES.index("background")].device + "\n")
        if self.of_host:
            self.link.host.command("ip", "address", "add", f"{HOST_ADDRESS}/{PREFIX}", "dev", BRIDGE)
        self.observer = stack.enter_context(observer.Observer(
            self._arena, "--uplink", UPLINK, "--background-interfaces", str(listed), start=self.link.host.start))
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
        self._loads = getattr(self, "_loads", 0) + 1
        return lambda command, **parameters: HostLoad(self, self._loads, command, **parameters)


class HostPair(ObservedPair):
    """The foreground is the host itself."""

    of_host = True


WAYS: dict[str, type[Pair]] = {"slot": Pair, "stock": ObservedPair, "host": HostPair}
"""Of the foreground, by name: both VMs ours; on stock QEMU; the host itself."""
