"""The pool: two nodes with HTCondor, libvirtd, patched QEMU and idletimed; the first one is its central manager, and takes jobs.

Each node has a disk of its own that serves one request at a time in 5 ms, a loop device. What the node itself does there is foreground:
the observer sees it. The disks of the jobs are on a file system that both nodes have, as HTCondor wants it for checkpoints.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster import apt
from tests.cluster import guest as guests
from tests.cluster.place import ClusterError
from tests.cluster.space import plug
from tests.framework import paths
from tests.lab.host import SOURCE, Host, until
from tests.lab.hosts import Hosts, formatted, loop_disk
from tests.lab.tree import IDLETIMED, get_tree

SUITE = "trixie"
"""Debian 12 has no HTCondor."""
PACKAGES = ["htcondor", "condor-vm-gahp", "libvirt-daemon-system", "libvirt-clients", "qemu-system-x86", "qemu-utils", "python3-libvirt", *IDLETIMED]
CACHE = paths.BUILD / "condor"
RUN = CACHE / "run"
BRIDGE, ADDRESSES, BITS = "fab0", ("10.97.0.1", "10.97.0.2"), 24
DISK_BYTES = 16 << 20
FILES = "/srv/instances"
"""Where a node's disk is."""
SHARED = "/srv/shared"
RESOURCES = f"""
[{{disk}}]
auto = true
match.path = "{FILES}/*"
[shared]
auto = true
match.path = "{SHARED}/*"
"""
VIRSH = ("virsh", "-c", "qemu:///system")

CONFIGURATION = f"""
CONDOR_HOST = {ADDRESSES[0]}
NETWORK_INTERFACE = {{address}}
DAEMON_LIST = {{daemons}}
SEC_DEFAULT_AUTHENTICATION_METHODS = FS, PASSWORD
SEC_CLIENT_AUTHENTICATION_METHODS = FS, PASSWORD
ALLOW_READ = 10.97.0.*
ALLOW_WRITE = 10.97.0.*
ALLOW_DAEMON = 10.97.0.*
ALLOW_NEGOTIATOR = 10.97.0.*
ALLOW_ADMINISTRATOR = 10.97.0.*
ALLOW_ADVERTISE_STARTD = 10.97.0.*
ALLOW_ADVERTISE_SCHEDD = 10.97.0.*
ALLOW_ADVERTISE_MASTER = 10.97.0.*
NEGOTIATOR_INTERVAL = 5
NEGOTIATOR_CYCLE_DELAY = 2
UPDATE_INTERVAL = 5
POLLING_INTERVAL = 2
SCHEDD_INTERVAL = 5
NUM_SLOTS = 1
NUM_SLOTS_TYPE_1 = 1
VM_TYPE = kvm
VM_MEMORY = 1024
VM_MAX_NUMBER = 2
VM_NETWORKING = False
VM_GAHP_SERVER = /usr/sbin/condor_vm-gahp
VM_GAHP_SEND_ALL_CLASSAD = True
EXECUTE = {FILES}/execute
include : {SOURCE}/examples/htcondor/50-idletime.conf
# Of this lab: the files where they are, quicker, and guests without KVM that boot by themselves.
IDLETIME_DIR = {SOURCE}/examples/htcondor
STARTD_CRON_IDLETIME_PERIOD = 2s
# A removed job takes a checkpoint, too, which nobody takes from it.
MachineMaxVacateTime = 20
LIBVIRT_XML_SCRIPT = /usr/local/bin/lab-xml
"""
XML = f"""#!/bin/sh
{SOURCE}/examples/htcondor/idletime-xml | sed -e "s/type='kvm'/type='qemu'/" -e "s|hvm</type>|&<kernel>/srv/guest/vmlinuz</kernel>\\
<initrd>/srv/guest/initrd</initrd><cmdline>console=ttyS0 quiet panic=1 no_timer_check mitigations=off \\
idletime.verify=span-bytes=4194304,seconds=3</cmdline>|" -e "s|</devices>|<serial type='file'><source path='{FILES}/console.log' \\
append='on'/></serial>&|"
"""
JOB = """universe = vm
vm_type = kvm
vm_memory = 192
vm_disk = /srv/shared/disk.raw:vda:w:raw
should_transfer_files = YES
when_to_transfer_output = ON_EXIT_OR_EVICT
vm_checkpoint = true
executable = batch
log = /home/user/job.log
queue
"""
LIBVIRTD = 'auth_unix_rw = "none"\nunix_sock_rw_perms = "0777"\nlog_outputs = "3:stderr"\n'


