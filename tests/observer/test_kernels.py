"""The observer on Debian's kernels, in a guest that plays the host: the programs load there, and count, and no end is lost.

What this machine's kernel lacks is tried there too: cgroups of version 2, device-mapper, md, NVMe, disks that go, ends that the
kernel does not tell, and br_netfilter on an uplink.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.framework import accel, initramfs, inner, paths, series
from tests.framework.qemu import Machine
from tests.observer import apparmor as profile
from tests.observer import run

MODULES = ["loop", "null_blk", "dm_mod", "dm_crypt", "xts", "ecb", "dm_integrity", "dm_multipath", "dm_round_robin", "raid1", "nvme",
           "sch_ingress", "cls_bpf", "dummy", "veth", "bridge", "br_netfilter"]
NVME = [
    # One of its own: nvme0. And one of a subsystem, as of a shelf with several ports, where nvme1n1 has no queue.
    "-blockdev", "driver=null-co,node-name=single,size=67108864,read-zeroes=on",
    "-device", "nvme,serial=single,drive=single",
    "-blockdev", "driver=null-co,node-name=shared,size=67108864,read-zeroes=on",
    "-device", "nvme-subsys,id=shelf,nqn=shelf", "-device", "nvme,serial=shared,subsys=shelf,id=port",
    "-device", "nvme-ns,bus=port,drive=shared",
]
PULLED = [
    # nvme2, which can be pulled out, and takes long enough to be busy then.
    "-device", "pcie-root-port,id=pullport,chassis=1",
    "-blockdev", "driver=null-co,node-name=slow,size=67108864,latency-ns=200000000",
    "-device", "nvme,serial=pulled,drive=slow,id=pulled,bus=pullport",
]
SETUP = """
mkdir -p /a && mount -t tmpfs t /a && mkdir /a/disk && ln -sf /host/bin/idletime-observer /host/bin/show /host/bin/dmsetup /bin/
for i in 0 1 2; do dd if=/dev/zero of=/a/file$i bs=1M count=16 2>/dev/null && losetup /dev/loop$i /a/file$i; done
"""
LAYERS = """
echo '0 16384 linear /dev/loop0 2048' | dmsetup create lower --verifyudev
echo '0 8192 linear /dev/mapper/lower 1024' | dmsetup create upper --verifyudev
"""
"""A volume on a volume on a disk, as LVM on LUKS is."""
MULTIPATH = """
for i in 3 4; do losetup /dev/loop$i /a/file2; done
echo '0 16384 multipath 0 0 1 1 round-robin 0 2 1 /dev/loop3 1 /dev/loop4 1' | dmsetup create paths --verifyudev
"""
"""Two paths to what is one disk: the same file."""
CRYPT = """
losetup /dev/loop5 /a/file1
key=$(printf '%064d%064d' 1 2)
echo "0 8192 crypt aes-xts-plain64 $key 0 /dev/loop5 0" | dmsetup create usual --uuid CRYPT-PLAIN-usual --verifyudev
echo "0 8192 crypt aes-xts-plain64 $key 0 /dev/loop5 8192 1 no_write_workqueue" | dmsetup create direct --verifyudev
"""
TAGS = """
dd if=/dev/zero of=/a/tags bs=1M count=16 2>/dev/null; losetup /dev/loop6 /a/tags
echo '0 8192 integrity /dev/loop6 0 - J 1 internal_hash:crc32c' | dmsetup create tags --verifyudev
"""
GROUPS = """
mount -t cgroup2 none /sys/fs/cgroup && cd /sys/fs/cgroup && grep -qw io cgroup.controllers
mkdir -p machine.slice/vm.scope/libvirt/emulator machine.slice/vm.scope/libvirt/vcpu0
mkdir machine.slice/vm.scope2 machine.slice/other.scope system.slice
echo +io >cgroup.subtree_control && echo +io >machine.slice/cgroup.subtree_control
for each in emulator vcpu0; do echo threaded >machine.slice/vm.scope/libvirt/$each/cgroup.type; done
"""
"""As libvirt and systemd do it: a VM's threads are in threaded cgroups of its scope. Debian 12 and 13 have version 2 only."""
MIRROR = """
md() { echo "$2" >/sys/block/md$1/md/$3; }
echo md%(number)s >/sys/module/md_mod/parameters/new_array
md %(number)s none metadata_version && md %(number)s raid1 level && md %(number)s 8192 component_size
md %(number)s %(count)s raid_disks
slot=0; for disk in %(disks)s; do
    cat /sys/block/$disk/dev >/sys/block/md%(number)s/md/new_dev
    echo $slot >/sys/block/md%(number)s/md/dev-$disk/slot; slot=$((slot + 1))
done
md %(number)s none resync_start && md %(number)s active array_state
"""
BRIDGE = """
ip() { /host/bin/ip "$@"; }
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip link add up0 type dummy; ip link add br0 type bridge mcast_snooping 0
for vm in b f; do ip link add tap$vm type veth peer name vm$vm; ip link set tap$vm master br0 up; ip link set vm$vm up; done
ip link set up0 master br0 up; ip link set br0 up
n=1; for device in br0 vmb vmf; do
    ip addr add 10.9.$n.1/24 dev $device; ip neigh replace 10.9.$n.9 lladdr 02:00:00:00:00:09 dev $device nud permanent; n=$((n + 1))
done
"""
"""A host: up0 is its uplink, tapb and tapf its VMs' taps. 10.9.1.9, 10.9.2.9 and 10.9.3.9 are elsewhere, and do not answer."""
OPTIONS = pytest.mark.parametrize("options", ["", "--old-kernel"], ids=["typed", "raw"])

