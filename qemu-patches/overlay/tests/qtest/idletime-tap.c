/*
 * Idletime machine tests: taps, and what the host sees of them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-tap.h"
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

static void ioctl_ok(int fd, unsigned long request, void *argument)
{
    g_assert_cmpint(ioctl(fd, request, argument), ==, 0);
}

int tap_open(const char *name, short more)
{
    struct ifreq request = {
        .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | more,
    };
    int fd = open("/dev/net/tun", O_RDWR);

    g_assert_cmpint(fd, >=, 0);
    g_strlcpy(request.ifr_name, name, IFNAMSIZ);
    ioctl_ok(fd, TUNSETIFF, &request);
    return fd;
}

int tap_watch(const char *name)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct ifreq request = { 0 };
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = if_nametoindex(name),
    };

    g_assert_cmpint(fd, >=, 0);
    g_strlcpy(request.ifr_name, name, IFNAMSIZ);
    ioctl_ok(fd, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP;
    ioctl_ok(fd, SIOCSIFFLAGS, &request);
    g_assert_cmpint(bind(fd, (void *)&address, sizeof(address)), ==, 0);
    return fd;
}

size_t tap_seen(int fd, uint8_t *buffer, size_t size)
{
    struct sockaddr_ll from;
    socklen_t length = sizeof(from);
    ssize_t got;

    do {
        got = recvfrom(fd, buffer, size, 0, (void *)&from, &length);
        /* Not what the host itself sends (multicast and the like). */
    } while (got > 0 && from.sll_pkttype == PACKET_OUTGOING);
    return MAX(got, 0);
}

size_t tap_await(TestMachine *m, int watched, uint8_t *buffer, size_t size)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;
    size_t got;

    while (!(got = tap_seen(watched, buffer, size))) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
        nic_settle(m);
    }
    return got;
}

int tap_sndbuf(int fd)
{
    int bytes;

    ioctl_ok(fd, TUNGETSNDBUF, &bytes);
    return bytes;
}

/* ---- an uplink that keeps what it gets */

#define UPLINK "up0"

/* Returns what it prints. */
G_GNUC_PRINTF(1, 2)
static char *run(const char *fmt, ...)
{
    g_autofree char *command = NULL;
    g_autofree char *err = NULL;
    char *out = NULL;
    int status;
    va_list ap;

    va_start(ap, fmt);
    command = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    g_assert_true(g_spawn_command_line_sync(command, &out, &err, &status,
                                            NULL));
    if (status) {
        g_error("%s: %s", command, err);
    }
    return out;
}

static void run_quiet(const char *command)
{
    g_free(run("%s", command));
}

/* The kernel makes a port of a bridge forward some time after it is up. */
static void await_forwarding(const char *name)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;
    bool forwards = false;

    while (!forwards) {
        g_autofree char *out = run("bridge link show dev %s", name);

        forwards = strstr(out, "state forwarding");
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
}

static void write_setting(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY);

    if (fd >= 0) {
        g_assert_cmpint(write(fd, value, 1), ==, 1);
        close(fd);
    }
}

void tap_bridge(const char *name)
{
    /* It would take packets out of the send buffer. */
    write_setting("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
    if (!if_nametoindex("bridge0")) {
        /* Nor should the bridge send anything. */
        run_quiet("ip link add bridge0 type bridge mcast_snooping 0");
        run_quiet("ip link add " UPLINK " type veth peer name up1");
        run_quiet("ip link set " UPLINK " master bridge0");
        run_quiet("ip link set bridge0 up");
        run_quiet("ip link set " UPLINK " up");
        run_quiet("ip link set up1 up");
        await_forwarding(UPLINK);
    }
    g_free(run("ip link set %s master bridge0", name));
    await_forwarding(name);
}

void uplink_hold(unsigned bytes)
{
    /* Fifty bytes a second; the bucket has room for one packet. */
    g_free(run("tc qdisc replace dev " UPLINK " root tbf rate 400bit "
               "burst %u limit 1000000", bytes));
}

void uplink_drain(void)
{
    run_quiet("tc qdisc del dev " UPLINK " root");
}

bool tap_bridge_possible(void)
{
    g_autofree char *ip = g_find_program_in_path("ip");
    g_autofree char *tc = g_find_program_in_path("tc");
    g_autofree char *bridge = g_find_program_in_path("bridge");

    if (!ip || !tc || !bridge) {
        g_print("1..0 # SKIP no ip, tc and bridge: install iproute2\n");
    }
    return ip && tc && bridge;
}

/* ---- devices */

TestNic *tap_nic(TestMachine *m, const char *netdev, const char *options,
                 uint64_t features)
{
    TestNic *nic = machine_nic_on(m, "vm", 20, netdev, options);

    machine_start(m);
    nic->more_features = features;
    nic_init(nic);
    return nic;
}

void tap_done(TestMachine *m, TestNic *nic, int watched)
{
    close(watched);
    nic_free(nic);
    machine_free(m);
}

/* The host's own solicitations would be foreground of the device. */
static void quiet_host(void)
{
    write_setting("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

bool tap_possible(void)
{
    if ((unshare(CLONE_NEWNET) != 0 &&
         unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ||
        access("/dev/net/tun", R_OK | W_OK) != 0) {
        g_print("1..0 # SKIP no network namespace of its own, or no "
                "/dev/net/tun: needs root\n");
        return false;
    }
    quiet_host();
    return true;
}
