# SPDX-License-Identifier: GPL-2.0-or-later
"""Resolution on fixture trees: what each source comes to, in one golden file a host."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import trees
from conftest import DATA
from idletime.facts import Source
from idletime.resolve import resolve
from idletime.resolve.ceph import hosts_of
from idletime.resolve.files import Mount
from idletime.resolve.names import resource_name
from idletime.resolve.qcow2 import chain
from idletime.resolve.tree import Tree
from lookups import LibvirtFiles
from overlays import image

ROOM = Path(__file__).parents[1]

DISKS = [
    ("file", "/var/lib/libvirt/images/web.qcow2"),
    ("file", "/srv/images/web.qcow2"),
    ("file", "/srv/link.img"),
    ("file", "/srv/mirror/a.img"),
    ("file", "/srv/secret/a.img"),
    ("file", "/srv/btrfs/a.img"),
    ("file", "/srv/nfs/a.img"),
    ("file", "/srv/smb/a.img"),
    ("file", "/srv/with space/a.img"),
    ("file", "/srv/ceph/a.img"),
    ("file", "/srv/tank/a.img"),
    ("file", "/srv/cached/a.img"),
    ("file", "/srv/merged/a.img"),
    ("file", "/srv/container/a.img"),
    ("file", "/dev/shm/a.img"),
    ("file", ""),
    ("dir", "/srv/mirror/floppy"),
    ("block", "/dev/sda3"),
    ("block", "/dev/disk/by-id/ata-GOOD_DISK_1-part3"),
    ("block", "/dev/md0"),
    ("block", "/dev/md/fast"),
    ("block", "/dev/vg0/web"),
    ("block", "/dev/mapper/vg0-web"),
    ("block", "/dev/vg0/db"),
    ("block", "/dev/mapper/secret"),
    ("block", "/dev/mapper/mpatha"),
    ("block", "/dev/loop0"),
    ("block", "/dev/vdz"),
    ("block", "/dev/sdx"),
    ("volume", "default/web.qcow2"),
    ("volume", "mirror/a.img"),
    ("volume", "nopool/a"),
    ("nvme", "0000:05:00.0"),
]
NETWORK = [
    "nbd:10.0.0.5:10809",
    "nbd:unix:/run/nbd.sock",
    "rbd:mon1:6789",
    "iscsi:10.0.0.7:3260",
    "rbd",
    "https:mirror.example.org",
    "gluster:gl1",
    "nbd:[fd00::5]:10809",
]
INTERFACES = [
    ("bridge", "br0"),
    ("bridge", "br100"),
    ("bridge", "brbond"),
    ("bridge", "brtwo"),
    ("bridge", "virbr0"),
    ("bridge", "nobridge"),
    ("network", "default"),
    ("network", "lan"),
    ("network", "direct"),
    ("network", "none"),
    ("direct", "eth0"),
    ("direct", "bond0"),
    ("direct", "macvtap0"),
    ("direct", "eth0.100"),
    ("ethernet", "tap7"),
    ("ethernet", "tap8"),
    ("ethernet", ""),
    ("user", ""),
    ("openvswitch", "br-ovs"),
    ("internal", "x"),
]


def sources() -> list[Source]:
    return (
        [Source("disk", type_, name) for type_, name in DISKS]
        + [Source("disk", "network", "pool/image", endpoint) for endpoint in NETWORK]
        + [Source("interface", type_, name) for type_, name in INTERFACES]
    )


def describe(source: Source, root: str, lookup: object) -> str:
    found = resolve(source, root, lookup)  # type: ignore[arg-type]
    head = f"{source.device} {source.type} {source.endpoint or source.name!r}"
    apart = f"    apart:  {found.apart}\n" if found.apart else ""
    if found.none:
        return f"{head}\n    NONE    {found.none}\n"
    if found.name is None:
        return f"{head}\n    PROBLEM {found.problem}\n    remedy  {found.remedy}\n{apart}"
    return f"{head}\n    {found.name} = {' '.join(found.devices)}\n    {' > '.join(found.trail)}\n" + "".join(
        f"    note: {note}\n" for note in found.notes
    ) + apart


@pytest.mark.parametrize("name", ["rack", "bare"])
def test_golden(name, host, lookup, golden):
    golden(DATA / "resolve" / f"{name}.txt", "".join(describe(one, host(name), lookup) for one in sources()))


CLOUD = [
    ("block", "/dev/zvol/tank/vm/a"),
    ("block", "/dev/zd16"),
    ("file", "/tank/a.img"),
    ("file", "/root.img"),
    ("block", "/dev/zd32"),
    ("block", "/dev/rbd/vms/a"),
    ("block", "/dev/rbd1"),
    ("file", "/srv/ceph/a.img"),
    ("file", "/srv/ceph2/a.img"),
    ("file", "/srv/lustre/a.img"),
    ("file", "/srv/merger/a.img"),
    ("block", "/dev/nbd0"),
    ("block", "/dev/ublkb0"),
    ("block", "/dev/zram0"),
    ("block", "/dev/mapper/mpatha"),
    ("block", "/dev/sdh"),
    ("block", "/dev/nvme0n2"),
    ("block", "/dev/nvme1n1"),
    ("file", "/srv/bcachefs/a.img"),
    ("block", "/dev/sdj"),
    ("block", "/dev/sdk"),
    ("volume", "images/a.img"),
    ("volume", "zfs/b"),
    ("volume", "ceph/a"),
    ("volume", "luns/unit:0:0:1"),
    ("volume", "nosuch/a"),
]
CLOUD_NETWORK = ["rbd:mon1:6789", "rbd:10.1.0.2:6789", "rbd:[fd00::9]:6789", "rbd", "rbd:elsewhere:6789"]
NETWORKS = "default stopped isolated by-eth2 ovs macvtaps vepa sriov broken nosuch".split()
CLOUD_INTERFACES = [
    *(("network", name) for name in NETWORKS),
    ("openvswitch", "br-int"),
    ("bridge", "br-ex"),
    ("bridge", "qbr1"),
    ("ethernet", "tap1"),
    ("ethernet", "tap2"),
    ("bridge", "brvx"),
    ("direct", "eth2"),
    ("user", ""),
]


def described(host: str, sources: list[Source]) -> str:
    """With what libvirt says of its networks and pools."""
    return "".join(describe(one, host, LibvirtFiles(Tree(host))) for one in sources)


def test_cloud(host, golden):
    found = [Source("disk", type_, name) for type_, name in CLOUD]
    found += [Source("disk", "network", "vms/image", endpoint) for endpoint in CLOUD_NETWORK]
    found += [Source("interface", type_, name) for type_, name in CLOUD_INTERFACES]
    golden(DATA / "resolve" / "cloud.txt", described(host("cloud"), found))


@pytest.mark.parametrize("name", ["vpn", "two-ways"])
def test_routes_that_name_no_uplink(name, host, golden):
    """It is said, not guessed, and nothing fails."""
    found = [Source("interface", type_, one) for type_, one in
             [("network", "default"), ("bridge", "virbr0"), ("user", ""), ("openvswitch", "br-int")]]  # fmt: skip
    golden(DATA / "resolve" / f"{name}.txt", described(host(name), found))


def test_one_cluster_and_one_pool_have_one_name(host):
    """However a disk of it is reached: silently separate resources for one disk are a defect."""

    def names(*sources: Source) -> set[str | None]:
        return {resolve(one, host("cloud")).name for one in sources}

    ceph = [Source("disk", "block", "/dev/rbd0"), Source("disk", "file", "/srv/ceph/a"), Source("disk", "file", "/srv/ceph2/a")]
    assert names(*ceph, *(Source("disk", "network", "p/i", one) for one in CLOUD_NETWORK[:4])) == {
        "ceph-11111111-2222-3333-4444-555555555555"
    }
    devices, files = ("/dev/zd0", "/dev/zvol/tank/b", "/dev/sdb"), ("/tank/a", "/on-sda2")
    zfs = [("block", path) for path in devices] + [("file", path) for path in files]
    assert names(*(Source("disk", type_, path) for type_, path in zfs)) == {"group-sda"}


def test_live_xml_knows_the_bridge_of_a_network(host):
    """The bridge that libvirt has filled in is enough where nobody knows the network."""
    source = Source("interface", "network", "gone", bridge="virbr0")
    assert resolve(source, host("cloud")).name == "eth0"


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("", set()),
        ("mon1:6789", {"mon1"}),
        ("10.1.0.1,10.1.0.2:6789", {"10.1.0.1", "10.1.0.2"}),
        ("[v2:10.1.0.1:3300/0,v1:10.1.0.1:6789/0],[v2:[fd00::9]:3300/0]", {"10.1.0.1", "fd00::9"}),
        ("[fd00::9]:6789 mon-b", {"fd00::9", "mon-b"}),
    ],
)
def test_monitors(text, hosts):
    assert hosts_of(text) == hosts


# ---- this machine's kernel, in a network namespace of its own


def in_namespace(setup: str) -> str:
    """What this host's routes come to after these commands."""
    code = (
        "from idletime.resolve import routes; from idletime.resolve.tree import Tree; print(*routes.internet(Tree('/')))"
    )
    script = f"set -e; {setup}\nexec {sys.executable} -c \"{code}\""
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], cwd=ROOM, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LINKS = (
    "ip link add u0 type veth peer name p0; ip link add u1 type veth peer name p1; "
    "for i in 0 1; do ip link set p$i up; ip link set u$i up; ip addr add 10.9.$i.2/24 dev u$i; done;"
)


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize(
    "setup, devices",
    [
        ("", ""),
        (LINKS, ""),
        (LINKS + "ip route add default via 10.9.1.1", "u1"),
        (LINKS + "ip route add default via 10.9.0.1 metric 200; ip route add default via 10.9.1.1 metric 100", "u1"),
        (LINKS + "ip route add default nexthop via 10.9.0.1 nexthop via 10.9.1.1", "u0 u1"),
        (LINKS + "ip route add default via 10.9.0.1; ip route add 128.0.0.0/1 via 10.9.1.1", "u1"),
        (LINKS + "ip route add default via 10.9.0.1; ip route add default via 10.9.1.1 table 7; ip rule add table 7", "u1"),
        (LINKS + "ip route add unreachable default", ""),
        (LINKS + "ip -6 addr add fd00:9::2/64 dev u0 nodad; ip -6 route add default via fd00:9::1", "u0"),
    ],
    ids=["bare", "no-default", "one", "metrics", "several-hops", "half-route-of-a-vpn", "rule", "unreachable", "ipv6"],
)
def test_the_kernels_routes(setup, devices):
    assert in_namespace(setup) == devices


