/*
 * Idletime machine tests: the send buffer of a tap whose uplink keeps what it
 * gets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-nic-live.h"
#include "idletime-tap.h"
#include <net/if.h>

/* net/idletime-tap.c: the smallest that works, and a full packet's true size */
#define LEAST           6
#define TRUE_SIZE       2304
#define STOCK           INT_MAX     /* QEMU's, where sndbuf= is not given */
#define STALL_US        (1000 * MS)
#define ON              "idletime=" RESOURCE ",idletime-class="
#define FULL            1514
#define PAYLOAD         (FULL - ETHERNET - IP4 - UDP)

typedef struct Bench {
    TestMachine *m;
    TestNic *nic;
    TestNic *other;         /* on another netdev */
    int tap;                /* our descriptor of it */
    int watched;
} Bench;

/* One device on a tap; the first packet leaves by the uplink, no other. */
static Bench bench(const char *resource, const char *options)
{
    Bench b = { .m = machine_new() };
    int tap = tap_open("tap-idle", 0);
    g_autofree char *netdev = g_strdup_printf("tap,fd=%d", tap);

    nic_resource(b.m, resource);
    b.watched = tap_watch("tap-idle");
    b.tap = fcntl(tap, F_DUPFD_CLOEXEC, 0);
    tap_bridge("tap-idle");
    uplink_hold(FULL + 4);
    b.other = machine_nic_at(b.m, "other", 21, ON "background");
    b.nic = tap_nic(b.m, netdev, options, 0);
    close(tap);
    nic_init(b.other);
    return b;
}

static void done(Bench *b)
{
    close(b->tap);
    nic_free(b->other);
    tap_done(b->m, b->nic, b->watched);
}

static void background(Bench *b, uint32_t number)
{
    nic_send(b->nic, (TestPacket) { .dscp = DSCP_LE, .payload = PAYLOAD,
                                     .number = number });
}

static void plain(Bench *b, uint32_t number)
{
    nic_send(b->nic, (TestPacket) { .port = 2000, .number = number });
}

static int64_t number_of(const uint8_t *frame, size_t size)
{
    return size ? ldl_be_p(frame + ETHERNET + IP4 + UDP) : -1;
}

static int64_t seen(Bench *b)
{
    uint8_t frame[2048];

    return number_of(frame, tap_seen(b->watched, frame, sizeof(frame)));
}

static int64_t awaited(Bench *b)
{
    uint8_t frame[2048];

    return number_of(frame, tap_await(b->m, b->watched, frame,
                                      sizeof(frame)));
}

/* Numbers 1 and 2: the uplink has sent 1 and keeps 2, which is in service. */
static void one_in_service(Bench *b)
{
    background(b, 1);
    background(b, 2);
    g_assert_cmpint(seen(b), ==, 1);
    g_assert_cmpint(seen(b), ==, 2);
    g_assert_cmpint(nic_number(b->nic, "in-service"), ==, 1);
}

static void test_one(void)
{
    Bench b = bench("", ON "background");

    g_assert_cmpint(tap_sndbuf(b.tap), ==, STOCK);
    one_in_service(&b);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST);
    background(&b, 3);
    g_assert_cmpint(seen(&b), ==, -1);
    g_assert_cmpint(nic_number(b.nic, "held"), ==, 1);
    uplink_drain();
    g_assert_cmpint(awaited(&b), ==, 3);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST);
    done(&b);
}

static void await_none_in_service(Bench *b)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;

    while (nic_number(b->nic, "in-service")) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
        nic_settle(b->m);
    }
}

static void test_two(void)
{
    Bench b = bench("max-inflight=2", ON "background");

    one_in_service(&b);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST);
    background(&b, 3);
    g_assert_cmpint(seen(&b), ==, 3);
    g_assert_cmpint(nic_number(b.nic, "in-service"), ==, 2);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST + 2 * TRUE_SIZE);
    uplink_drain();
    await_none_in_service(&b);
    /* Both have given back what they had: there is room for two again. */
    uplink_hold(FULL + 4);
    for (int i = 4; i <= 6; i++) {
        background(&b, i);
        g_assert_cmpint(seen(&b), ==, i);
    }
    g_assert_cmpint(nic_number(b.nic, "in-service"), ==, 2);
    uplink_drain();
    done(&b);
}

