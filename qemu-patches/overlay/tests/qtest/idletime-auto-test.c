/*
 * Idletime machine tests: the interval that sets itself.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Requests take no virtual time unless they are paused: served() keeps one in
 * service for 5 ms.  Times in the comments are milliseconds after the last
 * foreground event.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define SERVICE_US      (5 * MS)
#define THINK_US        300
#define BURST           6
#define LONG_US         (70 * MS)
/* From here on as many requests fit into the gap as from its begin. */
#define SOON_US         (2 * MS)
/* Of switching under load */
#define MACHINES        6
#define SWITCHES        50
#define PIECES          1024
#define PLAN_US         (10 * MS)
/* Of what a collision costs: requests of a busy period, and collisions. */
#define COUNT           10
#define COLLISIONS      40

static void served(TestDisk *d)
{
    TestRequest *r;

    disk_pause_read(d, "A");
    r = disk_read(d);
    machine_step_us(d->m, SERVICE_US);
    disk_resume(d, "A");
    request_ok(r);
}

/* Six requests, 0.3 ms apart; then the long gap has begun. */
static void burst(TestDisk *fg)
{
    for (int i = 0; i < BURST; i++) {
        if (i) {
            machine_step_us(fg->m, THINK_US);
        }
        served(fg);
    }
}

/*
 * Bursts every 70 ms with nothing of the background but four requests, from
 * which its service time is known: released by the safe interval, in service
 * from 20 to 25.
 */
static void teach(TestDisk *fg, TestDisk *bg, int bursts)
{
    for (int i = 0; i < bursts; i++) {
        burst(fg);
        if (i < 4) {
            TestRequest *r;

            disk_pause_read(bg, "B");
            r = disk_read(bg);
            machine_step_us(fg->m, INTERVAL_US);
            assert_in_service(bg, 1);
            machine_step_us(fg->m, SERVICE_US);
            disk_resume(bg, "B");
            request_ok(r);
            machine_step_us(fg->m, LONG_US - INTERVAL_US - SERVICE_US);
        } else {
            machine_step_us(fg->m, LONG_US);
        }
    }
}

/*
 * Windows are planned in steps, a look each, 5,000 a second while a request is
 * held: it starts at the end of the plan, sooner than by the safe interval.
 */
static void plan(TestDisk *fg, TestDisk *bg)
{
    TestRequest *r;

    burst(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    g_assert_cmpint(machine_number(fg->m, RESOURCE, "interval-us"), ==,
                    INTERVAL_US);
    machine_step_us(fg->m, PLAN_US);
    request_ok(r);
    machine_step_us(fg->m, LONG_US - PLAN_US);
}

static void test_options(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);

    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 0);
    g_assert_cmpint(machine_number(m, RESOURCE, "budget-percent"), ==, 3);
    g_assert_cmpint(machine_number(m, RESOURCE, "shadow"), ==, 0);
    machine_refused(m, "idletime-resource property 'budget-percent' is 1001, "
                    "must be 0 to 1000", "idletime-set",
                    "{'resource': 'r0', 'auto': true, 'budget-percent': 1001}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 0);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'auto': true,"
               " 'budget-percent': 3, 'shadow': true}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 1);
    g_assert_cmpint(machine_number(m, RESOURCE, "budget-percent"), ==, 3);
    g_assert_cmpint(machine_number(m, RESOURCE, "shadow"), ==, 1);
    machine_ok(m, "qom-set", "{'path': '/objects/" RESOURCE "',"
               " 'property': 'auto', 'value': false}");
    g_assert_cmpint(machine_number(m, RESOURCE, "auto"), ==, 0);
    machine_free(m);
}

/* With no history the safe interval is in force. */
static void test_safe_start(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.ready"), ==, 0);
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), ==,
                    INTERVAL_US);
    machine_free(m);
}