def test_what_shares_a_disk_shares_a_resource(host):
    """The striped volume makes one resource of its disks, so a volume on one of them is on it, too."""
    web, db = (resolve(Source("disk", "block", f"/dev/vg0/{name}"), host("rack")) for name in ("web", "db"))
    assert web.name == db.name
    assert set(web.devices) == {"sdd", "nvme0n1"}


def test_same_name_whatever_the_path(host):
    names = {
        resolve(Source("disk", type_, path), host("rack")).name
        for type_, path in [("file", "/srv/link.img"), ("block", "/dev/md/fast"), ("block", "/dev/loop0")]
    }
    assert names == {"group-sdb"}


def test_qcow2_chain(tmp_path):
    """top -> middle (relative) -> base (absolute); a loop of images ends."""
    for name, below in (("top", "middle"), ("middle", "/base"), ("base", ""), ("loop", "loop")):
        (tmp_path / name).write_bytes(image(below))
    tree = Tree(str(tmp_path))
    assert chain(tree, "/top") == ["/middle", "/base"]
    assert chain(tree, "/loop") == ["/loop"]
    assert chain(tree, "/absent") == []


@pytest.mark.parametrize(
    "damage",
    [b"", b"QFI", b"QFI\xfb" + b"\xff" * 16, b"\0" * 600, struct.pack(">4sIQI", b"QFI\xfb", 3, 1 << 61, 1023)],
)
def test_damaged_qcow2_names_nothing(tmp_path, damage):
    (tmp_path / "bad").write_bytes(damage)
    assert chain(Tree(str(tmp_path)), "/bad") == []


