/*
 * Idletime machine tests: pass-through disks, whose commands the host's own
 * disk carries out.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * IDLETIME_SCSI_HOST=/dev/sda,/dev/sg0,0x1234
 *
 * A disk of the host, which loses its content, its generic device, and a block
 * of 512 bytes that cannot be read: scsi_debug with dev_size_mb=64 lbpu=1
 * opts=2.  Without, the tests are skipped.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "scsi/constants.h"
#include "standard-headers/linux/virtio_scsi.h"

#define HOST_VARIABLE   "IDLETIME_SCSI_HOST"
#define LARGE           (512 * KiB)
#define MAX_HOLD_MS     100

static char **host;     /* disk, generic device, bad block */

static TestMachine *pass_pair(const char *driver, const char *options,
                              TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();
    bool is_generic = g_str_equal(driver, "scsi-generic");

    machine_resource(m, RESOURCE, options);
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_pass_through(m, "bg", driver, host[is_generic],
                               "idletime=" RESOURCE
                               ",idletime-class=background");
    machine_start(m);
    return m;
}

static TestRequest *held_read(TestDisk *fg, TestDisk *bg)
{
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    return r;
}

/* A write of @value, and a read behind it. */
static void hold_both(TestDisk *fg, TestDisk *bg, uint8_t value,
                      TestRequest **w, TestRequest **r)
{
    foreground(fg);
    *w = disk_write(bg, 0, BLOCK_BYTES, value);
    *r = disk_read(bg);
    assert_held(bg, 2);
}

/* Page caches have no part in it. */
static void assert_on_disk(TestDisk *d, uint8_t value)
{
    TestRequest *r = disk_read(d);

    request_ok(r);
    g_assert_true(request_holds(r, value));
}

static void test_interval(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *w, *r;

    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x11));
    hold_both(fg, bg, 0x22, &w, &r);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 2);
    machine_step_us(m, 1);
    request_ok(w);
    request_ok(r);
    assert_on_disk(bg, 0x22);
    /* Those in the test, and no command of the disk's own. */
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 4);
    g_assert_cmpint(disk_number(bg, "background.bytes"), ==, 4 * BLOCK_BYTES);
    machine_free(m);
}

static void test_deadline(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "max-hold-ms=100", &fg, &bg);
    TestRequest *f, *r;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    r = disk_read(bg);
    machine_step_us(m, MAX_HOLD_MS * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, 1);
    disk_resume(fg, "A");
    request_ok(f);
    machine_free(m);
}

/*
 * What is no read or write of the medium is answered at once, by the disk or
 * by QEMU, whatever the answer.
 */
static void test_others_pass(const void *driver)
{
    static const uint8_t code[] = {
        TEST_UNIT_READY, REQUEST_SENSE, RESERVE, RELEASE, SYNCHRONIZE_CACHE,
        PERSISTENT_RESERVE_IN, 0xc0,
    };
    const uint8_t inquiry[6] = { INQUIRY, 0, 0, 0, 36 };
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *held;

    foreground(fg);
    held = disk_read(bg);
    for (unsigned i = 0; i < ARRAY_SIZE(code); i++) {
        const uint8_t cdb[10] = { code[i] };

        request_wait(scsi_submit(bg, 0, cdb, sizeof(cdb), 0, NULL, 0, false));
    }
    request_ok(scsi_submit(bg, 0, inquiry, sizeof(inquiry), 0, NULL, 36,
                           true));
    assert_held(bg, 1);
    g_assert_cmpint(disk_number(bg, "passed"), ==, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(held);
    machine_free(m);
}

static void test_unmap(const void *driver)
{
    const struct virtio_blk_discard_write_zeroes range = {
        .num_sectors = cpu_to_le32(BLOCK_BYTES / SECTOR_BYTES),
    };
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *unmap;

    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x11));
    foreground(fg);
    unmap = disk_submit(bg, 0, VIRTIO_BLK_T_DISCARD, 0, 0, &range,
                        sizeof(range));
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(unmap);
    assert_on_disk(bg, 0);
    machine_free(m);
}

/* In pieces if the command is a read or write of QEMU's own making. */
static void test_large(const void *driver)
{
    bool is_generic = g_str_equal(driver, "scsi-generic");
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_write(bg, 0, LARGE, 0x33);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, is_generic ? 0 : 4);
    r = disk_submit(bg, 0, VIRTIO_BLK_T_IN, 0, 0, NULL, LARGE);
    request_ok(r);
    g_assert_true(request_holds(r, 0x33));
    machine_free(m);
}

