/*
 * Idletime machine tests: SCSI disks that are filled with a pattern.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "scsi/constants.h"
#include "standard-headers/linux/virtio_scsi.h"

#define MAX_PIECE       (128 * KiB)
#define FILLED          (3 * MiB + 512)
/* Stock QEMU writes so much of it at a time. */
#define BUFFER          (512 * KiB)
#define LARGE_PIECES    "max-request-bytes=1048576"

static TestRequest *fill(TestDisk *d)
{
    uint8_t cdb[16] = { WRITE_SAME_16 };
    uint8_t pattern[SECTOR_BYTES];

    memset(pattern, 0x5a, sizeof(pattern));
    stl_be_p(&cdb[10], FILLED / SECTOR_BYTES);
    return scsi_submit(d, 0, cdb, sizeof(cdb), 0, pattern, sizeof(pattern),
                       false);
}

/* One piece is written, the second is held. */
static TestRequest *filled_half_way(TestDisk *fg, TestDisk *bg)
{
    TestRequest *r;

    disk_pause_write(bg, "A");
    r = fill(bg);
    disk_await(bg, "pieces", 1);
    foreground(fg);
    disk_resume(bg, "A");
    disk_await(bg, "held", 1);
    return r;
}

static void assert_filled(TestDisk *d, uint64_t bytes)
{
    g_assert_true(disk_holds(d, 0, bytes, 0x5a));
    g_assert_true(disk_holds(d, bytes, 4 * MiB - bytes, 0));
}

static void test_fill(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r = filled_half_way(fg, bg);

    assert_filled(bg, MAX_PIECE);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==,
                    DIV_ROUND_UP(FILLED, MAX_PIECE));
    assert_filled(bg, FILLED);
    machine_free(m);
}

/* A piece is longer than the buffer. */
static void test_fill_large_pieces(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(LARGE_PIECES, &fg, &bg);
    TestRequest *r = filled_half_way(fg, bg);

    assert_filled(bg, MiB);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 4);
    assert_filled(bg, FILLED);
    machine_free(m);
}

static void test_fill_abort(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r = filled_half_way(fg, bg);

    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_ABORT_TASK, r->tag), ==,
                    VIRTIO_SCSI_S_OK);
    scsi_assert_response(r, VIRTIO_SCSI_S_ABORTED);
    assert_held(bg, 0);
    machine_step_us(m, INTERVAL_US);
    assert_filled(bg, MAX_PIECE);
    request_ok(disk_read(bg));
    machine_free(m);
}

/* It is not in the stream, so the stop waits until all of it is written. */
static void test_fill_stop(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r = filled_half_way(fg, bg);

    machine_stop(m);
    assert_held(bg, 0);
    assert_filled(bg, FILLED);
    machine_cont(m);
    request_ok(r);
    machine_free(m);
}

/* As stock QEMU: what failed is left as it was, the rest is written. */
static void test_fill_ignore(void)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;
    TestRequest *r;

    machine_resource(m, RESOURCE, LARGE_PIECES);
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_failing(m, "bg", "file.inject-error.0.event=write_aio,"
                         "file.inject-error.0.errno=5,"
                         "file.inject-error.0.once=on,"
                         "file.inject-error.0.sector=1",
                         "idletime=" RESOURCE ",idletime-class=background,"
                         "werror=ignore");
    machine_start(m);
    foreground(fg);
    r = fill(bg);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_true(disk_holds(bg, 0, BUFFER, 0));
    g_assert_true(disk_holds(bg, BUFFER, FILLED - BUFFER, 0x5a));
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_setenv(DISK_VARIABLE, "scsi", true);
    ring_test("idletime/scsi-fill/whole", test_fill);
    ring_test("idletime/scsi-fill/large-pieces", test_fill_large_pieces);
    ring_test("idletime/scsi-fill/abort", test_fill_abort);
    ring_test("idletime/scsi-fill/stop", test_fill_stop);
    ring_test("idletime/scsi-fill/ignore", test_fill_ignore);
    return g_test_run();
}
