/*
 * Idletime machine tests: the books over several events, and for people.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "idletime/arena/arena.h"

#define SERVICE_US      (5 * MS)
#define LONG_US         (70 * MS)
#define PLAN_US         (10 * MS)

/* Background takes 5 ms; the foreground comes so long before its end. */
static void collide(TestDisk *fg, TestDisk *bg, int64_t before_us)
{
    TestMachine *m = bg->m;
    TestRequest *f, *r;

    disk_pause_read(bg, "A");
    r = disk_read(bg);
    machine_step_us(m, SERVICE_US - before_us);
    disk_pause_read(fg, "A");
    f = disk_read(fg);
    machine_step_us(m, before_us);
    disk_resume(bg, "A");
    request_ok(r);
    disk_resume(fg, "A");
    request_ok(f);
    machine_step_us(m, INTERVAL_US);
}

/* What collisions cost is a sum, and what did not collide adds nothing. */
static void test_collisions(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);

    collide(fg, bg, 2 * MS);
    collide(fg, bg, 3 * MS);
    request_ok(disk_read(bg));
    g_assert_cmpint(machine_number(m, RESOURCE, "collisions"), ==, 2);
    g_assert_cmpint(machine_number(m, RESOURCE, "collision-cost-us"), ==,
                    5 * MS);
    g_assert_cmpint(disk_number(fg, "foreground.requests"), ==, 2);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 3);
    machine_free(m);
}

static void served(TestDisk *d)
{
    TestRequest *r;

    disk_pause_read(d, "A");
    r = disk_read(d);
    machine_step_us(d->m, SERVICE_US);
    disk_resume(d, "A");
    request_ok(r);
}

/* Single requests, 70 ms apart; then a window is known. */
static void learn(TestDisk *fg, TestDisk *bg)
{
    TestRequest *r;

    for (int i = 0; i < 40; i++) {
        served(fg);
        machine_step_us(fg->m, INTERVAL_US);
        if (i < 4) {
            served(bg);
        }
        machine_step_us(fg->m, LONG_US - INTERVAL_US);
    }
    served(fg);
    r = disk_read(bg);
    machine_step_us(fg->m, PLAN_US);
    request_ok(r);
}

static int64_t learned(TestMachine *m, const char *member)
{
    g_autofree char *path = g_strconcat("learned.", member, NULL);

    return machine_number(m, RESOURCE, path);
}

/* 40 gaps of 65 to 70 ms, in which requests of 5 ms start. */
static void test_learned(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on,budget-percent=3", &fg, &bg);

    learn(fg, bg);
    g_assert_cmpint(learned(m, "ready"), ==, 1);
    g_assert_cmpint(learned(m, "gaps"), ==, 40);
    g_assert_cmpint(learned(m, "distribution.0.from-us"), >, 60 * MS);
    g_assert_cmpint(learned(m, "distribution.0.from-us"), <=, 70 * MS);
    g_assert_cmpint(learned(m, "changes"), ==, 0);
    g_assert_cmpint(learned(m, "lost"), ==, 0);
    g_assert_cmpint(learned(m, "channels"), ==, 1);
    g_assert_cmpint(learned(m, "service-us"), ==, SERVICE_US);
    /* Nothing collided: a delay costs itself. */
    g_assert_cmpint(learned(m, "delay-factor"), ==, 1);
    g_assert_cmpint(learned(m, "seek-cost-us"), ==, 0);
    g_assert_cmpint(learned(m, "starts-per-gap"), >, 10);
    g_assert_cmpint(learned(m, "starts-per-gap"), <=, 14);
    /* Of the 5 ms that the foreground's request takes, 3 %. */
    g_assert_cmpint(learned(m, "cost-per-gap-us"), >, 0);
    g_assert_cmpint(learned(m, "cost-per-gap-us"), <=, 150);
    g_assert_cmpint(learned(m, "credit-max-us"), >=, learned(m, "credit-us"));
    machine_free(m);
}

/* More requests between two looks than a slot shows. */
static void test_lost(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on", &fg, &bg);

    foreground(fg);
    machine_step_us(m, INTERVAL_US);
    request_ok(disk_read(bg));
    g_assert_cmpint(learned(m, "lost"), ==, 0);
    /* Each of them is two entries, a begin and an end. */
    for (int i = 0; i < IDLETIME_RING / 2; i++) {
        foreground(fg);
        machine_step_us(m, 1);
    }
    machine_step_us(m, INTERVAL_US);
    request_ok(disk_read(bg));
    g_assert_cmpint(learned(m, "lost"), ==, 1);
    machine_free(m);
}

static void assert_auto_line(TestMachine *m, const char *on, const char *end)
{
    g_autofree char *text = qtest_hmp(m->qts, "info idletime");
    g_autofree char *line =
        g_strdup_printf("\r\n  auto %s, budget 3 %%, slowdown 0.00 %%, credit "
                        "%" PRId64 " of %" PRId64 " us, channels 1%s", on,
                        learned(m, "credit-us"), learned(m, "credit-max-us"),
                        end);

    g_assert_nonnull(strstr(text, line));
}

/* People read the windows that programs read; the last one has no end. */
static void test_windows(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("auto=on,budget-percent=3", &fg, &bg);
    g_autofree char *text = NULL;
    int windows = 0, open = 0;

    assert_auto_line(m, "on", ", not ready\r\n  collisions 0");
    learn(fg, bg);
    g_assert_cmpint(learned(m, "credit-us"), >, 0);
    assert_auto_line(m, "on", "\r\n    window from ");
    text = qtest_hmp(m->qts, "info idletime");
    for (const char *at = text; (at = strstr(at, "window from ")); windows++) {
        g_autofree char *path =
            g_strdup_printf("learned.windows.%d.begin-us", windows);
        g_autofree char *end_path =
            g_strdup_printf("learned.windows.%d.end-us", windows);
        int64_t begin_us, end_us;

        at += strlen("window from ");
        begin_us = g_ascii_strtoll(at, (char **)&at, 10);
        g_assert_cmpint(begin_us, ==, machine_number(m, RESOURCE, path));
        g_assert_true(g_str_has_prefix(at, " us"));
        at += strlen(" us");
        if (g_str_has_prefix(at, " to ")) {
            end_us = g_ascii_strtoll(at + strlen(" to "), NULL, 10);
            g_assert_cmpint(end_us, ==, machine_number(m, RESOURCE, end_path));
            g_assert_cmpint(end_us, >, begin_us);
        } else {
            g_assert_true(*at == '\n' || *at == '\r');
            open++;
        }
    }
    g_assert_cmpint(windows, >=, 2);
    g_assert_cmpint(open, ==, 1);
    machine_ok(m, "idletime-set", "{'resource': 'r0', 'auto': false,"
               " 'shadow': true}");
    assert_auto_line(m, "off", ", not ready\r\n  collisions 0");
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/books/collisions", test_collisions);
    qtest_add_func("idletime/books/learned", test_learned);
    qtest_add_func("idletime/books/lost", test_lost);
    qtest_add_func("idletime/books/windows", test_windows);
    return g_test_run();
}
