/*
 * Idletime machine tests: disks are attached and detached while they run.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * "bg" starts as a disk of stock QEMU; "fg" is foreground on the resource.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define HELD    3
#define LONG    "interval-us=60000000,max-hold-ms=0"

static TestMachine *bench(const char *resource, const char *options,
                          TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, resource);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_disk(m, "bg", options);
    machine_start(m);
    return m;
}

static void write_some(TestDisk *d, TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(d, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
}

static void all_ok(TestDisk *d, TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(d, 0, HELD * BLOCK_BYTES, 0x5a));
}

/* ---- attach */

/* What was in service at the attach is nobody's: its end is not counted. */
static void test_in_flight(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench("", "", &fg, &bg);
    TestRequest *a, *b;

    disk_pause_read(bg, "A");
    a = disk_read(bg);
    disk_attach(bg, "background");
    g_assert_cmpint(disk_number(bg, "detaching"), ==, 0);
    foreground(fg);
    b = disk_read(bg);
    assert_held(bg, 1);
    assert_in_service(bg, 0);
    disk_resume(bg, "A");
    request_ok(a);
    assert_held(bg, 1);
    g_assert_cmpint(disk_number(bg, "foreground.requests"), ==, 0);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(b);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 1);
    machine_free(m);
}

/* The same as foreground: a background disk of another VM is not kept. */
static void test_in_flight_foreground(void)
{
    TestDisk *other, *d;
    TestMachine *m = machine_new();
    TestRequest *a, *r;

    machine_resource(m, RESOURCE, "");
    d = machine_disk(m, "d", "");
    machine_start(m);
    disk_pause_read(d, "A");
    a = disk_read(d);
    disk_attach(d, "foreground");
    other = machine_background(m, "");
    machine_step_to(other->m, m);
    request_ok(disk_read(other));
    request_ok(disk_read(d));
    g_assert_cmpint(disk_number(d, "foreground.requests"), ==, 1);
    disk_resume(d, "A");
    request_ok(a);
    g_assert_cmpint(disk_number(d, "foreground.requests"), ==, 1);
    machine_step_us(other->m, 1);
    r = disk_read(other);
    assert_held(other, 1);
    machine_step_us(other->m, INTERVAL_US);
    request_ok(r);
    machine_free(other->m);
    machine_free(m);
}

