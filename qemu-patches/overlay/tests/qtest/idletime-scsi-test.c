/*
 * Idletime machine tests: what SCSI disks have and virtio-blk has not.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * All that both have is tested by the other programs, run with
 * IDLETIME_DISK=scsi.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "scsi/constants.h"
#include "standard-headers/linux/virtio_scsi.h"

#define HELD            3
#define MAX_PIECE       (128 * KiB)
#define LARGE           (512 * KiB)

static void hold_some(TestDisk *fg, TestDisk *bg, TestRequest **r)
{
    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
    assert_held(bg, HELD);
}

static void assert_ready(TestRequest *r)
{
    request_wait(r);
    g_assert_cmpint(scsi_response(r), ==, VIRTIO_SCSI_S_OK);
    g_assert_cmpint(scsi_status(r), ==, GOOD);
}

static TestRequest *command(TestDisk *d, uint8_t code)
{
    const uint8_t cdb[10] = { code };

    return scsi_submit(d, 0, cdb, sizeof(cdb), 0, NULL, 0, false);
}

/* ---- task management */

typedef struct TmfCase {
    const char *name;
    uint32_t subtype;
    uint8_t response;           /* of the requests that it ends */
} TmfCase;

static const TmfCase tmf_all[] = {
    { "abort-task-set", VIRTIO_SCSI_T_TMF_ABORT_TASK_SET,
      VIRTIO_SCSI_S_ABORTED },
    { "clear-task-set", VIRTIO_SCSI_T_TMF_CLEAR_TASK_SET,
      VIRTIO_SCSI_S_ABORTED },
    { "logical-unit-reset", VIRTIO_SCSI_T_TMF_LOGICAL_UNIT_RESET,
      VIRTIO_SCSI_S_RESET },
    { "i-t-nexus-reset", VIRTIO_SCSI_T_TMF_I_T_NEXUS_RESET,
      VIRTIO_SCSI_S_RESET },
};

/* All that is held ends, nothing of it is written, and the disk goes on. */
static void test_tmf_all(const void *opaque)
{
    const TmfCase *tmf = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    g_assert_cmpint(scsi_tmf(bg, tmf->subtype, 0), ==, VIRTIO_SCSI_S_OK);
    for (int i = 0; i < HELD; i++) {
        scsi_assert_response(r[i], tmf->response);
    }
    assert_held(bg, 0);
    machine_step_us(m, INTERVAL_US);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
    if (tmf->response == VIRTIO_SCSI_S_RESET) {
        request_wait(command(bg, TEST_UNIT_READY));
    }
    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x5a));
    machine_free(m);
}

/* The one in the middle; the others go on. */
static void test_abort_task(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_ABORT_TASK, r[1]->tag), ==,
                    VIRTIO_SCSI_S_OK);
    scsi_assert_response(r[1], VIRTIO_SCSI_S_ABORTED);
    assert_held(bg, HELD - 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r[0]);
    request_ok(r[2]);
    g_assert_true(disk_holds(bg, 0, BLOCK_BYTES, 0x5a));
    g_assert_true(disk_holds(bg, BLOCK_BYTES, BLOCK_BYTES, 0));
    machine_free(m);
}

static void test_query(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_QUERY_TASK, r[1]->tag), ==,
                    VIRTIO_SCSI_S_FUNCTION_SUCCEEDED);
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_QUERY_TASK, 1 << 20), ==,
                    VIRTIO_SCSI_S_OK);
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_QUERY_TASK_SET, 0), ==,
                    VIRTIO_SCSI_S_FUNCTION_SUCCEEDED);
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_QUERY_TASK_SET, 0), ==,
                    VIRTIO_SCSI_S_OK);
    machine_free(m);
}

/* One piece is written; foreground came; the second is held. */
static TestRequest *half_way(TestDisk *fg, TestDisk *bg)
{
    TestRequest *r;

    disk_pause_write(bg, "A");
    r = disk_write(bg, 0, LARGE, 0x5a);
    disk_await(bg, "pieces", 1);
    foreground(fg);
    disk_resume(bg, "A");
    disk_await(bg, "held", 1);
    return r;
}

