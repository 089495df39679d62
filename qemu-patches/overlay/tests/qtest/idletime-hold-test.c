/*
 * Idletime machine tests: when held requests are released.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Times in the comments are milliseconds after the last foreground event.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

static void test_idle(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);

    request_ok(disk_read(bg));
    assert_held(bg, 0);
    /* Held for 0 us: the first bin, up to 100 us. */
    g_assert_cmpint(disk_number(bg, "hold.bins.0"), ==, 1);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, 0);
    g_assert_cmpint(disk_number(bg, "background.bytes"), ==, BLOCK_BYTES);
    machine_free(m);
}

static void test_interval(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    g_assert_false(request_done(r));
    machine_step_us(m, 1);
    assert_held(bg, 0);
    request_ok(r);
    /* 20000 us lies above 12800 us (bin 7's bound) and below 25600. */
    g_assert_cmpint(disk_number(bg, "hold.bins.8"), ==, 1);
    g_assert_cmpint(disk_number(bg, "hold.boundaries-us.8"), ==, 25600);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, INTERVAL_US);
    machine_free(m);
}

static void test_late_arrival(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    machine_step_us(m, 5 * MS);
    r = disk_read(bg);
    /* At 20, as ever: held for 20 - 5 = 15. */
    machine_step_us(m, 15 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, 15 * MS);
    machine_free(m);
}

static void test_restart(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    machine_step_us(m, 15 * MS);
    foreground(fg);
    /* At 15 + 20 = 35, not at 20. */
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, 35 * MS);
    machine_free(m);
}

static void test_interval_zero(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("interval-us=0", &fg, &bg);
    TestRequest *f, *r;

    foreground(fg);
    request_ok(disk_read(bg));
    /* A priority queue still: nothing starts while foreground is served. */
    disk_pause_read(fg, "A");
    f = disk_read(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    disk_resume(fg, "A");
    request_ok(f);
    /* Nobody tells: we look each 200 us (IDLETIME_LOOK_MIN_NS). */
    machine_step_us(m, 200);
    request_ok(r);
    machine_free(m);
}

/* @served_us: how long the foreground request is in service */
static void test_in_service(const void *opaque)
{
    int64_t served_us = GPOINTER_TO_INT(opaque);
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *f, *r;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    r = disk_read(bg);
    machine_step_us(m, served_us);
    assert_held(bg, 1);
    disk_resume(fg, "A");
    request_ok(f);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==,
                    served_us + INTERVAL_US);
    machine_free(m);
}

static void test_deadline_in_service(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=100", &fg, &bg);
    TestRequest *f, *r;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    machine_step_us(m, 7 * MS);
    r = disk_read(bg);
    machine_step_us(m, 100 * MS - 1);
    assert_held(bg, 1);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 0);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 1);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==, 100 * MS);
    g_assert_false(request_done(f));
    disk_resume(fg, "A");
    request_ok(f);
    machine_free(m);
}

static void test_deadline_busy(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=100", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    for (int i = 1; i < 10; i++) {
        machine_step_us(m, 10 * MS);
        foreground(fg);
    }
    /* 90 now, the last foreground was just now; the deadline is 100. */
    machine_step_us(m, 10 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 1);
    machine_free(m);
}

/* The deadline counts for each request from its own arrival. */
static void test_deadline_each(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=100", &fg, &bg);
    TestRequest *f, *a, *b;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    a = disk_read(bg);
    machine_step_us(m, 30 * MS);
    b = disk_read(bg);
    machine_step_us(m, 70 * MS);
    request_ok(a);
    assert_held(bg, 1);
    machine_step_us(m, 30 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(b);
    disk_resume(fg, "A");
    request_ok(f);
    machine_free(m);
}

static void test_no_deadline(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=0", &fg, &bg);
    TestRequest *f, *r;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    r = disk_read(bg);
    machine_step_us(m, 60 * 1000 * MS);
    assert_held(bg, 1);
    disk_resume(fg, "A");
    request_ok(f);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

/* ---- bursts beside a greedy background */

#define BURSTS          12
#define SERVICE_US      (5 * MS)

/* One is in service when a burst begins, the others wait. */
typedef struct Greedy {
    TestDisk *d;
    TestRequest *r[3];
} Greedy;

static void greedy_start(Greedy *g)
{
    disk_pause_read(g->d, "B");
    for (int i = 0; i < 3; i++) {
        g->r[i] = disk_read_as(g->d, IOPRIO_IDLE);
    }
    assert_in_service(g->d, 1);
    assert_held(g->d, 2);
}

static void greedy_end(Greedy *g)
{
    machine_step_us(g->d->m, INTERVAL_US);
    for (int i = 0; i < 3; i++) {
        request_ok(g->r[i]);
    }
}

static void serve(TestDisk *d)
{
    TestRequest *r;

    disk_pause_read(d, "A");
    r = disk_read(d);
    machine_step_us(d->m, SERVICE_US);
    disk_resume(d, "A");
    request_ok(r);
}

/*
 * Up to 450 ms, with gaps up to the interval: a burst meets the one request
 * that was in service when it began, and the disk gets no other before its
 * end.
 */
static void burst(TestDisk *fg, Greedy *g, GRand *rand)
{
    TestMachine *m = fg->m;
    unsigned n = g_rand_int_range(rand, 2, 18);
    int64_t started, collisions;
    TestRequest *first;

    greedy_start(g);
    started = disk_number(g->d, "background.requests");
    collisions = machine_number(m, RESOURCE, "collisions");
    first = disk_read(fg);
    machine_step_us(m, g_rand_int_range(rand, 0, SERVICE_US));
    disk_resume(g->d, "B");
    request_ok(first);
    request_ok(g->r[0]);
    for (unsigned i = 0; i < n; i++) {
        machine_step_us(m, g_rand_int_range(rand, 0, INTERVAL_US));
        serve(fg);
        g_assert_cmpint(disk_number(g->d, "background.requests"), ==, started);
        assert_held(g->d, 2);
    }
    g_assert_cmpint(machine_number(m, RESOURCE, "collisions"), ==,
                    collisions + 1);
    greedy_end(g);
}

static void bursts(TestDisk *fg, TestDisk *bg)
{
    GRand *rand = g_rand_new_with_seed(1);
    Greedy greedy = { bg };

    for (int i = 0; i < BURSTS; i++) {
        burst(fg, &greedy, rand);
        machine_step_us(fg->m, g_rand_int_range(rand, INTERVAL_US,
                                                5 * INTERVAL_US));
    }
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 0);
    g_assert_cmpint(machine_number(fg->m, RESOURCE, "collisions"), ==, BURSTS);
    g_rand_free(rand);
}

static void test_bursts(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);

    bursts(fg, bg);
    machine_free(m);
}

