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
    int fd = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY);

    if (fd >= 0) {
        g_assert_cmpint(write(fd, "1", 1), ==, 1);
        close(fd);
    }
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
