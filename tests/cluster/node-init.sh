#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Becomes process 1 of a node: builds its root file system, enters it, and starts what its runlevel names.
#
#   node-init.sh FOLDER BASE PACKAGES NAME STORAGE_ADDRESS SERVICE_TIME
#
# FOLDER holds the node's own layer (upper, work) and the mount point (root). It stays when the node is
# killed, as a disk does when the power fails; all else here is gone with the node's namespaces.
set -eu
folder=$1 base=$2 packages=$3 name=$4 storage=$5 service_time=$6
root=$folder/root

mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$base,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$root/sys"
mount -t tmpfs -o nosuid,mode=755,size=64m tmpfs "$root/run"
mount -t tmpfs -o nosuid,mode=755,size=64m tmpfs "$root/dev"
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/net" "$root/srv/packages"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777,size=2g tmpfs "$root/dev/shm"
# No /dev/kvm: guests run under TCG, which the inventory must allow.
device() { mknod -m 666 "$root/dev/$1" c "$2" "$3"; }
device null 1 3; device zero 1 5; device full 1 7; device random 1 8; device urandom 1 9; device tty 5 0
device net/tun 10 200
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount --bind "$packages" "$root/srv/packages"
mount -o remount,bind,ro "$root/srv/packages"
hostname "$name"

mkdir -p "$root/run/cluster-old"
cd "$root"
pivot_root . run/cluster-old
umount -l /run/cluster-old
rmdir /run/cluster-old
mkdir -p /run/sshd /run/lock

# The node's disk controller: all of its guests' disks go through it, one request at a time; behind it is
# the shared storage. With the same address on every node, a guest finds its disk wherever it runs.
cat >/run/start <<END
until ip -4 address show dev eth0 2>/dev/null | grep -q inet; do sleep 0.05; done
nbdkit --exit-with-parent --foreground --ipaddr 127.0.0.1 --port 10809 --threads 64 \
    --filter=noparallel --filter=delay nbd hostname=$storage port=10809 dynamic-export=true \
    serialize=all-requests rdelay=$service_time wdelay=$service_time &
# As an installer leaves it: apt knows what its source has.
apt-get --quiet=2 update
for script in /etc/rc2.d/S*; do
    [ -x "\$script" ] && "\$script" start
done
touch /var/lib/cluster-ready
exec sleep infinity
END
exec tini -- sh /run/start