STRESS = """
for i in 1 2; do while :; do :; done & spinners="$spinners $!"; done
for i in 1 2 3 4; do
    dd if=/dev/zero of=/dev/loop0 bs=4k count=200 seek=$((i * 512)) conv=notrunc,fsync oflag=direct 2>/dev/null & loads="$loads $!"
    dd if=/dev/loop0 of=/dev/null bs=4k count=200 iflag=direct 2>/dev/null & loads="$loads $!"
done
wait $loads; kill $spinners
"""
"""1,600 requests and four flushes, on processors that have more to do."""


@pytest.fixture(scope="module", params=list(series.SUITES))
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A guest with the observer, and a reader of its page."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    show = folder / "show"
    overlay = paths.ROOT / "qemu-patches" / "overlay"
    subprocess.run(["cc", "-O2", f"-I{overlay}", str(Path(__file__).with_name("show.c")), "-o", str(show)], check=True)
    boot = accel.prepare()
    archive = folder / "host.tar"
    inner.pack(archive, boot.qemu, [run.PROGRAM, show, Path("/usr/sbin/dmsetup")])
    kernel = series.get_series(request.param)
    guests = replace(boot, kernel=kernel.image, initramfs=initramfs.get_initramfs(kernel, MODULES))
    with ExitStack() as stack:
        machine = stack.enter_context(Machine(guests, "host", [*inner.disk(archive), *NVME, *PULLED], memory_mib=1024, cpus=2, boot_seconds=400))
        inner.unpack(machine.guest)
        assert machine.guest.run("uname -r", 30).text.startswith(request.param)
        machine.guest.run(SETUP, 60)
        yield machine


def begin(host: Machine, options: str) -> str:
    """What an observer has to say: that it is ready, or why it is not."""
    host.guest.run(f"idletime-observer --arena /a/disk {options} >/a/out 2>&1 & echo $! >/a/pid", 60)
    begun = "for i in $(seq 600); do grep -q ^ready /a/out && break; kill -0 $(cat /a/pid) || break; sleep 0.2; done; cat /a/out"
    return host.guest.run(begun, 300).text


def observed(host: Machine, options: str, load: str) -> str:
    """The page after a load, when nothing is in service any more."""
    said = begin(host, options)
    assert "ready" in said
    try:
        host.guest.run(load, 600)
        return host.guest.run("sleep 0.5; show /a/disk", 60).text
    finally:
        end(host)


def end(host: Machine) -> None:
    """Of the observer."""
    host.guest.run("kill $(cat /a/pid); sleep 0.5", 60)


def read(device: str) -> str:
    """A load: 64 reads of 4 KiB past the page cache, which are 64 requests."""
    return f"dd if={device} of=/dev/null bs=4k count=64 iflag=direct 2>&1"


