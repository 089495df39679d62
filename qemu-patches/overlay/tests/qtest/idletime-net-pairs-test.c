/*
 * Idletime machine tests: queue pairs, as ethtool -L changes them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-nic-live.h"
#include "idletime-tap.h"
#include "qapi/error.h"
#include "qobject/qjson.h"

#define CTRL_VQ         4       /* behind two pairs */
#define ON              ",idletime=" RESOURCE
#define ATTACH(more)    "{'device': 'vm', 'resource': '" RESOURCE "', " more "}"

typedef struct TestPairs {
    TestNic *nic;
    TestRing tx1;
    TestRing ctrl;
    int watched;
    int tap[2];             /* our descriptors of the queues */
} TestPairs;

static void set_pairs(TestPairs *p, uint16_t pairs)
{
    QTestState *qts = p->nic->m->qts;
    struct virtio_net_ctrl_hdr header = {
        VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET,
    };
    uint64_t addr = guest_alloc(&p->nic->m->alloc, 8);
    const RingPart part[] = {
        { addr, 2, false }, { addr + 2, 2, false }, { addr + 4, 1, true },
    };
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;
    uint32_t id;

    qtest_bufwrite(qts, addr, &header, sizeof(header));
    qtest_writew(qts, addr + 2, pairs);
    qtest_writeb(qts, addr + 4, 0xff);
    ring_send(&p->ctrl, part, ARRAY_SIZE(part));
    while (!ring_get(&p->ctrl, &id)) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
    g_assert_cmpint(qtest_readb(qts, addr + 4), ==, VIRTIO_NET_OK);
    nic_settle(p->nic->m);
}

static void send_on(TestPairs *p, TestRing *tx, uint8_t dscp, uint16_t port)
{
    uint8_t frame[NIC_HEADER + 64] = { 0 };
    TestPacket packet = { .dscp = dscp, .port = port };
    size_t size = NIC_HEADER + packet_make(&packet, frame + NIC_HEADER);

    nic_send_on(p->nic, tx, frame, size, 0);
}

/* The source port of the next packet that left, or -1. */
static int left(TestPairs *p)
{
    uint8_t buffer[2048];

    return tap_seen(p->watched, buffer, sizeof(buffer)) ?
           lduw_be_p(buffer + ETHERNET + IP4) : -1;
}

/* @features: that its driver takes */
static TestMachine *nic_of_two(TestPairs *p, const char *options,
                               uint64_t features)
{
    TestMachine *m = machine_new();
    int tap[2] = { tap_open("tap-idle", IFF_MULTI_QUEUE),
                   tap_open("tap-idle", IFF_MULTI_QUEUE) };
    g_autofree char *netdev = g_strdup_printf("tap,fds=%d:%d", tap[0], tap[1]);
    g_autofree char *all = g_strconcat("mq=on,vectors=0", options, NULL);

    p->watched = tap_watch("tap-idle");
    nic_resource(m, "max-hold-ms=0");
    p->nic = tap_nic(m, netdev, all, features);
    for (int i = 0; i < 2; i++) {
        p->tap[i] = fcntl(tap[i], F_DUPFD_CLOEXEC, 0);
        close(tap[i]);
    }
    return m;
}

static TestMachine *pairs_start(TestPairs *p, const char *options)
{
    TestMachine *m = nic_of_two(p, options, (1ull << VIRTIO_NET_F_CTRL_VQ) |
                                            (1ull << VIRTIO_NET_F_MQ));
    QVirtioPCIDevice *pci = p->nic->pci;

    ring_setup(&p->tx1, m->qts, &pci->vdev, &m->alloc, 3);
    ring_setup(&p->ctrl, m->qts, &pci->vdev, &m->alloc, CTRL_VQ);
    set_pairs(p, 2);
    return m;
}

static void pairs_done(TestMachine *m, TestPairs *p)
{
    close(p->tap[0]);
    close(p->tap[1]);
    qvirtqueue_cleanup(p->nic->pci->vdev.bus, p->tx1.vq, &m->alloc);
    qvirtqueue_cleanup(p->nic->pci->vdev.bus, p->ctrl.vq, &m->alloc);
    tap_done(m, p->nic, p->watched);
}

