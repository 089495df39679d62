/*
 * Idletime machine tests: drains and snapshots while requests are held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Snapshots, resizes and jobs drain a device: they wait until nothing is in
 * flight.  Held requests are not in flight.  A drain must not wait for them,
 * must not release them, and must not lose them.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define HELD    3
/* No release but by the interval, which is a minute. */
#define LONG    "interval-us=60000000,max-hold-ms=0"

typedef void Drain(TestDisk *d);

static void take_snapshot(TestDisk *d)
{
    g_autofree char *file = g_strdup_printf("%s/over.qcow2", d->m->dir);

    machine_ok(d->m, "blockdev-snapshot-sync",
               "{'node-name': %s, 'snapshot-file': %s,"
               " 'snapshot-node-name': 'over'}", d->id, file);
}

static void resize(TestDisk *d)
{
    machine_ok(d->m, "block_resize", "{'node-name': %s, 'size': %" PRId64 "}",
               d->id, (int64_t)(DISK_BYTES * 2));
}

static void await_job(TestDisk *d, const char *event)
{
    qtest_qmp_eventwait(d->m->qts, event);
}

static void start_mirror(TestDisk *d, const char *sync)
{
    machine_ok(d->m, "blockdev-add", "{'driver': 'null-co', 'size': %" PRId64
               ", 'node-name': 'target', 'read-zeroes': true}",
               (int64_t)DISK_BYTES);
    machine_ok(d->m, "blockdev-mirror", "{'job-id': 'job', 'device': %s,"
               " 'target': 'target', 'sync': %s}", d->id, sync);
    await_job(d, "BLOCK_JOB_READY");
}

/* Back to the old image: a drain at the start and one at the end. */
static void mirror_and_cancel(TestDisk *d)
{
    start_mirror(d, "full");
    machine_ok(d->m, "block-job-cancel", "{'device': 'job'}");
    await_job(d, "BLOCK_JOB_COMPLETED");
}

/* To a new image: from here on the disk is the target. */
static void mirror_and_switch(TestDisk *d)
{
    start_mirror(d, "none");
    machine_ok(d->m, "block-job-complete", "{'device': 'job'}");
    await_job(d, "BLOCK_JOB_COMPLETED");
}

static void backup(TestDisk *d)
{
    machine_ok(d->m, "blockdev-add", "{'driver': 'null-co', 'size': %" PRId64
               ", 'node-name': 'target'}", (int64_t)DISK_BYTES);
    machine_ok(d->m, "blockdev-backup", "{'job-id': 'job', 'device': %s,"
               " 'target': 'target', 'sync': 'full'}", d->id);
    await_job(d, "BLOCK_JOB_COMPLETED");
}

static void throttle(TestDisk *d)
{
    machine_ok(d->m, "block_set_io_throttle", "{'id': '/machine/peripheral/bg"
               "/virtio-backend', 'bps': 0, 'bps_rd': 0, 'bps_wr': 0,"
               " 'iops': 1000000, 'iops_rd': 0, 'iops_wr': 0}");
}

static void twenty_times(TestDisk *d)
{
    for (int i = 0; i < 20; i++) {
        machine_ok(d->m, "block_resize",
                   "{'node-name': %s, 'size': %" PRId64 "}", d->id,
                   (int64_t)(DISK_BYTES + i * MiB));
    }
}

typedef struct DrainCase {
    const char *name;
    Drain *drain;
    const char *image;      /* NULL: of the disk; "": cannot be looked at */
} DrainCase;

static const DrainCase drain_case[] = {
    { "snapshot", take_snapshot, "" },
    { "resize", resize },
    { "mirror-cancel", mirror_and_cancel },
    { "mirror-switch", mirror_and_switch, "" },
    { "backup", backup },
    { "throttle", throttle },
    { "twenty", twenty_times },
};

static int64_t promotions(TestDisk *d)
{
    return disk_number(d, "promotions.deadline") +
           disk_number(d, "promotions.flush") +
           disk_number(d, "promotions.journal") +
           disk_number(d, "promotions.ring") +
           disk_number(d, "promotions.class-change");
}

