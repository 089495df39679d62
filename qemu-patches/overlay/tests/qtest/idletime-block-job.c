/*
 * Idletime machine tests: block jobs on a resource.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-block-job.h"
#include "qobject/qlist.h"
#include "qobject/qnum.h"
#include "qobject/qbool.h"

#define WAIT_US     (60 * G_USEC_PER_SEC)
#define POLL_US     1000
/* A chunk, and then so slow that a test is over before the next. */
#define SLOW        1

/* ---- kinds */

static void add_target(TestJob *job)
{
    int fd;

    job->target = g_strdup_printf("%s/target.img", job->m->dir);
    fd = open(job->target, O_RDWR | O_CREAT, 0600);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, DISK_BYTES), ==, 0);
    close(fd);
    machine_ok(job->m, "blockdev-add", "{'driver': 'raw', 'node-name':"
               " 'target', 'file': {'driver': 'file', 'filename': %s}}",
               job->target);
}

static void start_backup(TestJob *job)
{
    add_target(job);
    machine_ok(job->m, "blockdev-backup", "{'job-id': 'job', 'device': %s,"
               " 'target': 'target', 'sync': 'full', 'speed': %d}",
               job->d->id, SLOW);
}

static void start_mirror(TestJob *job)
{
    add_target(job);
    machine_ok(job->m, "blockdev-mirror", "{'job-id': 'job', 'device': %s,"
               " 'target': 'target', 'sync': 'full', 'speed': %d}",
               job->d->id, SLOW);
}

static void start_active_mirror(TestJob *job)
{
    add_target(job);
    machine_ok(job->m, "blockdev-mirror", "{'job-id': 'job', 'device': %s,"
               " 'target': 'target', 'sync': 'full', 'speed': %d,"
               " 'copy-mode': 'write-blocking'}", job->d->id, SLOW);
}

static void snapshot(TestJob *job, const char *below, const char *node)
{
    g_autofree char *file = g_strdup_printf("%s/%s", job->m->dir, node);

    machine_ok(job->m, "blockdev-snapshot-sync",
               "{'node-name': %s, 'snapshot-file': %s,"
               " 'snapshot-node-name': %s}", below, file, node);
}

static void start_stream(TestJob *job)
{
    snapshot(job, job->d->id, "over");
    machine_ok(job->m, "block-stream", "{'job-id': 'job', 'device': 'over',"
               " 'speed': %d}", SLOW);
}

static void write_all(TestJob *job)
{
    for (int i = 0; i < JOB_BYTES / MiB; i++) {
        request_ok(disk_write(job->d, i * MiB, MiB, 0xa5));
    }
}

/* Of a layer in the middle, and of the uppermost: a mirror, inside. */
static void start_commit(TestJob *job)
{
    snapshot(job, job->d->id, "over");
    write_all(job);
    snapshot(job, "over", "top");
    machine_ok(job->m, "block-commit", "{'job-id': 'job', 'device': 'top',"
               " 'base-node': %s, 'top-node': 'over', 'speed': %d}",
               job->d->id, SLOW);
}

static void start_active_commit(TestJob *job)
{
    snapshot(job, job->d->id, "over");
    write_all(job);
    machine_ok(job->m, "block-commit", "{'job-id': 'job', 'device': 'over',"
               " 'base-node': %s, 'speed': %d}", job->d->id, SLOW);
}

const TestJobKind job_kind[] = {
    { "backup", start_backup },
    { "mirror", start_mirror, true },
    { "active-mirror", start_active_mirror, true },
    { "stream", start_stream },
    { "commit", start_commit },
    { "active-commit", start_active_commit, true },
};

const unsigned job_kinds = ARRAY_SIZE(job_kind);

/* ---- what is shown */

static QDict *find(QDict *response, const char *key, const char *value)
{
    const QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(response, "return"), entry) {
        QDict *dict = qobject_to(QDict, entry->value);

        if (g_str_equal(qdict_get_str(dict, key), value)) {
            return dict;
        }
    }
    return NULL;
}

bool job_is_attached(TestJob *job)
{
    QDict *response = qtest_qmp(job->m->qts, "{'execute': 'query-idletime'}");
    QDict *resource = find(response, "id", RESOURCE);
    bool found = !qlist_empty(qdict_get_qlist(resource, "jobs"));

    qobject_unref(response);
    return found;
}

static int64_t number(TestJob *job, const char *resource, const char *member)
{
    g_autofree char *path = g_strdup_printf("jobs.0.%s", member);

    return machine_number(job->m, resource, path);
}

