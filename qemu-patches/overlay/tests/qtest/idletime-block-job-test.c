/*
 * Idletime machine tests: block jobs are held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-block-job.h"

static TestJob *held_job(const TestJobKind *kind, const char *options)
{
    TestJob *job = job_new(kind, options);

    job_go(job);
    job_await(job, "held", 1);
    g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    return job;
}

/* An interval after the foreground it goes on, and then to its end. */
static void test_held(const void *kind)
{
    TestJob *job = held_job(kind, "");

    machine_step_us(job->m, INTERVAL_US - 1);
    g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    g_assert_cmpint(job_number(job, "held"), ==, 1);
    machine_step_us(job->m, 1);
    job_finish(job);
    g_assert_false(job_is_attached(job));
    g_assert_cmpint(machine_number(job->m, RESOURCE, "held"), ==, 0);
    job_check_data(job);
    job_free(job);
}

/* While foreground is in service, one chunk each 100 ms. */
static void test_deadline(const void *kind)
{
    TestJob *job = job_new(kind, "max-hold-ms=100");
    TestRequest *r;

    disk_pause_read(job->fg, "A");
    r = disk_read(job->fg);
    job_go(job);
    for (int i = 0; i < 3; i++) {
        job_await(job, "held", 1);
        g_assert_cmpint(job_number(job, "background.requests"), ==, i);
        machine_step_us(job->m, BUDGET_US - 1);
        g_assert_cmpint(job_number(job, "background.requests"), ==, i);
        machine_step_us(job->m, 1);
        job_await(job, "background.requests", i + 1);
        g_assert_cmpint(job_number(job, "promotions.deadline"), ==, i + 1);
    }
    g_assert_cmpint(job_number(job, "background.bytes"), <=, 3 * 128 * KiB);
    disk_resume(job->fg, "A");
    request_ok(r);
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

static void test_cancel(const void *kind)
{
    TestJob *job = held_job(kind, LONG);

    machine_ok(job->m, "block-job-cancel", "{'device': 'job'}");
    job_await_status(job, NULL);
    while (job_is_attached(job)) {
        g_usleep(1000);
    }
    g_assert_cmpint(machine_number(job->m, RESOURCE, "held"), ==, 0);
    job_free(job);
}

static void test_pause(const void *kind)
{
    TestJob *job = held_job(kind, "max-hold-ms=100");

    job_verb(job, "job-pause");
    job_await_status(job, "paused");
    machine_step_us(job->m, INTERVAL_US + BUDGET_US);
    job_await(job, "held", 0);
    g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    foreground(job->fg);
    job_verb(job, "job-resume");
    job_await(job, "held", 1);
    g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    machine_step_us(job->m, INTERVAL_US);
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

static void test_detach(const void *kind)
{
    TestJob *job = held_job(kind, LONG);
    QDict *event;

    machine_ok(job->m, "idletime-detach", "{'job': 'job'}");
    event = qtest_qmp_eventwait_ref(job->m->qts, "IDLETIME_DETACHED");
    g_assert_cmpstr(qdict_get_str(qdict_get_qdict(event, "data"), "job"), ==,
                    "job");
    qobject_unref(event);
    g_assert_false(job_is_attached(job));
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

/* Detached at once, and attached anew: the one that goes on asks that. */
static void test_detach_paused(const void *kind)
{
    TestJob *job = held_job(kind, "");

    job_verb(job, "job-pause");
    job_await_status(job, "paused");
    machine_ok(job->m, "idletime-detach", "{'job': 'job'}");
    qtest_qmp_eventwait(job->m->qts, "IDLETIME_DETACHED");
    g_assert_false(job_is_attached(job));
    job_attach(job);
    foreground(job->fg);
    job_verb(job, "job-resume");
    job_await(job, "held", 1);
    machine_step_us(job->m, INTERVAL_US);
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

/* A drain does not wait for what is held, and releases nothing. */
static void test_drain(const void *kind)
{
    TestJob *job = held_job(kind, LONG);

    for (int i = 0; i < 20; i++) {
        job_drain(job);
        job_await(job, "held", 1);
    }
    g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    machine_step_us(job->m, LONG_US);
    job_finish(job);
    job_check_data(job);
    job_free(job);
}

/*
 * What a request of the guest waits for is not held: what it overwrites goes
 * to the backup first, and what it writes to the mirror.
 */
static void test_guest(const void *kind)
{
    TestJob *job = held_job(kind, LONG);
    const char *name = job->kind->name;
    TestDisk copy = { .image = job->target };
    uint64_t offset = 2 * MiB;

    request_ok(disk_write(job->d, offset, BLOCK_BYTES, 0xa5));
    g_assert_cmpint(job_number(job, "held"), ==, 1);
    g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    if (g_str_equal(name, "backup")) {
        g_assert_true(disk_holds(&copy, offset, BLOCK_BYTES, 0x5a));
    } else if (g_str_equal(name, "active-mirror")) {
        g_assert_true(disk_holds(&copy, offset, BLOCK_BYTES, 0xa5));
    }
    machine_step_us(job->m, LONG_US);
    job_finish(job);
    if (job->target) {
        g_assert_true(disk_holds(&copy, offset, BLOCK_BYTES,
                                 g_str_equal(name, "backup") ? 0x5a : 0xa5));
    }
    job_free(job);
}

/* Its end waits for the copy of what the guest wrote, and that is held. */
static void test_complete(const void *kind)
{
    TestJob *job = held_job(kind, "");

    machine_step_us(job->m, INTERVAL_US);
    job_await_status(job, "ready");
    foreground(job->fg);
    request_ok(disk_write(job->d, 0, BLOCK_BYTES, 0xa5));
    if (!strstr(job->kind->name, "active-mirror")) {
        job_await(job, "held", 1);
    }
    job_verb(job, "job-complete");
    if (!strstr(job->kind->name, "active-mirror")) {
        job_await(job, "held", 1);
        machine_step_us(job->m, INTERVAL_US);
    }
    job_await_status(job, NULL);
    job_free(job);
}

/* The thread changes while it is held, and back. */
static void test_thread(const void *opaque)
{
    const TestJobKind *kind = opaque;
    TestJob *job = g_new0(TestJob, 1);
    TestMachine *m = job->m = machine_new();

    job->kind = kind;
    machine_resource(m, RESOURCE, "");
    job->fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    machine_args(m, "-object iothread,id=t");
    machine_args(m, "-blockdev driver=null-co,read-zeroes=on,size=67108864,"
                 "node-name=source");
    machine_args(m, "-blockdev driver=null-co,size=67108864,node-name=target");
    machine_start(m);
    machine_ok(m, g_str_equal(kind->name, "backup") ? "blockdev-backup" :
               "blockdev-mirror", "{'job-id': 'job', 'device': 'source',"
               " 'target': 'target', 'sync': 'full', 'speed': 1}");
    job_attach(job);
    foreground(job->fg);
    job_go(job);
    job_await(job, "held", 1);
    for (int i = 0; i < 5; i++) {
        machine_ok(m, "x-blockdev-set-iothread", "{'node-name': 'source',"
                   " 'iothread': 't', 'force': true}");
        job_await(job, "held", 1);
        foreground(job->fg);
        machine_ok(m, "x-blockdev-set-iothread", "{'node-name': 'source',"
                   " 'iothread': null, 'force': true}");
        job_await(job, "held", 1);
        foreground(job->fg);
        g_assert_cmpint(job_number(job, "background.requests"), ==, 0);
    }
    job_finish(job);
    job_free(job);
}

static void test_refused(void)
{
    TestJob *job = job_new(&job_kind[0], "");
    TestMachine *m = job->m;

    machine_refused(m, "exactly one of 'device', 'job', 'export' and "
                    "'migration' must be given",
                    "idletime-attach", "{'resource': '" RESOURCE "'}");
    machine_refused(m, "exactly one of 'device', 'job', 'export' and "
                    "'migration' must be given",
                    "idletime-detach", "{'device': 'fg', 'job': 'job'}");
    machine_refused(m, "no job has the id 'x'; query-jobs lists those that "
                    "there are", "idletime-attach",
                    "{'job': 'x', 'resource': '" RESOURCE "'}");
    machine_refused(m, "job 'job' is attached to idletime-resource '" RESOURCE
                    "': use idletime-detach first", "idletime-attach",
                    "{'job': 'job', 'resource': '" RESOURCE "'}");
    machine_refused(m, "'class' is 'guest', but a job can only be "
                    "'background': detached, it is foreground",
                    "idletime-attach", "{'job': 'job', 'class': 'guest',"
                    " 'resource': '" RESOURCE "'}");
    machine_refused(m, "'background-queues' is '1', but a job has no queues "
                    "and no packets: leave it out",
                    "idletime-attach", "{'job': 'job', 'resource': '" RESOURCE
                    "', 'background-queues': '1'}");
    machine_ok(m, "idletime-detach", "{'job': 'job'}");
    qtest_qmp_eventwait(m->qts, "IDLETIME_DETACHED");
    machine_refused(m, "job 'job' is attached to no idletime-resource; "
                    "query-idletime lists those that are", "idletime-detach",
                    "{'job': 'job'}");
    machine_ok(m, "blockdev-create", "{'job-id': 'new', 'options': {'driver':"
               " 'file', 'filename': '/dev/null/x', 'size': 0}}");
    machine_refused(m, "job 'new' is of type 'create', which cannot be "
                    "attached to an idletime-resource; served are: backup, "
                    "commit, mirror, stream", "idletime-attach",
                    "{'job': 'new', 'resource': '" RESOURCE "'}");
    job_free(job);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < job_kinds; i++) {
        const TestJobKind *kind = &job_kind[i];

        job_test("held", kind, test_held);
        job_test("deadline", kind, test_deadline);
        job_test("cancel", kind, test_cancel);
        job_test("pause", kind, test_pause);
        job_test("detach", kind, test_detach);
        job_test("detach-paused", kind, test_detach_paused);
        job_test("drain", kind, test_drain);
        job_test("guest", kind, test_guest);
        if (kind->has_ready) {
            job_test("complete", kind, test_complete);
        }
    }
    job_test("thread", &job_kind[0], test_thread);
    job_test("thread", &job_kind[1], test_thread);
    qtest_add_func("idletime/job/refused", test_refused);
    return g_test_run();
}
