/*
 * Idletime machine tests: taps, in a network namespace of the test's own.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What the device writes to the tap is seen by a packet socket.  Nothing
 * holds it: the host takes each packet out of the send buffer at once, as
 * br_netfilter does.  Skipped where the test may not make a namespace.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-nic.h"
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#define SEGMENT         1448
#define SEGMENTS        10
#define TSO_PAYLOAD     (SEGMENT * SEGMENTS)
#define TCP_HEADERS     (ETHERNET + IP4 + 32)
#define FRAGMENT        1480
#define DATAGRAM        (3 * FRAGMENT - UDP)
#define GUEST_FEATURES  ((1ull << VIRTIO_NET_F_CSUM) | \
                         (1ull << VIRTIO_NET_F_HOST_TSO4))

static void ioctl_ok(int fd, unsigned long request, void *argument)
{
    g_assert_cmpint(ioctl(fd, request, argument), ==, 0);
}

static int tap_open(const char *name, short more)
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

static int watch_interface(const char *name)
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

/* The size of the next packet that the guest sent, 0: none. */
static size_t seen(int fd, uint8_t *buffer, size_t size)
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

static TestNic *tap_nic(TestMachine *m, const char *netdev,
                        const char *options, uint64_t features)
{
    TestNic *nic = machine_nic_on(m, "vm", 20, netdev, options);

    machine_start(m);
    nic->more_features = features;
    nic_init(nic);
    return nic;
}

static TestNic *one_tap(TestMachine *m, const char *resource, int *watched)
{
    g_autofree char *netdev = NULL;
    int tap = tap_open("tap-idle", 0);
    TestNic *nic;

    nic_resource(m, resource);
    *watched = watch_interface("tap-idle");
    netdev = g_strdup_printf("tap,fd=%d", tap);
    nic = tap_nic(m, netdev, "idletime=" RESOURCE
                  ",idletime-class=background", GUEST_FEATURES);
    /* QEMU has it, and takes it away at its end. */
    close(tap);
    return nic;
}

static void done(TestMachine *m, TestNic *nic, int watched)
{
    close(watched);
    nic_free(nic);
    machine_free(m);
}

/* A frame as a guest with segmentation offload sends it. */
static void send_large(TestNic *nic)
{
    g_autofree uint8_t *frame = g_malloc0(NIC_HEADER + TCP_HEADERS +
                                          TSO_PAYLOAD);
    uint8_t *eth = frame + NIC_HEADER, *ip = eth + ETHERNET, *tcp = ip + IP4;
    TestPacket packet = { .dscp = DSCP_LE, .payload = TSO_PAYLOAD + 24 };

    packet_make(&packet, eth);
    frame[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    frame[1] = VIRTIO_NET_HDR_GSO_TCPV4;
    stw_le_p(frame + 2, TCP_HEADERS);
    stw_le_p(frame + 4, SEGMENT);
    stw_le_p(frame + 6, ETHERNET + IP4);
    stw_le_p(frame + 8, 16);
    ip[9] = IPPROTO_TCP;
    memset(tcp, 0, 32);
    stw_be_p(tcp, 1000);
    stw_be_p(tcp + 2, 9);
    stl_be_p(tcp + 4, 7000);
    tcp[12] = 8 << 4;
    tcp[13] = 0x18;
    for (int i = 0; i < TSO_PAYLOAD; i++) {
        tcp[32 + i] = i / SEGMENT;
    }
    nic_send_whole(nic, frame, NIC_HEADER + TCP_HEADERS + TSO_PAYLOAD);
}

static void test_cut(void)
{
    TestMachine *m = machine_new();
    uint8_t buffer[4096];
    int watched;
    TestNic *nic = one_tap(m, "", &watched);

    send_large(nic);
    for (int i = 0; i < SEGMENTS; i++) {
        const uint8_t *tcp = buffer + ETHERNET + IP4;

        g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==,
                        TCP_HEADERS + SEGMENT);
        g_assert_cmpint(ldl_be_p(tcp + 4), ==, 7000 + i * SEGMENT);
        g_assert_cmpint(tcp[32], ==, i);
        g_assert_cmpint(tcp[32 + SEGMENT - 1], ==, i);
        g_assert_cmpint(tcp[13], ==, i == SEGMENTS - 1 ? 0x18 : 0x10);
    }
    g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==, 0);
    g_assert_cmpint(nic_number(nic, "pieces"), ==, SEGMENTS);
    g_assert_cmpint(nic_number(nic, "background.requests"), ==, SEGMENTS);
    g_assert_cmpint(nic_returned(nic), ==, 1);
    done(m, nic, watched);
}

