/*
 * Idletime machine tests: stop, reset, link, unplug and migration while
 * packets are held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "hw/pci/pci_regs.h"
#include "idletime-nic-live.h"

#define LONG_US         (60 * 1000 * MS)
/* No release but by the interval, which is a minute. */
#define LONG            "interval-us=60000000,max-hold-ms=0"
#define ON              "idletime=" RESOURCE ",idletime-class="
#define HELD            3

static void step(TestMachine *m, int64_t us)
{
    machine_step_us(m, us);
    nic_settle(m);
}

static TestMachine *pair(const char *class, TestNic **fg, TestNic **bg)
{
    g_autofree char *options = g_strconcat(ON, class, NULL);
    TestMachine *m = machine_new();

    nic_resource(m, LONG);
    *fg = machine_nic(m, "fg", "idletime=" RESOURCE);
    *bg = machine_nic(m, "bg", options);
    machine_start(m);
    nic_init(*fg);
    nic_init(*bg);
    return m;
}

static void done(TestMachine *m, TestNic *fg, TestNic *bg)
{
    nic_free(fg);
    nic_free(bg);
    machine_free(m);
}

/* Numbers 1 to 3, marked; none leaves. */
static void hold_some(TestNic *fg, TestNic *bg)
{
    nic_send(fg, (TestPacket) { .number = 0 });
    for (int i = 1; i <= HELD; i++) {
        nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = i });
    }
    assert_none_left(bg);
}

static void plain(TestNic *nic, uint32_t number)
{
    nic_send(nic, (TestPacket) { .port = 2000, .number = number });
}

/* ---- stop and cont */

static void test_stop(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);

    hold_some(fg, bg);
    machine_stop(m);
    step(m, LONG_US);
    /* In the ring, from where a migration takes them. */
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    g_assert_cmpint(nic_returned(bg), ==, 0);
    assert_none_left(bg);
    machine_cont(m);
    nic_settle(m);
    assert_left(bg, 1, 2, 3);
    g_assert_cmpint(nic_returned(bg), ==, HELD);
    done(m, fg, bg);
}

static void test_stop_100(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);

    hold_some(fg, bg);
    for (int i = 0; i < 100; i++) {
        machine_stop(m);
        machine_cont(m);
        nic_settle(m);
    }
    assert_none_left(bg);
    step(m, LONG_US);
    assert_left(bg, 1, 2, 3);
    done(m, fg, bg);
}

/* Foreground passed some: these cannot go back, and leave. */
static void test_stop_passed(void)
{
    TestNic *fg, *bg;
    TestMachine *m = pair("guest", &fg, &bg);

    hold_some(fg, bg);
    plain(bg, 10);
    assert_left(bg, 10);
    nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = 4 });
    machine_stop(m);
    nic_settle(m);
    assert_left(bg, 1, 2, 3);
    g_assert_cmpint(nic_number(bg, "promotions.stop"), ==, HELD);
    g_assert_cmpint(nic_returned(bg), ==, HELD + 1);
    machine_cont(m);
    nic_settle(m);
    /* Of class guest, and the interval runs. */
    assert_none_left(bg);
    step(m, LONG_US);
    assert_left(bg, 4);
    done(m, fg, bg);
}

/*
 * The backend takes nothing: what cannot go back into the ring is dropped, as
 * is what waits in the backend.  Nothing is popped and not given back.
 */
static void test_stop_blocked(void)
{
    g_autofree uint8_t *large = g_malloc0(60000);
    TestNic *fg, *bg;
    TestMachine *m = pair("guest", &fg, &bg);
    unsigned sent = 0;

    packet_make(&(TestPacket) { .port = 2000 }, large);
    hold_some(fg, bg);
    do {
        nic_send_raw(bg, large, 60000, 0);
        sent++;
    } while (nic_returned(bg) == sent);
    machine_stop(m);
    nic_settle(m);
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    g_assert_cmpint(nic_number(bg, "dropped"), ==, HELD);
    g_assert_cmpint(nic_returned(bg), ==, HELD + sent);
    machine_cont(m);
    nic_settle(m);
    g_assert_cmpint(nic_returned(bg), ==, HELD + sent);
    done(m, fg, bg);
}

