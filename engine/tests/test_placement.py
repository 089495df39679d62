# SPDX-License-Identifier: GPL-2.0-or-later
"""The agent against the real Placement: providers, boots as Nova asks for them, faults. No Keystone."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from conftest import Server, write_gauge
from idletime_openstack import gauge, settings
from idletime_openstack.agent import Agent, main
from idletime_openstack.gauge import Gauge, Resource
from idletime_openstack.placement import Conflict, Placement, PlacementError
from idletime_openstack.providers import DISK, UPLINK, SetInventory


class Host:
    """A compute node of the real Placement, and the agent on it."""

    def __init__(self, server: Server, name: str) -> None:
        self.name, self.server, self.gauge = name, server, Gauge()
        self.root = server.compute(name)
        self.now = 0.0
        self.agent = Agent(Placement(server.adapter()), name, lambda: self.gauge, lambda: self.now)

    def say(self, *found: Resource, problem: str = "") -> None:
        self.gauge = Gauge(found, problem)

    def children(self):
        return {one.name: one for one in Placement(self.server.adapter()).children(self.name, self.root)}


@pytest.fixture
def host(real_placement, request):
    host = Host(real_placement, f"host-{uuid.uuid4().hex[:8]}")
    yield host
    host.say()
    host.agent.look()


def disk(steady: float | None, name: str = "sda") -> Resource:
    return Resource(name, "disk", True, steady)


def me(host: Host) -> str:
    """A trait that only this host has: the data base is that of all tests."""
    return f"CUSTOM_IDLETIME_ON_{host.name.upper().replace('-', '_')}"


def boot(host: Host, percent: int, extra: str = "VCPU:1,") -> str | None:
    return host.server.boot(str(uuid.uuid4()), f"{extra}{DISK}:{percent}", me(host))


def test_providers_come_change_and_go(host):
    host.say(disk(0.4), Resource("eth0", "interface", False, 0.5, 10**9))
    host.agent.look()
    found = host.children()
    sda, eth0 = found[f"{host.name}:idletime:sda"], found[f"{host.name}:idletime:eth0"]
    assert sda.inventories[DISK]["total"] == 40 and "CUSTOM_IDLETIME_WHOLE" in sda.traits
    assert eth0.inventories[UPLINK]["total"] == 500_000
    assert host.agent.look() == []  # level-triggered: nothing is left to do
    host.say(disk(0.7))
    host.agent.look()
    assert host.children()[f"{host.name}:idletime:sda"].inventories[DISK]["total"] == 70
    gone = host.children()[f"{host.name}:idletime:eth0"]
    assert not gone.inventories and not gone.traits
    host.say(disk(0.7), Resource("eth0", "interface", False, 0.5, 10**9))
    host.agent.look()
    assert host.children()[eth0.name].inventories == eth0.inventories and host.children()[eth0.name].traits == eth0.traits


def test_servers_are_placed_by_it(host):
    """40 % are spare: 30 fit, another 30 do not, whatever processors are free; a foreground server needs none of it."""
    host.say(disk(0.4, host.name))
    host.agent.look()
    assert boot(host, 30) == host.root
    assert boot(host, 30) is None
    assert host.server.ask("GET", f"/resource_providers/{host.root}/usages")["usages"] == {"VCPU": 1}
    assert boot(host, 10) == host.root


def test_a_server_may_leave_a_host_that_has_less_than_it_promised(host):
    """40 are held, 10 are spare: total stays 40. Nothing new comes, and what is there may go."""
    host.say(disk(0.4, host.name))
    host.agent.look()
    server = str(uuid.uuid4())
    assert host.server.boot(server, f"VCPU:1,{DISK}:40", me(host)) == host.root
    host.say(disk(0.1, host.name))
    host.agent.look()
    (child,) = host.children().values()
    assert child.inventories[DISK]["total"] == 40 and boot(host, 1) is None
    host.server.ask("DELETE", f"/allocations/{server}")
    host.agent.look()
    assert boot(host, 20) is None and boot(host, 10) == host.root


def test_without_a_gauge_nothing_new_comes(host, caplog):
    host.say(disk(0.4, host.name))
    host.agent.look()
    host.say(problem="gauge.json is 20 s old; remedy: is idletimed running?")
    host.agent.look()
    host.agent.look()
    assert boot(host, 1) is None
    assert caplog.messages.count("gauge.json is 20 s old; remedy: is idletimed running?") == 1


def test_a_resource_that_is_gone_waits_for_its_servers(host):
    host.say(disk(0.4, host.name))
    host.agent.look()
    server = str(uuid.uuid4())
    assert host.server.boot(server, f"VCPU:1,{DISK}:5", me(host)) == host.root
    host.say()
    host.agent.look()
    assert len(host.children()) == 1
    host.server.ask("DELETE", f"/allocations/{server}")
    host.agent.look()
    (child,) = host.children().values()
    assert not child.inventories and not child.traits


def test_the_gauge_is_there_whatever_is_held(host):
    """10 of 100 are spare, 40 are held; its age is what changed last, each minute, though nothing else does."""
    def seen():
        return next(one for one in Placement(host.server.adapter()).everywhere(lambda: None) if one.root == host.root)
    host.say(disk(0.4, host.name))
    host.agent.look()
    server = str(uuid.uuid4())
    host.server.boot(server, f"VCPU:1,{DISK}:40", me(host))
    host.say(disk(0.1, host.name))
    host.agent.look()
    found = seen()
    assert (found.kind, found.spare, found.full, found.used) == (DISK, 10, 100, {server: 40})
    time.sleep(4)  # times are whole seconds
    assert host.agent.look() == [] and seen().age >= 3
    before = time.monotonic()
    host.now += 60
    assert len(host.agent.look()) == 1 and seen().age <= time.monotonic() - before + 2
    host.say(problem="old")
    host.agent.look()
    assert seen().spare is None
    host.server.ask("DELETE", f"/allocations/{server}")


def test_others_children_are_left_alone(host):
    """Such as Neutron's."""
    host.server.ask("POST", "/resource_providers", {"name": f"{host.name}:neutron:br", "parent_provider_uuid": host.root})
    host.say(disk(0.4))
    host.agent.look()
    host.say()
    host.agent.look()
    names = [one["name"] for one in host.server.ask("GET", f"/resource_providers?in_tree={host.root}")["resource_providers"]]
    assert sorted(names) == [host.name, f"{host.name}:idletime:sda", f"{host.name}:neutron:br"]