int64_t job_number(TestJob *job, const char *member)
{
    return number(job, RESOURCE, member);
}

int64_t job_number_other(TestJob *job, const char *member)
{
    return number(job, OTHER, member);
}

static void check_time(int64_t until, const char *what)
{
    if (g_get_monotonic_time() > until) {
        g_error("%s takes too long", what);
    }
    g_usleep(POLL_US);
}

static void await_number(TestJob *job, const char *resource,
                         const char *member, int64_t value)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;

    while (number(job, resource, member) != value) {
        check_time(until, member);
    }
}

void job_await(TestJob *job, const char *member, int64_t value)
{
    await_number(job, RESOURCE, member, value);
}

void job_await_other(TestJob *job, const char *member, int64_t value)
{
    await_number(job, OTHER, member, value);
}

static char *status_of(TestJob *job)
{
    QDict *response = qtest_qmp(job->m->qts, "{'execute': 'query-jobs'}");
    QDict *found = find(response, "id", "job");
    char *status = found ? g_strdup(qdict_get_str(found, "status")) : NULL;

    qobject_unref(response);
    return status;
}

void job_await_status(TestJob *job, const char *status)
{
    int64_t until = g_get_monotonic_time() + WAIT_US;
    g_autofree char *now = status_of(job);

    while (g_strcmp0(now, status)) {
        check_time(until, status ?: "the end of the job");
        g_free(now);
        now = status_of(job);
    }
}

/* ---- life */

void job_verb(TestJob *job, const char *command)
{
    machine_ok(job->m, command, "{'id': 'job'}");
}

void job_attach(TestJob *job)
{
    machine_ok(job->m, "idletime-attach",
               "{'job': 'job', 'resource': '" RESOURCE "'}");
}

void job_attach_other(TestJob *job)
{
    machine_ok(job->m, "idletime-attach",
               "{'job': 'job', 'resource': '" OTHER "'}");
}

TestJob *job_new(const TestJobKind *kind, const char *options)
{
    TestJob *job = g_new0(TestJob, 1);

    job->kind = kind;
    job->m = machine_new();
    machine_resource(job->m, RESOURCE, options);
    machine_resource(job->m, OTHER, options);
    job->fg = machine_disk(job->m, "fg", "idletime=" RESOURCE);
    job->other = machine_disk(job->m, "other-fg", "idletime=" OTHER);
    job->d = machine_disk(job->m, "d", "");
    disk_fill(job->d, 0, JOB_BYTES, 0x5a);
    machine_start(job->m);
    kind->start(job);
    foreground(job->fg);
    job_attach(job);
    return job;
}

void job_go(TestJob *job)
{
    machine_ok(job->m, "block-job-set-speed", "{'device': 'job', 'speed': 0}");
}

void job_finish(TestJob *job)
{
    bool told = !job->kind->has_ready;
    int64_t until = g_get_monotonic_time() + WAIT_US;
    g_autofree char *now = status_of(job);

    while (now) {
        if (!told && g_str_equal(now, "ready")) {
            job_verb(job, "job-complete");
            told = true;
        }
        check_time(until, "the end of the job");
        machine_step_us(job->m, INTERVAL_US);
        g_free(now);
        now = status_of(job);
    }
}

void job_free(TestJob *job)
{
    machine_free(job->m);
    g_free(job->target);
    g_free(job);
}

void job_check_data(TestJob *job)
{
    TestDisk copy = { .image = job->target ?: job->d->image };
    bool committed = strstr(job->kind->name, "commit");

    if (g_str_equal(job->kind->name, "stream")) {
        return;
    }
    g_assert_true(disk_holds(&copy, 0, JOB_BYTES, committed ? 0xa5 : 0x5a));
    g_assert_true(disk_holds(&copy, JOB_BYTES, JOB_BYTES, 0));
}

void job_drain(TestJob *job)
{
    machine_ok(job->m, "block_set_io_throttle", "{'id': '/machine/peripheral"
               "/d/virtio-backend', 'bps': 0, 'bps_rd': 0, 'bps_wr': 0,"
               " 'iops': 1000000, 'iops_rd': 0, 'iops_wr': 0}");
}

void job_test(const char *path, const TestJobKind *kind,
              void (*fn)(const void *))
{
    g_autofree char *full = g_strdup_printf("idletime/job/%s/%s", path,
                                            kind->name);

    qtest_add_data_func(full, kind, fn);
}
