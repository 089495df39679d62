# SPDX-License-Identifier: GPL-2.0-or-later
"""The doctor: each check on facts that are made up, sound ones and wrong ones; what is gathered, on a tree of files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

import fakes
from idletime.cli import show
from idletime.doctor import CHECKS, DomainFacts, Emulator, Generation, HostFacts, Nic, examine, sources
from idletime.doctor.facts import OLD, OURS, STOCK
from idletime.errors import Severity
from idletime.facts import DISK, DeviceFacts, DevicePlan, Resolution, Source
from idletime.observed import ObserverState
from idletime.policy import Class
from idletime.resolve.tree import Tree
from idletime.xmltree import read

MAC = "52:54:00:00:00:01"
QEMU = Emulator("/usr/bin/qemu-system-x86_64", "10.0.2", OURS, OURS, False)
VM = DomainFacts("vm", True, "background", QEMU, (Nic(MAC, True, "", "background"),), generations=(Generation("sda", 3),))
WELL = HostFacts(alive=True, run_mode=0o711, run_type="tmpfs", domains=(VM, DomainFacts("off", False, "none")))


def host(vm=VM, **facts):
    return replace(WELL, domains=(vm,), **facts)


def vm(**facts):
    return replace(VM, **facts)


def emulator(**facts):
    return vm(emulator=replace(QEMU, **facts))


def test_all_is_well():
    report = examine(WELL)
    assert report.found == () and report.status == 0 and set(report.checks) == set(CHECKS)
    assert examine(HostFacts(alive=True, run_mode=0o711)).status == 0


FOREGROUND_NIC = vm(class_="foreground", nics=(Nic(MAC, True, "", "foreground"),))
UNSEEN = ObserverState("sda", "disk", "/dev/sda", False, True, (), "no right", "get it")
TWO = (vm(name="a"), vm(name="b", generations=(Generation("sda", 4, (3,)),)))


@pytest.mark.parametrize(
    "check, facts, severity, words",
    [
        ("observers", host(observers=(UNSEEN,)), "warning", "no right"),
        ("observers", host(observers=(replace(UNSEEN, declared=False),)), "note", "no right"),
        ("observers", host(observers=(replace(UNSEEN, alive=True, hidden=("web",)),)), "warning", "cannot tell it"),
        ("observers", host(observers=(replace(UNSEEN, alive=True, hidden_disks=("web: disk target='sdb'",)),)), "warning",
         "disk target='sdb' has no place on resource"),
        ("observers", host(vm(beyond=("disk target='vda': by librbd; remedy: run it",))), "note", "librbd"),
        ("idletimed", host(alive=False), "error", "idletimed does not run"),
        ("idletimed", HostFacts(run_mode=0o711), "warning", "idletimed does not run"),
        ("files", host(settings_wrong="x.toml: strict is 3"), "error", "x.toml: strict is 3"),
        ("files", host(wrong=("error: a.toml line 1: x; remedy: y",)), "warning", "a.toml line 1: x"),
        ("run-dir", host(run_mode=None), "error", "is not there"),
        ("run-dir", host(run_mode=0o777), "error", "0777 lets others make arenas"),
        ("run-dir", host(run_mode=0o755), "warning", "0755 lets everybody open it"),
        ("run-dir", host(run_type="ext4"), "warning", "it is on ext4"),
        ("emulator", host(emulator(knows=STOCK)), "warning", "(/usr/bin/qemu-system-x86_64 10.0.2) is stock"),
        ("emulator", host(emulator(knows=STOCK, program_knows=STOCK)), "error", "so it is not background"),
        ("emulator", host(emulator(knows=OLD)), "warning", "cannot attach devices while it runs"),
        ("emulator", host(replace(emulator(knows=STOCK), class_="none")), "note", "knows nothing of Idletime"),
        ("emulator", host(replace(emulator(knows=STOCK), suspends=True)), "note", "so it is stopped as a whole"),
        ("emulator", host(emulator(knows=None)), "note", "was not asked"),
        ("emulator", host(emulator(replaced=True)), "note", "which was replaced since"),
        ("emulator", host(vm(emulator=None, silent=True)), "warning", "does not answer"),
        ("generations", replace(WELL, domains=TWO), "warning", "of the other (3: a; 4: b)"),
        ("generations", host(TWO[1]), "warning", "of the other (3: others; 4: b)"),
        ("vhost", host(FOREGROUND_NIC), "note", f"interface {MAC} is foreground with vhost"),
        ("vhost", host(replace(FOREGROUND_NIC, nics=(Nic(MAC, False, "", "foreground", False),))), "note", "not seen"),
        ("vhost", host(vm(nics=(Nic(MAC, False, "VFIO", "background"),))), "warning", "go through VFIO, past QEMU"),
        ("vhost", host(vm(nics=(Nic(MAC, False, "vhost-user"),))), "note", "go through vhost-user, past QEMU"),
        ("br_netfilter", host(bridge_nf=("bridge-nf-call-iptables",)), "warning", "packets of vm are paced by the rate"),
        ("confinement", host(vm(confined="apparmor"), apparmor_on=True, apparmor_allows=False), "error", "AppArmor"),
        ("confinement", host(vm(confined="apparmor"), apparmor_on=True), "note", "is not known"),
        ("confinement", host(vm(confined="selinux"), selinux_on=True, selinux_allows=False), "error", "idletime_arena_t"),
        ("hook", host(strict=True), "error", "hook is not installed"),
        ("hook", host(hook="/h", hook_old=True, strict=True), "error", "of an older version"),
        ("policy", host(vm(wrong=("error: line 3: class='x' is not known; remedy: write y",))), "error", "line 3: class='x'"),
        ("resources", host(vm(left_out=("warning: disk target='vda': not resolved; remedy: z",))), "warning", "disk target"),
        ("compiled", host(vm(compiled=True)), "warning", "an earlier version of Idletime compiled"),
        ("in-force", host(vm(problems=("QEMU refused; remedy: x",))), "warning", "QEMU refused"),
    ],
)
def test_what_is_wrong_is_found(check, facts, severity, words):
    """By this check only, with a remedy, and with the exit status that fits."""
    report = examine(facts)
    (found,) = report.found
    assert (found.check, found.severity.value) == (check, severity)
    assert words in found.message and found.remedy and "remedy" not in found.message
    assert report.status == {"error": 2, "warning": 1, "note": 0}[severity]
    assert found.minutes is None or found.minutes > 0


@pytest.mark.parametrize(
    "facts",
    [
        host(hook="/h", strict=True),
        host(hook="/h"),
        host(vm(confined="apparmor"), apparmor_on=True, apparmor_allows=True),
        host(vm(confined="apparmor", class_="none"), apparmor_on=True, apparmor_allows=False),
        host(replace(FOREGROUND_NIC, nics=(Nic(MAC, False, "", "foreground"),)), bridge_nf=("bridge-nf-call-iptables",)),
        host(replace(FOREGROUND_NIC, nics=(Nic(MAC, True, "", "foreground", True),))),
        host(vm(running=False, emulator=None, problems=("x",))),
        replace(WELL, domains=(TWO[0], replace(TWO[0], name="c"))),
    ],
)
def test_what_is_right_is_not_complained_of(facts):
    assert not examine(facts).found


def test_what_two_checks_could_say_is_said_once():
    text = "warning: disk target='vda': not resolved; remedy: z"
    assert [one.check for one in examine(host(vm(left_out=(text,), problems=(text,)))).found] == ["resources"]
    stock = vm(emulator=replace(QEMU, knows=STOCK), problems=("its QEMU is stock; remedy: x",))
    assert [one.check for one in examine(host(stock)).found] == ["emulator"]


def test_the_worst_comes_first_and_json_has_all(capsys):
    confined = vm(compiled=True, confined="apparmor")
    report = examine(host(confined, alive=False, apparmor_on=True, apparmor_allows=None))
    assert [one.severity for one in report.found] == [Severity.ERROR, Severity.WARNING, Severity.NOTE]
    show.report(report)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error: idletimed does not run")
    assert lines[1] == "  remedy: systemctl enable --now idletimed (about 1 min)"
    assert lines[2].startswith("warning: vm: its XML carries")
    assert lines[-1].startswith("well: files, run-dir, emulator")
    assert json.loads(json.dumps(show.plain(report)))["found"][0]["minutes"] == 1


# ---- what is gathered

class Asked(fakes.FakeQemu):
    commands: tuple[str, ...] = ()

    def do_query_version(self, _):
        return {"qemu": {"major": 10, "minor": 0, "micro": 2}, "package": "Debian 1:10.0.2+idletime1"}

    def do_query_commands(self, _):
        return [{"name": name} for name in self.commands]


@pytest.mark.parametrize(
    "commands, knows",
    [(("stop",), STOCK), (("query-idletime",), OLD), (("query-idletime", "idletime-attach"), OURS)],
)
def test_what_a_qemu_says(commands, knows):
    monitor = Asked()
    monitor.commands = commands
    assert sources._asked(monitor) == ("10.0.2 (Debian 1:10.0.2+idletime1)", knows)
    monitor.unknown = {"query-version"}
    assert sources._asked(monitor) == (None, None)


@pytest.mark.parametrize("version", ["x", [], {"qemu": {"major": 1}}, {"qemu": 5}])
def test_a_qemu_that_says_what_is_no_version(version: Any) -> None:
    assert sources._asked(_Says({"query-version": version, "query-commands": []})) == (None, None)


def test_a_version_is_nothing_that_a_terminal_obeys() -> None:
    version = {"qemu": {"major": "\x1b[2J", "minor": 0, "micro": 2}, "package": "\x1b]0;mine\x07"}
    said, _ = sources._asked(_Says({"query-version": version, "query-commands": []}))
    assert said is not None and said.isprintable()


class _Says:
    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def execute(self, name: str, _arguments: Any = None) -> Any:
        return self.answers[name]


def test_a_program_is_read_and_not_run(tmp_path):
    (tmp_path / "stock").write_bytes(b"\x7fELF" + b"x" * 5000)
    (tmp_path / "ours").write_bytes(b"\x7fELF" + b"x" * 5000 + b"\0idletime-attach\0")
    (tmp_path / "script").write_text(f"#!/bin/sh\n# idletime-attach\ntouch {tmp_path}/ran")
    (tmp_path / "empty").touch()
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    names = ("stock", "ours", "script", "empty", "no")
    found = [sources.program_knows(Tree(str(tmp_path)), f"/{name}") for name in names]
    assert found == [STOCK, OURS, None, None, None]
    assert not (tmp_path / "ran").exists()


def write(root, files):
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(str(root))


def test_processes(tmp_path):
    uuid = "11111111-2222-3333-4444-555555555555"
    tree = write(tmp_path, {
        "/proc/77/cmdline": f"qemu\0-name\0x\0-uuid\0{uuid}\0-S\0",
        "/proc/78/cmdline": f"vim\0notes-uuid\0{uuid}x\0",
        "/proc/self/cmdline": f"qemu\0-uuid\0{uuid}\0",
    })  # fmt: skip
    os.symlink("/usr/bin/qemu-system-x86_64 (deleted)", tmp_path / "proc/77/exe")
    assert sources._pids(tree) == {uuid: 77}
    assert [tree.replaced(pid) for pid in (77, 78, None)] == [True, None, None]


def test_the_host(tmp_path):
    tree = write(tmp_path, {
        "/etc/libvirt/hooks/qemu.d/idletime": "# idletime\nprepare/begin | migrate/begin | restore/begin) ;;",
        "/proc/sys/net/bridge/bridge-nf-call-iptables": "1\n",
        "/proc/sys/net/bridge/bridge-nf-call-ip6tables": "0\n",
        "/proc/mounts": "x / ext4 rw 0 0\ny /run tmpfs rw 0 0\nz /run/lock tmpfs rw 0 0\n",
        "/run/idletime/.keep": "",
    })  # fmt: skip
    (tmp_path / "run/idletime").chmod(0o711)
    assert sources._hook(tree) == ("/etc/libvirt/hooks/qemu.d/idletime", True)
    assert sources._bridge(tree) == ("bridge-nf-call-iptables",)
    assert sources._run_dir(tree, "/run/idletime") == (0o711, "tmpfs")
    assert sources._run_dir(tree, "/nosuch") == (None, None)
    assert sources._apparmor(tree, "/run/idletime") is False
    local = "etc/apparmor.d/local/abstractions/libvirt-qemu"
    write(tmp_path, {local: "  #include <abstractions/idletime>\n"})
    assert sources._apparmor(tree, "/run/idletime") is True


def test_hooks_of_others_are_not_ours(tmp_path):
    assert sources._hook(write(tmp_path, {"/etc/libvirt/hooks/qemu": "#!/bin/sh\nexit 0"})) == (None, False)


LEFT = """<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><metadata>{metadata}</metadata>
<devices>
<interface type='network'><mac address='{mac}'/><alias name='net0'/><model type='virtio'/></interface>
<interface type='bridge'><mac address='52:54:00:00:00:02'/><model type='virtio'/><driver name='qemu'/></interface>
<interface type='bridge'><mac address='52:54:00:00:00:03'/><model type='e1000'/></interface>
<interface type='hostdev'><mac address='52:54:00:00:00:04'/></interface></devices>{qemu}
<seclabel type='dynamic' model='dac'><label>+1:+1</label></seclabel>
<seclabel type='dynamic' model='apparmor'><label>libvirt-1</label></seclabel></domain>"""


@pytest.mark.parametrize(
    "metadata, qemu, compiled",
    [
        ("", "", False),
        ("<x xmlns='urn:other'/>", "<qemu:commandline><qemu:arg value='-s'/></qemu:commandline>", False),
        ("<compiled xmlns='urn:idletime:compiled:1'/>", "", True),
        ("", "<qemu:commandline><qemu:arg value='idletime-resource,id=x'/></qemu:commandline>", True),
        ("", "<qemu:override><qemu:device alias='d'><qemu:frontend><qemu:property name='idletime' type='string' value='x'/>"
             "</qemu:frontend></qemu:device></qemu:override>", True),
    ],
)  # fmt: skip
def test_what_a_domain_says(metadata, qemu, compiled):
    root = read(LEFT.format(metadata=metadata, qemu=qemu, mac=MAC.upper()))
    assert sources._compiled(root) is compiled and sources._confined(root) == "apparmor"
    have = [{"id": "i", "path": "/r/eth0", "generation": 4, "other-generations": [3], "devices": [
        {"device": "net0", "seen": False}]}, {"id": "j", "path": "/r/sda", "devices": []}]  # fmt: skip
    planned = [DevicePlan("interface", MAC, "net0", "i", Class.BACKGROUND)]
    assert list(sources._generations(have)) == [Generation("eth0", 4, (3,)), Generation("sda", 3)]
    assert list(sources._nics(root, planned, have)) == [
        Nic(MAC, True, "", "background", False),
        Nic("52:54:00:00:00:02"),
        Nic("52:54:00:00:00:03"),
        Nic("52:54:00:00:00:04", False, "VFIO"),
    ]


class Resolved:
    def resolve(self, _source):
        return Resolution("nfs-filer")


@pytest.mark.parametrize(
    "source, way",
    [
        (Source(DISK, "vhostuser", "/s"), "SPDK"),
        (Source(DISK, "nvme", "0000:01:00.0"), "VFIO"),
        (Source(DISK, "network", "pool/image", "rbd:mon"), "librbd"),
        (Source(DISK, "network", "x", "nbd:h:1"), "nbd"),
        (Source(DISK, "file", "/mnt/a"), "NFS"),
    ],
)  # fmt: skip
def test_what_nobody_sees(source, way):
    """Unless QEMU does."""
    one = DeviceFacts(DISK, "vda", frozenset({"vda"}), "d0", source)
    (text,) = sources._beyond([one], (), Resolved())
    assert way in text and "nobody on this host sees them" in text
    assert list(sources._beyond([one], [{"devices": [{"device": "d0"}]}], Resolved())) == []


HOSTDEV = """<domain><devices><hostdev mode='subsystem' type='{type}' managed='yes'><source>
<address domain='0x0000' bus='{bus}' slot='0x00' function='0x1'/></source></hostdev></devices></domain>"""


@pytest.mark.parametrize(
    "class_, said",
    [
        ("0x010802", "hostdev pci 0000:3b:00.1 (storage): its requests go by VFIO"),
        ("0x010700", "(storage)"),
        ("0x020000", "(network): its packets go by VFIO"),
        ("0x0c0400", "(Fibre Channel)"),
        ("0x0c0330", ""),
        ("0x030000", ""),
        (None, ""),
    ],
)
def test_what_is_passed_through(tmp_path, class_, said):
    """NVMe, HBA and NIC; no USB controller, no graphics, and nothing of which the host does not tell what it is."""
    if class_:
        (tmp_path / "sys/bus/pci/devices/0000:3b:00.1").mkdir(parents=True)
        (tmp_path / "sys/bus/pci/devices/0000:3b:00.1/class").write_text(f"{class_}\n")
    found = list(sources._passed_through(read(HOSTDEV.format(type="pci", bus="0x3b")), Tree(str(tmp_path))))
    assert len(found) == bool(said) and all(said in one and "; remedy: " in one for one in found)


@pytest.mark.parametrize("type_, bus", [("usb", "0x3b"), ("pci", "x")])
def test_what_is_no_pci_device(tmp_path, type_, bus):
    assert list(sources._passed_through(read(HOSTDEV.format(type=type_, bus=bus)), Tree(str(tmp_path)))) == []


def test_a_nic_that_an_observer_sees():
    root = read(LEFT.format(metadata="", qemu="", mac=MAC.upper()))
    planned = [DevicePlan("interface", MAC, "net0", "i", Class.FOREGROUND)]
    have = [{"id": "i", "path": "/r/eth0", "devices": [{"device": "net0", "seen": False}]}]
    assert next(iter(sources._nics(root, planned, have, frozenset({MAC})))).seen is True
