"""A foreground and a background guest, in two QEMU processes, on one uplink."""

from __future__ import annotations

import re
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Mapping

from tests.bench.net import stages
from tests.bench.net.plan import Case
from tests.bench.net.processors import Processors
from tests.framework.guest import Load
from tests.framework.qemu import Boot, Machine, has_idletime_net
from tests.testbed.link import SINK_ADDRESS, Link, Model
from tests.testbed.nic import NIC, RESOURCE, attach_nic, configure
from tests.testbed.passage import Passage
from tests.testbed.queuewatch import QueueWatch
from tests.testbed.sink import Sink, Window, goodput_mbit

ROLES = ("foreground", "background")
PORTS = {"foreground": 5001, "background": 5002}
ANSWER_PORT = 5003

QUANTUM_MS = 100
"""The dissertation's quantum."""

SETTLE_SECONDS = 1.0
"""From the start of the loads to the window that is measured: connections, slow start, first intervals."""

MARGIN_SECONDS = 30.0
"""The sinks listen so much longer than the loads are planned to send; a busy host starts those late."""

WARM_UP_SECONDS = 1.5
"""Under TCG the first packets pay for translating the guest's driver."""

MAX_HOLD_MS = 5000
"""The standard; a packet's deadline is 100 ms then. With 0 it has none."""

ASK_EVERY_MS = 20
"""Mean pause of the probe: some 50 requests a second."""


def tcp_counters(snmp: bytes) -> dict[str, int]:
    """The line Tcp of /proc/net/snmp."""
    names, values = re.findall(r"^Tcp: (.*)$", snmp.decode(), re.MULTILINE)
    return dict(zip(names.split(), map(int, values.split())))


def quantum_bytes(rate_mbit: int, intensity: int) -> int:
    """What an uplink can send in the busy part of a quantum; the socket buffers would hold more. 0: no bound."""
    return 0 if intensity == 100 else rate_mbit * 1000 // 8 * QUANTUM_MS * intensity // 100