/* Three that are found to have left at once have all given back a place. */
static void test_three(void)
{
    Bench b = bench("max-inflight=4", ON "background");

    one_in_service(&b);
    for (int i = 3; i <= 4; i++) {
        background(&b, i);
        g_assert_cmpint(seen(&b), ==, i);
    }
    g_assert_cmpint(nic_number(b.nic, "in-service"), ==, 3);
    uplink_drain();
    await_none_in_service(&b);
    /* There is room for four again. */
    uplink_hold(FULL + 4);
    for (int i = 5; i <= 9; i++) {
        background(&b, i);
        g_assert_cmpint(seen(&b), ==, i);
    }
    g_assert_cmpint(nic_number(b.nic, "in-service"), ==, 4);
    uplink_drain();
    done(&b);
}

/* Foreground meets the operator's send buffer. */
static void test_foreground(void)
{
    Bench b = bench("interval-us=0", ON "guest");

    one_in_service(&b);
    plain(&b, 10);
    plain(&b, 11);
    g_assert_cmpint(seen(&b), ==, 10);
    g_assert_cmpint(seen(&b), ==, 11);
    g_assert_cmpint(nic_number(b.nic, "in-service"), ==, 1);
    /* Bound again, it says that nothing has left. */
    background(&b, 3);
    g_assert_cmpint(seen(&b), ==, -1);
    plain(&b, 12);
    g_assert_cmpint(seen(&b), ==, 12);
    uplink_drain();
    g_assert_cmpint(awaited(&b), ==, 3);
    done(&b);
}

static void ask_who_has(Bench *b)
{
    uint8_t frame[NIC_HEADER + 60] = { 0 };

    memset(frame + NIC_HEADER, 0xff, 6);
    stw_be_p(frame + NIC_HEADER + 12, 0x0806);
    nic_send_on(b->nic, &b->nic->tx, frame, sizeof(frame), 0);
}

/*
 * Packets that pass wait for a bounded tap; the guest resets a queue, either.
 * What waited is purged, and nothing may begin to wait meanwhile.
 */
static void test_reset(const void *index)
{
    Bench b = bench("", ON "background");

    one_in_service(&b);
    for (int i = 0; i < 4; i++) {
        ask_who_has(&b);
    }
    nic_reset_queue(b.nic, GPOINTER_TO_UINT(index));
    machine_ok(b.m, "idletime-set",
               "{'device': 'vm', 'class': 'foreground'}");
    uplink_drain();
    nic_settle(b.m);
    g_assert_cmpint(nic_number(b.nic, "held"), ==, 0);
    done(&b);
}

/*
 * A second without progress: perhaps the kernel needs more, so it gets more.
 * It was the link: with the first packet that leaves the bound is back.
 */
static void test_stall(void)
{
    Bench b = bench("max-hold-ms=0", ON "background");

    one_in_service(&b);
    background(&b, 3);
    machine_step_us(b.m, STALL_US - 1);
    nic_settle(b.m);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST);
    machine_step_us(b.m, 1);
    nic_settle(b.m);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, 2 * LEAST);
    machine_step_us(b.m, STALL_US);
    nic_settle(b.m);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, 4 * LEAST);
    g_assert_cmpint(seen(&b), ==, -1);
    uplink_drain();
    g_assert_cmpint(awaited(&b), ==, 3);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST);
    done(&b);
}