static void test_held(const void *opaque)
{
    const DrainCase *c = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(LONG, &fg, &bg);
    TestRequest *r[HELD];

    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
    c->drain(bg);
    assert_held(bg, HELD);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 0);
    g_assert_cmpint(promotions(bg), ==, 0);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
    machine_step_us(m, 60 * 1000 * MS);
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
        g_assert_cmpint(r[i]->order, ==, i + 1);
    }
    g_assert_true(c->image || disk_holds(bg, 0, HELD * BLOCK_BYTES, 0x5a));
    machine_free(m);
}

static void await_pending(TestDisk *d)
{
    bool pending = false;

    while (!pending) {
        QDict *event = qtest_qmp_eventwait_ref(d->m->qts, "JOB_STATUS_CHANGE");

        pending = g_str_equal(qdict_get_str(qdict_get_qdict(event, "data"),
                                            "status"), "pending");
        qobject_unref(event);
    }
}

/*
 * A mirror whose end waits for the user keeps its source drained meanwhile:
 * 7 ms, and then 5 ms.  What is overdue in there leaves at its end.
 */
static void test_drained_time(void)
{
    static const int64_t drained_us[] = { 7 * MS, 5 * MS };
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    int64_t sum_us = 0;
    TestRequest *r;

    machine_ok(m, "blockdev-add", "{'driver': 'null-co', 'size': %" PRId64
               ", 'node-name': 'target', 'read-zeroes': true}",
               (int64_t)DISK_BYTES);
    for (int i = 0; i < 2; i++) {
        foreground(fg);
        r = disk_read(bg);
        machine_ok(m, "blockdev-mirror", "{'job-id': 'job', 'device': %s,"
                   " 'target': 'target', 'sync': 'none',"
                   " 'auto-finalize': false}", bg->id);
        await_job(bg, "BLOCK_JOB_READY");
        machine_step_us(m, INTERVAL_US - drained_us[i]);
        machine_ok(m, "block-job-cancel", "{'device': 'job'}");
        await_pending(bg);
        machine_step_us(m, drained_us[i]);
        sum_us += drained_us[i];
        machine_ok(m, "job-finalize", "{'id': 'job'}");
        await_job(bg, "BLOCK_JOB_COMPLETED");
        request_ok(r);
        g_assert_cmpint(disk_number(bg, "hold.drained-us"), ==, sum_us);
    }
    machine_free(m);
}

/* A drain of the neighbour, whose end is a foreground event at most. */
static void test_neighbour(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(LONG, &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    resize(fg);
    assert_held(bg, 1);
    machine_step_us(m, 60 * 1000 * MS);
    request_ok(r);
    machine_free(m);
}

/* It waits for the piece in service, and the next one waits for it. */
static void test_half_way(void)
{
    TestMachine *m = machine_new();
    TestRequest *r;
    TestDisk *bg;

    machine_resource(m, RESOURCE, "");
    bg = machine_throttled(m, "bg", TWO_A_SECOND, "idletime=" RESOURCE
                           ",idletime-class=background");
    machine_start(m);
    r = disk_write(bg, 0, MiB, 0x5a);
    disk_await(bg, "pieces", 2);
    /* A resize has three drained sections, each ends the throttling of one. */
    resize(bg);
    g_assert_cmpint(disk_number(bg, "pieces"), <, 8);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 8);
    g_assert_true(disk_holds(bg, 0, MiB, 0x5a));
    machine_free(m);
}

/* The lines of QEMU's log with one of two events, a letter for each. */
static char *order_of(TestMachine *m, const char *log, const char *started,
                      const char *completed)
{
    g_autofree char *path = g_build_filename(m->dir, log, NULL);
    g_autofree char *text = NULL;
    g_auto(GStrv) line = NULL;
    GString *order = g_string_new(NULL);

    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    line = g_strsplit(text, "\n", -1);
    for (unsigned i = 0; line[i]; i++) {
        if (strstr(line[i], started)) {
            g_string_append_c(order, 's');
        } else if (strstr(line[i], completed)) {
            g_string_append_c(order, 'c');
        }
    }
    return g_string_free(order, false);
}

/*
 * Two are in service when the drain begins, and the end of the first leaves
 * room for a third.  Released then, it would keep its token to the end of the
 * drain without being at the disk.  null-co waits in real time.
 */