static void test_kick_while_stopped(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);

    machine_stop(m);
    nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = 1 });
    step(m, LONG_US);
    assert_none_left(bg);
    machine_cont(m);
    nic_settle(m);
    assert_left(bg, 1);
    done(m, fg, bg);
}

/* ---- resets */

static void by_driver(TestNic *nic)
{
    qvirtio_reset(&nic->pci->vdev);
}

static void by_system(TestNic *nic)
{
    qtest_system_reset(nic->m->qts);
}

static void by_system_stopped(TestNic *nic)
{
    machine_stop(nic->m);
    by_system(nic);
    machine_cont(nic->m);
}

typedef struct ResetCase {
    const char *name;
    const char *class;
    void (*reset)(TestNic *nic);
} ResetCase;

static const ResetCase reset_case[] = {
    { "driver-background", "background", by_driver },
    { "driver-guest", "guest", by_driver },
    { "system-background", "background", by_system },
    { "system-guest", "guest", by_system },
    { "stopped-background", "background", by_system_stopped },
    { "stopped-guest", "guest", by_system_stopped },
};

/* A new driver begins with an empty ring. */
static void assert_begins_anew(TestNic *bg)
{
    nic_init(bg);
    nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = 9 });
    assert_left(bg, 9);
    g_assert_cmpint(nic_returned(bg), ==, 1);
}

/* The driver that gave them is gone: so are they. */
static void test_reset(const void *opaque)
{
    const ResetCase *c = opaque;
    TestNic *fg, *bg;
    TestMachine *m = pair(c->class, &fg, &bg);

    hold_some(fg, bg);
    c->reset(bg);
    nic_settle(m);
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    step(m, LONG_US);
    assert_none_left(bg);
    assert_begins_anew(bg);
    done(m, fg, bg);
}

/* ---- the driver goes, or its right to access memory */

static void without_bus_master(TestNic *nic)
{
    QPCIDevice *pdev = nic->pci->pdev;
    uint16_t command = qpci_config_readw(pdev, PCI_COMMAND);

    qpci_config_writew(pdev, PCI_COMMAND, command & ~PCI_COMMAND_MASTER);
}

static void without_driver_ok(TestNic *nic)
{
    QVirtioDevice *vdev = &nic->pci->vdev;

    vdev->bus->set_status(vdev, vdev->bus->get_status(vdev) &
                          ~VIRTIO_CONFIG_S_DRIVER_OK);
}

static const ResetCase gone_case[] = {
    { "bus-master-background", "background", without_bus_master },
    { "bus-master-guest", "guest", without_bus_master },
    { "driver-ok-background", "background", without_driver_ok },
    { "driver-ok-guest", "guest", without_driver_ok },
};

/* All of the transmit ring, as libqos lays it out: the used ring is last. */
static GBytes *ring_memory(TestNic *nic)
{
    const QVirtQueue *vq = nic->tx.vq;
    size_t size = vq->used - vq->desc + sizeof(struct vring_used) +
                  vq->size * sizeof(struct vring_used_elem);
    void *memory = g_malloc(size);

    qtest_memread(nic->m->qts, vq->desc, memory, size);
    return g_bytes_new_take(memory, size);
}

/* What the guest's memory is from then on, nobody writes to. */
static void test_driver_gone(const void *opaque)
{
    const ResetCase *c = opaque;
    TestNic *fg, *bg;
    TestMachine *m = pair(c->class, &fg, &bg);
    g_autoptr(GBytes) before = NULL;
    g_autoptr(GBytes) after = NULL;

    hold_some(fg, bg);
    before = ring_memory(bg);
    c->reset(bg);
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    nic_settle(m);
    step(m, LONG_US);
    after = ring_memory(bg);
    g_assert_true(g_bytes_equal(before, after));
    g_assert_cmpint(nic_number(bg, "in-service"), ==, 0);
    g_assert_cmpint(nic_returned(bg), ==, 0);
    assert_none_left(bg);
    assert_begins_anew(bg);
    done(m, fg, bg);
}

/* ---- one queue */

#define TX              1

