# shellcheck shell=bash
# A host that is run by hand: virtlogd and libvirtd in a network of their own, and VMs as virt-install makes them. Sourced.

host_run=/srv/host
guest_options='console=ttyS0 quiet panic=-1 no_timer_check mitigations=off random.trust_cpu=on'

# Until a command succeeds, for a minute: wait_for WHAT COMMAND...
wait_for() {
    local what=$1 i; shift
    for ((i = 0; i < 300; i++)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    tail -n 20 "$host_run"/*.log >&2 || true
    die "waited a minute: $what"
}

inside_host() { nsenter --target "$(cat "$host_run/pid")" --net --mount -- "$@"; }

start_host() {
    mkdir -p "$host_run"
    # A network with a default route, and what /sys says of it; a /dev without KVM, which hangs a QEMU where it only seems to
    # be there. Mounts in /dev would not do: libvirt moves them into the VM's own /dev, file by file.
    # shellcheck disable=SC2016  # expanded inside
    unshare --net --mount sh -euc '
        umount --recursive --lazy /sys
        mount -t sysfs sysfs /sys
        mkdir -p "$1/dev"
        mount -t tmpfs -o mode=755 dev "$1/dev"
        mkdir "$1/dev/net" "$1/dev/pts" "$1/dev/shm"
        for node in null zero full random urandom tty net/tun; do cp -a "/dev/$node" "$1/dev/$node"; done
        ln -s /proc/self/fd "$1/dev/fd"
        mount -t devpts -o ptmxmode=666 devpts "$1/dev/pts"
        ln -s pts/ptmx "$1/dev/ptmx"
        umount --recursive --lazy /dev
        mount --move "$1/dev" /dev
        ip link set lo up
        ip link add uplink0 type veth peer name uplink1
        ip addr add 192.0.2.2/24 dev uplink0
        ip link set uplink0 up
        ip link set uplink1 up
        ip route add default via 192.0.2.1
        echo $$ >"$1/pid.new"
        mv "$1/pid.new" "$1/pid"
        exec sleep infinity' sh "$host_run" &
    wait_for 'a network namespace' test -e "$host_run/pid"
    inside_host virtlogd --daemon
    start_libvirtd
    virsh -q net-info default >"$host_run/net.log" 2>&1 || die "libvirt has no network 'default'"
    grep -q '^Active: *yes' "$host_run/net.log" || virsh -q net-start default >"$host_run/net.log" 2>&1 ||
        { cat "$host_run/net.log" >&2; die "network 'default' does not start"; }
}

start_libvirtd() {
    inside_host libvirtd --daemon
    wait_for 'libvirtd answers' virsh -q list
}

# What systemd does when a package asks for it; VMs run on.
restart_libvirtd() {
    local pid
    pid=$(cat /run/libvirtd.pid)
    kill "$pid"
    wait_for 'libvirtd ends' sh -c "! kill -0 $pid"
    start_libvirtd
}

# As virt-install makes it: network default, VNC, virtio.
start_vm() {
    virt-install --quiet --name "$1" --virt-type qemu --memory 128 --disk "path=/var/lib/libvirt/images/$1.qcow2,size=1,bus=virtio" \
        --network network=default,model=virtio --graphics vnc --osinfo require=off --import --noautoconsole >"$host_run/$1.log" 2>&1 ||
        { cat "$host_run/$1.log" >&2; tail -n 5 /var/log/libvirt/qemu/"$1".log >&2 || true; die "VM $1 does not start"; }
    vm_runs "$1" || die "VM $1 does not run"
    answers_vnc "$1" || die "VM $1 has no VNC"
}

# As virt-install makes it from libvirt's defaults, with a guest that boots: start_guest NAME KERNEL INITRAMFS. The channel is
# the test's way into it.
start_guest() {
    install -d -o libvirt-qemu -m 755 /run/channel
    virt-install --quiet --name "$1" --virt-type qemu --memory 256 --osinfo linux2022 --disk size=1 --network network=default \
        --graphics vnc --import --noautoconsole \
        --boot "kernel=$2,initrd=$3,kernel_args=$guest_options" \
        --serial "file,source.path=/run/channel/$1.console" \
        --channel "unix,source.mode=bind,source.path=/run/channel/$1,target.type=virtio,target.name=org.idletime.test.0" \
        >"$host_run/$1.log" 2>&1 ||
        { cat "$host_run/$1.log" >&2; tail -n 5 /var/log/libvirt/qemu/"$1".log >&2 || true; die "VM $1 does not start"; }
    vm_runs "$1" || die "VM $1 does not run"
}

start_idletimed() {
    # Not by inside_host: what is waited for later is idletimed, not a shell.
    nsenter --target "$(cat "$host_run/pid")" --net --mount -- idletimed >>"$host_run/idletimed.log" 2>&1 &
    echo $! >"$host_run/idletimed.pid"
    wait_for 'idletimed connects' grep -q 'connected to' "$host_run/idletimed.log"
}

stop_idletimed() {
    kill "$(cat "$host_run/idletimed.pid")"
    wait "$(cat "$host_run/idletimed.pid")" || die "idletimed ends with $?"
    ! grep Traceback "$host_run/idletimed.log" || { cat "$host_run/idletimed.log" >&2; die 'idletimed has an error'; }
}

vm_runs() { [ "$(virsh -q domstate "$1")" = running ] && monitor "$1" '{"execute":"query-status"}' | grep '"running"' >/dev/null; }

monitor() { virsh -q qemu-monitor-command "$1" "$2"; }

# A VNC server begins with its version.
answers_vnc() {
    local display port
    display=$(virsh -q vncdisplay "$1")
    port=$((5900 + ${display##*:}))
    # shellcheck disable=SC2016  # expanded inside
    [ "$(inside_host bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" && head -c 3 <&3' bash "$port")" = RFB ]
}

# The namespace's processes are ended by their pids; their VMs by libvirt.
end_host() {
    local name file
    for name in $(virsh -q list --name); do virsh -q destroy "$name" 2>/dev/null || true; done
    virsh -q net-destroy default 2>/dev/null || true
    for file in /run/libvirtd.pid /run/virtlogd.pid "$host_run/idletimed.pid" "$host_run/pid"; do
        [ ! -s "$file" ] || kill "$(cat "$file")" 2>/dev/null || true
    done
}
