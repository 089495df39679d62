/*
 * Idletime machine tests: attach and detach in all that happens to a device.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * I/O threads, a stopped VM, drains, resets, unplug, errors, migration.
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define HELD    4
#define LONG    "interval-us=60000000,max-hold-ms=0"

static TestMachine *bench(const char *resource, TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, resource);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_disk(m, "bg", "");
    machine_start(m);
    return m;
}

/* The background's drive takes one write, and has had it. */
static TestMachine *slow_bench(TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, LONG);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_throttled(m, "bg", ONE_WRITE, "");
    machine_start(m);
    request_ok(disk_write(*bg, MiB, BLOCK_BYTES, 0x11));
    return m;
}

static TestRequest *write_on(TestDisk *d, unsigned i)
{
    char block[BLOCK_BYTES];

    memset(block, 0x5a, sizeof(block));
    return disk_submit(d, i % d->num_queues, VIRTIO_BLK_T_OUT, IOPRIO_NONE,
                       i * (BLOCK_BYTES / SECTOR_BYTES), block, sizeof(block));
}

static void hold_some(TestDisk *fg, TestDisk *bg, TestRequest **r)
{
    foreground(fg);
    for (unsigned i = 0; i < HELD; i++) {
        r[i] = write_on(bg, i);
    }
    disk_await(bg, "held", HELD);
}

/* One has left on a slow bench, the others are held still. */
static void begin_to_detach(TestDisk *fg, TestDisk *bg, TestRequest **r)
{
    disk_attach(bg, "background");
    hold_some(fg, bg, r);
    disk_detach(bg);
    disk_await(bg, "held", HELD - 1);
}

static void all_ok(TestDisk *bg, TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0x5a));
}

/* ---- stopped */

static void test_attach_stopped(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench("", &fg, &bg);
    TestRequest *r[HELD];

    foreground(fg);
    machine_stop(m);
    disk_attach(bg, "background");
    /* The driver of a stopped VM: what it sends joins those of the stop. */
    r[0] = write_on(bg, 0);
    assert_held(bg, 0);
    machine_cont(m);
    disk_await(bg, "held", 1);
    for (unsigned i = 1; i < HELD; i++) {
        r[i] = write_on(bg, i);
    }
    assert_held(bg, HELD);
    machine_step_us(m, INTERVAL_US);
    all_ok(bg, r);
    machine_free(m);
}

/* What was held is the stopped VM's; as stock it leaves at cont. */
static void test_detach_stopped(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench(LONG, &fg, &bg);
    TestRequest *r[HELD];

    disk_attach(bg, "background");
    hold_some(fg, bg, r);
    machine_stop(m);
    disk_detach(bg);
    disk_await_detached(bg);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
    machine_cont(m);
    all_ok(bg, r);
    machine_free(m);
}

/* The stop comes while what is held leaves. */
static void test_stop_while_detaching(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = slow_bench(&fg, &bg);
    TestRequest *r[HELD];

    begin_to_detach(fg, bg, r);
    machine_stop(m);
    disk_until_detached(bg);
    machine_cont(m);
    for (int i = 0; i < HELD; i++) {
        disk_let_go(bg);
    }
    all_ok(bg, r);
    machine_free(m);
}

/* ---- drains */

/* A mirror whose end waits for the user keeps its source drained. */
static void drain_begin(TestDisk *d)
{
    bool pending = false;

    machine_ok(d->m, "blockdev-mirror", "{'job-id': 'job', 'device': %s,"
               " 'target': 'target', 'sync': 'none',"
               " 'auto-finalize': false}", d->id);
    qtest_qmp_eventwait(d->m->qts, "BLOCK_JOB_READY");
    machine_ok(d->m, "block-job-cancel", "{'device': 'job'}");
    while (!pending) {
        QDict *event = qtest_qmp_eventwait_ref(d->m->qts, "JOB_STATUS_CHANGE");

        pending = g_str_equal(qdict_get_str(qdict_get_qdict(event, "data"),
                                            "status"), "pending");
        qobject_unref(event);
    }
}

static void drain_end(TestDisk *d)
{
    machine_ok(d->m, "job-finalize", "{'id': 'job'}");
    qtest_qmp_eventwait(d->m->qts, "BLOCK_JOB_COMPLETED");
}

static TestMachine *drain_bench(const char *resource, TestDisk **fg,
                                TestDisk **bg)
{
    TestMachine *m = bench(resource, fg, bg);

    machine_ok(m, "blockdev-add", "{'driver': 'null-co', 'size': %" PRId64
               ", 'node-name': 'target', 'read-zeroes': true}",
               (int64_t)DISK_BYTES);
    return m;
}

static void test_attach_drained(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = drain_bench("", &fg, &bg);
    TestRequest *r;

    drain_begin(bg);
    disk_attach(bg, "background");
    foreground(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    /* It could, but for the drain. */
    assert_held(bg, 1);
    assert_in_service(bg, 0);
    drain_end(bg);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "hold.drained-us"), ==, INTERVAL_US);
    machine_free(m);
}

