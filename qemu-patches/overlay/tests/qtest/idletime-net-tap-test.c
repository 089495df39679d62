/*
 * Idletime machine tests: what a device on a tap makes of large packets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-tap.h"
#include <linux/if_packet.h>

#define SEGMENT         1448
#define SEGMENTS        10
#define TSO_PAYLOAD     (SEGMENT * SEGMENTS)
#define TCP_HEADERS     (ETHERNET + IP4 + 32)
#define GUEST_FEATURES  ((1ull << VIRTIO_NET_F_CSUM) | \
                         (1ull << VIRTIO_NET_F_HOST_TSO4))

static TestNic *tap_with(TestMachine *m, const char *resource,
                         uint64_t features, int *watched)
{
    g_autofree char *netdev = NULL;
    int tap = tap_open("tap-idle", 0);
    TestNic *nic;

    nic_resource(m, resource);
    *watched = tap_watch("tap-idle");
    netdev = g_strdup_printf("tap,fd=%d", tap);
    nic = tap_nic(m, netdev, "idletime=" RESOURCE
                  ",idletime-class=background", features);
    /* QEMU has it, and takes it away at its end. */
    close(tap);
    return nic;
}

static TestNic *one_tap(TestMachine *m, const char *resource, int *watched)
{
    return tap_with(m, resource, GUEST_FEATURES, watched);
}

/* A frame of segments as a guest with segmentation offload makes it. */
static uint8_t *make_large(unsigned segments)
{
    size_t payload = segments * SEGMENT;
    uint8_t *frame = g_malloc0(NIC_HEADER + TCP_HEADERS + payload);
    uint8_t *eth = frame + NIC_HEADER, *ip = eth + ETHERNET, *tcp = ip + IP4;
    TestPacket packet = { .dscp = DSCP_LE, .payload = payload + 24 };

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
    for (int i = 0; i < payload; i++) {
        tcp[32 + i] = i / SEGMENT;
    }
    return frame;
}

static void send_large(TestNic *nic)
{
    g_autofree uint8_t *frame = make_large(SEGMENTS);

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

        g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==,
                        TCP_HEADERS + SEGMENT);
        g_assert_cmpint(ldl_be_p(tcp + 4), ==, 7000 + i * SEGMENT);
        g_assert_cmpint(tcp[32], ==, i);
        g_assert_cmpint(tcp[32 + SEGMENT - 1], ==, i);
        g_assert_cmpint(tcp[13], ==, i == SEGMENTS - 1 ? 0x18 : 0x10);
    }
    g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==, 0);
    g_assert_cmpint(nic_number(nic, "pieces"), ==, SEGMENTS);
    g_assert_cmpint(nic_number(nic, "background.requests"), ==, SEGMENTS);
    g_assert_cmpint(nic_returned(nic), ==, 1);
    tap_done(m, nic, watched);
}

/*
 * What leaves is what was looked at.  Here the guest asks for segments while
 * its packet is held; another processor of it may at any time.
 */
static void test_header(void)
{
    TestMachine *m = machine_new();
    int tap = tap_open("tap-idle", 0), watched = tap_watch("tap-idle");
    int on = 1;
    g_autofree char *netdev = g_strdup_printf("tap,fd=%d", tap);
    g_autofree uint8_t *frame = make_large(1);
    size_t size = NIC_HEADER + TCP_HEADERS + SEGMENT;
    uint8_t buffer[4096], header[NIC_HEADER];
    TestNic *fg, *nic;
    uint64_t addr;

    nic_resource(m, "");
    fg = machine_nic_at(m, "fg", 21, "idletime=" RESOURCE);
    nic = tap_nic(m, netdev, "idletime=" RESOURCE ",idletime-class=guest",
                  GUEST_FEATURES);
    close(tap);
    nic_init(fg);
    g_assert_cmpint(setsockopt(watched, SOL_PACKET, PACKET_VNET_HDR, &on,
                               sizeof(on)), ==, 0);
    nic_send(fg, (TestPacket) { .number = 1 });

    memcpy(header, frame, NIC_HEADER);
    stw_le_p(header + 4, 100);
    memset(frame, 0, NIC_HEADER);
    addr = nic_send_on(nic, &nic->tx, frame, size, 0);
    g_assert_cmpint(nic_number(nic, "held"), ==, 1);
    qtest_bufwrite(m->qts, addr, header, NIC_HEADER);
    machine_step_us(m, INTERVAL_US);
    nic_settle(m);

    g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==,
                    sizeof(struct virtio_net_hdr) + size - NIC_HEADER);
    g_assert_cmpint(buffer[0], ==, 0);
    g_assert_cmpint(buffer[1], ==, VIRTIO_NET_HDR_GSO_NONE);
    g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==, 0);
    g_assert_cmpint(nic_number(nic, "pieces"), ==, 0);
    nic_free(fg);
    tap_done(m, nic, watched);
}