def test_a_change_of_somebody_else_is_a_conflict(host, placement):
    host.say(disk(0.4))
    host.agent.look()
    (child,) = host.children().values()
    with pytest.raises(Conflict):
        placement.do(host.root, SetInventory(child.uuid, child.generation - 1, child.inventories))


def test_a_conflict_that_stays(host, caplog, monkeypatch):
    """Of one resource: the others' steps are done, and it is said from the third look on."""
    host.say(disk(0.4), disk(0.4, "sdb"))
    host.agent.look()
    stuck, do = host.children()[f"{host.name}:idletime:sda"].uuid, Placement.do

    def refuse(self, root, step):
        if step.uuid == stuck:
            raise Conflict("sda is held")
        do(self, root, step)
    monkeypatch.setattr(Placement, "do", refuse)
    host.say(disk(0.7), disk(0.7, "sdb"))
    for said in (0, 0, 1, 1):
        assert not host.agent.try_look() and caplog.messages.count("sda is held") == said
    assert host.children()[f"{host.name}:idletime:sdb"].inventories[DISK]["total"] == 70
    monkeypatch.undo()
    assert host.agent.try_look()


def test_a_compute_node_that_is_not_there_yet(real_placement, caplog):
    agent = Agent(Placement(real_placement.adapter()), "nobody", lambda: Gauge((disk(0.5),)))
    assert agent.look() == []
    assert "Placement has no provider 'nobody'; remedy: start nova-compute once" in caplog.text