static void test_learns(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on,budget-percent=3", &fg, &bg);
    TestRequest *r;

    teach(fg, bg, 20);
    plan(fg, bg);
    burst(fg);
    r = disk_read(bg);
    /* 20 bursts of 6 gaps, the last one is under way. */
    assert_held(bg, 1);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.ready"), ==, 1);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.gaps"), >=, 110);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.service-us"), ==,
                    SERVICE_US);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.channels"), ==, 1);
    /* Longer than the gaps within a burst, and not by much. */
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), >=, THINK_US);
    g_assert_cmpint(machine_number(m, RESOURCE, "interval-us"), <, SOON_US);
    machine_step_us(m, SOON_US);
    assert_held(bg, 0);
    request_ok(r);
    machine_step_us(m, 40 * MS);
    request_ok(disk_read(bg));
    /* At 67 the foreground would come back before 67 + 5. */
    machine_step_us(m, 27 * MS - SOON_US);
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, 3 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    burst(fg);
    assert_held(bg, 1);
    machine_step_us(m, SOON_US);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "waits.budget"), >, 0);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 0);
    machine_free(m);
}

/* The foreground stops coming: the background goes on. */
static void test_foreground_gone(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on,max-hold-ms=0", &fg, &bg);
    TestRequest *r;

    teach(fg, bg, 20);
    plan(fg, bg);
    burst(fg);
    machine_step_us(m, 67 * MS);
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, 60 * MS);
    assert_held(bg, 0);
    request_ok(r);
    machine_free(m);
}

static void test_off_again(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on", &fg, &bg);
    TestRequest *r;

    teach(fg, bg, 10);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'auto': false}");
    burst(fg);
    r = disk_read(bg);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    /* On again: what was learned then is forgotten. */
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'auto': true}");
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.gaps"), ==, 0);
    machine_free(m);
}

/* Decided and counted, not held. */
static void test_shadow(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("shadow=on", &fg, &bg);
    TestRequest *f;

    foreground(fg);
    request_ok(disk_read(bg));
    g_assert_cmpint(disk_number(bg, "waits.interval"), ==, 1);
    disk_pause_read(fg, "A");
    f = disk_read(fg);
    request_ok(disk_read(bg));
    g_assert_cmpint(disk_number(bg, "waits.foreground"), ==, 1);
    disk_resume(fg, "A");
    request_ok(f);
    machine_step_us(m, INTERVAL_US);
    request_ok(disk_read(bg));
    g_assert_cmpint(disk_number(bg, "waits.interval"), ==, 1);
    assert_held(bg, 0);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 3);
    machine_set(m, "interval-us", 30 * MS);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'shadow': false}");
    foreground(fg);
    f = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, 30 * MS);
    request_ok(f);
    machine_free(m);
}

/*
 * A busy period of COUNT foreground requests: one takes 5 ms, the others no
 * time beside it.  With @delay_us it begins while background is in service,
 * so much before that ends.
 */
static void busy_period(TestDisk *fg, TestDisk *bg, int64_t delay_us)
{
    TestRequest *f, *r = NULL;

    if (delay_us) {
        disk_pause_read(bg, "B");
        r = disk_read(bg);
        machine_step_us(fg->m, SERVICE_US - delay_us);
    }
    disk_pause_read(fg, "A");
    f = disk_read_on(fg, 1);
    if (delay_us) {
        machine_step_us(fg->m, delay_us);
        disk_resume(bg, "B");
        request_ok(r);
    }
    for (int i = 1; i < COUNT; i++) {
        foreground(fg);
    }
    machine_step_us(fg->m, SERVICE_US);
    disk_resume(fg, "A");
    request_ok(f);
    machine_step_us(fg->m, INTERVAL_US);
    request_ok(disk_read(bg));
    machine_step_us(fg->m, LONG_US);
}

/*
 * Only the first request of a busy period waits for background that is in
 * service; that those behind it do not is learned from what they took.
 */
static void test_cost_of_collisions(void)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;

    machine_resource(m, RESOURCE, "shadow=on");
    fg = machine_disk(m, "fg", "num-queues=2,idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    machine_start(m);
    for (int i = 0; i < COLLISIONS; i++) {
        busy_period(fg, bg, 0);
        busy_period(fg, bg, MS + i % 4 * MS);
    }
    /* It begins at COUNT, as if each of them waited. */
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.delay-factor"), ==, 1);
    machine_free(m);
}