def test_backing_file_elsewhere_is_said(host):
    """The device joins the resource that it writes to; reads of the base are not seen on the other disk. What is in
    memory shares nothing."""
    source = Source(
        "disk",
        "file",
        "/srv/secret/top.qcow2",
        format="qcow2",
        backing=(
            Source("disk", "file", "/srv/mirror/base.img"),
            Source("disk", "file", "/srv/secret/x"),
            Source("disk", "file", "/dev/shm/y"),
        ),
    )
    found = resolve(source, host("rack"))
    assert found.name == "sde"
    assert [note.split(":")[0] for note in found.notes] == [
        "backing file '/srv/mirror/base.img' is on resource 'group-sdb'",
    ]


def test_a_loop_device_of_another_namespace(tmp_path):
    """Its file is not visible from here (libvirtd in a container): the device is its own resource."""
    tree = trees.expand(ROOM / "tests/data/hosts/rack.tree", tmp_path)
    (tree / "sys/devices/virtual/block/loop0/loop/backing_file").write_text("/elsewhere/disk.img\n")
    assert resolve(Source("disk", "block", "/dev/loop0"), str(tree)).name == "loop0"


def test_link_out_of_the_tree_stays_inside(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to("../../../../etc")
    assert Tree(str(tmp_path)).real("/in/out/passwd") == "/etc/passwd"
    assert not Tree(str(tmp_path)).exists("/in/out/passwd")


def test_endless_links_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert Tree(str(tmp_path)).text("/a") is None


@pytest.mark.parametrize(
    "parts, name",
    [
        (("nbd", "10.0.0.5", "10809"), "nbd-10.0.0.5-10809"),
        (("nbd", "unix", "/run/a b.sock"), "nbd-unix-_run_a_b.sock"),
        (("..",), "unnamed"),
        (("",), "unnamed"),
        (("a,b=c'd",), "a_b_c_d"),
    ],
)
def test_names(parts, name):
    assert resource_name(*parts) == name


def test_long_names_differ_in_their_hash():
    one, other = resource_name("x" * 100, "1"), resource_name("x" * 100, "2")
    assert len(one) == len(other) == 63
    assert one != other


@pytest.mark.parametrize(
    "type_, source, server",
    [
        ("nfs4", "filer:/x", "filer"),
        ("nfs", "[fd00::9]:/x", "fd00::9"),
        ("cifs", "//srv/share", "srv"),
        ("ceph", "user@10.1.0.1:6789:/", "10.1.0.1"),
        ("ext4", "/dev/sda", None),
    ],
)
def test_servers(type_, source, server):
    assert Mount("0:1", "/", type_, source, "").server == server
