"""VMs that no libvirt has started: idletimed finds them by their QMP sockets, as Ganeti and Incus start them."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from tests.e2e.libvirt_fixtures import host, module_stack  # noqa: F401  (fixtures)
from tests.framework.idletimed import Idletimed, virt_idletime, wait_until
from tests.framework.libvirtd import CONFIG, Inside, Libvirtd

FOLDER = "/run/vms"
SETTINGS = f'[qmp]\nsockets = "{FOLDER}/*.qmp"\nlook-seconds = 2\n'
RULES = """
default = "foreground"
[[rule]]
name = "ci*"
policy = "<policy xmlns='urn:idletime:policy:1' class='background'><interval us='7000'/></policy>"
"""
NAMES = '[slow]\nmatch.path = "/run/vms/*"\n[fast]\nmatch.path = "/run/fast/*"\n'

COMMON = ["-nodefaults", "-display", "none", "-accel", "tcg", "-S", "-m", "16"]

# Ganeti 3: a disk by -drive on a link of its own, the device by an id of its own, two QMP sockets.
GANETI = [
    "-pidfile", f"{FOLDER}/NAME.pid", "-monitor", f"unix:{FOLDER}/NAME.monitor,server,nowait", "-uuid", "UUID",
    "-qmp", f"unix:{FOLDER}/NAME.qmp,server,nowait", "-qmp", f"unix:{FOLDER}/NAME.kvmd,server,nowait",
    "-drive", f"file={FOLDER}/NAME:0,format=raw,if=none,aio=threads,cache=none,id=disk-1234-pci-5,auto-read-only=off",
    "-device", "virtio-blk-pci,id=disk-1234-pci-5,bus=pci.0,addr=0xd,drive=disk-1234-pci-5",
]
# Incus 6: what a disk is on is a set of descriptors; its own monitor is taken, and raw.qemu adds ours. (Without -sandbox,
# which the small build of the tests has not.)
INCUS = [
    "-no-user-config", "-add-fd", "fd=7,set=3,opaque=rdwr:incus_root",
    "-blockdev", "driver=file,node-name=incus_root,filename=/dev/fdset/3,aio=threads,locking=off,discard=unmap",
    "-device", "virtio-blk-pci,id=dev-incus_root,drive=incus_root,bootindex=0,share-rw=on",
    "-chardev", f"socket,id=monitor,path={FOLDER}/NAME.own,server=on,wait=off", "-mon", "chardev=monitor,mode=control",
    "-qmp", f"unix:{FOLDER}/NAME.qmp,server=on,wait=off",
]
DISK = "disk-1234-pci-5"
BACKGROUND = {DISK: ("background", "slow")}
UUID = "8c44af5c-66f8-4dd4-b1ea-3cca9d9f3e4e"

Start = Callable[..., Inside]


@pytest.fixture
def start(host: Libvirtd) -> Iterator[Start]:
    """Start a VM as somebody's program would; all end with the test."""
    started: list[Inside] = []
    (host.run / "vms").mkdir()
    (host.run / "fast").mkdir()
    (host.rules / "rules.d").mkdir()
    (host.rules / "resources.d").mkdir()
    (host.rules / "rules.d/site.toml").write_text(RULES)
    (host.rules / "resources.d/names.toml").write_text(NAMES)
    (host.run / CONFIG).write_text(SETTINGS)

    def begin(name: str, arguments: list[str]) -> Inside:
        disk = host.run / "vms" / f"{name}:0"
        disk.write_bytes(b"\0" * (1 << 20))
        argv = [host.emulator, "-name", name, *COMMON, *arguments]
        argv = [each.replace("NAME", name).replace("UUID", UUID) for each in argv]
        inside = host.spawn(["sh", "-c", f'exec 7<>{FOLDER}/{name}:0; exec "$@"', "sh", *argv], f"{name}.log")
        started.append(inside)
        wait_until(lambda: (host.run / "vms" / f"{name}.qmp").exists() or not inside.running(), "its socket is there")
        assert inside.running(), inside.process.error("ended")
        return inside

    yield begin
    for each in started:
        each.stop(signal.SIGKILL)
    (host.run / CONFIG).write_text(host.config)
    for file in [*host.rules.glob("*.d/*"), *host.run.glob("vms/*")]:
        file.unlink()
    for folder in (*host.rules.glob("*.d"), host.run / "vms", host.run / "fast"):
        folder.rmdir()