/* A cap that the operator sets is a bound, also for the learner. */
static void test_cap(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on,max-inflight=2", &fg, &bg);

    g_assert_cmpint(machine_number(m, RESOURCE, "max-inflight"), ==, 2);
    foreground(fg);
    machine_step_us(m, INTERVAL_US);
    /* One server as far as is known: one at a time. */
    disk_pause_read(bg, "B");
    disk_read(bg);
    disk_read(bg);
    assert_in_service(bg, 1);
    disk_resume(bg, "B");
    machine_free(m);
}

/*
 * Who may not start by its budget is in nobody's way, although it is its turn:
 * the one of the other process has received more service.
 */
static void test_leaves_turn(void)
{
    TestDisk *fg, *bg, *other;
    TestMachine *m = machine_pair("auto=on,budget-percent=3", &fg, &bg);
    TestRequest *r, *o;

    other = machine_background(m, "");
    disk_pause_read(other, "O");
    o = disk_read(other);
    machine_step_us(other->m, 150 * MS);
    disk_resume(other, "O");
    request_ok(o);
    machine_step_us(m, 150 * MS);
    teach(fg, bg, 20);
    plan(fg, bg);
    burst(fg);
    machine_step_us(m, 67 * MS);
    r = disk_read(bg);
    assert_held(bg, 1);
    g_assert_cmpint(disk_number(bg, "waits.budget"), >, 0);
    machine_step_to(other->m, m);
    request_ok(disk_read(other));
    g_assert_cmpint(disk_number(other, "waits.turn"), ==, 0);
    assert_held(bg, 1);
    machine_step_us(m, 60 * MS);
    request_ok(r);
    machine_free(other->m);
    machine_free(m);
}

/* A background disk in a thread of its own, on a backend that takes no time. */
static TestMachine *threaded(TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_args(m, "-object iothread,id=io0");
    machine_resource(m, RESOURCE, "interval-us=0,max-request-bytes=4096");
    *bg = machine_disk_on(m, "bg", "driver=null-co,size=67108864",
                          "iothread=io0,ioeventfd=on,idletime=" RESOURCE
                          ",idletime-class=background");
    machine_start(m);
    return m;
}

/*
 * The thread asks for a thousand pieces of each request while the learner
 * comes and goes.
 */
static void switch_under_load(void)
{
    TestDisk *bg;
    TestMachine *m = threaded(&bg);
    uint32_t size = PIECES * BLOCK_BYTES;
    uint64_t addr = disk_header(bg, VIRTIO_BLK_T_IN, 0, 0, NULL, size);
    uint64_t data = addr + sizeof(struct virtio_blk_outhdr);
    const TestPart part[] = {
        { addr, sizeof(struct virtio_blk_outhdr), false },
        { data, size, true },
        { data + size, 1, true },
    };

    for (int i = 0; i < SWITCHES; i++) {
        const char *name = i % 2 ? "shadow" : "auto";
        TestRequest *r = disk_submit_parts(bg, 0, part, ARRAY_SIZE(part));

        for (int on = 1; on >= 0; on--) {
            machine_ok(m, "qom-set", "{'path': '/objects/" RESOURCE "',"
                       " 'property': %s, 'value': %i}", name, on);
        }
        r->size = size;
        request_ok(r);
    }
    g_assert_cmpint(disk_number(bg, "background.requests"), ==,
                    SWITCHES * PIECES);
    assert_held(bg, 0);
    /* The thread answers the guest first, and gives the token back then. */
    while (disk_number(bg, "in-service")) {
        g_usleep(1000);
    }
    machine_free(m);
}

/* A resource learns anew in each machine: its first switch is another case. */
static void test_switch_under_load(void)
{
    for (int i = 0; i < MACHINES; i++) {
        switch_under_load();
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/auto/options", test_options);
    ring_test("idletime/auto/safe-start", test_safe_start);
    ring_test("idletime/auto/learns", test_learns);
    ring_test("idletime/auto/foreground-gone", test_foreground_gone);
    ring_test("idletime/auto/off-again", test_off_again);
    ring_test("idletime/auto/shadow", test_shadow);
    ring_test("idletime/auto/cost-of-collisions", test_cost_of_collisions);
    ring_test("idletime/auto/cap", test_cap);
    ring_test("idletime/auto/leaves-turn", test_leaves_turn);
    ring_test("idletime/auto/switch-under-load", test_switch_under_load);
    return g_test_run();
}
