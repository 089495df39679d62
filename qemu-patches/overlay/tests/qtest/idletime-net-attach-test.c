/*
 * Idletime machine tests: network devices are attached to a resource, and
 * detached, while the machine runs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "idletime-nic-live.h"
#include "qapi/error.h"
#include "qobject/qjson.h"

#define LARGE           60000
#define DETACHING \
    "device 'vm' is being detached from idletime-resource '" RESOURCE "': " \
    "wait for the event IDLETIME_DETACHED"

/* Until the backend takes no more.  Returns how many were sent. */
static unsigned block_backend(TestNic *nic)
{
    g_autofree uint8_t *large = g_malloc0(LARGE);
    unsigned returned = nic_returned(nic), sent = 0;

    packet_make(&(TestPacket) { .port = 2000 }, large);
    do {
        nic_send_raw(nic, large, LARGE, 0);
        sent++;
    } while (nic_returned(nic) == returned + sent);
    return sent;
}

/* What its host reads makes room. */
static void drain_backend(TestNic *nic, unsigned packets)
{
    int64_t end_us = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;
    g_autofree uint8_t *buffer = g_malloc(2 * LARGE);

    while (packets) {
        packets -= nic_got(nic, buffer, 2 * LARGE) == LARGE;
        nic_settle(nic->m);
        g_assert_cmpint(g_get_monotonic_time(), <, end_us);
    }
}

/* ---- attach, hold, detach */

static void test_attach(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    nic_marked(vm, 100);
    assert_left(vm, 100);
    nic_attach(vm, class);
    nic_hold_some(fg, vm);
    nic_detach(vm);
    nic_await_detached(vm);
    assert_left(vm, 1, 2, 3);
    g_assert_cmpint(nic_returned(vm), ==, NIC_HELD + 1);
    /* The interval runs, but it is a stock device. */
    nic_marked(vm, 4);
    assert_left(vm, 4);
    nic_pair_done(m, fg, vm);
}

static void test_often(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    nic_plain(fg, 0);
    for (int i = 0; i < 20; i++) {
        nic_attach(vm, class);
        nic_marked(vm, 2 * i);
        assert_none_left(vm);
        nic_marked(vm, 2 * i + 1);
        nic_detach(vm);
        nic_await_detached(vm);
        assert_left(vm, 2 * i, 2 * i + 1);
    }
    g_assert_cmpint(nic_returned(vm), ==, 40);
    nic_pair_done(m, fg, vm);
}

/* One that was attached by its properties goes to another resource. */
static void test_other_resource(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("idletime=" RESOURCE
                                    ",idletime-class=background",
                                    &fg, &vm);
    g_autofree char *path = g_strdup_printf("%s/r1", m->dir);

    nic_hold_some(fg, vm);
    nic_detach(vm);
    nic_await_detached(vm);
    assert_left(vm, 1, 2, 3);
    machine_ok(m, "object-add", "{'qom-type': 'idletime-resource',"
               " 'id': 'r1', 'path': %s}", path);
    machine_ok(m, "idletime-attach", "{'device': 'vm', 'resource': 'r1',"
               " 'class': 'background'}");
    g_assert_cmpint(machine_number(m, "r1", "devices.0.participants"), ==, 1);
    /* No foreground there. */
    nic_marked(vm, 4);
    assert_left(vm, 4);
    nic_detach(vm);
    nic_await_detached(vm);
    machine_ok(m, "object-del", "{'id': 'r1'}");
    nic_pair_done(m, fg, vm);
}

static void assert_code_points(TestMachine *m, const char *member,
                               const char *list)
{
    g_autofree char *shown = machine_string(m, RESOURCE, member);

    g_assert_cmpstr(shown, ==, list);
}

/* The code points that are given with the command. */
static void test_dscp(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    machine_ok(m, "idletime-attach", "{'device': 'vm', 'resource': '" RESOURCE
               "', 'class': 'guest', 'dscp': '8,10'}");
    assert_code_points(m, "devices.1.dscp", "8,10");
    nic_plain(fg, 0);
    nic_send(vm, (TestPacket) { .dscp = 10, .number = 1 });
    nic_send(vm, (TestPacket) { .dscp = DSCP_LE, .port = 2000, .number = 2 });
    assert_left(vm, 2);
    g_assert_cmpint(nic_number(vm, "held"), ==, 1);
    nic_detach(vm);
    assert_left(vm, 1);
    nic_pair_done(m, fg, vm);
}

static void test_timer(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("tx=timer", &fg, &vm);

    nic_attach(vm, class);
    nic_plain(fg, 0);
    for (int i = 1; i <= NIC_HELD; i++) {
        nic_marked(vm, i);
        /* Its timer, 150 us. */
        nic_step(m, MS);
    }
    assert_none_left(vm);
    nic_detach(vm);
    nic_step(m, MS);
    nic_await_detached(vm);
    assert_left(vm, 1, 2, 3);
    /* One that its timer waits for when it is attached. */
    nic_marked(vm, 4);
    nic_attach(vm, class);
    nic_step(m, MS);
    assert_none_left(vm);
    nic_detach(vm);
    nic_step(m, MS);
    assert_left(vm, 4);
    nic_pair_done(m, fg, vm);
}

/* ---- packets in the backend's queue */

