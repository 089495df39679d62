#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Becomes process 1 of what lies between the nodes: a bridge, and the shared storage behind it.
#
#   fabric-init.sh BRIDGE ADDRESS/BITS DISKS READY
#
# Each file of the folder DISKS is a disk, an export of the same name.
set -eu
bridge=$1 address=$2 disks=$3 ready=$4

mount --make-rprivate /
mount -t proc -o nosuid,nodev,noexec proc /proc
hostname fabric
ip link set lo up
ip link add "$bridge" type bridge
ip address add "$address" dev "$bridge"
ip link set "$bridge" up
touch "$ready"
exec tini -- nbdkit --foreground --ipaddr "${address%/*}" --port 10809 --threads 64 file "dir=$disks" cache=none
