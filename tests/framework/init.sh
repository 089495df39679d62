#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Init of a test guest: load modules, find the control port, run what the host sends.
#
# The host sends lines "ID BASE64(command)"; each command runs on its own, several at a time.
# When one ends, the guest sends the line "ID STATUS BASE64(stdout and stderr)". The first
# line after boot is "hello". Replies pass one pump, so that two of them never mix.

export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "/lib/modules/$module.ko" || echo "init: module $module does not load"
done </etc/modules

# The port's name arrives from the host some time after its driver; nothing announces it.
find_control() {
    for _ in $(seq 500); do
        for name in /sys/class/virtio-ports/*/name; do
            if [ -f "$name" ] && [ "$(cat "$name")" = org.idletime.test.0 ]; then
                control="${name%/name}"
                control="/dev/${control##*/}"
                return
            fi
        done
        usleep 10000
    done
    echo "init: this machine has no port org.idletime.test.0"
    poweroff -f
}

pump() {
    exec 4<>/run/done
    while read -r reply <&4; do
        cat "$reply" >&3
        rm -f "$reply"
    done
}

run() {
    echo "$2" | base64 -d >"/run/command.$1"
    sh "/run/command.$1" >"/run/output.$1" 2>&1 </dev/null 3>&-
    status=$?
    { printf '%s %s ' "$1" "$status"; base64 -w 0 "/run/output.$1"; echo; } >"/run/reply.$1"
    rm -f "/run/command.$1" "/run/output.$1"
    echo "/run/reply.$1" >/run/done
}

mkfifo /run/done
find_control
exec 3<>"$control"
pump &
echo hello >&3
# EOF only means that nobody is at the host's end now: the machine may have been moved, or saved and restored.
while :; do
    while read -r id command <&3; do
        run "$id" "$command" &
    done
    usleep 50000
done
