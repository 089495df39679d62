/*
 * Idletime machine tests: I/O errors of held requests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include <sys/resource.h>

#define HELD    3
#define ON_R0   "idletime=" RESOURCE ",idletime-class="

/* ---- I/O errors */

#define FAIL_WRITE  "file.inject-error.0.event=write_aio,"
#define FAIL_READ   "file.inject-error.0.event=read_aio,"
#define EIO_ONCE    "file.inject-error.0.errno=5,file.inject-error.0.once=on"
#define ENOSPC_ONCE "file.inject-error.0.errno=28,file.inject-error.0.once=on"
/* Not sector 0: that one is read at realize.  A piece is 128 KiB. */
#define FIRST_PIECE ",file.inject-error.0.sector=1"
#define SECOND_PIECE ",file.inject-error.0.sector=256"
#define PIECE_BYTES (128 * KiB)

static TestDisk *faulty(TestMachine *m, const char *id, const char *rule,
                        const char *options)
{
    g_autofree char *all = g_strconcat(FAIL_WRITE EIO_ONCE, rule, NULL);

    return machine_failing(m, id, all, options);
}

static TestMachine *faulty_pair(const char *rule, const char *policy,
                                TestDisk **fg, TestDisk **bg)
{
    g_autofree char *options =
        g_strdup_printf(ON_R0 "background,werror=%s", policy);
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = faulty(m, "bg", rule, options);
    machine_start(m);
    return m;
}

/* With werror=stop it is tried again after cont, and nothing is lost. */
static void error_stop(const char *rule, size_t size)
{
    TestDisk *fg, *bg;
    TestMachine *m = faulty_pair(rule, "stop", &fg, &bg);
    TestRequest *r[HELD];

    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * size, size, 0x5a);
    }
    machine_step_us(m, INTERVAL_US);
    qtest_qmp_eventwait(m->qts, "STOP");
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    /* The neighbour has the resource to itself meanwhile. */
    machine_cont(m);
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(bg, 0, HELD * size, 0x5a));
    machine_free(m);
}

static void test_error_stop(void)
{
    error_stop("", BLOCK_BYTES);
}

/* Its second piece; all of it anew. */
static void test_error_stop_piece(void)
{
    error_stop(SECOND_PIECE, 4 * PIECE_BYTES);
}

static void test_error_report(const void *opaque)
{
    const char *rule = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = faulty_pair(rule, "report", &fg, &bg);
    TestRequest *bad, *good;

    foreground(fg);
    bad = disk_write(bg, 0, 512 * KiB, 0x5a);
    good = disk_write(bg, MiB, BLOCK_BYTES, 0x5a);
    machine_step_us(m, INTERVAL_US);
    g_assert_cmpint(request_wait(bad), ==, VIRTIO_BLK_S_IOERR);
    request_ok(good);
    assert_in_service(bg, 0);
    request_ok(disk_write(bg, 0, 512 * KiB, 0x5a));
    g_assert_true(disk_holds(bg, 0, 512 * KiB, 0x5a));
    machine_free(m);
}

typedef enum Ending { REPORTED, IGNORED, STOPPED } Ending;

typedef struct ErrorCase {
    const char *name;
    const char *rule;
    const char *policy;
    Ending ending;
} ErrorCase;

static const ErrorCase error_case[] = {
    { "write-eio-report", FAIL_WRITE EIO_ONCE, "werror=report",
      REPORTED },
    { "write-eio-ignore", FAIL_WRITE EIO_ONCE, "werror=ignore",
      IGNORED },
    { "write-eio-stop", FAIL_WRITE EIO_ONCE, "werror=stop", STOPPED },
    { "write-eio-enospc", FAIL_WRITE EIO_ONCE, "werror=enospc",
      REPORTED },
    { "write-enospc-report", FAIL_WRITE ENOSPC_ONCE, "werror=report",
      REPORTED },
    { "write-enospc-ignore", FAIL_WRITE ENOSPC_ONCE, "werror=ignore",
      IGNORED },
    { "write-enospc-stop", FAIL_WRITE ENOSPC_ONCE, "werror=stop",
      STOPPED },
    { "write-enospc-enospc", FAIL_WRITE ENOSPC_ONCE, "werror=enospc",
      STOPPED },
    { "read-eio-report", FAIL_READ EIO_ONCE, "rerror=report",
      REPORTED },
    { "read-eio-ignore", FAIL_READ EIO_ONCE, "rerror=ignore",
      IGNORED },
    { "read-eio-stop", FAIL_READ EIO_ONCE, "rerror=stop", STOPPED },
};

/* In the first piece of a request, or in the second one. */
typedef struct ErrorRun {
    const ErrorCase *c;
    bool second;
} ErrorRun;

static ErrorRun error_run[2 * ARRAY_SIZE(error_case)];

/* What a failed piece leaves as it was, and nothing else. */
static void assert_written(TestDisk *d, const ErrorRun *run, bool ok)
{
    const size_t end = 4 * PIECE_BYTES;

    if (ok) {
        g_assert_true(disk_holds(d, 0, end, 0x5a));
    } else if (run->c->ending == IGNORED && run->second) {
        g_assert_true(disk_holds(d, 0, PIECE_BYTES, 0x5a));
        g_assert_true(disk_holds(d, PIECE_BYTES, PIECE_BYTES, 0));
        g_assert_true(disk_holds(d, 2 * PIECE_BYTES, 2 * PIECE_BYTES, 0x5a));
    }
}

