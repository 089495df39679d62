# SPDX-License-Identifier: GPL-2.0-or-later
"""VMs without libvirt: what a QEMU says of its devices, and QMP sockets that answer, hang, or speak something else."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeQemu
from idletime.conf.rules import Rule, Rules
from idletime.errors import MonitorError
from idletime.facts import Source
from idletime.hostd import folder, vms
from idletime.hostd.settings import Qmp, Settings
from idletime.policy import Class, Policy
from idletime.qmp import SocketMonitor

GREETING = {"QMP": {"version": {}, "capabilities": []}}
NETWORK = """net0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:00:01\r
 \\ hostnet0: index=0,type=tap,ifname=tap7,script=no,downscript=no\r
nic1: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:00:00:02\r
 \\ lan: index=0,type=user,net=10.0.2.0,restrict=off\r
"""
PROPERTIES = {
    ("/machine/peripheral/net0", "mac"): "52:54:00:00:00:01", ("/machine/peripheral/net0", "netdev"): "hostnet0",
    ("/machine/peripheral-anon/device[0]", "mac"): "52:54:00:00:00:02",
    ("/machine/peripheral-anon/device[0]", "netdev"): "lan",
    ("/machine/peripheral/sd0", "parent_bus"): "/machine/peripheral/s/virtio-backend/s.0",
    ("/machine/peripheral/s/virtio-backend", "type"): "virtio-scsi-device",
    ("/machine/peripheral/sd1", "parent_bus"): "/machine/peripheral/l/l.0", ("/machine/peripheral/l", "type"): "lsi53c895a",
}


class Qemu(FakeQemu):
    """As a person or Ganeti starts one: a disk with an id, one without, two NICs, a CD-ROM, two SCSI disks (one served)."""

    def do_query_name(self, _arguments: dict[str, Any]) -> Any:
        return {"name": "web"}

    def do_query_uuid(self, _arguments: dict[str, Any]) -> Any:
        return {"UUID": "0-0"}

    def do_qmp_capabilities(self, _arguments: dict[str, Any]) -> Any:
        return {}

    def do_qom_list(self, arguments: dict[str, Any]) -> Any:
        there = {"/machine/peripheral": {"disk0": "virtio-blk-pci", "net0": "virtio-net-pci", "cd": "ide-cd",
                                         "sd0": "scsi-hd", "sd1": "scsi-block"},
                 "/machine/peripheral-anon": {"device[0]": "virtio-net-pci", "device[1]": "virtio-blk-pci"}}
        return [{"name": "type", "type": "string"},
                *({"name": name, "type": f"child<{type_}>"} for name, type_ in there[arguments["path"]].items())]

    def do_qom_get(self, arguments: dict[str, Any]) -> Any:
        return PROPERTIES[arguments["path"], arguments["property"]]

    def do_query_block(self, _arguments: dict[str, Any]) -> Any:
        return [
            {"device": "", "qdev": "/machine/peripheral/disk0/virtio-backend", "inserted": {
                "file": "/images/web.qcow2",
                "image": {"format": "qcow2", "backing-image": {"filename": "/base", "format": "raw"}}}},
            {"device": "d1", "qdev": "/machine/peripheral-anon/device[1]/virtio-backend", "inserted": {
                "file": 'json:{"driver": "raw", "file": {"driver": "nbd", "server": {"type": "unix", "path": "/s"}}}',
                "image": {"format": "raw"}}},
            {"device": "cd", "qdev": "cd"},
            {"device": "", "qdev": "sd0", "inserted": {"file": "/images/sd", "image": {"format": "raw"}}},
        ]

    def do_human_monitor_command(self, _arguments: dict[str, Any]) -> Any:
        return NETWORK


ANON = "/machine/peripheral-anon/"


def test_devices() -> None:
    found = {one.target: one for one in vms.devices_of(Qemu())}
    assert {name: one.alias for name, one in found.items()} == {
        "disk0": "disk0", "sd0": "sd0", "52:54:00:00:00:01": "net0", "52:54:00:00:00:02": ANON + "device[0]",
        ANON + "device[1]": ANON + "device[1]"}
    assert found["disk0"].source == Source("disk", "file", "/images/web.qcow2", format="qcow2",
                                           backing=(Source("disk", "file", "/base", format="raw"),))
    assert found[ANON + "device[1]"].source == Source("disk", "network", "", "nbd:unix:/s", "raw")
    assert found["sd0"].source == Source("disk", "file", "/images/sd", format="raw")
    assert "d1" in found[ANON + "device[1]"].names and "tap7" in found["52:54:00:00:00:01"].names
    assert found["52:54:00:00:00:01"].source == Source("interface", "ethernet", "tap7")
    assert found["52:54:00:00:00:02"].source == Source("interface", "user")


@pytest.mark.parametrize("filename, type_, name, endpoint", [
    ("/dev/vg/web", "file", "/dev/vg/web", ""),
    ("", "", "", ""),
    ("nbd://10.0.0.5:10809/web", "network", "web", "nbd:10.0.0.5:10809"),
    ("nbd+unix:///web?socket=/run/s", "network", "web", "nbd:unix:/run/s"),
    ("iscsi://10.0.0.7:3260/iqn.x/0", "network", "iqn.x/0", "iscsi:10.0.0.7:3260"),
    ("rbd:pool/image:id=admin", "network", "pool/image", "rbd"),
    ('json:{"driver":"rbd","pool":"p","image":"i","server":[{"host":"mon","port":"6789"}]}', "network", "p/i", "rbd:mon:6789"),
    ('json:{"driver":"qcow2","file":{"driver":"raw","file":{"driver":"file","filename":"/a"}}}', "file", "/a", ""),
    ("json:{", "", "", ""),
    ("json:[]", "", "", ""),
])
def test_sources(filename: str, type_: str, name: str, endpoint: str) -> None:
    found = vms.source_of(filename, {})
    assert (found.type, found.name, found.endpoint) == (type_, name, endpoint)


# ---- sockets

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A QMP socket; talk: what is done with each client in turn. Ends with the test."""
    listeners, threads = [], []

    def start(talk: Callable[[socket.socket], None], name: str = "web") -> str:
        listener = socket.socket(socket.AF_UNIX)
        path = str(tmp_path / f"{name}.qmp")
        listener.bind(path)
        listener.listen(1)

        def run() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    talk(client)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        listeners.append(listener)
        threads.append(thread)
        return path

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(20)


