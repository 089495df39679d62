/*
 * Idletime machine tests: turns among background participants of several
 * processes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each process has a virtual clock of its own; the tests keep them together.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define SERVICE_US  (5 * MS)
/* How long one that does not take its turn is waited for (core.h) */
#define GRACE_US    (5 * MS)

static void served(TestDisk *d, int64_t us)
{
    TestRequest *r;

    disk_pause_read(d, "A");
    r = disk_read(d);
    assert_in_service(d, 1);
    machine_step_us(d->m, us);
    disk_resume(d, "A");
    request_ok(r);
}

/*
 * The process that is first is stopped (a debugger, say, or no processor): the
 * other one waits for the grace, and no longer.
 */
static void test_deaf(void)
{
    TestDisk *fg, *bg, *deaf;
    TestRequest *r, *other;

    machine_two("", &fg, &bg);
    deaf = machine_background(fg->m, "");
    /* Who has received service comes after who has not. */
    served(bg, SERVICE_US);
    machine_step_to(fg->m, bg->m);
    machine_step_to(deaf->m, bg->m);

    foreground(fg);
    other = disk_read(deaf);
    assert_held(deaf, 1);
    r = disk_read(bg);
    kill(qtest_pid(deaf->m->qts), SIGSTOP);
    machine_step_us(bg->m, INTERVAL_US);
    g_assert_cmpint(disk_number(bg, "waits.turn"), ==, 1);
    machine_step_us(bg->m, GRACE_US - 1);
    assert_held(bg, 1);
    machine_step_us(bg->m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 0);

    kill(qtest_pid(deaf->m->qts), SIGCONT);
    machine_step_to(deaf->m, bg->m);
    request_ok(other);
    machine_free(deaf->m);
    machine_free(bg->m);
    machine_free(fg->m);
}

static TestDisk *await_one(TestDisk *a, TestDisk *b)
{
    int64_t until = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;

    while (g_get_monotonic_time() < until) {
        if (disk_number(a, "in-service")) {
            return a;
        }
        if (disk_number(b, "in-service")) {
            return b;
        }
        g_usleep(500);
    }
    g_error("nobody takes the turn");
}

static int64_t completed(TestDisk *d)
{
    return disk_number(d, "background.requests") -
           disk_number(d, "in-service");
}

/* Until the one in service is another one. */
static void await_completed(TestDisk *a, TestDisk *b, int64_t n)
{
    int64_t until = g_get_monotonic_time() + 15 * G_USEC_PER_SEC;

    while (completed(a) + completed(b) < n) {
        g_assert_cmpint(g_get_monotonic_time(), <, until);
        g_usleep(500);
    }
}

/* Both have enough to do for two hundred milliseconds; one has weight 200. */
static void test_weight(void)
{
    TestDisk *a = machine_background(NULL, "");
    TestDisk *b = machine_background(a->m, "weight=200");

    disk_pause_read(a, "t0");
    disk_pause_read(b, "t0");
    for (int i = 0; i < 12; i++) {
        disk_read(a);
        disk_read(b);
    }
    for (int i = 0; i < 24; i++) {
        TestDisk *d = await_one(a, b);
        int64_t done = disk_number(d, "background.requests") - 1;
        g_autofree char *old = g_strdup_printf("t%" PRId64, done);
        g_autofree char *new = g_strdup_printf("t%" PRId64, done + 1);

        machine_step_us(a->m, SERVICE_US);
        machine_step_us(b->m, SERVICE_US);
        disk_pause_read(d, new);
        disk_resume(d, old);
        await_completed(a, b, i + 1);
        if (i + 1 == 12) {
            /* While both have some left: a third and two thirds. */
            g_assert_cmpint(completed(a), ==, 4);
            g_assert_cmpint(completed(b), ==, 8);
        }
    }
    machine_free(b->m);
    machine_free(a->m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/turn/deaf", test_deaf);
    ring_test("idletime/turn/weight", test_weight);
    return g_test_run();
}