/* The host's disk fails the held command; the one behind it goes on. */
static void test_medium_error(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    uint64_t block = g_ascii_strtoull(host[2], NULL, 0);
    TestRequest *bad, *good;

    foreground(fg);
    bad = disk_submit(bg, 0, VIRTIO_BLK_T_IN, 0, block, NULL, BLOCK_BYTES);
    good = disk_read(bg);
    assert_held(bg, 2);
    machine_step_us(m, INTERVAL_US);
    request_wait(bad);
    g_assert_cmpint(scsi_status(bad), ==, CHECK_CONDITION);
    g_assert_cmpint(scsi_sense_key(bad), ==, MEDIUM_ERROR);
    request_ok(good);
    assert_in_service(bg, 0);
    machine_free(m);
}

static void test_abort(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *r;

    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x11));
    foreground(fg);
    r = disk_write(bg, 0, BLOCK_BYTES, 0x22);
    assert_held(bg, 1);
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_ABORT_TASK, r->tag), ==,
                    VIRTIO_SCSI_S_OK);
    scsi_assert_response(r, VIRTIO_SCSI_S_ABORTED);
    assert_held(bg, 0);
    machine_step_us(m, INTERVAL_US);
    assert_on_disk(bg, 0x11);
    machine_free(m);
}

static void test_reset(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *r;

    r = held_read(fg, bg);
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_LOGICAL_UNIT_RESET, 0), ==,
                    VIRTIO_SCSI_S_OK);
    scsi_assert_response(r, VIRTIO_SCSI_S_RESET);
    scsi_ready(bg);
    machine_step_us(m, INTERVAL_US);
    request_ok(disk_read(bg));
    machine_free(m);
}

/* The migration stream has no command blocks: they start before the stop. */
static void test_stop(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *w, *r;

    hold_both(fg, bg, 0x44, &w, &r);
    machine_stop(m);
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    g_assert_cmpint(disk_number(bg, "promotions.stop"), ==, 2);
    request_ok(w);
    request_ok(r);
    machine_cont(m);
    machine_step_us(m, INTERVAL_US);
    assert_on_disk(bg, 0x44);
    machine_free(m);
}

static void test_attach_and_unplug(const void *driver)
{
    TestDisk *fg, *bg;
    TestMachine *m = pass_pair(driver, "", &fg, &bg);
    TestRequest *r;

    r = held_read(fg, bg);
    disk_detach(bg);
    disk_await_detached(bg);
    request_ok(r);
    request_ok(disk_read(bg));
    disk_attach(bg, "background");
    r = held_read(fg, bg);
    qtest_qmp_device_del(m->qts, "bg");
    scsi_assert_response(r, VIRTIO_SCSI_S_ABORTED);
    machine_free(m);
}

static const struct {
    const char *name;
    void (*fn)(const void *driver);
} test[] = {
    { "interval", test_interval }, { "deadline", test_deadline },
    { "others-pass", test_others_pass }, { "unmap", test_unmap },
    { "large", test_large }, { "medium-error", test_medium_error },
    { "abort", test_abort }, { "reset", test_reset }, { "stop", test_stop },
    { "attach-and-unplug", test_attach_and_unplug },
};

static bool host_has_disk(void)
{
    const char *text = g_getenv(HOST_VARIABLE);

    host = g_strsplit(text ? text : "", ",", 0);
    if (text && g_strv_length(host) != 3) {
        g_error(HOST_VARIABLE "=%s: use DISK,GENERIC,BLOCK", text);
    }
    return text;
}

int main(int argc, char **argv)
{
    static const char *const driver[] = { "scsi-block", "scsi-generic" };

    g_test_init(&argc, &argv, NULL);
    g_setenv(DISK_VARIABLE, "scsi", true);
    if (!host_has_disk()) {
        g_print("1..0 # SKIP no disk to pass through: set " HOST_VARIABLE
                "\n");
        return 0;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(test); i++) {
        for (unsigned j = 0; j < ARRAY_SIZE(driver); j++) {
            g_autofree char *path = g_strdup_printf("idletime/scsi-pass/%s/%s",
                                                    test[i].name, driver[j]);

            qtest_add_data_func(path, driver[j], test[i].fn);
        }
    }
    return g_test_run();
}