/* What a queue holds when the guest turns it off waits in its ring. */
static void turn_off_and_on(TestPairs *opaque)
{
    TestPairs p = *opaque;
    TestMachine *m = p.nic->m;

    send_on(&p, &p.nic->tx, 0, 1);
    send_on(&p, &p.tx1, DSCP_LE, 2);
    send_on(&p, &p.tx1, DSCP_LE, 3);
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
    *opaque = p;
}

static void test_pairs(const void *options)
{
    TestPairs p;
    TestMachine *m = pairs_start(&p, options);

    turn_off_and_on(&p);
    pairs_done(m, &p);
}

/* The same of one that is attached when it runs; it holds, and is detached. */
static void test_attached(const void *arguments)
{
    uint8_t buffer[2048];
    TestPairs p;
    TestMachine *m = pairs_start(&p, "");

    machine_ok(m, "idletime-attach", "%p",
               qobject_from_json(arguments, &error_abort));
    turn_off_and_on(&p);
    send_on(&p, &p.nic->tx, 0, 1);
    send_on(&p, &p.tx1, DSCP_LE, 2);
    set_pairs(&p, 1);
    g_assert_cmpint(left(&p), ==, 1);
    nic_detach(p.nic);
    nic_await_detached(p.nic);
    /* Vhost, where the tap has it, sends what an unused queue has at once. */
    set_pairs(&p, 2);
    g_assert_cmpint(tap_await(m, p.watched, buffer, sizeof(buffer)), >, 0);
    g_assert_cmpint(lduw_be_p(buffer + ETHERNET + IP4), ==, 2);
    pairs_done(m, &p);
}

static void test_pairs_guest(void)
{
    test_pairs(ON ",idletime-class=guest");
}

static void test_attached_guest(void)
{
    test_attached(ATTACH("'class': 'guest'"));
}

/* Two queues of a device wait: the one that waits longer goes first. */
static void test_two_queues(void)
{
    TestPairs p;
    TestMachine *m = pairs_start(&p, ON ",idletime-class=guest");

    send_on(&p, &p.nic->tx, 0, 1);
    send_on(&p, &p.tx1, DSCP_LE, 2);
    machine_step_us(m, MS);
    send_on(&p, &p.nic->tx, DSCP_LE, 3);
    g_assert_cmpint(left(&p), ==, 1);
    g_assert_cmpint(left(&p), ==, -1);
    machine_step_us(m, INTERVAL_US - MS);
    nic_settle(m);
    g_assert_cmpint(left(&p), ==, 2);
    g_assert_cmpint(left(&p), ==, 3);
    pairs_done(m, &p);
}

/* What waits in a ring leaves when it is foreground; nobody waits for it. */
static void test_to_guest(void)
{
    TestPairs p;
    TestMachine *m = pairs_start(&p, ON ",idletime-class=guest,"
                                     "idletime-background-queues=1");

    send_on(&p, &p.nic->tx, 0, 1);
    send_on(&p, &p.tx1, 0, 2);
    g_assert_cmpint(left(&p), ==, 1);
    g_assert_cmpint(left(&p), ==, -1);
    machine_ok(m, "idletime-set", "{'device': 'vm', 'background-queues': ''}");
    nic_settle(m);
    g_assert_cmpint(left(&p), ==, 2);
    g_assert_cmpint(nic_number(p.nic, "held"), ==, 0);
    send_on(&p, &p.nic->tx, DSCP_LE, 3);
    g_assert_cmpint(left(&p), ==, -1);
    machine_step_us(m, INTERVAL_US);
    nic_settle(m);
    g_assert_cmpint(left(&p), ==, 3);
    pairs_done(m, &p);
}

/*
 * The send buffer is the tap's, but a queue that is turned off keeps the one
 * that it had.  When it is on again, its foreground meets the operator's.
 */