class Line:
    """A client of a QMP socket, for as long as it is open."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rw")
        json.loads(self._lines.readline())
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: Any) -> Any:
        self._lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._lines.flush()
        while "return" not in (answer := json.loads(self._lines.readline())):
            assert "error" not in answer, answer
        return answer["return"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def attached(path: Path) -> dict[str, tuple[str, str, int]]:
    """Class, resource and interval of each device, by a line of its own."""
    line = Line(path)
    try:
        return {device["device"]: (device["class"], one["id"].removeprefix("idletime-"), one["interval-us"])
                for one in line.ask("query-idletime") for device in one["devices"]}
    finally:
        line.close()


def expect(path: Path, devices: dict[str, tuple[str, str]]) -> None:
    """The VM comes to this: class and resource of each device, and no other."""
    wait_until(lambda: {name: state[:2] for name, state in attached(path).items()} == devices, str(devices))


def test_ganeti_and_incus(host: Libvirtd, start: Start) -> None:
    """Both run before idletimed and stay as they are without it; rules by name; what changes in the files is carried out."""
    start("ci1.example.org", GANETI)
    start("web", INCUS)
    ganeti, incus = host.run / "vms/ci1.example.org.kvmd", host.run / "vms/web.own"
    root = {"dev-incus_root": ("foreground", "slow")}
    assert attached(ganeti) == attached(incus) == {}
    with Idletimed(host):
        expect(ganeti, BACKGROUND)
        assert attached(ganeti)[DISK][2] == 7000
        expect(incus, root)
        shown = {one["name"]: one for one in json.loads(virt_idletime(host, "status", "--json"))}
        assert {name: (one["class"], one["by"], one["in_force"], one["devices"][0]["class_now"]) for name, one in shown.items()} == {
            "ci1.example.org": ("background", "rule", True, "background"), "web": ("foreground", "default", True, "foreground")}
        assert "by the rule in" in virt_idletime(host, "explain", "ci1.example.org")
        assert "emulator" not in virt_idletime(host, "doctor", check=False).partition("well: ")[0]
        (host.rules / "rules.d/site.toml").write_text("default = 'none'")
        expect(ganeti, {})
        expect(incus, {})
        (host.rules / "rules.d/site.toml").write_text(RULES)
        expect(ganeti, BACKGROUND)
    expect(ganeti, BACKGROUND)


def test_a_socket_that_somebody_keeps(host: Libvirtd, start: Start) -> None:
    """QEMU serves one client of a socket at a time: said, the other VMs are served, and this one when the line is free."""
    start("ci1", GANETI)
    start("ci2", GANETI)
    busy = Line(host.run / "vms/ci1.qmp")
    with Idletimed(host) as daemon:
        expect(host.run / "vms/ci2.kvmd", BACKGROUND)
        wait_until(lambda: "ci1.qmp: another client is connected, or QEMU hangs" in daemon.log(), "said")
        assert attached(host.run / "vms/ci1.kvmd") == {}
        busy.close()
        expect(host.run / "vms/ci1.kvmd", BACKGROUND)


def test_one_that_comes_has_a_disk_plugged_in_and_goes(host: Libvirtd, start: Start) -> None:
    """While idletimed runs: seen within seconds; another VM under the same name is another one."""
    with Idletimed(host):
        first = start("ci1", GANETI)
        path = host.run / "vms/ci1.kvmd"
        expect(path, BACKGROUND)
        (host.run / "fast/image").write_bytes(b"\0" * (1 << 20))
        line = Line(path)
        line.ask("blockdev-add", driver="file", **{"node-name": "second", "filename": "/run/fast/image"})
        line.ask("device_add", driver="virtio-blk-pci", id="hot", drive="second")
        line.close()
        expect(path, {**BACKGROUND, "hot": ("background", "fast")})
        (host.run / "fast/image").unlink()
        first.stop(signal.SIGKILL)
        (host.run / "vms/ci1.qmp").unlink()
        start("ci1", GANETI)
        expect(path, BACKGROUND)
