# SPDX-License-Identifier: GPL-2.0-or-later
"""Which observers should run, and what is read for that; how one is found, started, marked. No kernel, no root."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from idletime import observed
from idletime.facts import DeviceFacts, DiskJobs, Plan, Resolution, ResourcePlan, Source
from idletime.hostd import observers, watched
from idletime.hostd.observe import Observer, arguments, decide
from idletime.hostd.observers import Observers, mark
from idletime.hostd.settings import Settings
from idletime.hostd.watched import Other, Part, Use
from idletime.observed import ObserverState
from idletime.resolve.tree import Tree

SDA = Use("sda", "/r/sda", "disk", "background", True, ("/dev/sda",))
ETH = Use("eth0", "/r/eth0", "interface", "background", True, ("eth0",), "vnet0")
BG = Part("bg", "/machine/bg", True, (SDA,))
FG = Part("fg", "/machine/fg", True, (replace(SDA, class_="foreground"),))


def nic(name, **more):
    return Part(name, f"/machine/{name}", True, (replace(ETH, **more),))


# ---- the decision

def test_a_disk():
    """Whoever has a slot is left out: background, guest, foreground; not a stock VM."""
    guest = Part("guest", "/machine/guest", True, (replace(SDA, class_="guest"),))
    (one,) = decide([BG, FG, guest, Part("stock", "/machine/stock")], {"sda": True})
    assert one == Observer("sda", "/r/sda", "disk", "/dev/sda", ("/machine/bg", "/machine/fg", "/machine/guest"), True)
    assert one.runs
    assert arguments(one, "/l") == ["--arena", "/r/sda", "--disk", "/dev/sda", "--background-cgroups", "/l"]


@pytest.mark.parametrize("parts, said", [([], {"sda": True}), ([FG], {"sda": True}), ([BG], {"sda": False})])
def test_none_is_wanted(parts, said):
    """Without background nobody would read it; observe = false."""
    assert decide(parts, said) == ()


def test_unsaid_is_not_declared():
    assert [(one.runs, one.declared) for said in ({}, {"sda": None}) for one in decide([BG], said)] == [(True, False)] * 2


def test_the_idle_class():
    """Of the disks of which it is said; an interface has no such class."""
    found = decide([BG, nic("other")], {}, {"sda", "eth0"})
    assert [(one.resource, one.idle_class) for one in found] == [("eth0", False), ("sda", True)]
    assert [arguments(one, "/l")[-1] for one in found] == ["/l", "--idle-class-is-background"]


@pytest.mark.parametrize("name", ["fg", "bg"])
def test_who_cannot_be_told(name):
    """Nobody is observed who would hold up all background."""
    parts = [replace(part, cgroup="/", told=False) if part.name == name else part for part in (BG, FG)]
    (one,) = decide(parts, {"sda": True})
    assert not one.runs and f"the QEMU of '{name}' is in cgroup '/'" in one.problem and "cgroup_controllers" in one.remedy


@pytest.mark.parametrize("class_, runs", [("background", False), ("guest", False), ("foreground", True)])
def test_dm_crypt_on_the_way(class_, runs):
    """What the kernel writes for a background VM would hold up that VM; a foreground holds up background anyway."""
    part = Part("vm", "/machine/vm", True, (replace(SDA, class_=class_, apart="dm-crypt"),))
    (one,) = decide([BG, part], {"sda": True})
    assert one.runs == runs
    assert runs or ("the requests of 'vm' from the host's: dm-crypt" in one.problem and "luks" in one.remedy)


def test_a_stock_vm_in_the_root_cgroup_hinders_nobody():
    (one,) = decide([BG, Part("stock", "/", False)], {})
    assert one.runs and one.hidden == ()


def test_who_is_hidden():
    """In a cgroup that is left out, or below it; a longer name is another one."""
    inside, below, beside = Part("in", "/machine/bg"), Part("below", "/machine/bg/x"), Part("beside", "/machine/bg2")
    (one,) = decide([BG, inside, below, beside], {})
    assert one.hidden == ("below", "in")


def test_which_disks_are_hidden():
    """Of a foreground that is left out, on that device. Of a background they are no foreground; a VM without a slot is seen."""
    disks = (Other("disk target='sdb'", ("/dev/sda",)), Other("disk target='sdc'", ("/dev/sdx",)))
    (one,) = decide([replace(BG, others=disks), replace(FG, others=disks), Part("stock", "/machine/stock", others=disks)], {})
    assert one.hidden == () and one.hidden_disks == ("fg: disk target='sdb'",)
    state = ObserverState("sda", "disk", hidden_disks=one.hidden_disks)
    assert [name for name, _, _ in state.unseen()] == ["fg"]


@pytest.mark.parametrize(
    "devices, words", [((), "no block device and no interface"), (("/dev/sda", "/dev/sdb"), "stands for /dev/sda, /dev/sdb")]
)
def test_not_one_device(devices, words):
    (one,) = decide([replace(BG, uses=(replace(SDA, host=devices),))], {"sda": True})
    assert not one.runs and words in one.problem


def test_an_uplink():
    """Taps of those with a slot; a foreground with vhost has none, so it is counted."""
    parts = [nic("bg"), nic("fg", class_="foreground", tap="vnet1"), nic("v", class_="foreground", tap="vnet2", seen=False)]
    (one,) = decide(parts, {})
    assert one.leave_out == ("vnet0", "vnet1")
    assert arguments(one, "/l")[2:] == ["--uplink", "eth0", "--background-interfaces", "/l"]


@pytest.mark.parametrize("more, words", [({"tap": ""}, "no tap"), ({"apart": "it is a macvtap"}, "macvtap")])
def test_packets_that_cannot_be_told(more, words):
    (one,) = decide([nic("bg", **more)], {"eth0": True})
    assert not one.runs and words in one.problem


# ---- facts

@pytest.mark.parametrize(
    "text, cgroup",
    [
        ("0::/machine.slice/machine-qemu\\x2d1\\x2da.scope/libvirt/emulator", "/machine.slice/machine-qemu\\x2d1\\x2da.scope"),
        ("0::/system.slice/vm.service", "/system.slice/vm.service"),
        ("7:blkio:/machine/qemu-1-a.libvirt-qemu\n4:cpu,cpuacct:/machine/qemu-1-a.libvirt-qemu/emulator\n0::/x",
         "/machine/qemu-1-a.libvirt-qemu"),
        ("1:name=systemd:/y\n0::/", "/"),
        ("", ""),
    ],
)  # fmt: skip
def test_cgroup_of(tmp_path, text, cgroup):
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(text + "\n")
    assert watched.cgroup_of(Tree(str(tmp_path)), 7) == cgroup


def test_is_told(tmp_path):
    """Version 2 needs the controller; version 1 the folder."""
    for name, controllers in (("a", "cpu io memory"), ("b", "cpu memory")):
        (tmp_path / "sys/fs/cgroup" / name).mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup" / name / "cgroup.controllers").write_text(controllers)
    (tmp_path / "sys/fs/cgroup/blkio/c").mkdir(parents=True)
    tree = Tree(str(tmp_path))
    assert [watched.is_told(tree, name) for name in ("/a", "/b", "/c", "/", "", "/none")] == [
        True, False, True, False, False, False]  # fmt: skip


@pytest.mark.parametrize(
    "trail, words",
    [
        (("/dev/mapper/a", "vg-a (dm-2)", "luks-b (dm-1)", "sda2", "sda"), "'luks-b (dm-1)'"),
        (("/a.qcow2", "ext4 on /", "dm-1", "sda"), "'dm-1'"),
        (("/dev/mapper/a", "vg-a (dm-2)", "sda"), ""),
        (("/tmp/b (dm-1) c", "sda"), ""),
        (("/dev/mapper/a", "tags (dm-3)", "sda"), "dm-integrity ('tags (dm-3)')"),
        (("/dev/mapper/a", "tags_dif (dm-4)", "sda"), "dm-integrity ('tags_dif (dm-4)')"),
    ],
)
def test_written_by_kernel(tmp_path, trail, words):
    """Any layer of dm-crypt below a disk, by the uuid that cryptsetup gives it; not on a kernel that charges its writes."""
    for name, uuid in (("dm-1", "CRYPT-LUKS2-0123-luks-b"), ("dm-2", "LVM-CRYPT"), ("dm-3", "CRYPT-INTEGRITY-tags"),
                       ("dm-4", "CRYPT-SUBDEV-tags_dif")):
        (tmp_path / f"sys/class/block/{name}/dm").mkdir(parents=True)
        (tmp_path / f"sys/class/block/{name}/dm/uuid").write_text(f"{uuid}\n")
    tree, found = Tree(str(tmp_path)), Resolution("sda", ("sda",), trail)
    said = watched.written_by_kernel(tree, found)
    assert words in said and bool(said) == bool(words)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 7.0.1 (x)\n")
    assert watched.written_by_kernel(tree, found) == (said if "integrity" in said else "")


@pytest.mark.parametrize(
    "version, charged",
    [
        ("6.1.0-56-cloud-amd64 (gcc-12 (Debian 12.2.0-14)) #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-11-16)", True),
        ("6.1.0-30-amd64 (gcc-12 (Debian 12.2.0-14)) #1 SMP PREEMPT_DYNAMIC Debian 6.1.124-1 (2025-01-12)", False),
        ("6.12.95+deb12-cloud-amd64 (x) #1 SMP Debian 6.12.95-1~bpo12+1 (2026-11-01)", True),
        ("6.12.74 (x)", False),
        ("6.12.75 (x)", True),
        ("6.14.11 (x)", False),
        ("6.19.4-arch1 (x)", True),
        ("7.0 (x)", True),
        ("7.0-rc1 (x)", True),
        ("5.14.0-570.el9.x86_64 (x)", False),
        ("nonsense", False),
    ],
)
def test_charges(tmp_path, version, charged):
    """By the kernel's number, and Debian's behind it; the compiler's is none."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text(f"Linux version {version}\n")
    assert watched.charges(Tree(str(tmp_path))) == charged


