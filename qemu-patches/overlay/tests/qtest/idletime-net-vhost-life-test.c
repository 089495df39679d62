/*
 * Idletime machine tests: vhost does not start while a device needs QEMU's own
 * path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-vhost.h"

#define TX              1

/* ---- what makes stock QEMU start it */

static void set_link(VhostBench *b, bool up)
{
    machine_ok(b->m, "set_link", "{'name': 'vm', 'up': %i}", up);
    nic_settle(b->m);
}

static void by_link(VhostBench *b)
{
    set_link(b, false);
    set_link(b, true);
}

static void by_stop(VhostBench *b)
{
    machine_stop(b->m);
    machine_cont(b->m);
    nic_settle(b->m);
}

static void by_reset(VhostBench *b)
{
    qvirtio_reset(&b->vm->pci->vdev);
    nic_init(b->vm);
}

static void by_system(VhostBench *b)
{
    qtest_system_reset(b->m->qts);
    nic_init(b->vm);
    nic_init(b->fg);
}

static void by_queue_reset(VhostBench *b)
{
    QVirtioPCIDevice *pci = b->vm->pci;

    nic_reset_queue(b->vm, TX);
    qvirtqueue_cleanup(pci->vdev.bus, b->vm->tx.vq, &b->m->alloc);
    ring_setup(&b->vm->tx, b->m->qts, &pci->vdev, &b->m->alloc, TX);
}

static void by_class(VhostBench *b)
{
    nic_set_class(b->vm, "guest");
    machine_ok(b->m, "idletime-set", "{'device': 'vm',"
               " 'class': 'foreground', 'background-queues': '0'}");
}

typedef struct Disturbance {
    const char *name;
    void (*disturb)(VhostBench *b);
} Disturbance;

static const Disturbance disturbance[] = {
    { "link", by_link },
    { "stop", by_stop },
    { "reset", by_reset },
    { "system-reset", by_system },
    { "queue-reset", by_queue_reset },
    { "class", by_class },
};

static void test_disturbed(const void *opaque)
{
    const Disturbance *d = opaque;
    VhostBench b = vhost_bench(LONG_INTERVAL, "");

    nic_attach(b.vm, "background");
    d->disturb(&b);
    assert_by_qemu(&b, 1);
    d->disturb(&b);
    g_assert_false(vhost_runs(b.vm));
    vhost_step(&b, LONG_INTERVAL_US);
    /* What was held was dropped, or has left. */
    while (vhost_seen(&b) >= 0) {
        continue;
    }
    assert_by_qemu(&b, 10);
    nic_detach(b.vm);
    nic_await_detached(b.vm);
    assert_left_held(&b, 10);
    assert_by_vhost(&b, 20);
    vhost_done(&b);
}

static void test_stopped(void)
{
    VhostBench b = vhost_bench(LONG_INTERVAL, "");

    machine_stop(b.m);
    nic_attach(b.vm, "background");
    machine_cont(b.m);
    assert_by_qemu(&b, 1);
    machine_stop(b.m);
    nic_detach(b.vm);
    nic_await_detached(b.vm);
    machine_cont(b.m);
    /* In the ring: vhost finds them. */
    assert_left_held(&b, 1);
    assert_by_vhost(&b, 10);
    vhost_done(&b);
}

static void test_unplug(void)
{
    VhostBench b = vhost_bench(LONG_INTERVAL, "");

    nic_attach(b.vm, "background");
    assert_by_qemu(&b, 1);
    nic_unplug(b.vm);
    g_assert_false(nic_is_attached(b.vm));
    vhost_done(&b);
}

/* ---- migration */

/* Packets that were held go to the destination's vhost in the ring. */
static void test_move(const void *opaque)
{
    bool attached = GPOINTER_TO_INT(opaque);
    VhostBench b = vhost_bench(LONG_INTERVAL, "");
    VhostBench to = { .m = machine_new_beside(b.m) };

    machine_resource(to.m, RESOURCE, LONG_INTERVAL);
    to.fg = machine_nic_at(to.m, "fg", b.fg->slot, "idletime=" RESOURCE);
    to.vm = vhost_nic(to.m, "tap-other", "");
    to.watched = tap_watch("tap-other");
    if (!attached) {
        nic_attach(b.vm, "background");
        assert_by_qemu(&b, 1);
    }
    machine_stop(b.m);
    nic_move(b.vm, to.vm);
    close(to.vm->host);
    to.vm->host = -1;
    nic_adopt(to.fg, b.fg);
    if (attached) {
        nic_attach(to.vm, "background");
    }
    machine_cont(to.m);
    if (attached) {
        assert_by_qemu(&to, 1);
        nic_detach(to.vm);
    }
    assert_left_held(&to, 1);
    assert_by_vhost(&to, 10);
    vhost_done(&to);
    vhost_done(&b);
}

/* ---- */

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    if (!vhost_possible()) {
        return 0;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(disturbance); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-vhost-life/%s",
                                                disturbance[i].name);

        qtest_add_data_func(path, &disturbance[i], test_disturbed);
    }
    qtest_add_func("idletime/net-vhost-life/stopped", test_stopped);
    qtest_add_func("idletime/net-vhost-life/unplug", test_unplug);
    qtest_add_data_func("idletime/net-vhost-life/move/from-held",
                        GINT_TO_POINTER(false), test_move);
    qtest_add_data_func("idletime/net-vhost-life/move/to-held",
                        GINT_TO_POINTER(true), test_move);
    return g_test_run();
}
