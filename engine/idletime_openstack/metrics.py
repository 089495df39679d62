# SPDX-License-Identifier: GPL-2.0-or-later
"""What the evictor shows to Prometheus, and the line that systemctl status shows."""

from __future__ import annotations

import time
from collections import Counter as Counted
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from .account import State
from .eviction import Memory, Settings
from .facts import Facts
from .notify import notify
from .placement import Child


class Metrics:
    """Of one evictor."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"idletime_eviction_{name}", what, labels, registry=self.registry)

        self._leads = gauge("leads", "1: this evictor acts.")
        self._well = gauge("well", "0: the last look failed, and nothing was done.")
        self._at = gauge("look_timestamp_seconds", "When the last look ended.")
        self._acts = Counter("idletime_eviction_acts", "Acts, by what came of the request.", ["act", "result"],
                             registry=self.registry)
        self._short = gauge("hosts_short", "Hosts whose servers hold more than is spare.")
        self._unknown = gauge("resources_unknown", "Disks and uplinks of unknown or old gauge, or without nova-compute.")
        self._servers = gauge("servers", "Background servers that hold something, or were evicted.", "state")
        self._budget = gauge("servers_out_of_budget", "Servers that may not be disrupted any more today.")
        self._line = ""

    def serve(self, address: str, port: int) -> None:
        """Raises OSError."""
        start_http_server(port, address, self.registry)

    def looked(self, leads: bool, problem: str) -> None:
        self._leads.set(leads)
        self._well.set(not problem)
        self._at.set(time.time())
        notify(WATCHDOG="1", STATUS=problem or (self._line if leads else "another evictor leads"))

    def acted(self, act: str, result: str) -> None:
        self._acts.labels(act, result).inc()

    def facts(self, found: Facts, memory: Memory, settings: Settings, children: Iterable[Child]) -> None:
        resources = [each for one in found.hosts for each in one.resources.values()]
        states = Counted(one.state for one in found.servers)
        short = {place[0] for place in memory.short_since}
        self._short.set(len(short))
        self._unknown.set(sum(each.spare is None for each in resources) + len(list(children)) - len(resources))
        for state in State:
            self._servers.labels(state.value).set(states[state])
        self._budget.set(sum(len(times) >= settings.budget for times in memory.disrupted.values()))
        self._line = (f"{len(found.hosts)} hosts, {len(short)} short; " +
                      ", ".join(f"{states[state]} {state.value}" for state in State if states[state] or state is State.RUNS))