/* With class and queues, in one step. */
static void test_queues(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench("", "num-queues=3", &fg, &bg);
    TestRequest *r;

    machine_ok(m, "idletime-attach", "{'device': 'bg', 'resource': 'r0',"
               " 'background-queues': '1-2'}");
    foreground(fg);
    r = disk_read_on(bg, 2);
    assert_held(bg, 1);
    request_ok(disk_read_on(bg, 0));
    /* Its own foreground request has put it off once more. */
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

/* By each of its names. */
static void test_names(void)
{
    static const char *const name[] = {
        "bg", "/machine/peripheral/bg",
        "/machine/peripheral/bg/virtio-backend",
    };
    TestDisk *fg, *bg;
    TestMachine *m = bench("", "", &fg, &bg);

    /* A SCSI disk is itself, and no part of a proxy. */
    for (unsigned i = 0; i < ARRAY_SIZE(name) - disks_are_scsi(); i++) {
        machine_ok(m, "idletime-attach", "{'device': %s, 'resource': 'r0'}",
                   name[i]);
        machine_ok(m, "idletime-set", "{'device': %s, 'class': 'guest'}",
                   name[i]);
        g_assert_true(disk_is_attached(bg));
        machine_ok(m, "idletime-detach", "{'device': %s}", name[i]);
        disk_await_detached(bg);
    }
    machine_free(m);
}

/* ---- detach */

/* max-inflight at a time, and what comes meanwhile passes. */
static void test_cap(void)
{
    static const char *const tag[HELD] = { "A", "B", "C" };
    TestDisk *fg, *bg;
    TestMachine *m = bench(LONG, "", &fg, &bg);
    TestRequest *r[HELD];

    disk_attach(bg, "background");
    foreground(fg);
    write_some(bg, r);
    assert_held(bg, HELD);
    disk_pause_write(bg, tag[0]);
    disk_detach(bg);
    for (int i = 0; i < HELD; i++) {
        disk_await(bg, "held", HELD - 1 - i);
        g_assert_cmpint(disk_number(bg, "detaching"), ==, 1);
        g_assert_cmpint(disk_number(bg, "promotions.class-change"), ==, i + 1);
        request_ok(disk_read(bg));
        assert_held(bg, HELD - 1 - i);
        g_assert_false(request_done(r[i]));
        if (i < HELD - 1) {
            disk_pause_write(bg, tag[i + 1]);
        }
        disk_resume(bg, tag[i]);
        request_ok(r[i]);
    }
    all_ok(bg, r);
    disk_await_detached(bg);
    machine_free(m);
}

/* It waits for what began as foreground; what comes meanwhile is stock. */
static void test_detach_in_flight(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench("", "", &fg, &bg);
    TestRequest *a;

    disk_attach(bg, "foreground");
    disk_pause_read(bg, "A");
    a = disk_read(bg);
    disk_detach(bg);
    g_assert_cmpint(disk_number(bg, "detaching"), ==, 1);
    request_ok(disk_read(bg));
    g_assert_cmpint(disk_number(bg, "foreground.requests"), ==, 1);
    machine_refused(m, "device 'bg' is being detached from idletime-resource "
                    "'r0': wait for the event IDLETIME_DETACHED",
                    "idletime-set", "{'device': 'bg', 'class': 'guest'}");
    machine_refused(m, "device 'bg' is being detached from idletime-resource "
                    "'r0': wait for the event IDLETIME_DETACHED",
                    "idletime-attach", "{'device': 'bg', 'resource': 'r0'}");
    machine_refused(m, "object 'r0' is in use, can not be deleted",
                    "object-del", "{'id': 'r0'}");
    disk_detach(bg);            /* twice: goes on */
    disk_resume(bg, "A");
    request_ok(a);
    disk_await_detached(bg);
    g_assert_null(qtest_qmp_event_ref(m->qts, "IDLETIME_DETACHED"));
    machine_free(m);
}

/* And one with a lease. */
static void test_detach_in_service(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench("", "", &fg, &bg);
    TestRequest *a;

    disk_attach(bg, "background");
    disk_pause_write(bg, "A");
    a = disk_write(bg, 0, MiB, 0x5a);
    assert_in_service(bg, 1);
    disk_detach(bg);
    g_assert_cmpint(disk_number(bg, "detaching"), ==, 1);
    disk_resume(bg, "A");
    request_ok(a);
    g_assert_true(disk_holds(bg, 0, MiB, 0x5a));
    disk_await_detached(bg);
    machine_free(m);
}

/* Each time it is stock again, and the resource has no user. */
static void test_often(void)
{
    TestMachine *m = machine_new();
    TestRequest *r[HELD];
    TestDisk *d;

    machine_resource(m, RESOURCE, "");
    d = machine_disk(m, "d", "");
    machine_start(m);
    for (int i = 0; i < 20; i++) {
        disk_attach(d, i % 2 ? "guest" : "background");
        foreground(d);
        for (int j = 0; j < HELD; j++) {
            r[j] = disk_read_as(d, IOPRIO_IDLE);
        }
        disk_detach(d);
        for (int j = 0; j < HELD; j++) {
            request_ok(r[j]);
        }
        disk_await_detached(d);
        machine_ok(m, "object-del", "{'id': 'r0'}");
        request_ok(disk_read_as(d, IOPRIO_IDLE));
        machine_ok(m, "object-add", "{'qom-type': 'idletime-resource',"
                   " 'id': 'r0', 'auto': false, 'path': %s}", m->dir);
    }
    machine_free(m);
}

/* With the properties at its start; then attached to another one. */
static void test_configured(void)
{
    TestMachine *m = machine_new();
    TestDisk *d;

    machine_resource(m, RESOURCE, "");
    machine_resource(m, "r1", "");
    d = machine_disk(m, "d", "idletime=r1,idletime-class=background");
    machine_start(m);
    machine_refused(m, "device 'd' is attached to idletime-resource 'r1': use "
                    "idletime-detach first, or idletime-set to change its "
                    "class", "idletime-attach",
                    "{'device': 'd', 'resource': 'r0'}");
    disk_detach(d);
    disk_await_detached(d);
    disk_attach(d, "background");
    g_assert_cmpint(machine_number(m, RESOURCE, "devices.0.participants"), ==,
                    1);
    machine_ok(m, "object-del", "{'id': 'r1'}");
    /* A reset changes nothing of that. */
    qtest_system_reset(m->qts);
    disk_init(d);
    g_assert_cmpint(machine_number(m, RESOURCE, "devices.0.held"), ==, 0);
    machine_free(m);
}

/* in_order: as with the properties. */
static void test_in_order(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench("", "in_order=on", &fg, &bg);

    machine_refused(m, "property 'idletime-class' is 'background', but "
                    "'in_order' is 'on': held requests would delay all behind "
                    "them; use in_order=off, the default, or class "
                    "'foreground'", "idletime-attach",
                    "{'device': 'bg', 'resource': 'r0',"
                    " 'class': 'background'}");
    g_assert_false(disk_is_attached(bg));
    disk_attach(bg, "foreground");
    request_ok(disk_read(bg));
    g_assert_cmpint(disk_number(bg, "foreground.requests"), ==, 1);
    disk_detach(bg);
    disk_await_detached(bg);
    machine_free(m);
}

/* ---- a lost arena */

/* No foreground slot can be had: it leaves within the cap all the same. */
static void test_lost_arena(void)
{
    TestMachine *m = machine_new();
    g_autofree char *board = g_strdup_printf("%s/" RESOURCE "/foreground",
                                             m->dir);
    g_autofree char *state = NULL;
    TestRequest *r[HELD];
    TestDisk *bg;

    machine_resource(m, RESOURCE, LONG);
    bg = machine_throttled(m, "bg", ONE_WRITE, "");
    machine_start(m);
    request_ok(disk_write(bg, MiB, BLOCK_BYTES, 0x11));
    disk_attach(bg, "background");
    g_assert_cmpint(truncate(board, 0), ==, 0);
    machine_step_us(m, 1000 * MS);
    state = machine_string(m, RESOURCE, "state");
    g_assert_cmpstr(state, ==, "lost");
    write_some(bg, r);
    assert_held(bg, HELD);
    disk_detach(bg);
    disk_await(bg, "held", HELD - 1);
    for (int i = 0; i < HELD; i++) {
        disk_let_go(bg);
    }
    all_ok(bg, r);
    disk_await_detached(bg);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/attach/in-flight", test_in_flight);
    ring_test("idletime/attach/in-flight-foreground",
              test_in_flight_foreground);
    ring_test("idletime/attach/queues", test_queues);
    qtest_add_func("idletime/attach/names", test_names);
    ring_test("idletime/attach/cap", test_cap);
    ring_test("idletime/attach/detach-in-flight", test_detach_in_flight);
    ring_test("idletime/attach/detach-in-service", test_detach_in_service);
    ring_test("idletime/attach/often", test_often);
    qtest_add_func("idletime/attach/configured", test_configured);
    qtest_add_func("idletime/attach/in-order", test_in_order);
    ring_test("idletime/attach/lost-arena", test_lost_arena);
    return g_test_run();
}
