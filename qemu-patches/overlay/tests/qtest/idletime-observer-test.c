/*
 * Idletime machine tests: foreground that an observer sees.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The observer is the test's own.  QEMU looks for it once a second of virtual
 * time: one step to connect, one more to receive the page.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "idletime-observer.h"

#define LOOK_US     (1000 * MS)
#define HOLD_US     (5000 * MS)     /* max-hold-ms, the standard */

static char *below(TestMachine *m, const char *name)
{
    return g_build_filename(m->dir, RESOURCE, name, NULL);
}

static int64_t now_ns(TestMachine *m)
{
    return m->now_us * 1000;
}

static bool is_lost(TestMachine *m)
{
    g_autofree char *state = machine_string(m, RESOURCE, "state");

    return g_str_equal(state, "lost");
}

static void assert_observer(TestMachine *m, const char *state)
{
    g_autofree char *seen = machine_string(m, RESOURCE, "observer.state");

    g_assert_cmpstr(seen, ==, state);
}

/* In the human monitor; NULL: it says nothing of observers. */
static void assert_info(TestMachine *m, const char *line)
{
    g_autofree char *text = qtest_hmp(m->qts, "info idletime");
    const char *said = strstr(text, "\r\n  observer ");

    if (line) {
        g_assert_nonnull(said);
        g_assert_true(g_str_has_prefix(said, line));
    } else {
        g_assert_null(said);
    }
}

static void start(TestMachine *m, TestObserver *o)
{
    g_autofree char *dir = below(m, "");

    observer_start(o, dir);
    machine_step_us(m, LOOK_US);
}

static void meet(TestMachine *m, TestObserver *o)
{
    start(m, o);
    observer_greet(o);
    machine_step_us(m, LOOK_US);
    assert_observer(m, "seen");
}

static void declare(TestMachine *m)
{
    g_autofree char *path = below(m, IDLETIME_OBSERVED_DECLARED);

    g_assert_true(g_file_set_contents(path, "", 0, NULL));
}

static TestMachine *machine_bg(const char *options, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, options);
    *bg = machine_disk(m, "bg", "idletime=" RESOURCE
                       ",idletime-class=background");
    machine_start(m);
    return m;
}

/* Held while it says so, and an interval after its last event. */
static void test_held(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    TestRequest *r;

    assert_observer(m, "absent");
    assert_info(m, NULL);
    request_ok(disk_read(bg));
    meet(m, &o);
    observer_begin(&o, now_ns(m), 4096);
    g_assert_cmpint(machine_number(m, RESOURCE, "observer.in-service"), ==, 1);
    g_assert_cmpint(machine_number(m, RESOURCE,
                                   "observer.foreground.requests"), ==, 1);
    g_assert_cmpint(machine_number(m, RESOURCE, "observer.foreground.bytes"),
                    ==, 4096);
    assert_info(m, "\r\n  observer of disk: 1 requests, 1 in service\r\n");
    r = disk_read(bg);
    machine_step_us(m, 10 * INTERVAL_US);
    assert_held(bg, 1);
    observer_finish(&o, now_ns(m));
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    observer_end(&o);
    machine_free(m);
}

static void assert_number(TestMachine *m, const char *member, int64_t value)
{
    g_autofree char *path = g_strconcat("observer.", member, NULL);

    g_assert_cmpint(machine_number(m, RESOURCE, path), ==, value);
}

/* What the page says is shown as it is; without one nothing is. */
static void test_numbers(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    g_autofree char *label = NULL;

    assert_number(m, "declared", 0);
    declare(m);
    meet(m, &o);
    o.page->requeued = 3;
    o.page->unpaired = 4;
    o.page->healed = 5;
    o.page->missed = 6;
    label = machine_string(m, RESOURCE, "observer.label");
    g_assert_cmpstr(label, ==, "disk");
    assert_number(m, "declared", 1);
    assert_number(m, "requeued", 3);
    assert_number(m, "unpaired", 4);
    assert_number(m, "healed", 5);
    assert_number(m, "missed", 6);
    assert_number(m, "came", 1);
    assert_number(m, "died", 0);
    observer_die(&o);
    machine_step_us(m, LOOK_US);
    assert_number(m, "missed", 0);
    assert_number(m, "died", 1);
    machine_free(m);
}

/* A foreground request ends it, and the one after it is held again. */
static void test_events(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);

    meet(m, &o);
    for (int i = 0; i < 20; i++) {
        TestRequest *r;

        observer_begin(&o, now_ns(m), 4096);
        machine_step_us(m, 5 * MS);
        observer_finish(&o, now_ns(m));
        r = disk_read(bg);
        machine_step_us(m, INTERVAL_US - 1);
        assert_held(bg, 1);
        machine_step_us(m, 1);
        request_ok(r);
    }
    /* Each is a preemption of an idle or background resource. */
    g_assert_cmpint(machine_number(m, RESOURCE,
                                   "counters.preemption.timer"), >=, 19);
    observer_end(&o);
    machine_free(m);
}

/* The learner's gaps are those between the observer's requests. */
static void test_learner(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("auto=on", &bg);
    TestRequest *r = NULL;

    meet(m, &o);
    for (int i = 0; i < 60; i++) {
        observer_begin(&o, now_ns(m), 4096);
        machine_step_us(m, 5 * MS);
        observer_finish(&o, now_ns(m));
        for (int t = 0; t < 10; t++) {
            r = r ?: disk_read(bg);
            machine_step_us(m, 10 * MS);
            if (disk_number(bg, "held") == 0) {
                request_ok(r);
                r = NULL;
            }
        }
    }
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.gaps"), >=, 50);
    g_assert_cmpint(machine_number(m, RESOURCE, "learned.gaps"), <=, 60);
    observer_end(&o);
    machine_free(m);
}

