#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Becomes process 1 of the controller or of a hypervisor: a layer above the shared tree, and nothing that runs yet.
#
#   space-init.sh FOLDER LOWER NAME REPOSITORY STAGE GUEST [LOOP...]
#
# FOLDER has upper and work. LOWER: folders for overlayfs, colons between. LOOP: numbers of the loop devices that it has; the first
# is the disk of its servers. Its cgroup namespace is one of its own already.
set -eu
folder=$1 lower=$2 name=$3 repository=$4 stage=$5 guest=$6
shift 6
root=$folder/root
mkdir -p "$root"

mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$root/sys"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/run"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/dev"
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/net" "$root/run/lock" "$root/run/pids" "$root/srv/idletime" "$root/srv/stage" \
    "$root/srv/guest" "$root/srv/instances"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
device() { mknod -m 666 "$root/dev/$1" "$2" "$3" "$4"; }
device null c 1 3; device zero c 1 5; device full c 1 7; device random c 1 8; device urandom c 1 9; device tty c 5 0
device net/tun c 10 200
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount --bind "$repository" "$root/srv/idletime"
mount -o remount,bind,ro "$root/srv/idletime"
mount --bind "$stage" "$root/srv/stage"
mount --bind "$guest" "$root/srv/guest"
for loop; do
    device "loop$loop" b 7 "$loop"
done
[ $# = 0 ] || mount "$root/dev/loop$1" "$root/srv/instances"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$root/sys/fs/cgroup"
mkdir "$root/sys/fs/cgroup/blkio"
mount -t cgroup -o blkio cgroup "$root/sys/fs/cgroup/blkio"
hostname "$name"

mkdir -p "$root/run/old"
cd "$root"
pivot_root . run/old
umount -l /run/old
ip link set lo up
touch "/var/lib/space-ready"
exec tini -s -- sleep infinity
