/*
 * Idletime machine tests: network devices that were attached while the machine
 * ran: stop, reset, link, unplug and migration.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "idletime-nic-live.h"

/* ---- stop, reset, link, unplug */

static void test_stopped(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    nic_plain(fg, 0);
    machine_stop(m);
    nic_marked(vm, 1);
    nic_attach(vm, class);
    nic_marked(vm, 2);
    machine_cont(m);
    nic_settle(m);
    assert_none_left(vm);
    machine_stop(m);
    nic_detach(vm);
    nic_await_detached(vm);
    assert_none_left(vm);
    nic_marked(vm, 3);
    machine_cont(m);
    nic_settle(m);
    assert_left(vm, 1, 2, 3);
    g_assert_cmpint(nic_returned(vm), ==, NIC_HELD);
    nic_pair_done(m, fg, vm);
}

static void test_reset(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    nic_attach(vm, class);
    nic_hold_some(fg, vm);
    qvirtio_reset(&vm->pci->vdev);
    nic_settle(m);
    nic_init(vm);
    /* It is attached as it was. */
    nic_marked(vm, 4);
    assert_none_left(vm);
    qtest_system_reset(m->qts);
    nic_settle(m);
    nic_detach(vm);
    nic_await_detached(vm);
    nic_attach(vm, class);
    nic_init(vm);
    nic_init(fg);
    nic_hold_some(fg, vm);
    nic_detach(vm);
    assert_left(vm, 1, 2, 3);
    nic_pair_done(m, fg, vm);
}

static void set_link(TestNic *nic, bool up)
{
    machine_ok(nic->m, "set_link", "{'name': %s, 'up': %i}", nic->id, up);
    nic_settle(nic->m);
}

static void test_link(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    set_link(vm, false);
    nic_attach(vm, class);
    set_link(vm, true);
    nic_hold_some(fg, vm);
    set_link(vm, false);
    nic_detach(vm);
    nic_await_detached(vm);
    g_assert_cmpint(nic_returned(vm), ==, NIC_HELD);
    set_link(vm, true);
    nic_marked(vm, 9);
    assert_left(vm, 9);
    nic_pair_done(m, fg, vm);
}

static void test_netdev_deleted(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    machine_ok(m, "netdev_del", "{'id': 'vm-net'}");
    nic_attach(vm, class);
    nic_marked(vm, 1);
    g_assert_cmpint(nic_returned(vm), ==, !nic_in_order());
    nic_detach(vm);
    nic_await_detached(vm);
    nic_pair_done(m, fg, vm);
}

static void test_unplug(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    nic_attach(vm, class);
    nic_hold_some(fg, vm);
    nic_unplug(vm);
    g_assert_false(nic_is_attached(vm));
    nic_step(m, LONG_INTERVAL_US);
    assert_none_left(vm);
    nic_pair_done(m, fg, vm);
}

/* ---- migration */

typedef struct MoveCase {
    const char *name;
    const char *class;          /* of the source; NULL: it was detached */
    const char *to;             /* the same of the destination */
} MoveCase;

static const MoveCase move_case[] = {
    { "attached", "background", "background" },
    { "guest", "guest", "guest" },
    { "to-stock", "background", NULL },
    { "from-stock", NULL, "background" },
};

/* Held, or in the ring of a stopped VM: it leaves at the other side. */
static void test_move(const void *opaque)
{
    const MoveCase *c = opaque;
    TestMachine *src = machine_new(), *dst = machine_new_beside(src);
    TestNic *from, *to;

    machine_resource(src, RESOURCE, LONG_INTERVAL);
    machine_resource(dst, RESOURCE, LONG_INTERVAL);
    from = machine_nic_at(src, "vm", 20, "");
    to = machine_nic_at(dst, "vm", 20, "");
    machine_start(src);
    nic_init(from);
    nic_attach(from, c->class ?: "background");
    if (!c->class) {
        nic_detach(from);
        nic_await_detached(from);
    }
    machine_stop(src);
    for (int i = 1; i <= NIC_HELD; i++) {
        nic_marked(from, i);
    }
    nic_move(from, to);
    g_assert_false(nic_is_attached(to));
    if (c->to) {
        nic_attach(to, c->to);
    }
    machine_cont(dst);
    nic_settle(dst);
    if (c->to) {
        nic_step(dst, 2 * LONG_INTERVAL_US);
    }
    assert_left(to, 1, 2, 3);
    if (c->to) {
        nic_detach(to);
        nic_await_detached(to);
    }
    nic_marked(to, 4);
    assert_left(to, 4);
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
        g_autofree char *path =
            g_strdup_printf("idletime/net-attach-life/%s/%s",
                             name, class[i]);

        nic_add_data(path, class[i], test);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_for_classes("stopped", test_stopped);
    add_for_classes("reset", test_reset);
    add_for_classes("link", test_link);
    add_for_classes("netdev-deleted", test_netdev_deleted);
    add_for_classes("unplug", test_unplug);
    for (unsigned i = 0; i < ARRAY_SIZE(move_case); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-attach-life/"
                                                "move/%s", move_case[i].name);

        nic_add_data(path, &move_case[i], test_move);
    }
    return g_test_run();
}