def page(text: str) -> dict[str, int]:
    """What show says, by name."""
    words = text.split()[1:]
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def counted(host: Machine, load: str) -> int:
    """How many requests of a load an observer that runs counts; then nothing is in service."""
    look = "sleep 0.3; show /a/disk"
    before = page(host.guest.run(look, 60).text)
    host.guest.run(load, 300)
    after = page(host.guest.run(look, 60).text)
    assert (after["in_service"], after["unpaired"], after["healed"]) == (0, 0, 0)
    return after["started"] - before["started"]


def in_group(group: str, load: str) -> str:
    """A load by a process that is in a cgroup; "" is the root. Into a threaded one goes its thread, from the one above."""
    above = group.rpartition("/")[0] if group.endswith(("emulator", "vcpu0")) else group
    enter = f"echo $$ >/sys/fs/cgroup/{above}/cgroup.procs; echo $$ >/sys/fs/cgroup/{group}/cgroup.threads"
    return f"sh -ec '{enter}; exec {load}'"


def write(device: str) -> str:
    """A load: 64 writes of 4 KiB past the page cache."""
    return f"dd if=/dev/zero of={device} bs=4k count=64 oflag=direct conv=notrunc 2>&1"


def reads(host: Machine, disk: str) -> int:
    """Reads that the kernel has done on a disk."""
    return int(host.guest.run(f"cat /sys/block/{disk}/stat", 30).text.split()[0])


@OPTIONS
def test_a_disk_is_observed(host: Machine, options: str) -> None:
    """64 reads of 4 KiB past the page cache are 64 requests."""
    text = observed(host, f"--disk /dev/loop0 {options}", read("/dev/loop0"))
    assert "loop0 in_service 0 started 64 bytes 262144 unpaired 0 healed 0" in text


@OPTIONS
def test_no_end_is_lost(host: Machine, options: str) -> None:
    """Flushes among requests on busy processors: each that began ended, and nothing was healed."""
    text = observed(host, f"--disk /dev/loop0 {options}", STRESS)
    assert "loop0 in_service 0 started 1600 bytes 6553600 unpaired 0 healed 0" in text


CONFINED = """
mkdir -p /run/idletime/.observers /run/idletime/disk && chmod 700 /run/idletime/.observers
echo /none >/run/idletime/.observers/disk.list
mount -t securityfs s /sys/kernel/security && base64 -d /a/profile.64 >/a/profile
cat /a/profile >/sys/kernel/security/apparmor/.replace
ip link add up9 type dummy; ip link set up9 up
"""
START = """
rm -f /run/idletime/.observers/disk.log
(echo 'exec idletime-observer' >/proc/self/attr/exec && exec /host/bin/idletime-observer --arena /run/idletime/disk {options} \
    >/run/idletime/.observers/disk.log 2>&1) & echo $! >/a/pid
for i in $(seq 600); do grep -qs ^ready /run/idletime/.observers/disk.log && break; kill -0 $(cat /a/pid) || break; sleep 0.2; done
cat /run/idletime/.observers/disk.log /proc/$(cat /a/pid)/attr/current
"""