static void assert_half_way(TestDisk *bg)
{
    g_assert_true(disk_holds(bg, 0, MAX_PIECE, 0x5a));
    g_assert_true(disk_holds(bg, MAX_PIECE, LARGE - MAX_PIECE, 0));
}

static void test_abort_half_way(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r = half_way(fg, bg);

    g_assert_cmpint(scsi_tmf(bg, VIRTIO_SCSI_T_TMF_ABORT_TASK, r->tag), ==,
                    VIRTIO_SCSI_S_OK);
    scsi_assert_response(r, VIRTIO_SCSI_S_ABORTED);
    assert_held(bg, 0);
    machine_step_us(m, INTERVAL_US);
    assert_half_way(bg);
    request_ok(disk_write(bg, 0, LARGE, 0x5b));
    g_assert_true(disk_holds(bg, 0, LARGE, 0x5b));
    machine_free(m);
}

static void test_stop_half_way(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r = half_way(fg, bg);

    machine_stop(m);
    assert_held(bg, 0);
    assert_half_way(bg);
    machine_cont(m);
    disk_await(bg, "held", 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 1 + 4);
    g_assert_true(disk_holds(bg, 0, LARGE, 0x5a));
    machine_free(m);
}

/* ---- what a disk is told beside its data */

/*
 * A unit attention is for the request that comes next, not for the held ones
 * that came before.
 */
static void test_unit_attention(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD], *next;

    hold_some(fg, bg, r);
    machine_ok(m, "block_resize", "{'node-name': 'bg', 'size': %" PRId64 "}",
               (int64_t)DISK_BYTES + MiB);
    next = command(bg, TEST_UNIT_READY);
    request_wait(next);
    g_assert_cmpint(scsi_status(next), ==, CHECK_CONDITION);
    g_assert_cmpint(scsi_sense_key(next), ==, UNIT_ATTENTION);
    assert_held(bg, HELD);
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    machine_free(m);
}

/* Reservations and the like are at once, in front of held requests. */
static void test_others_pass(void)
{
    static const uint8_t code[] = {
        TEST_UNIT_READY, RESERVE, RELEASE, SYNCHRONIZE_CACHE,
    };
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    for (unsigned i = 0; i < ARRAY_SIZE(code); i++) {
        assert_ready(command(bg, code[i]));
    }
    assert_held(bg, HELD);
    g_assert_cmpint(disk_number(bg, "passed"), ==, 1);
    machine_free(m);
}

static TestRequest *read_at(TestDisk *d, uint32_t block, uint16_t blocks,
                            uint8_t flags)
{
    uint8_t cdb[10] = { READ_10, flags };

    stl_be_p(&cdb[2], block);
    stw_be_p(&cdb[7], blocks);
    return scsi_submit(d, 0, cdb, sizeof(cdb), 0, NULL, blocks * SECTOR_BYTES,
                       true);
}

/* What cannot succeed is said at once. */
static void test_out_of_range(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    foreground(fg);
    r = read_at(bg, DISK_BYTES / SECTOR_BYTES, 8, 0);
    request_wait(r);
    g_assert_cmpint(scsi_status(r), ==, CHECK_CONDITION);
    g_assert_cmpint(scsi_sense_key(r), ==, ILLEGAL_REQUEST);
    assert_held(bg, 0);
    machine_free(m);
}

/* ---- what the migration stream cannot have is started at the stop */