class FakeHost:
    def __init__(self, root, found):
        self.root, self.found = str(root), found

    def resolve(self, _source):
        return self.found


def test_part(tmp_path):
    """What QEMU says is attached counts, not what is planned."""
    for path in ("sys/class/block/sda", "sys/class/net/eth0", "sys/class/net/br0/bridge", "sys/class/net/vnet3"):
        (tmp_path / path).mkdir(parents=True)
    disk = DeviceFacts("disk", "vda", frozenset({"vda", "d0"}), "d0", Source("disk", "file", "/a"))
    net = DeviceFacts("interface", "52:54", frozenset({"52:54", "n0", "vnet3"}), "n0", Source("interface", "bridge", "br0"))
    plan = Plan((ResourcePlan("idletime-x", "x", "/r/x", {}),))

    def uses(device, found, **now):
        have = [{"id": "idletime-x", "devices": [{"device": device.alias, "class": "background", **now}]},
                {"id": "gone", "devices": [{"device": "other", "class": "background"}]}]  # fmt: skip
        return watched.part("vm", None, [device], plan, have, FakeHost(tmp_path, found)).uses

    (one,) = uses(disk, Resolution("x", ("sda", "nowhere")))
    assert one == Use("x", "/r/x", "disk", "background", True, ("/dev/sda",))
    (one,) = uses(net, Resolution("x", ("eth0",), ("br0", "eth0", "/etc/idletime/resources.d/a.toml line 1")), seen=False)
    assert (one.host, one.tap, one.apart, one.seen) == (("eth0",), "vnet3", "", False)
    (one,) = uses(net, Resolution("x", ("eth0", "eth1"), ("br0",)))
    assert one.host == ("eth0", "eth1")
    (one,) = uses(net, Resolution("x", ("eth0",), ("br0", "vx0", "eth0"), apart="the tunnel 'vx0' may pack them"))
    assert one.apart == "the tunnel 'vx0' may pack them"
    assert watched.part("vm", None, [disk], plan, None, FakeHost(tmp_path, None)).uses == ()

    copied = replace(disk, copies=(Source("disk", "file", "/b"),))
    job = {"id": "idletime-x", "devices": [], "jobs": [{"id": "copy"}]}
    jobs = replace(plan, jobs=(DiskJobs("vda", "idletime-a", "d0", also=("idletime-x",)),))
    (one,) = watched.part("vm", None, [copied], jobs, [job], FakeHost(tmp_path, Resolution("x", ("sda",)))).uses
    assert one == Use("x", "/r/x", "disk", "background", True, ("/dev/sda",), work=True), "it would wait for what it writes"
    assert watched.part("vm", None, [disk], jobs, [job], FakeHost(tmp_path, Resolution("x", ("sda",)))).uses == ()
    both = replace(plan, jobs=(DiskJobs("vda", "idletime-x", "d0"),))
    have = [{**job, "devices": [{"device": "d0", "class": "foreground"}]}]
    found = watched.part("vm", None, [disk], both, have, FakeHost(tmp_path, Resolution("x", ("sda",)))).uses
    assert [one.class_ for one in found] == ["foreground", "background"], "an observer sees stock VMs for its jobs"

    lun = replace(disk, passed=True)
    (one,) = uses(lun, Resolution("x", ("sda",)))
    assert "device='lun'" in one.apart

    sata = replace(disk, target="sdb", names=frozenset({"sdb", "s0"}), alias="s0")
    attached = [{"id": "idletime-x", "devices": [{"device": "d0", "class": "foreground"}]}]
    for found, others in ((Resolution("x", ("sda",)), (Other("disk target='sdb'", ("/dev/sda",)),)), (Resolution(None), ())):
        assert watched.part("vm", None, [disk, sata], plan, attached, FakeHost(tmp_path, found)).others == others