static void assert_read(TestRequest *r, const ErrorCase *c, bool ok)
{
    g_autofree uint8_t *data = g_malloc(r->size);
    size_t from = ok ? 0 : 2 * PIECE_BYTES;

    qtest_bufread(r->disk->m->qts, request_data(r), data, r->size);
    for (size_t i = from; i < r->size && c->ending != REPORTED; i++) {
        g_assert_cmphex(data[i], ==, 0x33);
    }
}

/*
 * A held request of four pieces fails as stock QEMU's would: in its first
 * piece, or in its second one.
 */
static void test_error(const void *opaque)
{
    const ErrorRun *run = opaque;
    const ErrorCase *c = run->c;
    g_autofree char *rule = g_strconcat(c->rule, run->second ? SECOND_PIECE :
                                        FIRST_PIECE, NULL);
    g_autofree char *options = g_strconcat(ON_R0 "background,", c->policy,
                                           NULL);
    TestMachine *m = machine_new();
    bool is_read = g_str_has_prefix(c->name, "read");
    bool ok = c->ending == STOPPED;
    TestDisk *fg, *bg;
    TestRequest *r;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_failing(m, "bg", rule, options);
    machine_start(m);
    if (is_read) {
        disk_fill(bg, 0, 4 * PIECE_BYTES, 0x33);
    }
    foreground(fg);
    r = is_read ? disk_submit(bg, 0, VIRTIO_BLK_T_IN, 0, 0, NULL,
                              4 * PIECE_BYTES) :
                  disk_write(bg, 0, 4 * PIECE_BYTES, 0x5a);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    if (c->ending == STOPPED) {
        qtest_qmp_eventwait(m->qts, "STOP");
        assert_held(bg, 0);
        assert_in_service(bg, 0);
        machine_cont(m);
    }
    g_assert_cmpint(request_wait(r), ==, c->ending == REPORTED ?
                    VIRTIO_BLK_S_IOERR : VIRTIO_BLK_S_OK);
    if (is_read) {
        assert_read(r, c, ok);
    } else {
        assert_written(bg, run, ok);
    }
    disk_await(bg, "in-service", 0);
    /* The fault is over, and so is what it did to the device. */
    request_ok(disk_write(bg, 0, 4 * PIECE_BYTES, 0x5a));
    g_assert_true(disk_holds(bg, 0, 4 * PIECE_BYTES, 0x5a));
    machine_free(m);
}

/* A foreground request that fails is not in service any more. */
static void test_error_foreground(const void *opaque)
{
    const char *policy = opaque;
    g_autofree char *options = g_strdup_printf(ON_R0 "foreground,werror=%s",
                                               policy);
    TestMachine *m = machine_new();
    TestRequest *r, *f;
    TestDisk *fg, *bg;

    machine_resource(m, RESOURCE, "max-hold-ms=0");
    fg = faulty(m, "fg", "", options);
    bg = machine_disk(m, "bg", ON_R0 "background");
    machine_start(m);
    f = disk_write(fg, 0, BLOCK_BYTES, 0x5a);
    if (g_str_equal(policy, "stop")) {
        qtest_qmp_eventwait(m->qts, "STOP");
        machine_cont(m);
        request_ok(f);
    } else {
        g_assert_cmpint(request_wait(f), ==, VIRTIO_BLK_S_IOERR);
    }
    r = disk_read(bg);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

/* ---- many at once */

#define MANY            1000
#define SMALL_STACK     (256 * KiB)

/*
 * Each fails as it is released, and its end releases the next one: one after
 * another, not one inside another.
 */
static void test_many(void)
{
    const struct rlimit small = { SMALL_STACK, SMALL_STACK };
    TestMachine *m = machine_new();
    g_autofree TestRequest **r = g_new(TestRequest *, MANY);
    TestDisk *fg, *bg;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    ring_form = RING_INDIRECT;
    bg = machine_disk(m, "bg", "queue-size=1024," ON_R0 "background");
    ring_form = RING_SPLIT;
    machine_start(m);
    foreground(fg);
    for (int i = 0; i < MANY; i++) {
        r[i] = disk_submit(bg, 0, VIRTIO_BLK_T_IN, 0,
                           DISK_BYTES / SECTOR_BYTES, NULL, SECTOR_BYTES);
    }
    assert_held(bg, MANY);
    /* What it has already stays. */
    g_assert_cmpint(prlimit(qtest_pid(m->qts), RLIMIT_STACK, &small, NULL), ==,
                    0);
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < MANY; i++) {
        g_assert_cmpint(request_wait(r[i]), ==, VIRTIO_BLK_S_IOERR);
    }
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, MANY);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/error/stop", test_error_stop);
    ring_test("idletime/error/stop-piece", test_error_stop_piece);
    ring_data_test("idletime/error/report", "", test_error_report);
    ring_data_test("idletime/error/report-piece", SECOND_PIECE,
                   test_error_report);
    for (unsigned i = 0; i < ARRAY_SIZE(error_run); i++) {
        ErrorRun *run = &error_run[i];
        g_autofree char *path = NULL;

        *run = (ErrorRun) { &error_case[i / 2], i % 2 };
        path = g_strdup_printf("idletime/error/%s%s", run->c->name,
                               run->second ? "-piece" : "");
        ring_data_test(path, run, test_error);
    }
    ring_data_test("idletime/error/foreground-report", "report",
                   test_error_foreground);
    ring_data_test("idletime/error/foreground-stop", "stop",
                   test_error_foreground);
    /* A SCSI disk says before it holds it that a request is out of range. */
    if (!disks_are_scsi()) {
        ring_test("idletime/error/many", test_many);
    }
    return g_test_run();
}