/* A large datagram of a guest with UFO, which was in Linux until 4.13. */
static void send_datagram(TestNic *nic)
{
    size_t size = ETHERNET + IP4 + UDP + DATAGRAM;
    g_autofree uint8_t *frame = g_malloc0(NIC_HEADER + size);
    TestPacket packet = { .dscp = DSCP_LE, .payload = DATAGRAM };

    packet_make(&packet, frame + NIC_HEADER);
    frame[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    frame[1] = VIRTIO_NET_HDR_GSO_UDP;
    stw_le_p(frame + 2, ETHERNET + IP4 + UDP);
    stw_le_p(frame + 4, FRAGMENT);
    stw_le_p(frame + 6, ETHERNET + IP4);
    stw_le_p(frame + 8, 6);
    nic_send_whole(nic, frame, NIC_HEADER + size);
}

static void test_fragments(void)
{
    TestMachine *m = machine_new();
    uint8_t buffer[4096];
    int watched;
    TestNic *nic = one_tap(m, "", &watched);

    send_datagram(nic);
    for (int i = 0; i < 3; i++) {
        /* The offset in units of 8 bytes; more follow but for the last. */
        g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==,
                        ETHERNET + IP4 + FRAGMENT);
        g_assert_cmphex(lduw_be_p(buffer + ETHERNET + 6), ==,
                        i * FRAGMENT / 8 | (i < 2 ? 0x2000 : 0));
    }
    g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==, 0);
    g_assert_cmpint(nic_number(nic, "pieces"), ==, 3);
    g_assert_cmpint(nic_number(nic, "background.requests"), ==, 3);
    g_assert_cmpint(nic_returned(nic), ==, 1);
    done(m, nic, watched);
}

/* Each piece is asked for: with the clock, each in its time. */
static void test_cut_by_clock(void)
{
    TestMachine *m = machine_new();
    uint8_t buffer[4096];
    g_autofree char *service = NULL;
    int watched, pieces = 0;
    /* A burst of 64 KiB + 8 Mbit/s for 10 ms: then the clock. */
    TestNic *nic = one_tap(m, "rate-bps=8000000", &watched);

    for (int i = 0; i < 8; i++) {
        send_large(nic);
    }
    service = nic_service(nic);
    g_assert_cmpstr(service, ==, "clock");
    while (seen(watched, buffer, sizeof(buffer))) {
        pieces++;
    }
    /* (65536 + 10000) / 1514 = 49.9: the 50th is too much, and the 51st. */
    g_assert_cmpint(pieces, >=, 50);
    g_assert_cmpint(pieces, <=, 51);
    /* 1514 + 24 bytes at 1 byte a microsecond, less a credit of 250. */
    machine_step_us(m, 1538 - 250 - 1);
    nic_settle(m);
    g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==, 0);
    for (int i = 0; i < 4; i++) {
        machine_step_us(m, i ? 1538 : 1);
        nic_settle(m);
        g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==, 1514);
        g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==, 0);
    }
    done(m, nic, watched);
}

/*
 * Two may be in service.  One is, for 1538 - 250 us by the clock: another
 * device's; so each piece waits for the one before it, which has left unseen.
 */
static void test_share_of_two(void)
{
    TestMachine *m = machine_new();
    int tap = tap_open("tap-idle", 0), watched = watch_interface("tap-idle");
    g_autofree char *netdev = g_strdup_printf("tap,fd=%d", tap);
    const char *options = "idletime=" RESOURCE ",idletime-class=background";
    uint8_t buffer[4096];
    TestNic *other, *nic;

    nic_resource(m, "max-inflight=2,rate-bps=8000000");
    other = machine_nic(m, "other", options);
    nic = tap_nic(m, netdev, options, GUEST_FEATURES);
    close(tap);
    nic_init(other);
    nic_send(other, (TestPacket) { .payload = 1514 - ETHERNET - IP4 - UDP });
    g_assert_cmpint(nic_number(other, "in-service"), ==, 1);
    send_large(nic);
    for (int i = 0; i < SEGMENTS; i++) {
        g_assert_cmpint(seen(watched, buffer, sizeof(buffer)), ==,
                        TCP_HEADERS + SEGMENT);
    }
    g_assert_cmpint(nic_number(other, "in-service"), ==, 1);
    nic_free(other);
    done(m, nic, watched);
}