@pytest.mark.parametrize(
    "kind, name, device", [("disk", "sda", "/dev/sda"), ("interface", "eth0", "eth0"), ("interface", "br0", None)]
)
def test_a_name_that_is_a_device(tmp_path, kind, name, device):
    """What an operator names after a device is that device, where nothing is found out; a bridge is no way out."""
    for path in ("sys/class/block/sda", "sys/class/net/eth0", "sys/class/net/br0/bridge"):
        (tmp_path / path).mkdir(parents=True)
    one = DeviceFacts(kind, "t", frozenset({"t"}), "d0", Source(kind, "x", "y"))
    have = [{"id": "i", "devices": [{"device": "d0", "class": "background"}]}]
    plan = Plan((ResourcePlan("i", name, "/r", {}),))
    part = watched.part("vm", None, [one], plan, have, FakeHost(tmp_path, Resolution(None)))
    assert part.uses[0].host == ((device,) if device else ())


# ---- the act

PROGRAM = f"""#!{sys.executable}
import os, signal, socket, sys
arena = sys.argv[2]
if os.path.exists(arena + "/refuse"):
    sys.exit("idletime-observer: " + open(arena + "/refuse").read())
line = socket.socket(socket.AF_UNIX)
path = arena + "/observer"
if os.path.exists(path):
    os.unlink(path)
signal.signal(signal.SIGTERM, lambda *_: (os.unlink(path), os._exit(0)))
line.bind(path)
line.listen()
print("ready", flush=True)
kept = []
while True:
    kept.append(line.accept())
"""