class Pool(Hosts):
    """A context manager. nodes: both; the first takes jobs."""

    cache = CACHE
    logs = ("upper/var/log/condor/*", "upper/home/user/*.log")

    def _make(self, stack: ExitStack) -> None:
        source = apt.Source(apt.main_source().uri, SUITE)
        tree, guest = get_tree(CACHE, source, PACKAGES, f"HTCondor's file system ({SUITE}; two minutes)"), guests.get_images()
        self._shared = Path(formatted(loop_disk(stack, "shared"))).name.removeprefix("loop")
        self.nodes = [self._node(stack, tree, guest, number) for number in range(len(ADDRESSES))]
        first, second = self.nodes
        first.sh(f"ip link add {BRIDGE} type bridge; ip address add {ADDRESSES[0]}/{BITS} dev {BRIDGE}; ip link set {BRIDGE} up")
        plug(first.space, BRIDGE, second.space, "eth0", "node2")
        second.sh(f"ip address add {ADDRESSES[1]}/{BITS} dev eth0")
        for one in self.nodes:
            one.serve("condor", "condor_master", "-f")
        until(lambda: len(self.machines()) == len(self.nodes), "both nodes are in the pool", 60, self.said)

    def _node(self, stack: ExitStack, tree: Path, guest: Path, number: int) -> Host:
        name = Path(formatted(loop_disk(stack, f"node{number + 1}"))).name
        one = Host(f"node{number + 1}", RUN / f"node{number + 1}", [tree], [name.removeprefix("loop"), self._shared])
        daemons = "MASTER, COLLECTOR, NEGOTIATOR, SCHEDD, STARTD" if number == 0 else "MASTER, STARTD"
        for path, text in {
            "etc/hosts": "127.0.0.1 localhost\n" + "".join(f"{each} node{at + 1}\n" for at, each in enumerate(ADDRESSES)),
            "etc/condor/condor_config.local": CONFIGURATION.format(address=ADDRESSES[number], daemons=daemons),
            "etc/libvirt/libvirtd.conf": LIBVIRTD, "srv/job.sub": JOB,
            "etc/idletime/resources.d/lab.toml": RESOURCES.format(disk=name),
        }.items():
            one.write(path, text)
        one.write("usr/local/bin/lab-xml", XML, 0o755)
        one.write("etc/condor/passwords.d/POOL", "of a network that nobody sees", 0o600)
        one.is_hypervisor()
        one.start(guest)
        stack.callback(one.end)
        one.sh(f"mknod -m 666 /dev/kvm c 10 232; mkdir -p {FILES}/execute /run/condor /var/lock/condor /run/libvirt {SHARED}; mount /dev/loop{self._shared} {SHARED}; "
               f"chown condor:condor {FILES}/execute /run/condor /var/lock/condor; chmod 755 {FILES} {FILES}/execute; useradd -m user")
        one.serve("virtlogd", "virtlogd")
        one.serve("libvirtd", "libvirtd")
        one.answers("libvirtd", *VIRSH, "version")
        one.idletimed()
        return one

    # ---- what tests do

    def machines(self) -> list[dict[str, Any]]:
        """ClassAds of the nodes."""
        return self._ads("condor_status", "-json")

    def jobs(self) -> list[dict[str, Any]]:
        """ClassAds of all jobs."""
        return self._ads("condor_q", "-allusers", "-json")

    def _ads(self, *argv: str) -> list[dict[str, Any]]:
        try:
            text = self.nodes[0].call(*argv)
        except ClusterError:  # who answers is not there yet
            return []
        return list(json.loads(text)) if text.strip() else []

    def submit(self) -> None:
        """A job whose VM reads back what it wrote, for ever."""
        self.nodes[0].sh(f"truncate -s {DISK_BYTES} {SHARED}/disk.raw; chmod 666 {SHARED}/disk.raw; cd /home/user; cp /srv/job.sub .; "
                         "su user -c 'condor_submit job.sub'")

    def remove(self) -> None:
        """All jobs."""
        self.nodes[0].sh("condor_rm -all || true")
        until(lambda: not self.jobs() and all(one["State"] in ("Unclaimed", "Owner") for one in self.machines()), "all jobs are gone", 120,
              self.said)

    def state(self, one: Host) -> str:
        """Of the one VM of a node, as virsh says; "" where there is none."""
        names = one.call(*VIRSH, "list", "--all", "--name").split()
        return one.call(*VIRSH, "domstate", names[0]).strip() if names else ""

    def class_of(self, one: Host) -> str:
        """Of its VM's disk, as QEMU says."""
        name, = one.call(*VIRSH, "list", "--name").split()
        found = json.loads(one.call(*VIRSH, "qemu-monitor-command", name, '{"execute": "query-idletime"}'))
        classes = [device["class"] for each in found["return"] for device in each["devices"]]
        return str(classes[0]) if classes else ""

    def console(self, one: Host) -> str:
        """What its VMs have said."""
        return one.sh(f"cat {FILES}/console.log 2>/dev/null || true")

    def spare(self, one: Host) -> float:
        """As its machine's ClassAd says; -1: nothing."""
        return next((float(each.get("IdletimeSpare", -1)) for each in self.machines() if each["Machine"].startswith(one.name)), -1.0)

    def patience(self, seconds: int) -> None:
        """How long a job stays suspended where it is."""
        for one in self.nodes:
            one.sh(f"echo 'IDLETIME_PATIENCE = {seconds}' >>/etc/condor/condor_config.local; condor_reconfig")

    def load(self, one: Host) -> None:
        """Foreground on its disk, until relieve()."""
        tool = f"{SOURCE}/{paths.find_tool('idleload', 'loadgen').relative_to(paths.ROOT)}"
        one.sh(f"[ -e {FILES}/load ] || dd if=/dev/zero of={FILES}/load bs=1M count=16 oflag=direct status=none")
        one.serve("load", tool, "--device", f"{FILES}/load", "--pattern", "random", "--operation", "read", "--block-bytes", "4096",
                  "--outstanding", "4", "--seconds", "3600")

    def relieve(self, one: Host) -> None:
        """End that."""
        if "load" in one.services:
            one.stop("load")

    def said(self) -> str:
        """For errors."""
        return "\n".join([str(self.jobs()), *(one.said(name) for one in self.nodes for name in ("condor", "idletimed")),
                          *(one.sh("tail -n 15 /var/log/condor/StartLog /var/log/condor/StarterLog* /var/log/condor/VMGahpLog* 2>/dev/null || true")
                            for one in self.nodes)])