/* ---- it dies */

static void test_dies(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    TestRequest *r;

    meet(m, &o);
    observer_begin(&o, now_ns(m), 4096);
    r = disk_read(bg);
    machine_step_us(m, 2 * INTERVAL_US);
    assert_held(bg, 1);
    observer_die(&o);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_step_us(m, LOOK_US);
    assert_observer(m, "absent");
    g_assert_cmpint(machine_number(m, RESOURCE, "observer.died"), ==, 1);
    request_ok(disk_read(bg));
    machine_free(m);
}

/* It comes and goes; what the one before left in service is forgotten. */
static void test_comes_back(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);

    for (int i = 1; i <= 4; i++) {
        TestRequest *r;

        meet(m, &o);
        g_assert_cmpint(machine_number(m, RESOURCE, "observer.came"), ==, i);
        request_ok(disk_read(bg));
        observer_begin(&o, now_ns(m), 4096);
        r = disk_read(bg);
        assert_held(bg, 1);
        if (i % 2) {
            observer_end(&o);
        } else {
            observer_die(&o);
        }
        machine_step_us(m, LOOK_US);
        request_ok(r);
    }
    machine_free(m);
}

/* ---- the arena is declared to be observed */

static void test_declared(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    TestRequest *r;

    declare(m);
    machine_step_us(m, LOOK_US);
    assert_observer(m, "lost");
    assert_info(m, "\r\n  observer lost: released by deadline only\r\n");
    /* Blind: by deadline only. */
    r = disk_read(bg);
    machine_step_us(m, HOLD_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 1);
    g_assert_cmpint(disk_number(bg, "waits.arena"), >, 0);
    meet(m, &o);
    request_ok(disk_read(bg));
    /* It dies with nothing in service: as bad, as soon as it is noticed. */
    observer_die(&o);
    machine_step_us(m, LOOK_US);
    assert_observer(m, "lost");
    r = disk_read(bg);
    machine_step_us(m, 2 * LOOK_US);
    assert_held(bg, 1);
    meet(m, &o);
    request_ok(r);
    observer_end(&o);
    machine_free(m);
}

/* In service: what waits for it is not released by its death. */
static void test_declared_dies(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    TestRequest *r;

    declare(m);
    meet(m, &o);
    observer_begin(&o, now_ns(m), 4096);
    r = disk_read(bg);
    observer_die(&o);
    machine_step_us(m, 2 * LOOK_US);
    assert_held(bg, 1);
    g_assert_true(is_lost(m));
    machine_step_us(m, HOLD_US - 2 * LOOK_US);
    request_ok(r);
    machine_free(m);
}

/* ---- it is none */

static void refused(TestMachine *m, TestDisk *bg, int64_t times)
{
    assert_observer(m, "absent");
    g_assert_cmpint(machine_number(m, RESOURCE, "observer.refused"), ==,
                    times);
    request_ok(disk_read(bg));
}

static void test_wrong(void)
{
    TestObserver o, better;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);

    start(m, &o);
    o.page->magic++;
    observer_greet(&o);
    machine_step_us(m, LOOK_US);
    refused(m, bg, 1);
    o.page->magic--;
    o.page->version++;
    machine_step_us(m, LOOK_US);
    observer_greet(&o);
    machine_step_us(m, LOOK_US);
    refused(m, bg, 2);
    machine_step_us(m, LOOK_US);
    observer_accept(&o);
    observer_send(&o, "rubbish", 7, -1);
    machine_step_us(m, LOOK_US);
    refused(m, bg, 3);
    g_assert_cmpint(ftruncate(o.file, 0), ==, 0);
    machine_step_us(m, LOOK_US);
    observer_greet(&o);
    machine_step_us(m, LOOK_US);
    refused(m, bg, 4);
    meet(m, &better);
    observer_end(&better);
    observer_die(&o);
    machine_free(m);
}

static void test_flood(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    TestRequest *r;

    meet(m, &o);
    g_assert_cmpint(observer_flood(&o), >, 0);
    observer_begin(&o, now_ns(m), 4096);
    r = disk_read(bg);
    machine_step_us(m, 2 * LOOK_US);
    assert_held(bg, 1);
    assert_observer(m, "seen");
    observer_die(&o);
    machine_step_us(m, LOOK_US);
    request_ok(r);
    machine_free(m);
}

/* Its page is truncated while it is looked at. */
static void test_truncated(void)
{
    TestObserver o;
    TestDisk *bg;
    TestMachine *m = machine_bg("", &bg);
    TestRequest *r;

    meet(m, &o);
    observer_begin(&o, now_ns(m), 4096);
    r = disk_read(bg);
    assert_held(bg, 1);
    g_assert_cmpint(ftruncate(o.file, 0), ==, 0);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_step_us(m, LOOK_US);
    assert_observer(m, "absent");
    observer_end(&o);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/observer/held", test_held);
    qtest_add_func("idletime/observer/numbers", test_numbers);
    qtest_add_func("idletime/observer/events", test_events);
    qtest_add_func("idletime/observer/learner", test_learner);
    qtest_add_func("idletime/observer/dies", test_dies);
    qtest_add_func("idletime/observer/comes-back", test_comes_back);
    qtest_add_func("idletime/observer/declared", test_declared);
    qtest_add_func("idletime/observer/declared-dies", test_declared_dies);
    qtest_add_func("idletime/observer/wrong", test_wrong);
    qtest_add_func("idletime/observer/flood", test_flood);
    qtest_add_func("idletime/observer/truncated", test_truncated);
    return g_test_run();
}