/* The transmit queue alone; the flag that it waits goes with it. */
static void test_queue_reset(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);
    QVirtioPCIDevice *pci;

    hold_some(fg, bg);
    pci = bg->pci;
    nic_reset_queue(bg, TX);
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    qvirtqueue_cleanup(pci->vdev.bus, bg->tx.vq, &m->alloc);
    ring_setup(&bg->tx, m->qts, &pci->vdev, &m->alloc, TX);
    step(m, LONG_US);
    assert_none_left(bg);
    nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = 9 });
    assert_left(bg, 9);
    g_assert_cmpint(nic_returned(bg), ==, 1);
    done(m, fg, bg);
}

/* ---- link */

static void set_link(TestNic *nic, bool up)
{
    machine_ok(nic->m, "set_link", "{'name': %s, 'up': %i}", nic->id, up);
    nic_settle(nic->m);
}

/* Dropped, as by a device that has lost its link; and counted. */
static void test_link(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);

    hold_some(fg, bg);
    set_link(bg, false);
    g_assert_cmpint(nic_number(bg, "held"), ==, 0);
    g_assert_cmpint(nic_number(bg, "dropped"), ==, HELD);
    g_assert_cmpint(nic_returned(bg), ==, HELD);
    set_link(bg, true);
    step(m, LONG_US);
    assert_none_left(bg);
    nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = 9 });
    assert_left(bg, 9);
    done(m, fg, bg);
}

/* The driver is told that it got them back, by the queue's own interrupt. */
static void test_link_notified(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);
    QVirtQueue *vq = bg->tx.vq;
    QVirtioDevice *d = &bg->pci->vdev;

    qpci_msix_enable(bg->pci->pdev);
    qvirtqueue_pci_msix_setup(bg->pci, container_of(vq, QVirtQueuePCI, vq),
                              &m->alloc, 1);
    hold_some(fg, bg);
    g_assert_false(d->bus->get_queue_isr_status(d, vq));
    set_link(bg, false);
    g_assert_true(d->bus->get_queue_isr_status(d, vq));
    qpci_msix_disable(bg->pci->pdev);
    done(m, fg, bg);
}

static void test_netdev_deleted(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);

    hold_some(fg, bg);
    machine_ok(m, "netdev_del", "{'id': 'bg-net'}");
    nic_settle(m);
    g_assert_cmpint(nic_number(bg, "dropped"), ==, HELD);
    g_assert_cmpint(nic_returned(bg), ==, HELD);
    if (!nic_in_order()) {
        /* virtqueue_drop_all() does not know that order. */
        nic_send(bg, (TestPacket) { .dscp = DSCP_LE, .number = 9 });
        step(m, LONG_US);
        g_assert_cmpint(nic_returned(bg), ==, HELD + 1);
    }
    done(m, fg, bg);
}

/* ---- unplug */

static void test_unplug(const void *class)
{
    TestNic *fg, *bg;
    TestMachine *m = pair(class, &fg, &bg);

    hold_some(fg, bg);
    nic_unplug(bg);
    step(m, LONG_US);
    assert_none_left(bg);
    /* The resource goes on without it. */
    g_assert_cmpint(machine_number(m, RESOURCE, "held"), ==, 0);
    nic_send(fg, (TestPacket) { .number = 5 });
    assert_left(fg, 0, 5);
    done(m, fg, bg);
}

/* ---- migration */

typedef struct MoveCase {
    const char *name;
    const char *from;
    const char *to;
    bool left;                  /* leaves at @to within no interval */
} MoveCase;

static const MoveCase move_case[] = {
    { "background", ON "background", ON "background", false },
    { "guest", ON "guest", ON "guest", false },
    { "to-unset", ON "background", "", true },
    { "guest-to-unset", ON "guest", "", true },
    { "to-foreground", ON "background", ON "foreground", true },
    { "from-unset", "", ON "background", false },
};

/* Another VM, whose foreground packet starts an interval for all. */
static TestMachine *neighbour(const TestMachine *beside, TestNic **nic)
{
    TestMachine *m = machine_new_beside(beside);

    nic_resource(m, LONG);
    *nic = machine_nic(m, "neighbour", "idletime=" RESOURCE);
    machine_start(m);
    nic_init(*nic);
    return m;
}