@contextmanager
def host(tmp_path, monkeypatch):
    """A run directory with an arena, and a program that does as an observer does. systemd is not asked."""
    monkeypatch.setattr(observers, "UNIT_FILES", ())
    monkeypatch.setattr(observers, "RETRY_SECONDS", 0.01)
    run, program = tmp_path / "run", tmp_path / "idletime-observer"
    (run / "sda").mkdir(parents=True)
    (run / ".state").mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    pids = []
    try:
        yield Settings(run_dir=str(run), observer=str(program)), run, pids
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def wanted(run, **more):
    return Observer("sda", str(run / "sda"), "disk", "/dev/sda", ("/machine/bg",), **{"declared": True, **more})


async def until(condition, seconds=20):
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not in time")


def pid_of(run):
    """0: what is there belongs to nobody any more."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(run / "sda/observer"))
        except ConnectionRefusedError:
            return 0
        return int.from_bytes(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)


def alive(run):
    one = observed.read(str(run)).get("sda")
    return one is not None and one.alive


def test_comes_dies_is_found_again_and_goes(tmp_path, monkeypatch):
    with host(tmp_path, monkeypatch) as (settings, run, pids):

        async def life():
            first = Observers(settings)
            first.want([wanted(run)])
            assert not (run / "sda/observed").exists()
            await until(lambda: alive(run))
            pids.append(pid_of(run))
            assert (run / "sda/observed").exists()
            assert (run / ".observers/sda.list").read_text() == "/machine/bg\n"
            first.want([replace(wanted(run), leave_out=("/a", "/b"))])
            await until(lambda: (run / ".observers/sda.list").read_text() == "/a\n/b\n")
            assert pid_of(run) == pids[0]
            os.kill(pids[0], 9)
            await until(lambda: not alive(run))
            assert (run / "sda/observed").exists(), "for some seconds"
            await until(lambda: alive(run))
            pids.append(pid_of(run))
            assert pids[1] != pids[0]
            first.close()

            second = Observers(settings)  # idletimed anew
            second.want([wanted(run)])
            await until(lambda: second._all["sda"].alive)
            assert pid_of(run) == pids[1]
            second.want([replace(wanted(run), device="/dev/sdb")])  # what it observes cannot be told it: another one
            await until(lambda: (run / "sda/observer").exists() and alive(run) and pid_of(run) not in (0, pids[1]))
            pids.append(pid_of(run))
            second.close()

            third = Observers(settings)  # and nobody wants it any more
            third.want([])
            await until(lambda: not (run / "sda/observer").exists() and not third._all)
            assert not (run / "sda/observed").exists() and list((run / ".observers").iterdir()) == []
            third.close()

        asyncio.run(life())


SYSTEMCTL = """#!/bin/sh
# As the unit: options from the file, words apart.
echo "$@" >>"$RUN/asked"
[ "$1" = start ] || exit 0
. "$RUN/.observers/sda.env"
"$PROGRAM" $OBSERVE >/dev/null 2>"$RUN/.observers/sda.log" &
"""


def test_systemd_starts_it(tmp_path, monkeypatch):
    with host(tmp_path, monkeypatch) as (settings, run, pids):
        monkeypatch.setattr(observers, "_unit_there", lambda _settings: True)
        (tmp_path / "systemctl").write_text(SYSTEMCTL)
        (tmp_path / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("RUN", str(run))
        monkeypatch.setenv("PROGRAM", settings.observer)

        async def life():
            all_ = Observers(settings)
            all_.want([wanted(run)])
            await until(lambda: alive(run))
            pids.append(pid_of(run))
            assert (run / "asked").read_text() == "start --no-block idletime-observer@sda.service\n"
            all_.want([])
            await until(lambda: not all_._all and not (run / "sda/observer").exists())
            assert (run / "asked").read_text().splitlines()[1:] == ["stop --no-block idletime-observer@sda.service"]
            all_.close()

        asyncio.run(life())


@pytest.mark.parametrize(
    "program, refuse, words",
    [("/nowhere/x", "", "the program '/nowhere/x' is not installed"), ("", "the kernel cannot", "the kernel cannot")],
)
def test_one_that_cannot_run_blinds_nobody(tmp_path, monkeypatch, caplog, program, refuse, words):
    with host(tmp_path, monkeypatch) as (settings, run, _):
        (run / "sda/refuse").write_text(refuse)

        async def life():
            all_ = Observers(replace(settings, observer=program or settings.observer))
            all_.want([wanted(run)])
            await until(lambda: words in str(observed.read(str(run)).get("sda", "")))
            assert not (run / "sda/observed").exists()
            all_.close()

        asyncio.run(life())
        assert words in caplog.text and "remedy" in str(observed.read(str(run))["sda"])


def test_no_peer_of_another_user_and_no_other_program_is_ended(tmp_path, monkeypatch):
    """What listens in an arena may be anybody's: it is not an observer of ours, so it is not ended."""
    with host(tmp_path, monkeypatch) as (settings, run, _):
        (run / ".observers").mkdir()
        (run / ".observers/sda.env").write_text("")
        with socket.socket(socket.AF_UNIX) as line:  # this very process
            line.bind(str(run / "sda/observer"))
            line.listen()

            async def life():
                all_ = Observers(settings)
                all_.want([])
                await until(lambda: not all_._all)

            asyncio.run(life())


def test_mark(tmp_path):
    """Nothing is followed in a folder that is its QEMU's."""
    mark(tmp_path, True)
    mark(tmp_path, True)
    assert stat.S_IMODE((tmp_path / "observed").stat().st_mode) == 0o644
    mark(tmp_path, False)
    mark(tmp_path, False)
    (tmp_path / "observed").symlink_to(tmp_path / "elsewhere")
    mark(tmp_path, True)
    assert not (tmp_path / "elsewhere").exists()
    mark(tmp_path / "nowhere", True)


def test_what_is_said(tmp_path):
    (tmp_path / ".state").mkdir()
    one = ObserverState("sda", "disk", "/dev/sda", False, True, ("x",), "it is so", "do this")
    observed.write(str(tmp_path), [one])
    assert observed.read(str(tmp_path)) == {"sda": one}
    assert "it is so; remedy: do this" in str(one)
    (tmp_path / ".state/observers.json").write_text("{}")
    assert observed.read(str(tmp_path)) == {}
