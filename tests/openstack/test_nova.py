"""Background tenants of an OpenStack cloud: held on their host, placed by its idleness, and sent away when that is over.

Everything is real but Neutron: Keystone, Placement, Glance, Nova of Debian, libvirtd, patched QEMU, idletimed with its gauge, and the
foreground's load on disks of 5 ms a request.
"""

from __future__ import annotations

from typing import Any

from tests.openstack.lab import Lab
from tests.openstack.services import Host, until

SECONDS = 240.0
"""For an event. The gauge takes a minute to believe that a host is busy, or idle; the rest is for a busy machine."""

IDLE, BUSY = 80, 30
"""Percent of a disk that is free, at least and at most."""


def hypervisor(lab: Lab, name: str) -> Host:
    return next(one for one in lab.hypervisors if one.name == name)


def come(condition: Any, what: str, lab: Lab) -> None:
    until(condition, what, SECONDS, lambda: "\n".join(
        [lab.controller.said("evictor"), *(one.said(name) for one in lab.hypervisors for name in ("idletimed", "agent"))]))


def all_idle(lab: Lab) -> None:
    """Placement knows each disk, and that it is free."""
    come(lambda: all(lab.spare(one.name) >= IDLE for one in lab.hypervisors), "all disks are idle", lab)


def test_class_by_flavor(lab: Lab) -> None:
    """A server of a background flavor is held in QEMU, one of any other flavor is foreground."""
    background, foreground = lab.boot("bg", "bg.small"), lab.boot("fg", "m1.small")
    assert (background.status, foreground.status) == ("ACTIVE", "ACTIVE"), (background.fault, foreground.fault)
    come(lambda: lab.class_of(background) == "background", "it is background", lab)
    come(lambda: lab.class_of(foreground) in ("foreground", ""), "the other is not", lab)


def test_policy_outlives(lab: Lab) -> None:
    """Hard reboot; restarts of libvirtd, idletimed and nova-compute."""
    server = lab.boot("bg", "bg.small")
    come(lambda: lab.class_of(server) == "background", "it is background", lab)
    one = lab.host_of(server)
    lab.cloud.compute.reboot_server(server.id, "HARD")
    until(lambda: lab.server(server.id).task_state, "it reboots", 30)
    lab.settled(server.id)
    come(lambda: lab.class_of(server) == "background", "background after a hard reboot", lab)
    one.stop("idletimed", "KILL")
    one.stop("libvirtd")
    lab.libvirtd(one)
    lab.idletimed(one)
    one.stop("nova-compute", "KILL")
    lab.compute(one)
    come(lambda: lab.class_of(server) == "background", "background after restarts", lab)
    lab.cloud.compute.reboot_server(server.id, "HARD")
    until(lambda: lab.server(server.id).task_state, "it reboots", 60)
    lab.settled(server.id)
    come(lambda: lab.class_of(server) == "background", "background after a reboot by the new ones", lab)


def test_idlest_is_chosen(lab: Lab) -> None:
    """Two of three hosts have a busy disk: background goes to the third, and one that wants more than the busy ones have, too."""
    all_idle(lab)
    for name in ("hv1", "hv2"):
        assert lab.boot(f"busy-{name}", "m1.small", "busy", name).status == "ACTIVE"
    come(lambda: all(0 <= lab.spare(name) <= BUSY for name in ("hv1", "hv2")) and lab.spare("hv3") >= IDLE, "Placement knows who is busy", lab)
    placed = []
    for flavor in ("bg.small", "bg.small", "bg.large"):
        come(lambda: lab.spare("hv3") >= IDLE, "what booted last is not in the way", lab)
        placed.append(lab.server(lab.boot(flavor, flavor).id).compute_host)
    assert placed == ["hv3"] * 3
    assert lab.boot("too-much", "bg.large").status == "ERROR", "nobody has 60 % any more"
    assert lab.boot("any", "m1.small").status == "ACTIVE", "foreground is placed as ever"


def test_foreground_load_evicts(lab: Lab) -> None:
    """A foreground server begins to work where a background server is: that goes where a disk is idle, and is held there."""
    all_idle(lab)
    server = lab.boot("bg", "bg.small", "greedy", "hv1")
    come(lambda: lab.class_of(server) == "background" and len(lab.reports(server)) > 1, "it works", lab)
    lab.boot("busy", "m1.small", "busy", "hv1")
    come(lambda: lab.server(server.id).compute_host != "hv1" and not lab.server(server.id).task_state, "it is elsewhere", lab)
    assert lab.server(server.id).status == "ACTIVE"
    come(lambda: lab.class_of(server) == "background", "it is background there", lab)
    assert "move" in lab.controller.log_of("evictor").read_text()


def test_nowhere_to_go(lab: Lab) -> None:
    """All hosts are busy: it is paused, and goes on when one of them is idle again. What it has written is what it reads."""
    all_idle(lab)
    server = lab.boot("bg", "bg.small", "checks", "hv1")
    come(lambda: lab.class_of(server) == "background" and lab.reports(server), "it is background, and works", lab)
    busy = [lab.boot(f"busy-{one.name}", "m1.small", "busy", one.name) for one in lab.hypervisors]
    come(lambda: lab.server(server.id).status == "PAUSED", "it is paused", lab)
    for one in busy:
        lab.cloud.compute.delete_server(one.id, force=True)
    come(lambda: lab.server(server.id).status == "ACTIVE", "it goes on", lab)
    before = len(lab.reports(server))
    come(lambda: len(lab.reports(server)) > before + 1, "it works", lab)
    assert "idleverify:" not in lab.console(server)


def test_a_wrong_rule(lab: Lab) -> None:
    """A server boots, and the reason why it is not background is told."""
    all_idle(lab)
    one = hypervisor(lab, "hv1")
    one.sh("echo 'class = backgroud' >/etc/idletime/rules.d/99-wrong.toml")
    try:
        server = lab.boot("bg", "bg.small", "idle", "hv1")
        assert server.status == "ACTIVE"
        come(lambda: "99-wrong.toml" in one.log_of("idletimed").read_text(), "idletimed says which file", lab)
    finally:
        one.sh("rm /etc/idletime/rules.d/99-wrong.toml")
    come(lambda: lab.class_of(server) == "background", "it is background without that", lab)