/* At a stop the rest of one that is on its way leaves at once. */
static void test_stop_half_way(void)
{
    TestMachine *m = machine_new();
    g_autofree uint8_t *buffer = g_malloc(128 * KiB);
    int watched, stopped = 0;
    size_t bytes = 0, size;
    TestNic *nic = one_tap(m, "rate-bps=8000000", &watched);

    for (int i = 0; i < 8; i++) {
        send_large(nic);
    }
    machine_stop(m);
    nic_settle(m);
    while ((size = seen(watched, buffer, 128 * KiB))) {
        bytes += size - TCP_HEADERS;
        stopped++;
    }
    /* Whole packets: what the driver got back is what has left. */
    g_assert_cmpint(bytes % TSO_PAYLOAD, ==, 0);
    g_assert_cmpint(bytes / TSO_PAYLOAD, ==, nic_returned(nic));
    g_assert_cmpint(nic_returned(nic), <, 8);
    machine_cont(m);
    for (int i = 0; i < 200; i++) {
        machine_step_us(m, 1538);
        nic_settle(m);
    }
    g_assert_cmpint(nic_returned(nic), ==, 8);
    done(m, nic, watched);
}

/* ---- queue pairs, as ethtool -L changes them */

#define CTRL_VQ         4       /* behind two pairs */

typedef struct TestPairs {
    TestNic *nic;
    QVirtQueue *tx1;
    QVirtQueue *ctrl;
    int watched;
} TestPairs;

static void set_pairs(TestPairs *p, uint16_t pairs)
{
    QTestState *qts = p->nic->m->qts;
    struct virtio_net_ctrl_hdr header = {
        VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
    };
    uint64_t addr = guest_alloc(&p->nic->m->alloc, 8);
    uint32_t head;

    qtest_bufwrite(qts, addr, &header, sizeof(header));
    qtest_writew(qts, addr + 2, pairs);
    qtest_writeb(qts, addr + 4, 0xff);
    head = qvirtqueue_add(qts, p->ctrl, addr, 2, false, true);
    qvirtqueue_add(qts, p->ctrl, addr + 2, 2, false, true);
    qvirtqueue_add(qts, p->ctrl, addr + 4, 1, true, false);
    qvirtqueue_kick(qts, &p->nic->pci->vdev, p->ctrl, head);
    qvirtio_wait_used_elem(qts, &p->nic->pci->vdev, p->ctrl, head, NULL,
                           15 * G_USEC_PER_SEC);
    g_assert_cmpint(qtest_readb(qts, addr + 4), ==, VIRTIO_NET_OK);
    nic_settle(p->nic->m);
}

static void send_on(TestPairs *p, QVirtQueue *tx, uint8_t dscp, uint16_t port)
{
    uint8_t frame[NIC_HEADER + 64] = { 0 };
    TestPacket packet = { .dscp = dscp, .port = port };
    size_t size = NIC_HEADER + packet_make(&packet, frame + NIC_HEADER);
    uint64_t addr = guest_alloc(&p->nic->m->alloc, size);
    uint32_t head;

    qtest_bufwrite(p->nic->m->qts, addr, frame, size);
    head = qvirtqueue_add(p->nic->m->qts, tx, addr, size, false, false);
    qvirtqueue_kick(p->nic->m->qts, &p->nic->pci->vdev, tx, head);
    nic_settle(p->nic->m);
}

/* The source port of the next packet that left, or -1. */
static int left(TestPairs *p)
{
    uint8_t buffer[2048];

    return seen(p->watched, buffer, sizeof(buffer)) ?
           lduw_be_p(buffer + ETHERNET + IP4) : -1;
}