static void test_none_inside(void)
{
    TestMachine *m = machine_new();
    g_autofree char *order = NULL;
    TestRequest *r[HELD];
    TestDisk *bg;

    machine_resource(m, RESOURCE, "max-inflight=2");
    machine_args(m, "-d trace:idletime_gate_started,"
                 "trace:virtio_blk_req_complete -D %s/log", m->dir);
    bg = machine_disk_on(m, "bg", "driver=null-co,read-zeroes=on,"
                         "latency-ns=1000000000", "idletime=" RESOURCE
                         ",idletime-class=background");
    machine_start(m);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_read(bg);
    }
    assert_in_service(bg, 2);
    /* Refused in the end, but drained. */
    qobject_unref(qtest_qmp(m->qts, "{'execute': 'block_resize', 'arguments':"
                            " {'node-name': 'bg', 'size': 0}}"));
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    order = order_of(m, "log", "idletime_gate_started",
                     "virtio_blk_req_complete");
    g_assert_cmpstr(order, ==, "ssccsc");
    machine_free(m);
}

/* ---- snapshots of the whole machine */

static void hmp_ok(TestMachine *m, const char *command)
{
    g_autofree char *answer = qtest_hmp(m->qts, "%s", command);

    g_assert_cmpstr(answer, ==, "");
}

/* "fg" cannot be written, so that the snapshot need not hold it. */
static TestMachine *snapshot_pair(TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();
    g_autofree char *file = g_strdup_printf("%s/bg.qcow2", m->dir);
    g_autofree char *image =
        g_strdup_printf("driver=qcow2,file.driver=file,file.filename=%s",
                        file);

    g_assert_true(mkimg(file, "qcow2", DISK_BYTES / MiB));
    machine_resource(m, RESOURCE, "");
    *fg = machine_disk_on(m, "fg", "driver=null-co,read-zeroes=on,"
                          "read-only=on", "idletime=" RESOURCE);
    *bg = machine_disk_on(m, "bg", image, "idletime=" RESOURCE
                          ",idletime-class=background");
    machine_start(m);
    return m;
}

/* What the driver's side of a ring knows. */
typedef struct RingState {
    TestRing ring;
    QVirtQueue vq;
} RingState;

static RingState ring_state(const TestDisk *d)
{
    return (RingState) { .ring = d->ring[0], .vq = *d->ring[0].vq };
}

/* The driver's memory went back in time: so does what is known of it. */
static void ring_rewind(TestDisk *d, const RingState *state)
{
    *d->ring[0].vq = state->vq;
    d->ring[0] = state->ring;
}

static void test_savevm(void)
{
    TestDisk *fg, *bg;
    TestMachine *m;
    TestRequest *r[HELD];
    RingState fg_state, bg_state;

    if (!have_qemu_img()) {
        g_test_skip("QTEST_QEMU_IMG is not set");
        return;
    }
    m = snapshot_pair(&fg, &bg);
    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
    fg_state = ring_state(fg);
    bg_state = ring_state(bg);
    hmp_ok(m, "savevm s");
    disk_await(bg, "held", HELD);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 0);
    /* Twice: they complete, and after the way back they complete again. */
    for (int n = 1; n <= 2; n++) {
        machine_step_us(m, INTERVAL_US);
        for (int i = 0; i < HELD; i++) {
            request_ok(r[i]);
        }
        g_assert_cmpint(disk_number(bg, "background.requests"), ==, n * HELD);
        foreground(fg);
        hmp_ok(m, "loadvm s");
        ring_rewind(fg, &fg_state);
        ring_rewind(bg, &bg_state);
        for (int i = 0; i < HELD; i++) {
            r[i]->done = false;
        }
        disk_await(bg, "held", HELD);
    }
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(drain_case); i++) {
        g_autofree char *path = g_strdup_printf("idletime/drain/%s",
                                                drain_case[i].name);

        ring_data_test(path, &drain_case[i], test_held);
    }
    ring_test("idletime/drain/time", test_drained_time);
    ring_test("idletime/drain/neighbour", test_neighbour);
    ring_test("idletime/drain/half-way", test_half_way);
    ring_test("idletime/drain/none-inside", test_none_inside);
    ring_test("idletime/savevm", test_savevm);
    return g_test_run();
}
