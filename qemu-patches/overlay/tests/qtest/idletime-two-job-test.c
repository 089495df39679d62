/*
 * Idletime machine tests: block jobs that are held on two resources.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-block-job.h"

static int64_t issued(TestJob *job)
{
    int64_t n = job_number(job, "background.requests");

    g_assert_cmpint(job_number_other(job, "background.requests"), ==, n);
    return n;
}

static TestJob *held_on_two(const TestJobKind *kind, const char *options)
{
    TestJob *job = job_new(kind, options);

    job_attach_other(job);
    foreground(job->other);
    job_go(job);
    job_await(job, "held", 1);
    g_assert_cmpint(issued(job), ==, 0);
    return job;
}

/*
 * Each is idle while the other is not; it goes on when both are, and what it
 * was granted on one alone is on no book.
 */
static void test_two(const void *kind)
{
    TestJob *job = held_on_two(kind, "");

    for (int i = 0; i < 3; i++) {
        foreground(job->fg);
        machine_step_us(job->m, INTERVAL_US / 2);
        foreground(job->other);
        machine_step_us(job->m, INTERVAL_US / 2);
        job_await_other(job, "held", 1);
        g_assert_cmpint(job_number(job, "held"), ==, 0);
        foreground(job->fg);
        machine_step_us(job->m, INTERVAL_US / 2);
        job_await(job, "held", 1);
        g_assert_cmpint(job_number_other(job, "held"), ==, 0);
        g_assert_cmpint(issued(job), ==, 0);
        g_assert_cmpint(job_number_other(job, "in-service"), ==, 0);
    }
    machine_step_us(job->m, INTERVAL_US / 2);
    job_finish(job);
    g_assert_false(job_is_attached(job));
    g_assert_cmpint(machine_number(job->m, RESOURCE, "held"), ==, 0);
    g_assert_cmpint(machine_number(job->m, OTHER, "held"), ==, 0);
    g_assert_cmpint(machine_number(job->m, RESOURCE, "background.requests"),
                    ==,
                    machine_number(job->m, OTHER, "background.requests"));
    job_check_data(job);
    job_free(job);
}