def test_who_may_not(real_placement):
    with pytest.raises(PlacementError, match=r"403 .*remedy: give the user of \[placement\] the role"):
        Agent(Placement(real_placement.adapter("somebody")), "h", lambda: Gauge((disk(0.5),))).look()


def test_placement_that_goes_and_comes_back(tmp_path, caplog):
    """One warning, and all is well at the first look after it is back."""
    caplog.set_level(logging.INFO)
    server = Server(tmp_path)
    server.start()
    try:
        host = Host(server, "h")
        host.say(disk(0.4))
        assert host.agent.try_look()
        server.stop()
        host.say(disk(0.9))
        assert not host.agent.try_look() and not host.agent.try_look()
        server.start()
        assert host.agent.try_look()
        assert [one.inventories[DISK]["total"] for one in host.children().values()] == [90]
    finally:
        server.stop()
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == 1 and "remedy: does Placement run, and is [placement] right?" in said[0]
    assert "placement is well again" in caplog.text


# ---- the program

def conf(folder: Path, url: str, **more: str) -> str:
    file = folder / "openstack.conf"
    lines = "".join(f"{key} = {value}\n" for key, value in more.items())
    file.write_text(f"[placement]\nauth_type = admin_token\nendpoint = {url}\ntoken = admin\n[idletime]\n{lines}")
    return str(file)


def test_the_program(host, tmp_path):
    """Settings of files, the gauge of a file, one look."""
    file = write_gauge(tmp_path / "g.json", time.monotonic(), sda=0.33)
    wanted = conf(tmp_path, host.server.url, provider=host.name, gauge=str(file))
    done = subprocess.run([sys.executable, "-m", "idletime_openstack.agent", "--config-file", wanted, "--once"],
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    assert done.returncode == 0, done.stderr
    assert [one.inventories[DISK]["total"] for one in host.children().values()] == [33]


def test_a_host_that_is_taken_back_offers_nothing(host, tmp_path):
    """What its servers hold stays theirs."""
    host.say(disk(0.4, host.name))
    host.agent.look()
    assert boot(host, 5) == host.root
    assert main(["--config-file", conf(tmp_path, host.server.url, provider=host.name), "--retire"]) == 0
    assert boot(host, 1) is None
    assert [set(one.inventories) for one in host.children().values()] == [{DISK}]


def test_without_placement_the_program_says_so(tmp_path, caplog):
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        file = write_gauge(tmp_path / "g.json", time.monotonic(), sda=0.33)
        assert main(["--config-file", conf(tmp_path, url, gauge=str(file)), "--once"]) == 1
    assert "remedy: does Placement run" in caplog.text


@pytest.mark.parametrize("text, said", [
    ("", "[placement] auth_type is not set; remedy: give --config-file /etc/nova/nova.conf"),
    ("[placement]\nauth_type = passwrd\n", "passwrd"),
    ("[idletime]\nlook_seconds = often\n[placement]\nauth_type = admin_token\n", "look_seconds"),
    ("[idletime]\nlook_seconds = 0\n[placement]\nauth_type = admin_token\n", "look_seconds"),
    ("what is this", "remedy: correct the file"),
])
def test_wrong_settings(tmp_path, capsys, text, said):
    (tmp_path / "wrong.conf").write_text(text)
    assert main(["--config-file", str(tmp_path / "wrong.conf"), "--once"]) == 2
    error = capsys.readouterr().err
    assert said in error and "remedy: " in error


def test_the_defaults():
    found = settings.load([], files=[])
    assert (found.idletime.look_seconds, found.idletime.gauge) == (10, str(gauge.FILE))
    assert settings.provider(found) == socket.getfqdn()