def speaking(qemu: FakeQemu) -> Callable[[socket.socket], None]:
    """Speaks QMP, an event before each answer."""

    def talk(client: socket.socket) -> None:
        lines = client.makefile("rw")
        lines.write(json.dumps(GREETING) + "\r\n")
        lines.flush()
        for line in lines:
            request = json.loads(line)
            try:
                answer = {"return": qemu.execute(request["execute"], request.get("arguments"))}
            except MonitorError as error:
                answer = {"error": {"class": error.reason, "desc": str(error)}}
            lines.write(json.dumps({"event": "RESUME"}) + "\n" + json.dumps(answer) + "\n")
            lines.flush()

    return talk


def rules(class_: Class, *names: str) -> Rules:
    return Rules((Rule(Policy(class_), {"name": names}, (), "a.toml line 1"),))


def settings(tmp_path: Path, **more: Any) -> Settings:
    return Settings(uri="", owner="0:0", run_dir=str(tmp_path / "run"), qmp=Qmp(str(tmp_path / "*.qmp"), **more))


def test_a_vm_is_attached_by_rules(serve: Serve, tmp_path: Path) -> None:
    """By the name that QEMU has; nothing is sent the second time."""
    qemu = Qemu(there=["disk0", "sd0", "net0", ANON + "device[0]", ANON + "device[1]"])
    path = serve(speaking(qemu))
    found = vms.settle(path, settings(tmp_path), rules(Class.BACKGROUND, "web"))
    assert found.name == "web" and not found.failed
    assert qemu.state[ANON + "device[1]"] == ("nbd-unix-_s", "background", "")
    assert (tmp_path / "run/nbd-unix-_s").is_dir()
    assert qemu.changes
    vms.settle(path, settings(tmp_path), rules(Class.BACKGROUND, "web"))
    assert qemu.changes == []
    vms.settle(path, settings(tmp_path), rules(Class.BACKGROUND, "other"))
    assert qemu.state == {} and qemu.resources == {}


def test_names(serve: Serve, tmp_path: Path) -> None:
    with SocketMonitor(serve(speaking(Qemu()))) as monitor:
        assert vms.name_of(monitor, "/ctrl/i7.example.org.qmp", "") == "web"
        assert vms.name_of(monitor, "/ctrl/i7.example.org.qmp", r"([^/]+)[.]qmp$") == "i7.example.org"
        assert monitor.peer.pid == os.getpid()


def hangs(client: socket.socket) -> None:
    """As QEMU does with a second client, or one that is stopped: it takes the line and says nothing."""
    client.recv(1)


def greets_only(client: socket.socket) -> None:
    client.sendall(json.dumps(GREETING).encode() + b"\n")
    while client.recv(4096):
        pass


@pytest.mark.parametrize("talk, words", [
    (hangs, "another client is connected, or QEMU hangs"),
    (greets_only, "another client is connected, or QEMU hangs"),
    (lambda client: None, "it closed the line"),
    (lambda client: client.sendall(b"SSH-2.0\r\n"), "it does not speak QMP"),
    (lambda client: client.sendall(b"[]\n"), "it does not speak QMP"),
    (lambda client: client.sendall(b"[" * 100_000 + b"\n"), "it does not speak QMP"),
])
def test_who_does_not_answer(serve: Serve, talk: Callable[[socket.socket], None], words: str) -> None:
    """Within the time that was given, and with the socket's name."""
    path = serve(talk)
    with pytest.raises(MonitorError, match=words) as error, SocketMonitor(path, 0.2):
        pass
    assert path in str(error.value)


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(MonitorError, match="no answer from the monitor"), SocketMonitor(str(tmp_path / "none")):
        pass


def test_the_folder(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets that come are found, those that hang are said and hold up nobody, rules that change are carried out."""
    monkeypatch.setattr(folder, "SEARCH_SECONDS", 0.01)
    monkeypatch.setattr(vms, "SECONDS", 0.2)
    qemu = Qemu(there=["disk0", "sd0", "net0", ANON + "device[0]", ANON + "device[1]"])
    known = [rules(Class.BACKGROUND, "web")]
    said: dict[str, tuple[str, ...]] = {}

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    async def work() -> None:
        watcher = folder.Folder(settings(tmp_path), lambda: known[0], lambda key, _name, what: said.update({key: what}))
        hanging = serve(hangs, "hanging")
        serve(speaking(qemu))
        await until(lambda: ANON + "device[1]" in qemu.state and hanging in said)
        assert "another client is connected" in said[hanging][0]
        assert watcher.parts() is None, "observers stay as they are for one that was not looked at yet"
        known[0] = rules(Class.FOREGROUND, "web")
        watcher.touch_all()
        await until(lambda: qemu.state[ANON + "device[1]"][1] == "foreground")
        os.unlink(hanging)
        await until(lambda: said[hanging] == ())
        assert [one.name for one in watcher.parts() or ()] == ["web"]
        watcher.close()

    asyncio.run(asyncio.wait_for(work(), 30))