/* However many hold it, a chunk waits for the hold budget once. */
static void test_two_deadline(const void *kind)
{
    TestJob *job = job_new(kind, "max-hold-ms=100");
    TestRequest *r[2];

    job_attach_other(job);
    disk_pause_read(job->fg, "A");
    disk_pause_read(job->other, "B");
    r[0] = disk_read(job->fg);
    r[1] = disk_read(job->other);
    job_go(job);
    for (int i = 0; i < 3; i++) {
        job_await(job, "held", 1);
        g_assert_cmpint(issued(job), ==, i);
        machine_step_us(job->m, BUDGET_US - 1);
        g_assert_cmpint(issued(job), ==, i);
        machine_step_us(job->m, 1);
        job_await_other(job, "background.requests", i + 1);
        g_assert_cmpint(issued(job), ==, i + 1);
        g_assert_cmpint(job_number(job, "promotions.deadline"), ==, i + 1);
        g_assert_cmpint(job_number_other(job, "promotions.deadline"), ==,
                        i + 1);
    }
    disk_resume(job->fg, "A");
    disk_resume(job->other, "B");
    request_ok(r[0]);
    request_ok(r[1]);
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

/* The second holds it: paused, resumed, detached with one event, drained. */
static void test_two_detach(const void *kind)
{
    TestJob *job = held_on_two(kind, LONG);

    for (int i = 0; i < 5; i++) {
        job_drain(job);
        job_await(job, "held", 1);
    }
    job_verb(job, "job-pause");
    job_await_status(job, "paused");
    job_verb(job, "job-resume");
    job_await(job, "held", 1);
    machine_ok(job->m, "idletime-detach", "{'job': 'job'}");
    qtest_qmp_eventwait(job->m->qts, "IDLETIME_DETACHED");
    g_assert_false(job_is_attached(job));
    g_assert_cmpint(machine_number(job->m, OTHER, "held"), ==, 0);
    job_finish(job);
    g_assert_null(qtest_qmp_event_ref(job->m->qts, "IDLETIME_DETACHED"));
    job_check_data(job);
    job_free(job);
}

/* A background VM on each: of each a request is served; one more is held. */
typedef struct Greedy {
    TestJob *job;
    TestRequest *served[2];
    TestRequest *held;
} Greedy;

/* The job has the first one's turn, and waits for the second. */
static Greedy greedy_on_two(const TestJobKind *kind)
{
    TestJob *job = job_new(kind, "");
    Greedy greedy = { job };

    job_attach_other(job);
    disk_set_class(job->fg, "background");
    disk_set_class(job->other, "background");
    machine_step_us(job->m, INTERVAL_US);
    disk_pause_read(job->fg, "A");
    disk_pause_read(job->other, "B");
    greedy.served[0] = disk_read(job->fg);
    greedy.served[1] = disk_read(job->other);
    job_go(job);
    job_await(job, "held", 1);
    disk_pause_read(job->fg, "A2");
    greedy.held = disk_read(job->fg);
    machine_step_us(job->m, MS);
    disk_resume(job->fg, "A");
    request_ok(greedy.served[0]);
    job_await_other(job, "held", 1);
    g_assert_cmpint(job_number(job, "held"), ==, 0);
    return greedy;
}

static void greedy_free(Greedy *greedy)
{
    TestJob *job = greedy->job;

    disk_await(job->fg, "in-service", 1);
    disk_resume(job->fg, "A2");
    request_ok(greedy->held);
    job_free(job);
}

/*
 * Never are both idle at a time, and yet it has its turn.  It is paused before
 * it ends: that would wait for what the test has stopped.
 */
static void test_two_greedy(const void *kind)
{
    Greedy greedy = greedy_on_two(kind);
    TestJob *job = greedy.job;

    disk_pause_read(job->d, "C");
    disk_resume(job->other, "B");
    request_ok(greedy.served[1]);
    job_await(job, "background.requests", 1);
    g_assert_cmpint(issued(job), ==, 1);
    job_verb(job, "job-pause");
    disk_resume(job->d, "C");
    job_await_status(job, "paused");
    machine_step_us(job->m, 20 * MS);
    greedy_free(&greedy);
}

static void pause_job(TestJob *job)
{
    job_verb(job, "job-pause");
    job_await_status(job, "paused");
    machine_step_us(job->m, 20 * MS);
}

/* The second has stopped. */
static void wait_long(TestJob *job)
{
    for (int i = 0; i < 50; i++) {
        assert_in_service(job->fg, 0);
        machine_step_us(job->m, 10 * MS);
    }
}

/* What it has of the first does not stay with it. */
static void test_two_given_back(const void *kind)
{
    void (*const end[])(TestJob *) = { pause_job, wait_long };

    for (unsigned i = 0; i < ARRAY_SIZE(end); i++) {
        Greedy greedy = greedy_on_two(kind);
        TestJob *job = greedy.job;

        end[i](job);
        disk_await(job->fg, "in-service", 1);
        disk_resume(job->other, "B");
        request_ok(greedy.served[1]);
        greedy_free(&greedy);
    }
}

/* What its own chunk is in the way of is not kept: the other place is free. */
static void test_two_own(const void *kind)
{
    TestJob *job = job_new(kind, "");

    job_attach_other(job);
    disk_set_class(job->fg, "background");
    machine_set(job->m, "max-inflight", 2);
    machine_step_us(job->m, INTERVAL_US);
    disk_pause_read(job->d, "C");
    job_go(job);
    job_await_other(job, "held", 1);
    g_assert_cmpint(job_number_other(job, "in-service"), ==, 1);
    request_ok(disk_read(job->fg));
    disk_resume(job->d, "C");
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

static void test_two_cancel(const void *kind)
{
    TestJob *job = held_on_two(kind, LONG);

    machine_ok(job->m, "block-job-cancel", "{'device': 'job'}");
    job_await_status(job, NULL);
    while (job_is_attached(job)) {
        g_usleep(1000);
    }
    g_assert_cmpint(machine_number(job->m, RESOURCE, "held"), ==, 0);
    g_assert_cmpint(machine_number(job->m, OTHER, "held"), ==, 0);
    job_free(job);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < job_kinds; i++) {
        job_test("two", &job_kind[i], test_two);
    }
    /* Those that wait in idletime_job_sleep() and in idletime_job_wait(). */
    for (unsigned i = 0; i < 2; i++) {
        job_test("two-deadline", &job_kind[i], test_two_deadline);
        job_test("two-detach", &job_kind[i], test_two_detach);
        job_test("two-cancel", &job_kind[i], test_two_cancel);
        job_test("two-own", &job_kind[i], test_two_own);
        job_test("two-greedy", &job_kind[i], test_two_greedy);
        job_test("two-given-back", &job_kind[i], test_two_given_back);
    }
    return g_test_run();
}
