# SPDX-License-Identifier: GPL-2.0-or-later
"""Three hosts with their agents, a played Nova and Keystone, and evictors beside them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from idletime_openstack import evict_settings, settings
from idletime_openstack.agent import Agent
from idletime_openstack.compute import Compute
from idletime_openstack.evictor import Evictor
from idletime_openstack.gauge import Gauge, Resource
from idletime_openstack.leader import Alone
from idletime_openstack.metrics import Metrics
from idletime_openstack.placement import Placement
from idletime_openstack.providers import DISK
from nova_played import Nova

if TYPE_CHECKING:
    from conftest import Server

LOOK = 30.0


class Hosts:
    """Three compute nodes with their agents."""

    def __init__(self, placement: Server) -> None:
        self.placement = placement
        self.uuids: dict[str, str] = {}
        self.gauges: dict[str, Gauge] = {}
        self.agents: dict[str, Agent] = {}
        for number in (1, 2, 3):
            host = f"h{number}-{uuid.uuid4().hex[:6]}"
            self.uuids[host] = placement.compute(host)
            self.agents[host] = Agent(Placement(placement.adapter()), host, lambda host=host: self.gauges[host])

    def say(self, host: str, gauge: Gauge, again: bool = False) -> None:
        if again or self.gauges.get(host) != gauge:
            self.gauges[host] = gauge
            self.agents[host].look()

    def close(self) -> None:
        for host in self.agents:
            self.say(host, Gauge(), again=True)


class World:
    """They, a Nova, and a clock that only look() moves."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder, self.nova = hosts, folder, Nova(hosts.placement)
        self.now = 1000.0
        self.nova.hosts = dict(hosts.uuids)
        self.h1, self.h2, self.h3 = self.nova.hosts
        self.nova.flavor("bg.small", 1024, **{DISK: 20})
        self.nova.flavor("bg.large", 4096, **{DISK: 20})
        self.nova.flavor("m1.small", 512, **{DISK: 20})
        self.spare(0.9, 0.0, 0.0)

    def spare(self, *shares: float | None, again: bool = False) -> None:
        """Of each host's disk; None: the gauge says nothing. again: the agents look, though it is the same."""
        for host, share in zip(self.nova.hosts, shares, strict=True):
            known = Gauge((Resource("sda", "disk", True, share),))
            self.hosts.say(host, Gauge(problem="old; remedy: -") if share is None else known, again)

    def uplinks(self, *shares: float) -> None:
        """Of 1 Gbit/s each, beside idle disks."""
        for host, share in zip(self.nova.hosts, shares, strict=True):
            self.hosts.say(host, Gauge((Resource("sda", "disk", True, 0.9), Resource("eth0", "interface", True, share, 10**9))))

    def conf(self, name: str = "openstack.conf", nova: str = "", **more: object) -> str:
        lines = "".join(f"{key} = {value}\n" for key, value in {"background_flavors": "bg.*", **more}.items())
        auth = (f"auth_type = password\nauth_url = {self.nova.url}/v3\nusername = idletime\npassword = p\n"
                "project_name = admin\nuser_domain_name = Default\nproject_domain_name = Default\nregion_name = R\n")
        file = self.folder / name
        file.write_text(f"[placement]\n{auth}[nova]\n{auth}{nova}[eviction]\n{lines}")
        return str(file)

    def evictor(self, leader=None, nova: str = "", **more: object) -> Evictor:
        """By the settings of a file, as the program. Nobody lingers, unless that is what the test is about."""
        more.setdefault("migration_mib_per_second", 0)
        conf = evict_settings.load([], [self.conf(nova=nova, **more)])
        self.metrics = Metrics()
        return Evictor(Compute(evict_settings.nova(conf)), Placement(settings.keystone(conf)), leader or Alone(),
                       evict_settings.policy(conf), self.metrics, lambda: self.now, lambda: self.nova.now)

    def look(self, *evictors: Evictor, times: int = 1, seconds: float = LOOK) -> list[str]:
        """Each a while after the one before; what Nova was asked to do in them."""
        before = len(self.nova.acts)
        for _ in range(times):
            self.now += seconds
            self.nova.now += timedelta(seconds=seconds)
            for one in evictors:
                one.try_look()
        return self.nova.acts[before:]

    def close(self) -> None:
        self.nova.close()
        self.nova.stop()


def said(caplog) -> str:
    return "\n".join(one.getMessage() for one in caplog.records if one.name == "idletime-openstack-evict")