@pytest.fixture(scope="module")
def apparmor(host: Machine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The host with the observer's profile in force, which is told where the program lies in this guest."""
    if profile.missing():
        pytest.skip(str(profile.missing()))
    local = tmp_path_factory.mktemp("apparmor") / "local"
    local.mkdir()
    (local / "idletime-observer").write_text("/host/bin/idletime-observer mr,\n")
    text = base64.encodebytes(profile.profile(local.parent)).decode()
    for at in range(0, len(text), 16000):
        host.guest.run(f"cat >>/a/profile.64 <<'END'\n{text[at:at + 16000].rstrip()}\nEND", 60)
    host.guest.run(CONFINED, 60)
    return host


@pytest.mark.parametrize(
    ("options", "load", "counted"),
    [
        ("--disk /dev/loop0 --background-cgroups /run/idletime/.observers/disk.list", read("/dev/loop0"), "started 64 "),
        ("--disk /dev/nvme1n1", read("/dev/nvme1n1"), "started 64 "),
        ("--disk /dev/loop0 --old-kernel", read("/dev/loop0"), "started 64 "),
        ("--uplink up9", "true", "up9 in_service 0 "),
        ("--uplink up9 --old-kernel", "true", "up9 in_service 0 "),
    ],
    ids=["disk", "nvme", "raw", "uplink", "clsact"],
)
def test_apparmor_lets_it_work(apparmor: Machine, options: str, load: str, counted: str) -> None:
    """Confined by the profile as it is installed it starts, counts, comes back after its arena has gone; nothing is denied."""
    guest = apparmor.guest
    guest.run("dmesg -c >/a/dmesg", 30)
    text = guest.run(START.format(options=options), 300).text
    try:
        assert "ready" in text and "idletime-observer (enforce)" in text
        guest.run(load, 300)
        assert counted in guest.run("sleep 0.5; show /run/idletime/disk", 60).text
        guest.run("mv /run/idletime/disk /run/idletime/old; mkdir /run/idletime/disk; sleep 1; rm -r /run/idletime/old", 60)
        assert counted in guest.run("show /run/idletime/disk", 60).text
    finally:
        guest.run("kill $(cat /a/pid); sleep 0.5", 60)
    assert "DENIED" not in guest.run("dmesg; true", 30).text
    guest.run("test ! -e /run/idletime/disk/observer", 30)


def test_apparmor_denies_the_rest(apparmor: Machine) -> None:
    """A file elsewhere cannot be read, and that is in the kernel's log: so nothing denied above means nothing denied."""
    guest = apparmor.guest
    guest.run("dmesg -c >/a/dmesg; echo /none >/a/list", 30)
    guest.run(START.format(options="--disk /dev/loop0 --background-cgroups /a/list") + "kill $(cat /a/pid)", 300, check=False)
    said = guest.run("sleep 0.5; dmesg", 30).text
    assert 'apparmor="DENIED" operation="open"' in said and 'profile="idletime-observer" name="/a/list"' in said


@pytest.fixture(scope="module")
def grouped(host: Machine) -> Machine:
    """The host with cgroups of version 2."""
    host.guest.run(f"set -e; {GROUPS}", 60)
    return host


@pytest.fixture(scope="module")
def encrypted(grouped: Machine) -> Machine:
    """The same with dm-crypt on a disk, twice."""
    grouped.guest.run(f"set -e; {CRYPT}", 60)
    return grouped


@pytest.fixture(scope="module")
def multipath(grouped: Machine) -> Machine:
    """The same with two paths to one disk."""
    grouped.guest.run(f"set -e; {MULTIPATH}", 60)
    return grouped


SCOPE = "machine.slice/vm.scope"
BESIDE = ["", "system.slice", "machine.slice/other.scope", "machine.slice/vm.scope2"]


@OPTIONS
@pytest.mark.parametrize("below", [False, True], ids=["io of the scope", "io of libvirt's too"])
def test_cgroups_of_version_2(grouped: Machine, options: str, below: bool) -> None:
    """A VM's scope is background with all its threaded cgroups, wherever the io controller ends; all that is beside it counts."""
    grouped.guest.run(f"echo {'+' if below else '-'}io >/sys/fs/cgroup/{SCOPE}/cgroup.subtree_control", 30)
    assert begin(grouped, f"--disk /dev/loop0 --background-cgroup /{SCOPE} {options}") == "ready\n"
    try:
        for group in ("libvirt", "libvirt/emulator", "libvirt/vcpu0"):
            for load in (read, write):
                assert counted(grouped, in_group(f"{SCOPE}/{group}", load("/dev/loop0"))) == 0, group
        for group in BESIDE:
            assert counted(grouped, in_group(group, read("/dev/loop0"))) == 64, group
    finally:
        end(grouped)


def test_both_beside_each_other(grouped: Machine) -> None:
    """Background and foreground at the same time, on both processors: each request of the one counts, none of the other."""
    assert begin(grouped, f"--disk /dev/loop0 --background-cgroup /{SCOPE}") == "ready\n"
    try:
        background, foreground = in_group(f"{SCOPE}/libvirt/emulator", write("/dev/loop0")), in_group(BESIDE[2], read("/dev/loop0"))
        assert counted(grouped, f"for i in 1 2 3 4; do {background} & {foreground} & done; wait") == 4 * 64
    finally:
        end(grouped)


def test_a_cgroup_without_io(grouped: Machine) -> None:
    """Named, with what to do, since the kernel charges its requests to one above."""
    grouped.guest.run(f"echo -io >/sys/fs/cgroup/{SCOPE}/cgroup.subtree_control", 30)
    said = begin(grouped, f"--disk /dev/loop0 --background-cgroup /{SCOPE}/libvirt")
    end(grouped)
    assert f"{SCOPE}/libvirt has no io controller" in said
    assert "cgroup.subtree_control" in said


@pytest.mark.parametrize("name", ["usual", "direct"])
def test_dm_crypt(encrypted: Machine, name: str) -> None:
    """What a background cgroup writes through dm-crypt is its own, though threads of the kernel make it: these kernels charge it so
    (watched.py says since when); with no_write_workqueue no such thread has a part in it."""
    assert begin(encrypted, f"--disk /dev/mapper/{name} --background-cgroup /{SCOPE}") == "ready\n"
    try:
        for load in (read, write):
            assert counted(encrypted, in_group(f"{SCOPE}/libvirt", load(f"/dev/mapper/{name}"))) == 0
            assert counted(encrypted, in_group(BESIDE[2], load(f"/dev/mapper/{name}"))) == 64
        assert "loop5 in_service 0 " in encrypted.guest.run("show /a/disk", 30).text
    finally:
        end(encrypted)


def test_dm_integrity(grouped: Machine) -> None:
    """Its journal and what is copied from there are the kernel's own, so that a background cgroup's writes count (watched.py)."""
    grouped.guest.run(f"set -e; {TAGS}", 60)
    assert begin(grouped, f"--disk /dev/mapper/tags --background-cgroup /{SCOPE}") == "ready\n"
    try:
        assert counted(grouped, f"{in_group(f'{SCOPE}/libvirt', write('/dev/mapper/tags'))}; sleep 1") > 0
    finally:
        end(grouped)


@OPTIONS
def test_multipath(multipath: Machine, options: str) -> None:
    """Of dm-multipath the device itself is observed, each request once, whichever path it takes; its cgroup is known there."""
    before = [reads(multipath, path) for path in ("loop3", "loop4")]
    assert begin(multipath, f"--disk /dev/mapper/paths --background-cgroup /{SCOPE} {options}") == "ready\n"
    try:
        assert counted(multipath, read("/dev/mapper/paths")) == 64
        assert counted(multipath, in_group(f"{SCOPE}/libvirt", write("/dev/mapper/paths"))) == 0
        text = multipath.guest.run("show /a/disk", 30).text
        assert text.startswith("dm-")
        assert " in_service 0 started 64 " in text
    finally:
        end(multipath)
    taken = [reads(multipath, path) - was for path, was in zip(("loop3", "loop4"), before, strict=True)]
    assert sum(taken) == 64
    assert min(taken) > 0


TIMED = """
mount -t configfs none /sys/kernel/config 2>/dev/null
mkdir /sys/kernel/config/nullb/timed && cd /sys/kernel/config/nullb/timed
echo 2 >irqmode; echo 20000 >completion_nsec; echo 64 >size; echo 1 >power
"""
"""A disk whose ends come in interrupts of a timer, wherever the processor is then."""
TIMED_LOAD = """
for i in 1 2 3 4; do
    dd if=/dev/timed of=/dev/null bs=4k count=4000 iflag=direct 2>/dev/null & loads="$loads $!"
    while :; do dd if=/dev/loop0 of=/dev/null bs=4k count=500 iflag=direct 2>/dev/null; done & others="$others $!"
done
wait $loads; kill $others; sleep 1
"""
"""Beside it ends of another disk, by processes: a timer's interrupt meets them in the program."""


@pytest.fixture(scope="module")
def timed(host: Machine) -> Machine:
    """The host with such a disk."""
    host.guest.run(f"{TIMED}test -b /dev/timed", 60)
    return host


@OPTIONS
def test_ends_that_are_not_told(timed: Machine, options: str) -> None:
    """A program that runs already on a processor is not run there again: what is missed is counted, and healed when idle."""
    text = observed(timed, f"--disk /dev/timed {options}", TIMED_LOAD)
    seen = page(text)
    assert seen["missed"] > 0
    assert seen["healed"] > 0
    assert (seen["in_service"], seen["unpaired"]) == (0, 0)


@pytest.fixture(scope="module")
def layered(host: Machine) -> Machine:
    """The host with volumes on its first disk, a mirror of one disk on the second one, and one of two on all."""
    host.guest.run(LAYERS, 60)
    host.guest.run(MIRROR % {"number": 1, "count": 1, "disks": "loop1"}, 60)
    host.guest.run(MIRROR % {"number": 2, "count": 2, "disks": "loop2 nvme0n1"}, 60)
    # Who opens a disk first makes the kernel read its partition table.
    host.guest.run("for disk in md1 md2; do dd if=/dev/$disk of=/dev/null count=1 2>/dev/null; done", 60)
    return host


@pytest.mark.parametrize(
    ("device", "leaf"),
    [("/dev/mapper/upper", "loop0"), ("/dev/md1", "loop1"), ("/dev/nvme0n1", "nvme0n1"), ("/dev/nvme1n1", "nvme1c1n1")],
    ids=["device-mapper", "md", "nvme", "nvme with multipath"],
)
def test_the_leaf_is_observed_once(layered: Machine, device: str, leaf: str) -> None:
    """Requests to what stands on a disk are seen there, each once: as many as the disk itself has counted."""
    before = reads(layered, leaf)
    text = observed(layered, f"--disk {device}", read(device))
    assert f"{leaf} in_service 0 started 64 bytes 262144 unpaired 0 healed 0" in text
    assert reads(layered, leaf) - before == 64


def test_several_disks_below_are_refused(layered: Machine) -> None:
    """A mirror of two disks is two resources: the error names them, and each can be observed."""
    said = begin(layered, "--disk /dev/md2")
    assert "md2 stands on several disks" in said
    assert "loop2" in said
    assert "nvme0n1" in said
    text = observed(layered, "--disk /dev/loop2", "dd if=/dev/zero of=/dev/md2 bs=4k count=64 oflag=direct 2>&1")
    assert "loop2 in_service 0 started 64 bytes 262144 unpaired 0 healed 0" in text


def test_a_disk_is_pulled_out(host: Machine) -> None:
    """While it is busy: its observer ends and says why, and nothing is left in service, though the last ends come later."""
    assert begin(host, "--disk /dev/nvme2n1") == "ready\n"
    try:
        host.guest.run("show /a/disk end >/a/last 2>&1 & for i in 1 2 3 4; do "
                       "dd if=/dev/nvme2n1 of=/dev/null bs=4k iflag=direct 2>/dev/null & done; sleep 2", 60)
        assert page(host.guest.run("show /a/disk", 30).text)["in_service"] > 0
        host.qmp.execute("device_del", id="pulled")
        host.guest.run("for i in $(seq 300); do grep -q gone /a/out && break; sleep 0.2; done", 120)
        assert "nvme2n1 is gone" in host.guest.run("cat /a/out", 30).text
        assert page(host.guest.run("sleep 1; cat /a/last", 30).text)["in_service"] == 0
    finally:
        host.guest.run("kill $(cat /a/pid) $(pidof dd) 2>/dev/null; sleep 0.5", 60)


@pytest.fixture(scope="module")
def bridged(host: Machine) -> Machine:
    """The host with a bridge of an uplink and two VMs' taps."""
    host.guest.run(BRIDGE, 60)
    return host


@OPTIONS
@pytest.mark.parametrize("netfilter", [0, 1], ids=["bridge", "br_netfilter"])
def test_an_uplink_is_observed(bridged: Machine, options: str, netfilter: int) -> None:
    """The host's packets and those of a VM that is not named are foreground, also where br_netfilter looks at them."""
    bridged.guest.run(f"echo {netfilter} >/proc/sys/net/bridge/bridge-nf-call-iptables", 30)
    ping = "ping -q -c 10 -i 0.1 -W 1 -I {device} 10.9.{n}.9; true"
    for n, device, counted in ((1, "br0", 10), (2, "vmb", 0), (3, "vmf", 10)):
        text = observed(bridged, f"--uplink up0 --background-interface tapb {options}", ping.format(device=device, n=n))
        assert f"up0 in_service 0 started {counted} " in text, device
