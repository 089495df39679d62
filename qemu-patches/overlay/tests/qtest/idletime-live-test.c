/*
 * Idletime machine tests: settings and classes that change while holding.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

static void test_interval_change(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=3600000", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    machine_set(m, "interval-us", 60 * 1000 * MS);
    machine_step_us(m, 60 * 1000 * MS - 1);
    assert_held(bg, 1);
    machine_set(m, "interval-us", 0);
    request_ok(r);

    foreground(fg);
    machine_set(m, "interval-us", 60 * 1000 * MS);
    r = disk_read(bg);
    machine_step_us(m, 5 * MS);
    machine_set(m, "interval-us", INTERVAL_US);
    /* 5 ms of the 20 are over. */
    machine_step_us(m, 15 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 0);
    machine_free(m);
}

static void test_deadline_change(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("interval-us=3600000000", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    machine_step_us(m, 10 * MS);
    machine_set(m, "max-hold-ms", 11);
    assert_held(bg, 1);
    machine_step_us(m, 1 * MS);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 1);
    machine_free(m);
}

static void test_cap_change(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *a, *b;

    disk_pause_read(bg, "A");
    a = disk_read(bg);
    b = disk_read(bg);
    assert_held(bg, 1);
    machine_set(m, "max-inflight", 2);
    request_ok(b);
    disk_resume(bg, "A");
    request_ok(a);
    machine_free(m);
}

static void test_class_change(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r, *f;

    foreground(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    disk_set_class(bg, "foreground");
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.class-change"), ==, 1);
    request_ok(disk_read(bg));
    g_assert_cmpint(disk_number(bg, "foreground.requests"), ==, 2);

    /* And back, with a foreground request of its own in service. */
    disk_pause_read(bg, "A");
    f = disk_read(bg);
    disk_set_class(bg, "background");
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, 50 * MS);
    assert_held(bg, 1);
    disk_resume(bg, "A");
    request_ok(f);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

/* To class guest: those that were held as background go on waiting. */
static void test_class_to_guest(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    disk_set_class(bg, "guest");
    assert_held(bg, 1);
    request_ok(disk_read(bg));
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

static void set_queues(TestDisk *d, const char *queues)
{
    machine_ok(d->m, "idletime-set", "{'device': %s, 'background-queues': %s}",
               d->id, queues);
}

static void test_queue_list_change(void)
{
    TestDisk *d;
    TestMachine *m = machine_queues(&d);
    TestRequest *a, *b;

    foreground(d);
    a = disk_read_on(d, 1);
    b = disk_read_on(d, 2);
    assert_held(d, 2);
    set_queues(d, "1");
    request_ok(b);
    assert_held(d, 1);
    g_assert_cmpint(disk_number(d, "promotions.class-change"), ==, 1);
    set_queues(d, "");
    request_ok(a);
    set_queues(d, "0");
    a = disk_read(d);
    assert_held(d, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(a);
    machine_free(m);
}

/* The driver comes back with fewer queues, and then with all of them. */
static void test_queues_change(void)
{
    TestDisk *d;
    TestMachine *m = machine_queues(&d);

    for (unsigned queues = 3; queues > 0; queues--) {
        foreground(d);
        for (unsigned i = 1; i < d->num_queues; i++) {
            disk_read_on(d, i);
        }
        assert_held(d, d->num_queues - 1);
        qvirtio_reset(&d->pci->vdev);
        assert_held(d, 0);
        disk_forget(d);
        d->num_queues = queues - 1 ?: 3;
        disk_init(d);
    }
    foreground(d);
    for (unsigned i = 1; i < d->num_queues; i++) {
        TestRequest *r = disk_read_on(d, i);

        assert_held(d, i);
        g_assert_false(request_done(r));
    }
    machine_step_us(m, INTERVAL_US);
    disk_await(d, "held", 0);
    disk_await(d, "background.requests", 2);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/live/interval", test_interval_change);
    ring_test("idletime/live/deadline", test_deadline_change);
    ring_test("idletime/live/cap", test_cap_change);
    ring_test("idletime/live/class", test_class_change);
    ring_test("idletime/live/class-to-guest", test_class_to_guest);
    ring_test("idletime/live/queue-list", test_queue_list_change);
    ring_test("idletime/live/queues", test_queues_change);
    return g_test_run();
}
