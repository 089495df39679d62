#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Init of a guest of the test cluster: puts the load that its kernel command line names on its disk or uplink, for ever.
#
#   idletime.load=intensity=30,seconds=2         options of idleload, as name=value
#   idletime.send=host=10.98.0.1,seconds=2       of netload send; beside the load, if there is one
#   idletime.network=10.98                       the first half of its address, whose other half is the end of its MAC
#   idletime.verify=span-bytes=4194304,seconds=2 of idleverify, in its place: it reads back what it wrote
#
# Each run's report is one line on the console, a JSON object; wrong data are a line of words. Without an option the guest is idle.

export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/lib/modules/$module.ko" || echo "init: module $module does not load"
done </etc/modules

options() {
    tr ' ' '\n' </proc/cmdline | sed -n "s/^idletime\.$1=//p" | tr ',' '\n' | sed 's/^/--/'
}

# The disk arrives some time after its driver; nothing announces it.
for _ in $(seq 500); do
    [ -b /dev/vda ] && break
    usleep 10000
done
echo '{"guest": "ready"}'
load=$(options load) verify=$(options verify) send=$(options send)
half=$(options network)
if [ -n "$half" ]; then
    mac=$(tr ':' ' ' </sys/class/net/eth0/address)
    # shellcheck disable=SC2086  # six words
    set -- $mac
    ip address add "${half#--}.$((0x$5)).$((0x$6))/16" dev eth0
    ip link set eth0 up
fi
while [ -n "$send" ]; do
    # shellcheck disable=SC2086  # options are words
    netload send $send || sleep 1
done &
while [ -n "$verify" ]; do
    # shellcheck disable=SC2086  # options are words
    idleverify device --device /dev/vda $verify || sleep 1
done
while [ -n "$load" ]; do
    # shellcheck disable=SC2086  # options are words
    idleload --device /dev/vda --pattern random --operation read --block-bytes 4096 $load || sleep 1
done
exec sleep 1000000