/* The send buffer is the operator's again, and the token a neighbour's. */
static void test_unplug(void)
{
    Bench b = bench("", ON "background");

    one_in_service(&b);
    nic_send(b.other, (TestPacket) { .number = 7 });
    assert_none_left(b.other);
    nic_unplug(b.nic);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, STOCK);
    for (int64_t n = -1, end_us = g_get_monotonic_time() + 15000000;
         n != 7; n = nic_next(b.other)) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
        nic_settle(b.m);
    }
    uplink_drain();
    done(&b);
}

/*
 * Detached with a packet in the uplink's queue: the send buffer is the
 * operator's, and the token a neighbour's.  Attached again while that packet
 * is there, the bound is what it was: it is not taken for the kernel's need.
 */
static void test_detach(void)
{
    Bench b = bench("", ON "background");

    one_in_service(&b);
    nic_send(b.other, (TestPacket) { .number = 7 });
    assert_none_left(b.other);
    background(&b, 3);
    nic_detach(b.nic);
    nic_await_detached(b.nic);
    g_assert_cmpint(seen(&b), ==, 3);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, STOCK);
    machine_step_us(b.m, INTERVAL_US);
    nic_settle(b.m);
    assert_left(b.other, 7);
    nic_attach(b.nic, "background");
    g_assert_cmpint(tap_sndbuf(b.tap), ==, STOCK);
    background(&b, 4);
    g_assert_cmpint(seen(&b), ==, 4);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, LEAST);
    background(&b, 5);
    g_assert_cmpint(seen(&b), ==, -1);
    uplink_drain();
    g_assert_cmpint(awaited(&b), ==, 5);
    done(&b);
}

/* Descriptors of taps that QEMU has. */
static unsigned taps_of(TestMachine *m)
{
    g_autofree char *folder = g_strdup_printf("/proc/%d/fd",
                                              qtest_pid(m->qts));
    GDir *dir = g_dir_open(folder, 0, NULL);
    const char *name;
    unsigned n = 0;

    g_assert_nonnull(dir);
    while ((name = g_dir_read_name(dir))) {
        g_autofree char *path = g_strconcat(folder, "/", name, NULL);
        g_autofree char *target = g_file_read_link(path, NULL);

        n += g_strcmp0(target, "/dev/net/tun") == 0;
    }
    g_dir_close(dir);
    return n;
}

/* QEMU keeps its own descriptor until the NIC goes; the others do not. */
static void test_netdev_deleted(void)
{
    Bench b = bench("", ON "background");

    one_in_service(&b);
    g_assert_cmpint(taps_of(b.m), >, 1);
    machine_ok(b.m, "netdev_del", "{'id': 'vm-net'}");
    nic_settle(b.m);
    g_assert_cmpint(taps_of(b.m), ==, 1);
    g_assert_cmpint(tap_sndbuf(b.tap), ==, STOCK);
    g_assert_cmpint(nic_number(b.nic, "in-service"), ==, 0);
    nic_unplug(b.nic);
    g_assert_cmpint(taps_of(b.m), ==, 0);
    uplink_drain();
    done(&b);
    /* The last descriptor was this test's. */
    g_assert_cmpint(if_nametoindex("tap-idle"), ==, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!tap_possible() || !tap_bridge_possible()) {
        return 0;
    }
    nic_add("idletime/net-bound/one", test_one);
    nic_add("idletime/net-bound/two", test_two);
    nic_add("idletime/net-bound/three", test_three);
    /* In order, what is held leaves with the foreground behind it. */
    nic_add_of("idletime/net-bound/foreground", false, test_foreground);
    nic_add_data("idletime/net-bound/reset/receive", GUINT_TO_POINTER(0),
                 test_reset);
    nic_add_data("idletime/net-bound/reset/transmit", GUINT_TO_POINTER(1),
                 test_reset);
    nic_add("idletime/net-bound/stall", test_stall);
    nic_add("idletime/net-bound/unplug", test_unplug);
    nic_add("idletime/net-bound/detach", test_detach);
    nic_add("idletime/net-bound/netdev-deleted", test_netdev_deleted);
    return g_test_run();
}