static void test_attach_blocked(const void *class)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);
    unsigned sent = block_backend(vm);

    nic_attach(vm, class);
    nic_send_some(fg, vm);
    g_assert_cmpint(nic_returned(vm), ==, sent - 1);
    drain_backend(vm, sent);
    assert_none_left(vm);
    g_assert_cmpint(nic_returned(vm), ==, sent);
    nic_detach(vm);
    nic_await_detached(vm);
    assert_left(vm, 1, 2, 3);
    g_assert_cmpint(nic_returned(vm), ==, sent + NIC_HELD);
    nic_pair_done(m, fg, vm);
}

/* Foreground of class guest passed what is held, and fills the backend. */
static unsigned detach_blocked(TestNic *fg, TestNic *vm)
{
    unsigned sent;

    nic_attach(vm, "guest");
    nic_hold_some(fg, vm);
    sent = block_backend(vm);
    nic_detach(vm);
    g_assert_cmpint(nic_number(vm, "detaching"), ==, 1);
    return sent;
}

static void test_detach_blocked(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);
    unsigned sent = detach_blocked(fg, vm);

    machine_refused(m, DETACHING, "idletime-attach",
                    "{'device': 'vm', 'resource': '" RESOURCE "'}");
    machine_refused(m, DETACHING, "idletime-set",
                    "{'device': 'vm', 'class': 'background'}");
    nic_detach(vm);
    drain_backend(vm, sent);
    nic_await_detached(vm);
    assert_left(vm, 1, 2, 3);
    g_assert_cmpint(nic_returned(vm), ==, sent + NIC_HELD);
    nic_pair_done(m, fg, vm);
}

static void test_detach_reset(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    detach_blocked(fg, vm);
    qvirtio_reset(&vm->pci->vdev);
    nic_settle(m);
    nic_await_detached(vm);
    nic_init(vm);
    nic_pair_done(m, fg, vm);
}

static void test_detach_stop(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);
    unsigned sent = detach_blocked(fg, vm);

    machine_stop(m);
    nic_settle(m);
    nic_await_detached(vm);
    g_assert_cmpint(nic_returned(vm), ==, sent + NIC_HELD);
    machine_cont(m);
    nic_pair_done(m, fg, vm);
}

static void test_detach_unplug(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    TestDisk device = { .m = m, .id = vm->id, .slot = vm->slot };

    detach_blocked(fg, vm);
    disk_unplug_begin(&device);
    nic_await_detached(vm);
    nic_forget(vm);
    nic_pair_done(m, fg, vm);
}

/* ---- errors */

typedef struct BadCase {
    const char *command;
    const char *arguments;      /* JSON */
    const char *text;
} BadCase;

#define ATTACH(more) "idletime-attach", \
    "{'device': 'vm', 'resource': '" RESOURCE "'" more "}"

static const BadCase bad[] = {
    { ATTACH(", 'dscp': '64'"), "property 'idletime-dscp' is '64', must be a "
      "list of code points from 0 to 63, such as 1,8,10-12" },
    { ATTACH(", 'background-queues': '1'"), "property "
      "'idletime-background-queues' is '1': queue 1 does not exist, the "
      "device has the queues 0 to 0 (see num-queues)" },
    { "idletime-attach", "{'device': 'vm', 'resource': 'nope'}",
      "property 'idletime': no idletime-resource has the id 'nope'; add "
      "-object idletime-resource,id=nope,path=DIRECTORY" },
    { "idletime-attach", "{'device': 'fg', 'resource': '" RESOURCE "'}",
      "device 'fg' is attached to idletime-resource '" RESOURCE "': use "
      "idletime-detach first, or idletime-set to change its class" },
};

/* Each names value and remedy, and the device stays what it is. */
static void test_refused(void)
{
    TestNic *fg, *vm;
    TestMachine *m = nic_stock_pair("", &fg, &vm);

    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        QObject *arguments = qobject_from_json(bad[i].arguments, &error_abort);

        machine_refused(m, bad[i].text, bad[i].command, "%p", arguments);
        g_assert_false(nic_is_attached(vm));
    }
    nic_plain(fg, 0);
    nic_marked(vm, 1);
    assert_left(vm, 1);
    nic_pair_done(m, fg, vm);
}

/* ---- */

static void add_for_classes(const char *name, GTestDataFunc test)
{
    static const char *const class[] = { "background", "guest" };

    for (unsigned i = 0; i < ARRAY_SIZE(class); i++) {
        g_autofree char *path = g_strdup_printf("idletime/net-attach/%s/%s",
                                                name, class[i]);

        nic_add_data(path, class[i], test);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_for_classes("held", test_attach);
    add_for_classes("often", test_often);
    nic_add("idletime/net-attach/other-resource", test_other_resource);
    nic_add_of("idletime/net-attach/dscp", false, test_dscp);
    add_for_classes("timer", test_timer);
    add_for_classes("blocked", test_attach_blocked);
    nic_add_of("idletime/net-attach/detach/blocked", false,
               test_detach_blocked);
    nic_add_of("idletime/net-attach/detach/reset", false, test_detach_reset);
    nic_add_of("idletime/net-attach/detach/stop", false, test_detach_stop);
    nic_add_of("idletime/net-attach/detach/unplug", false,
               test_detach_unplug);
    qtest_add_func("idletime/net-attach/refused", test_refused);
    return g_test_run();
}