/* As many parts as a chain may have, the header in the same as data. */
static void test_many_parts(void)
{
    enum { PARTS = 1024 };
    TestMachine *m = machine_new();
    g_autofree RingPart *part = g_new0(RingPart, PARTS);
    uint8_t frame[NIC_HEADER + PARTS] = { 0 }, buffer[4096];
    TestPacket packet = { .dscp = DSCP_LE,
                          .payload = PARTS - ETHERNET - IP4 - UDP };
    int watched;
    TestNic *nic = tap_with(m, "", GUEST_FEATURES |
                            (1ull << VIRTIO_RING_F_INDIRECT_DESC), &watched);
    uint64_t addr = guest_alloc(&m->alloc, sizeof(frame));

    g_assert_true(nic->tx.indirect);
    g_assert_cmpint(packet_make(&packet, frame + NIC_HEADER), ==, PARTS);
    qtest_bufwrite(m->qts, addr, frame, sizeof(frame));
    part[0] = (RingPart) { .addr = addr, .size = NIC_HEADER + 1 };
    for (int i = 1; i < PARTS; i++) {
        part[i] = (RingPart) { .addr = addr + NIC_HEADER + i, .size = 1 };
    }
    ring_send(&nic->tx, part, PARTS);
    nic_settle(m);
    g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==, PARTS);
    g_assert_cmpmem(buffer, PARTS, frame + NIC_HEADER, PARTS);
    g_assert_cmpint(nic_returned(nic), ==, 1);
    tap_done(m, nic, watched);
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
    while (tap_seen(watched, buffer, sizeof(buffer))) {
        pieces++;
    }
    /* (65536 + 10000) / 1514 = 49.9: the 50th is too much, and the 51st. */
    g_assert_cmpint(pieces, >=, 50);
    g_assert_cmpint(pieces, <=, 51);
    /* 1514 + 24 bytes at 1 byte a microsecond, less a credit of 250. */
    machine_step_us(m, 1538 - 250 - 1);
    nic_settle(m);
    g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==, 0);
    for (int i = 0; i < 4; i++) {
        machine_step_us(m, i ? 1538 : 1);
        nic_settle(m);
        g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==, 1514);
        g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==, 0);
    }
    tap_done(m, nic, watched);
}

/*
 * Two may be in service.  One is, for 1538 - 250 us by the clock: another
 * device's; so each piece waits for the one before it, which has left unseen.
 */
static void test_share_of_two(void)
{
    TestMachine *m = machine_new();
    int tap = tap_open("tap-idle", 0), watched = tap_watch("tap-idle");
    g_autofree char *netdev = g_strdup_printf("tap,fd=%d", tap);
    const char *options = "idletime=" RESOURCE ",idletime-class=background";
    uint8_t buffer[4096];
    TestNic *other, *nic;

    nic_resource(m, "max-inflight=2,rate-bps=8000000");
    other = machine_nic_at(m, "other", 21, options);
    nic = tap_nic(m, netdev, options, GUEST_FEATURES);
    close(tap);
    nic_init(other);
    nic_send(other, (TestPacket) { .payload = 1514 - ETHERNET - IP4 - UDP });
    g_assert_cmpint(nic_number(other, "in-service"), ==, 1);
    send_large(nic);
    for (int i = 0; i < SEGMENTS; i++) {
        g_assert_cmpint(tap_seen(watched, buffer, sizeof(buffer)), ==,
                        TCP_HEADERS + SEGMENT);
    }
    g_assert_cmpint(nic_number(other, "in-service"), ==, 1);
    nic_free(other);
    tap_done(m, nic, watched);
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
    while ((size = tap_seen(watched, buffer, 128 * KiB))) {
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
    tap_done(m, nic, watched);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!tap_possible()) {
        return 0;
    }
    nic_add("idletime/net-tap/cut", test_cut);
    qtest_add_func("idletime/net-tap/many-parts", test_many_parts);
    nic_add("idletime/net-tap/header", test_header);
    nic_add("idletime/net-tap/clock", test_cut_by_clock);
    nic_add("idletime/net-tap/share-of-two", test_share_of_two);
    nic_add("idletime/net-tap/stop-half-way", test_stop_half_way);
    return g_test_run();
}