static void test_detach_drained(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = drain_bench(LONG, &fg, &bg);
    TestRequest *r;

    disk_attach(bg, "background");
    foreground(fg);
    r = disk_read(bg);
    drain_begin(bg);
    disk_detach(bg);
    assert_held(bg, 1);
    g_assert_cmpint(disk_number(bg, "detaching"), ==, 1);
    drain_end(bg);
    request_ok(r);
    disk_await_detached(bg);
    machine_free(m);
}

/* ---- resets */

static void test_reset(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench(LONG, &fg, &bg);
    TestRequest *r[HELD];

    disk_attach(bg, "background");
    hold_some(fg, bg, r);
    qvirtio_reset(&bg->pci->vdev);
    assert_held(bg, 0);
    disk_init(bg);
    hold_some(fg, bg, r);
    qtest_system_reset(m->qts);
    assert_held(bg, 0);
    disk_init(fg);
    disk_init(bg);
    hold_some(fg, bg, r);
    disk_detach(bg);
    all_ok(bg, r);
    disk_await_detached(bg);
    machine_free(m);
}

static void test_reset_while_detaching(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = slow_bench(&fg, &bg);
    TestRequest *r[HELD];

    for (int i = 0; i < 3; i++) {
        begin_to_detach(fg, bg, r);
        if (i == 0) {
            qvirtio_reset(&bg->pci->vdev);
        } else {
            qtest_system_reset(m->qts);
            disk_init(fg);
        }
        disk_await_detached(bg);
        disk_init(bg);
    }
    machine_free(m);
}

/* ---- unplug, quit */

static void test_unplug(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench(LONG, &fg, &bg);
    TestRequest *r[HELD];

    for (int i = 0; i < 4; i++) {
        disk_attach(bg, "background");
        hold_some(fg, bg, r);
        if (i % 2) {
            /* One in service at a drive that is stuck, until the drain. */
            disk_pause_write(bg, "A");
            disk_detach(bg);
            assert_held(bg, HELD - 1);
            disk_resume(bg, "A");
        }
        disk_unplug(bg);
        disk_plug(bg, "");
        g_assert_false(disk_is_attached(bg));
    }
    machine_free(m);
}

/* A detach that was not over is over with the device. */
static void test_unplug_while_detaching(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = slow_bench(&fg, &bg);
    TestRequest *r[HELD];

    begin_to_detach(fg, bg, r);
    /* As disk_unplug(), but it is this event that is waited for. */
    qtest_qmp_device_del_send(m->qts, bg->id);
    if (!disks_are_scsi()) {
        qtest_outl(m->qts, 0xae08, 1 << bg->slot);
    }
    disk_await_detached(bg);
    machine_free(m);
}

static void test_quit_while_detaching(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = bench(LONG, &fg, &bg);
    TestRequest *r[HELD];

    disk_attach(bg, "background");
    hold_some(fg, bg, r);
    disk_pause_write(bg, "A");
    disk_detach(bg);
    assert_held(bg, HELD - 1);
    disk_resume(bg, "A");
    machine_free(m);
}

/* ---- errors */

/* Attached while its VM is stopped by an error: the retry is background. */
static void test_error_stop(void)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;
    TestRequest *r;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_failing(m, "bg", "file.inject-error.0.event=write_aio,"
                         "file.inject-error.0.errno=5,"
                         "file.inject-error.0.once=on", "werror=stop");
    machine_start(m);
    foreground(fg);
    r = disk_write(bg, 0, BLOCK_BYTES, 0x5a);
    qtest_qmp_eventwait(m->qts, "STOP");
    disk_attach(bg, "background");
    machine_cont(m);
    disk_await(bg, "held", 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_true(disk_holds(bg, 0, BLOCK_BYTES, 0x5a));
    machine_free(m);
}

/* It fails while it leaves; the VM is stopped, and it is detached. */
static void test_error_while_detaching(void)
{
    TestMachine *m = machine_new();
    TestRequest *r[HELD];
    TestDisk *fg, *bg;

    machine_resource(m, RESOURCE, LONG);
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_failing(m, "bg", "file.inject-error.0.event=write_aio,"
                         "file.inject-error.0.errno=5,"
                         "file.inject-error.0.once=on", "werror=stop");
    machine_start(m);
    disk_attach(bg, "background");
    hold_some(fg, bg, r);
    disk_detach(bg);
    qtest_qmp_eventwait(m->qts, "STOP");
    disk_until_detached(bg);
    machine_cont(m);
    all_ok(bg, r);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/attach-life/stopped", test_attach_stopped);
    ring_test("idletime/attach-life/detach-stopped", test_detach_stopped);
    ring_test("idletime/attach-life/stop-while-detaching",
              test_stop_while_detaching);
    qtest_add_func("idletime/attach-life/drained", test_attach_drained);
    qtest_add_func("idletime/attach-life/detach-drained",
                   test_detach_drained);
    ring_test("idletime/attach-life/reset", test_reset);
    ring_test("idletime/attach-life/reset-while-detaching",
              test_reset_while_detaching);
    ring_test("idletime/attach-life/unplug", test_unplug);
    ring_test("idletime/attach-life/unplug-while-detaching",
              test_unplug_while_detaching);
    ring_test("idletime/attach-life/quit-while-detaching",
              test_quit_while_detaching);
    ring_test("idletime/attach-life/error-stop", test_error_stop);
    ring_test("idletime/attach-life/error-while-detaching",
              test_error_while_detaching);
    return g_test_run();
}
