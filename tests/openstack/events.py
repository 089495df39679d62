"""What happens in the cloud, and is waited for."""

from __future__ import annotations

from typing import Any, Callable

import openstack

from tests.lab.host import Host, until
from tests.openstack.lab import Lab

SECONDS = 240.0
"""For an event. The gauge takes a minute to believe that a host is busy, or idle; the rest is for a busy machine."""

IDLE, BUSY = 80, 30
"""Percent of a disk that is free, at least and at most."""
IDLE_KBPS, BUSY_KBPS = 40000, 22000


def hypervisor(lab: Lab, name: str) -> Host:
    """By its name."""
    return next(one for one in lab.hypervisors if one.name == name)


def come(condition: Callable[[], object], what: str, lab: Lab) -> None:
    """Wait for it; an error quotes the logs of ours."""
    until(condition, what, SECONDS, lambda: "\n".join(
        [lab.controller.said("evictor"), *(one.said(name) for one in lab.hypervisors for name in ("idletimed", "agent"))]))


def held(lab: Lab, server: Any, what: str = "it is background") -> None:
    """QEMU holds its disk."""
    come(lambda: lab.class_of(server) == "background", what, lab)


def all_idle(lab: Lab) -> None:
    """Placement knows each disk, and that it is free."""
    come(lambda: all(lab.spare(one.name) >= IDLE for one in lab.hypervisors), "all disks are idle", lab)


def moved(lab: Lab, server: Any, source: str) -> None:
    """It is on another host, and nothing is done with it."""
    come(lambda: (one := lab.server(server.id)).compute_host != source and not one.task_state, "it is elsewhere", lab)


def begin(lab: Lab, server: Any, act: Callable[[], object]) -> Any:
    """Ask Nova to do something with a server; returns the server when it is done."""
    act()
    until(lambda: lab.server(server.id).task_state or lab.server(server.id).status == "VERIFY_RESIZE", "Nova begins", 60)
    return lab.settled(server.id)


def accepted(ask: Callable[[], object]) -> bool:
    """Nova refuses for a while what it does later."""
    try:
        ask()
    except openstack.exceptions.BadRequestException:
        return False
    return True