/* ionice in the same guest */
static void test_bursts_guest(void)
{
    TestMachine *m = machine_new();
    TestDisk *d;

    machine_resource(m, RESOURCE, "");
    d = machine_disk(m, "d", "idletime=" RESOURCE ",idletime-class=guest");
    machine_start(m);
    bursts(d, d);
    machine_free(m);
}

/* ---- several background participants */

#define TRIO 3

static TestMachine *trio(const char *options, TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, options);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    for (int i = 0; i < TRIO; i++) {
        g_autofree char *id = g_strdup_printf("bg%d", i);

        bg[i] = machine_disk(m, id, "idletime=" RESOURCE
                             ",idletime-class=background");
    }
    machine_start(m);
    return m;
}

/* Each of three devices submits one; @cap of them are in service. */
static void test_cap(const void *opaque)
{
    int cap = GPOINTER_TO_INT(opaque);
    g_autofree char *options = g_strdup_printf("max-inflight=%d", cap);
    TestDisk *fg, *bg[TRIO];
    TestMachine *m = trio(options, &fg, bg);
    TestRequest *r[TRIO];

    for (int i = 0; i < TRIO; i++) {
        disk_pause_read(bg[i], "A");
        r[i] = disk_read(bg[i]);
        assert_in_service(bg[i], i < cap);
        assert_held(bg[i], i >= cap);
    }
    g_assert_cmpint(disk_number(bg[TRIO - 1], "waits.inflight"), >, 0);
    /* A completion wakes the next at once: no clock step. */
    for (int i = 0; i < TRIO; i++) {
        disk_await(bg[i], "in-service", 1);
        disk_resume(bg[i], "A");
        request_ok(r[i]);
    }
    machine_free(m);
}

static void test_cap_one_device(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-inflight=2", &fg, &bg);
    TestRequest *r[5];

    disk_pause_read(bg, "A");
    r[0] = disk_read(bg);
    disk_pause_read(bg, "B");
    for (int i = 1; i < 5; i++) {
        r[i] = disk_read(bg);
    }
    assert_in_service(bg, 2);
    assert_held(bg, 3);
    disk_resume(bg, "A");
    disk_resume(bg, "B");
    for (int i = 0; i < 5; i++) {
        request_ok(r[i]);
    }
    machine_free(m);
}

static void test_order(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[8];

    foreground(fg);
    for (int i = 0; i < 8; i++) {
        r[i] = disk_read(bg);
    }
    assert_held(bg, 8);
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < 8; i++) {
        request_ok(r[i]);
        g_assert_cmpint(r[i]->order, ==, i + 1);
    }
    machine_free(m);
}

/* Two QEMU processes on one arena; each has a virtual clock of its own. */
static void test_two_processes(void)
{
    TestDisk *fg, *bg;
    TestMachine *f, *b;
    TestRequest *r;

    machine_two("", &fg, &bg);
    f = fg->m;
    b = bg->m;
    foreground(fg);
    r = disk_read(bg);
    machine_step_us(b, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(b, 1);
    request_ok(r);
    machine_free(b);
    machine_free(f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/hold/idle", test_idle);
    ring_test("idletime/hold/interval", test_interval);
    ring_test("idletime/hold/late-arrival", test_late_arrival);
    ring_test("idletime/hold/restart", test_restart);
    ring_test("idletime/hold/interval-zero", test_interval_zero);
    /* On a look of the gate, and between two of them. */
    ring_data_test("idletime/hold/in-service-1s",
                        GINT_TO_POINTER(1000 * MS), test_in_service);
    ring_data_test("idletime/hold/in-service-33ms",
                        GINT_TO_POINTER(33 * MS), test_in_service);
    ring_test("idletime/hold/deadline-in-service",
                   test_deadline_in_service);
    ring_test("idletime/hold/deadline-busy", test_deadline_busy);
    ring_test("idletime/hold/deadline-each", test_deadline_each);
    ring_test("idletime/hold/no-deadline", test_no_deadline);
    ring_data_test("idletime/hold/cap-1", GINT_TO_POINTER(1), test_cap);
    ring_data_test("idletime/hold/cap-2", GINT_TO_POINTER(2), test_cap);
    ring_test("idletime/hold/cap-one-device", test_cap_one_device);
    ring_test("idletime/hold/bursts", test_bursts);
    ring_test("idletime/hold/bursts-guest", test_bursts_guest);
    ring_test("idletime/hold/order", test_order);
    ring_test("idletime/hold/two-processes", test_two_processes);
    return g_test_run();
}