class Pair:
    """A context manager: enter boots both guests, leave removes all of it.

    `resource` are properties of both resource objects; `options` those of the
    background's NIC.
    """

    def __init__(self, boot: Boot, model: Model, resource: Mapping[str, object] | None = None,
                 options: Mapping[str, object] | None = None) -> None:
        self.patched = has_idletime_net(boot.qemu)
        self._boot, self._model = boot, model
        self.resource, self.options = dict(resource or {}), dict(options or {})

    def __enter__(self) -> Pair:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idletime-")))
            self.arena = folder / "arena" if self.patched else None
            self.link = self._background_link = stack.enter_context(Link(self._model))
            self.other_link = stack.enter_context(Link(self._model))
            self.processors = stack.enter_context(Processors())
            self.machines = {role: stack.enter_context(self._machine(role)) for role in ROLES}
            for tap, machine in zip(self.taps, self.machines.values()):
                self.link.release(tap)
                configure(machine.guest, tap)
            self._observe(stack, folder)
            self._answerer = stack.enter_context(Sink(self.link, "answer", protocol="udp", port=ANSWER_PORT))
            self._stack = stack.pop_all()
        return self

    taps: list[Any]

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _machine(self, role: str) -> Machine:
        tap = self.link.add_tap(role[:2] + "0")
        self.taps = [*getattr(self, "taps", []), tap]
        options = self.options if role == "background" else {}
        arena = self.arena if self._has_slot(role) else None
        # What an operator would state: the clock needs it where the host does not tell when a packet has left.
        resource = {"rate-bps": self._model.rate_mbit * 1_000_000, **self.resource}
        arguments = attach_nic(tap, arena, role, options, **resource)
        return Machine(self._boot_of(role), role, arguments, tap.fds)

    def _has_slot(self, role: str) -> bool:
        """Whether this guest's QEMU takes part."""
        return True

    def _boot_of(self, role: str) -> Boot:
        return self._boot

    def _observe(self, stack: ExitStack, folder: Path) -> None:
        """What sees a foreground that has no slot, until the stack ends."""

    def warm_up(self) -> None:
        """Run both loads for a moment and forget the result."""
        self.measure(Case("tcp", "tcp"), WARM_UP_SECONDS)
        self.measure(Case("udp", "udp"), WARM_UP_SECONDS)
        self.measure(Case("ask"), WARM_UP_SECONDS)

    def _place(self, link: Link) -> None:
        """The background's packets take this link."""
        if self._background_link is not link:
            link.take(self.taps[ROLES.index("background")], self._background_link)
            self._background_link = link

    def control(self, case: Case) -> None:
        """Hold the background back by an interval, or not at all."""
        self._place(self.other_link if case.elsewhere else self.link)
        self.link.set_br_netfilter(case.br_netfilter)
        if not self.patched:
            return
        settings: dict[str, object] = {"auto": case.auto, "max-hold-ms": MAX_HOLD_MS if case.deadline else 0}
        if case.interval_us is not None:
            settings["interval-us"] = case.interval_us
        for role in filter(self._has_slot, ROLES):
            for name, value in settings.items():
                self.machines[role].qmp.execute("qom-set", path=f"/objects/{RESOURCE}", property=name, value=value)
        device_class = "foreground" if case.control == "uncontrolled" else "background"
        self.machines["background"].qmp.execute("idletime-set", device=NIC, **{"class": device_class})

    def measure(self, case: Case, seconds: float) -> dict[str, Any]:
        """One run: what each role reached in the window after the loads have settled."""
        self.control(case)
        loads = {"foreground": case.foreground, "background": case.background}
        active = {role: load for role, load in loads.items() if load}
        before = {role: self._retransmitted(role) for role in active}
        links = {"foreground": self.link, "background": self._background_link}
        with ExitStack() as stack:
            sinks = {
                role: stack.enter_context(Sink(links[role], "sink", protocol=load, port=PORTS[role],
                                               seconds=seconds + SETTLE_SECONDS + MARGIN_SECONDS))
                for role, load in active.items() if load != "ask"
            }
            self._share_processors(case, sinks)
            passage = stack.enter_context(Passage(self.link, self.taps[0], ANSWER_PORT)) if case.foreground == "ask" else None
            window, running, queue = self._run(case, active, seconds)
            reports = {role: load.result() for role, load in running.items()}
            counted = {role: sink.report() for role, sink in sinks.items()}
            self.samples = stages.joined(running["foreground"].samples(), passage) if passage else None
        result: dict[str, Any] = {"uplink": queue, "foreground": None, "background": None}
        for role in active:
            result[role] = {
                "load": reports[role], "sink": counted.get(role),
                "mbit_s": goodput_mbit(counted[role], window) if role in counted else None,
                "tcp_retransmitted": self._retransmitted(role) - before[role],
            }
        if self.samples is not None:
            result["foreground"]["stages"] = stages.summary(self.samples)
        return result

    def _retransmitted(self, role: str) -> int:
        """TCP segments that this guest sent again, so far."""
        return tcp_counters(self.machines[role].guest.read("/proc/net/snmp"))["RetransSegs"]

    def _share_processors(self, case: Case, sinks: Mapping[str, Sink]) -> None:
        """The far end of a guest's load stands for another machine: it goes with its guest."""
        pids = {role: [machine.process.pid] for role, machine in self.machines.items()}
        pids["foreground"].append(self._answerer.process.pid)
        for role, sink in sinks.items():
            pids[role].append(sink.process.pid)
        self.processors.assign(case.processors, **pids)

    def _run(self, case: Case, active: dict[str, str], seconds: float) -> tuple[Window, dict[str, Load], Any]:
        """Start the loads, background first, and wait for their end."""
        running = {role: self._start(role, load, case, seconds) for role, load in reversed(active.items())}
        begin = time.monotonic() + SETTLE_SECONDS
        with QueueWatch(self.link) as watch:
            for load in running.values():
                load.wait(seconds + SETTLE_SECONDS)
        window = Window(round(begin * 1e9), round((begin + seconds) * 1e9))
        return window, running, watch.summary()

    def _start(self, role: str, load: str, case: Case, seconds: float) -> Any:
        begin, total = self._netload(role), seconds + SETTLE_SECONDS
        if load == "ask":
            return begin("ask", host=SINK_ADDRESS, port=ANSWER_PORT, protocol="udp",
                         every_ms=ASK_EVERY_MS, seconds=total)
        intensity = case.intensity if role == "foreground" else 100
        return begin("send", host=SINK_ADDRESS, port=PORTS[role], protocol=load, intensity=intensity,
                     quantum_ms=QUANTUM_MS, quantum_bytes=self.quantum_bytes(intensity),
                     pace_mbit=self._model.rate_mbit if load == "udp" and intensity < 100 else 0,
                     seconds=total)

    def _netload(self, role: str) -> Callable[..., Any]:
        """What begins a load of this role."""
        return self.machines[role].guest.netload

    def quantum_bytes(self, intensity: int) -> int:
        """Of this uplink: see quantum_bytes()."""
        return quantum_bytes(self._model.rate_mbit, intensity)

    def counters(self) -> Any:
        """The background's query-idletime, or None without our patches."""
        return self.machines["background"].qmp.execute("query-idletime") if self.patched else None