static TestMachine *pairs_start(TestPairs *p, const char *options)
{
    TestMachine *m = machine_new();
    int tap[2] = { tap_open("tap-idle", IFF_MULTI_QUEUE),
                   tap_open("tap-idle", IFF_MULTI_QUEUE) };
    g_autofree char *netdev = g_strdup_printf("tap,fds=%d:%d", tap[0], tap[1]);
    g_autofree char *all = g_strconcat("mq=on,vectors=0,idletime=" RESOURCE,
                                       options, NULL);
    QVirtioPCIDevice *pci;

    p->watched = watch_interface("tap-idle");
    nic_resource(m, "max-hold-ms=0");
    p->nic = tap_nic(m, netdev, all, 1ull << VIRTIO_NET_F_CTRL_VQ);
    close(tap[0]);
    close(tap[1]);
    pci = p->nic->pci;
    p->tx1 = qvirtqueue_setup(&pci->vdev, &m->alloc, 3);
    p->ctrl = qvirtqueue_setup(&pci->vdev, &m->alloc, CTRL_VQ);
    set_pairs(p, 2);
    return m;
}

static void pairs_done(TestMachine *m, TestPairs *p)
{
    qvirtqueue_cleanup(p->nic->pci->vdev.bus, p->tx1, &m->alloc);
    qvirtqueue_cleanup(p->nic->pci->vdev.bus, p->ctrl, &m->alloc);
    done(m, p->nic, p->watched);
}

/* What a queue holds when the guest turns it off waits in its ring. */
static void test_pairs(const void *opaque)
{
    const char *options = opaque;
    TestPairs p;
    TestMachine *m = pairs_start(&p, options);

    send_on(&p, p.nic->tx, 0, 1);
    send_on(&p, p.tx1, DSCP_LE, 2);
    send_on(&p, p.tx1, DSCP_LE, 3);
    g_assert_cmpint(left(&p), ==, 1);
    g_assert_cmpint(left(&p), ==, -1);
    set_pairs(&p, 1);
    g_assert_cmpint(nic_number(p.nic, "held"), ==, 0);
    machine_step_us(m, INTERVAL_US);
    nic_settle(m);
    g_assert_cmpint(left(&p), ==, -1);
    set_pairs(&p, 2);
    g_assert_cmpint(left(&p), ==, 2);
    g_assert_cmpint(left(&p), ==, 3);
    g_assert_cmpint(left(&p), ==, -1);
    pairs_done(m, &p);
}

/* Two queues of a device wait: the one that waits longer goes first. */
static void test_two_queues(void)
{
    TestPairs p;
    TestMachine *m = pairs_start(&p, ",idletime-class=guest");

    send_on(&p, p.nic->tx, 0, 1);
    send_on(&p, p.tx1, DSCP_LE, 2);
    machine_step_us(m, MS);
    send_on(&p, p.nic->tx, DSCP_LE, 3);
    g_assert_cmpint(left(&p), ==, 1);
    g_assert_cmpint(left(&p), ==, -1);
    machine_step_us(m, INTERVAL_US - MS);
    nic_settle(m);
    g_assert_cmpint(left(&p), ==, 2);
    g_assert_cmpint(left(&p), ==, 3);
    pairs_done(m, &p);
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

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if ((unshare(CLONE_NEWNET) != 0 &&
         unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ||
        access("/dev/net/tun", R_OK | W_OK) != 0) {
        g_print("1..0 # SKIP no network namespace of its own, or no "
                "/dev/net/tun: needs root\n");
        return 0;
    }
    quiet_host();
    qtest_add_func("idletime/net-tap/cut", test_cut);
    qtest_add_func("idletime/net-tap/fragments", test_fragments);
    qtest_add_func("idletime/net-tap/clock", test_cut_by_clock);
    qtest_add_func("idletime/net-tap/share-of-two", test_share_of_two);
    qtest_add_func("idletime/net-tap/stop-half-way", test_stop_half_way);
    qtest_add_data_func("idletime/net-tap/pairs-background",
                        ",idletime-background-queues=1", test_pairs);
    qtest_add_data_func("idletime/net-tap/pairs-guest",
                        ",idletime-class=guest", test_pairs);
    qtest_add_func("idletime/net-tap/two-queues", test_two_queues);
    return g_test_run();
}