static void test_move(const void *opaque)
{
    const MoveCase *c = opaque;
    TestMachine *src = machine_new();
    TestMachine *dst = machine_new_beside(src), *other;
    TestNic *from, *to, *fg;

    machine_resource(src, RESOURCE, LONG);
    machine_resource(dst, RESOURCE, LONG);
    from = machine_nic_at(src, "vm", 20, c->from);
    to = machine_nic_at(dst, "vm", 20, c->to);
    other = neighbour(src, &fg);
    machine_start(src);
    nic_init(from);
    /* The clocks of the three stand at the same time. */
    plain(fg, 0);
    if (*c->from) {
        for (int i = 1; i <= HELD; i++) {
            nic_send(from, (TestPacket) { .dscp = DSCP_LE, .number = i });
        }
    } else {
        /* Left in the ring by a stopped stock device. */
        machine_stop(src);
        for (int i = 1; i <= HELD; i++) {
            nic_send(from, (TestPacket) { .dscp = DSCP_LE, .number = i });
        }
    }
    assert_none_left(from);
    nic_move(from, to);
    if (!*c->from) {
        machine_cont(dst);
        nic_settle(dst);
    }
    if (!c->left) {
        assert_none_left(to);
        /* Its clock may be behind the neighbour's, which began at 10 s. */
        step(dst, 2 * LONG_US);
    }
    assert_left(to, 1, 2, 3);
    assert_none_left(from);
    nic_free(fg);
    machine_free(other);
    nic_free(to);
    machine_free(dst);
    nic_free(from);
    machine_free(src);
}

/* A stock QEMU has no -object idletime-resource. */
static void test_move_unpatched(const void *opaque)
{
    bool away = GPOINTER_TO_INT(opaque);
    TestMachine *src, *dst;
    TestNic *from, *to;

    if (!g_getenv(UNPATCHED_QEMU)) {
        g_test_skip(UNPATCHED_QEMU " is not set");
        return;
    }
    src = machine_new();
    dst = machine_new_beside(src);
    (away ? dst : src)->binary = UNPATCHED_QEMU;
    machine_resource(away ? src : dst, RESOURCE, LONG);
    from = machine_nic_at(src, "vm", 20, away ? ON "background" : "");
    to = machine_nic_at(dst, "vm", 20, away ? "" : ON "background");
    machine_start(src);
    nic_init(from);
    if (away) {
        machine_stop(src);
        machine_cont(src);
    }
    machine_stop(src);
    for (int i = 1; i <= HELD; i++) {
        nic_send(from, (TestPacket) { .dscp = DSCP_LE, .number = i });
    }
    nic_move(from, to);
    machine_cont(dst);
    nic_settle(dst);
    assert_left(to, 1, 2, 3);
    nic_free(to);
    machine_free(dst);
    nic_free(from);
    machine_free(src);
}

/* ---- */

static void add_for_classes(const char *name, GTestDataFunc test)
{
    static const char *const class[] = { "background", "guest" };

    for (unsigned i = 0; i < ARRAY_SIZE(class); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-%s/%s", name,
                                                class[i]);

        nic_add_data(path, class[i], test);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_for_classes("stop/once", test_stop);
    add_for_classes("stop/100", test_stop_100);
    nic_add_of("idletime/net-stop/passed", false, test_stop_passed);
    nic_add_of("idletime/net-stop/blocked", false, test_stop_blocked);
    add_for_classes("stop/kick", test_kick_while_stopped);
    for (unsigned i = 0; i < ARRAY_SIZE(reset_case); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-reset/%s",
                                                reset_case[i].name);

        nic_add_data(path, &reset_case[i], test_reset);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(gone_case); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-reset/%s",
                                                gone_case[i].name);

        nic_add_data(path, &gone_case[i], test_driver_gone);
    }
    add_for_classes("queue-reset", test_queue_reset);
    add_for_classes("link", test_link);
    add_for_classes("link-notified", test_link_notified);
    add_for_classes("netdev-deleted", test_netdev_deleted);
    add_for_classes("unplug", test_unplug);
    for (unsigned i = 0; i < ARRAY_SIZE(move_case); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-move/%s",
                                                move_case[i].name);

        nic_add_data(path, &move_case[i], test_move);
    }
    nic_add_data("idletime/net-move/to-unpatched",
                        GINT_TO_POINTER(true), test_move_unpatched);
    nic_add_data("idletime/net-move/from-unpatched",
                        GINT_TO_POINTER(false), test_move_unpatched);
    return g_test_run();
}