static void test_stop_unmap(void)
{
    const struct virtio_blk_discard_write_zeroes range = {
        .num_sectors = cpu_to_le32(8),
    };
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *unmap, *fua, *plain;

    foreground(fg);
    unmap = disk_submit(bg, 0, VIRTIO_BLK_T_DISCARD, 0, 0, &range,
                        sizeof(range));
    fua = read_at(bg, 0, 8, 8);
    plain = disk_read(bg);
    assert_held(bg, 3);
    machine_stop(m);
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    g_assert_cmpint(disk_number(bg, "promotions.stop"), ==, 2);
    assert_ready(unmap);
    assert_ready(fua);
    g_assert_false(request_done(plain));
    machine_cont(m);
    disk_await(bg, "held", 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(plain);
    machine_free(m);
}

/* ---- a controller with several disks */

/* The disk "other" has no class, and is served while "bg" is held. */
static void test_two_disks(void)
{
    TestMachine *m = machine_new();
    g_autofree char *image = g_strdup_printf("%s/other.img", m->dir);
    TestDisk *fg, *bg;
    TestRequest *held, *other;
    uint8_t cdb[10] = { READ_10, 0, 0, 0, 0, 0, 0, 0, 8 };
    uint64_t addr;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    machine_args(m, "-blockdev driver=null-co,read-zeroes=on,size=67108864,"
                 "node-name=other -device scsi-hd,id=other,drive=other,"
                 "bus=bg-hba.0,scsi-id=0,lun=1");
    machine_start(m);
    foreground(fg);
    held = disk_read(bg);
    assert_held(bg, 1);
    /* Twice: the first one takes the unit attention away. */
    for (int i = 0; i < 2; i++) {
        addr = scsi_header(bg, 1000 + i, cdb, sizeof(cdb), 0, NULL,
                           BLOCK_BYTES);
        qtest_writeb(m->qts, addr + 3, 1);
        other = disk_submit_parts(bg, 0, (TestPart[]) {
            { addr, SCSI_HEADER_BYTES, false },
            { addr + SCSI_HEADER_BYTES + BLOCK_BYTES, SCSI_RESPONSE_BYTES,
              true },
            { addr + SCSI_HEADER_BYTES, BLOCK_BYTES, true } }, 3);
        other->size = BLOCK_BYTES;
        request_wait(other);
    }
    assert_ready(other);
    assert_held(bg, 1);
    /* Unplugged, it takes nothing of the other with it. */
    qtest_qmp_device_del(m->qts, "other");
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US);
    request_ok(held);
    machine_free(m);
}

/* Its disks are SCSI disks, too, but nothing holds their requests. */
static void test_other_controller(void)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    machine_args(m, "-device lsi53c895a,id=lsi -blockdev driver=null-co,"
                 "size=67108864,node-name=other -device scsi-hd,id=other,"
                 "drive=other,bus=lsi.0");
    machine_start(m);
    machine_refused(m, "property 'idletime' is 'r0', but the controller of "
                    "this disk is a lsi53c895a: disks of virtio-scsi are "
                    "served, and virtio-blk", "idletime-attach",
                    "{'device': 'other', 'resource': 'r0'}");
    machine_free(m);
}

/* What is held ends with its disk. */
static void test_unplug(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    qtest_qmp_device_del(m->qts, "bg");
    for (int i = 0; i < HELD; i++) {
        scsi_assert_response(r[i], VIRTIO_SCSI_S_ABORTED);
    }
    machine_step_us(m, INTERVAL_US);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
    g_assert_cmpint(request_wait(disk_read(bg)), !=, VIRTIO_BLK_S_OK);
    machine_free(m);
}

static void test_unplug_half_way(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r = half_way(fg, bg);

    qtest_qmp_device_del(m->qts, "bg");
    scsi_assert_response(r, VIRTIO_SCSI_S_ABORTED);
    machine_step_us(m, INTERVAL_US);
    assert_half_way(bg);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_setenv(DISK_VARIABLE, "scsi", true);
    for (unsigned i = 0; i < ARRAY_SIZE(tmf_all); i++) {
        g_autofree char *path = g_strdup_printf("idletime/scsi/tmf/%s",
                                                tmf_all[i].name);

        ring_data_test(path, &tmf_all[i], test_tmf_all);
    }
    ring_test("idletime/scsi/tmf/abort-task", test_abort_task);
    ring_test("idletime/scsi/tmf/query", test_query);
    ring_test("idletime/scsi/tmf/abort-half-way", test_abort_half_way);
    ring_test("idletime/scsi/stop-half-way", test_stop_half_way);
    ring_test("idletime/scsi/unit-attention", test_unit_attention);
    ring_test("idletime/scsi/others-pass", test_others_pass);
    ring_test("idletime/scsi/out-of-range", test_out_of_range);
    ring_test("idletime/scsi/stop-unmap", test_stop_unmap);
    ring_test("idletime/scsi/two-disks", test_two_disks);
    qtest_add_func("idletime/scsi/other-controller", test_other_controller);
    ring_test("idletime/scsi/unplug", test_unplug);
    ring_test("idletime/scsi/unplug-half-way", test_unplug_half_way);
    return g_test_run();
}
