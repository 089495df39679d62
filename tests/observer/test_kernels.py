"""The observer on Debian's kernels, in a guest that plays the host: the programs load there, and count, and no end is lost.

What this machine's kernel lacks is tried there too: device-mapper, md, NVMe, and br_netfilter on an uplink.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.framework import accel, initramfs, inner, paths, series
from tests.framework.qemu import Machine
from tests.observer import run

MODULES = ["loop", "dm_mod", "raid1", "nvme", "sch_ingress", "cls_bpf", "dummy", "veth", "bridge", "br_netfilter"]
NVME = [
    # One of its own: nvme0. And one of a subsystem, as of a shelf with several ports, where nvme1n1 has no queue.
    "-blockdev", "driver=null-co,node-name=single,size=67108864,read-zeroes=on",
    "-device", "nvme,serial=single,drive=single",
    "-blockdev", "driver=null-co,node-name=shared,size=67108864,read-zeroes=on",
    "-device", "nvme-subsys,id=shelf,nqn=shelf", "-device", "nvme,serial=shared,subsys=shelf,id=port",
    "-device", "nvme-ns,bus=port,drive=shared",
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
        machine = stack.enter_context(Machine(guests, "host", [*inner.disk(archive), *NVME], memory_mib=1024, cpus=2, boot_seconds=400))
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
        host.guest.run("kill $(cat /a/pid); sleep 0.5", 60)


def read(device: str) -> str:
    """A load: 64 reads of 4 KiB past the page cache, which are 64 requests."""
    return f"dd if={device} of=/dev/null bs=4k count=64 iflag=direct 2>&1"


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


APPARMOR = paths.ROOT / "libvirt" / "confinement" / "apparmor"
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
    features = Path("/etc/apparmor.d/abi/3.0")
    if not shutil.which("apparmor_parser") or not features.exists():
        pytest.skip("apparmor is not installed")
    local = tmp_path_factory.mktemp("apparmor") / "local"
    local.mkdir()
    (local / "idletime-observer").write_text("/host/bin/idletime-observer mr,\n")
    argv = ["apparmor_parser", "--skip-kernel-load", "--skip-cache", "--stdout", "--features-file", str(features), "--Include",
            str(local.parent), "--Include", str(APPARMOR), "--Include", "/etc/apparmor.d", str(APPARMOR / "profiles/idletime-observer")]
    text = base64.encodebytes(subprocess.run(argv, check=True, capture_output=True).stdout).decode()
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