static void test_shared(void)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;
    TestPairs p;
    TestMachine *m;

    m = pairs_start(&p, ON ",idletime-class=guest");
    tap_bridge("tap-idle");
    uplink_hold(50);
    send_on(&p, &p.nic->tx, DSCP_LE, 1);
    send_on(&p, &p.nic->tx, DSCP_LE, 2);
    g_assert_cmpint(left(&p), ==, 1);
    g_assert_cmpint(left(&p), ==, 2);
    g_assert_cmpint(tap_sndbuf(p.tap[0]), <, INT_MAX);
    g_assert_cmpint(tap_sndbuf(p.tap[1]), <, INT_MAX);
    set_pairs(&p, 1);
    uplink_drain();
    while (nic_number(p.nic, "in-service")) {
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
    send_on(&p, &p.nic->tx, 0, 3);
    g_assert_cmpint(left(&p), ==, 3);
    set_pairs(&p, 2);
    uplink_hold(50);
    for (int port = 4; port < 7; port++) {
        send_on(&p, &p.tx1, 0, port);
        g_assert_cmpint(left(&p), ==, port);
    }
    uplink_drain();
    pairs_done(m, &p);
}

/*
 * A driver that knows no queue pairs, as of firmware or by malice: the second
 * one is never made.
 */
static void test_one_of_two(const void *options)
{
    TestPairs p;
    TestMachine *m = nic_of_two(&p, options, 0);

    if (!*(const char *)options) {
        machine_ok(m, "idletime-attach",
                   "{'device': 'vm', 'resource': '" RESOURCE "'}");
    }
    send_on(&p, &p.nic->tx, 0, 1);
    g_assert_cmpint(left(&p), ==, 1);
    nic_reset_queue(p.nic, 3);
    machine_ok(m, "idletime-set", "{'device': 'vm', 'class': 'background'}");
    nic_reset_queue(p.nic, 3);
    send_on(&p, &p.nic->tx, 0, 2);
    machine_step_us(m, INTERVAL_US);
    nic_settle(m);
    g_assert_cmpint(left(&p), ==, 2);
    machine_stop(m);
    machine_cont(m);
    if (*(const char *)options) {
        qtest_qmp_device_del_send(m->qts, "vm");
        qtest_outl(m->qts, PC_EJECT_PORT, 1 << p.nic->slot);
        qtest_qmp_eventwait(m->qts, "DEVICE_DELETED");
    } else {
        nic_detach(p.nic);
        nic_await_detached(p.nic);
    }
    close(p.tap[0]);
    close(p.tap[1]);
    tap_done(m, p.nic, p.watched);
}

/* A guest takes the second pair away while packets of it are held. */
static void test_features_again(void)
{
    TestPairs p;
    TestMachine *m = pairs_start(&p, ON ",idletime-class=guest");
    QVirtioDevice *d = &p.nic->pci->vdev;
    uint64_t features = qvirtio_get_features(d);

    send_on(&p, &p.nic->tx, 0, 1);
    send_on(&p, &p.tx1, DSCP_LE, 2);
    send_on(&p, &p.tx1, DSCP_LE, 3);
    g_assert_cmpint(nic_number(p.nic, "held"), ==, 2);
    /* Not FEATURES_OK: only then may it. */
    d->bus->set_status(d, VIRTIO_CONFIG_S_ACKNOWLEDGE |
                          VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_DRIVER_OK);
    d->bus->set_features(d, features & ~(1ull << VIRTIO_NET_F_MQ));
    nic_settle(m);
    g_assert_cmpint(nic_number(p.nic, "held"), ==, 0);
    machine_stop(m);
    machine_cont(m);
    machine_step_us(m, INTERVAL_US);
    nic_settle(m);
    pairs_done(m, &p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!tap_possible()) {
        return 0;
    }
    nic_add_data("idletime/net-pairs/background",
                 ON ",idletime-background-queues=1", test_pairs);
    nic_add_data("idletime/net-pairs/attached/background",
                 ATTACH("'background-queues': '1'"), test_attached);
    nic_add_data("idletime/net-pairs/one-of-two", ON, test_one_of_two);
    nic_add_data("idletime/net-pairs/one-of-two/attached", "",
                 test_one_of_two);
    /* In order, what is held leaves with the foreground behind it. */
    nic_add_of("idletime/net-pairs/guest", false, test_pairs_guest);
    nic_add_of("idletime/net-pairs/attached/guest", false,
               test_attached_guest);
    nic_add_of("idletime/net-pairs/two-queues", false, test_two_queues);
    nic_add_of("idletime/net-pairs/to-guest", false, test_to_guest);
    nic_add_of("idletime/net-pairs/features-again", false,
               test_features_again);
    if (tap_bridge_possible()) {
        nic_add_of("idletime/net-pairs/shared", false, test_shared);
    }
    return g_test_run();
}
