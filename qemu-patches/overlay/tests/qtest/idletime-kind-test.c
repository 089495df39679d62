/*
 * Idletime machine tests: kinds of requests, background queues, the books.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/units.h"
#include "idletime-machine.h"

/* ---- kinds of requests */

static void test_never_held(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);

    foreground(fg);
    request_ok(disk_flush(bg));
    request_ok(disk_submit(bg, 0, VIRTIO_BLK_T_GET_ID, 0, 0, NULL, 20));
    /* Of SCSI disks nothing is counted that takes no time of the disk. */
    g_assert_cmpint(disk_number(bg, "passed"), ==, disks_are_scsi() ? 1 : 2);
    assert_held(bg, 0);
    /* Something that does not exist is answered at once, too. */
    g_assert_cmpint(request_wait(disk_submit(bg, 0, 0x50, 0, 0, NULL, 0)), ==,
                    disks_are_scsi() ? VIRTIO_BLK_S_IOERR :
                                       VIRTIO_BLK_S_UNSUPP);
    machine_free(m);
}

static void test_discard(const void *opaque)
{
    uint32_t type = GPOINTER_TO_UINT(opaque);
    const struct virtio_blk_discard_write_zeroes range = {
        .sector = cpu_to_le64(8),
        .num_sectors = cpu_to_le32(8),
    };
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    disk_fill(bg, 0, 64 * KiB, 0x11);
    foreground(fg);
    r = disk_submit(bg, 0, type, 0, 0, &range, sizeof(range));
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    g_assert_true(disk_holds(bg, 0, 64 * KiB, 0x11));
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_true(disk_holds(bg, 4096, 4096, 0));
    g_assert_true(disk_holds(bg, 8192, 4096, 0x11));
    /* In service and out again: the next one may start. */
    request_ok(disk_read(bg));
    machine_free(m);
}

/*
 * A foreground discard is in service from its begin to its end, and the
 * interval begins at its end: block accounting knows nothing of it, and what
 * it knows of others is older.  The throttle keeps it until a drain.
 */
static void test_foreground_discard(const void *opaque)
{
    uint32_t type = GPOINTER_TO_UINT(opaque);
    const struct virtio_blk_discard_write_zeroes range = {
        .num_sectors = cpu_to_le32(8),
    };
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;
    TestRequest *f, *r;

    machine_resource(m, RESOURCE, "max-hold-ms=0");
    fg = machine_throttled(m, "fg", ONE_WRITE, "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    machine_start(m);
    request_ok(disk_write(fg, 0, BLOCK_BYTES, 0x5a));
    f = disk_submit(fg, 0, type, 0, 0, &range, sizeof(range));
    g_assert_cmpint(disk_number(fg, "foreground.requests"), ==, 2);
    r = disk_read(bg);
    /* Another one, that is accounted, begins and ends in between. */
    machine_step_us(m, 300 * MS);
    foreground(fg);
    machine_step_us(m, 200 * MS);
    assert_held(bg, 1);
    g_assert_false(request_done(f));
    disk_let_go(fg);
    request_ok(f);
    assert_held(bg, 1);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "hold.max-us"), ==,
                    500 * MS + INTERVAL_US);
    machine_free(m);
}

/* It writes: as background it is held and capped, and then as stock. */
static void test_zone_append(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    g_autofree void *data = g_malloc0(BLOCK_BYTES);
    uint64_t addr;
    TestPart part[3];
    TestRequest *r;

    foreground(fg);
    addr = disk_header(bg, VIRTIO_BLK_T_ZONE_APPEND, 0, 0, data, BLOCK_BYTES);
    part[0] = (TestPart) { addr, sizeof(struct virtio_blk_outhdr), false };
    part[1] = (TestPart) { addr + part[0].size, BLOCK_BYTES, false };
    part[2] = (TestPart) { part[1].addr + BLOCK_BYTES, 8 + 1, true };
    r = disk_submit_parts(bg, 0, part, 3);
    r->size = BLOCK_BYTES + 8;
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    /* The image has no zones. */
    g_assert_cmpint(request_wait(r), ==, VIRTIO_BLK_S_UNSUPP);
    g_assert_cmpint(disk_number(bg, "passed"), ==, 0);
    assert_in_service(bg, 0);
    request_ok(disk_read(bg));
    machine_free(m);
}

/* In order, all of a queue would wait for one that is held. */
static void test_in_order(void)
{
    const char *text = "property 'idletime-class' is 'background', but "
                       "'in_order' is 'on': held requests would delay all "
                       "behind them; use in_order=off, the default, or class "
                       "'foreground'";
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    machine_args(m, "-blockdev driver=null-co,node-name=spare,"
                 "read-zeroes=on");
    machine_start(m);
    machine_refused(m, text, "device_add",
                    "{'driver': 'virtio-blk-pci', 'id': 'x',"
                    " 'drive': 'spare', 'addr': '0x9', 'in_order': true,"
                    " 'idletime': 'r0', 'idletime-class': 'background'}");
    /* As foreground it holds nothing; and so it stays. */
    machine_ok(m, "device_add",
               "{'driver': 'virtio-blk-pci', 'id': 'x', 'drive': 'spare',"
               " 'addr': '0x9', 'in_order': true, 'idletime': 'r0'}");
    machine_refused(m, text, "idletime-set",
                    "{'device': 'x', 'class': 'background'}");
    machine_free(m);
}

static void test_queues(void)
{
    TestDisk *d;
    TestMachine *m = machine_queues(&d);
    TestRequest *r[2];

    /* Queue 0 starts the interval for queues 1 and 2. */
    foreground(d);
    for (int i = 0; i < 2; i++) {
        r[i] = disk_read_on(d, i + 1);
    }
    assert_held(d, 2);
    foreground(d);
    machine_step_us(m, INTERVAL_US - 1);
    assert_held(d, 2);
    machine_step_us(m, 1);
    request_ok(r[0]);
    request_ok(r[1]);
    g_assert_cmpint(disk_number(d, "foreground.requests"), ==, 2);
    g_assert_cmpint(disk_number(d, "background.requests"), ==, 2);
    machine_free(m);
}

/* A stop hands them back queue by queue; those of each leave as they came. */
static void test_queues_stop(void)
{
    TestDisk *d;
    TestMachine *m = machine_queues(&d);
    TestRequest *r[8];

    foreground(d);
    for (int i = 0; i < 8; i++) {
        r[i] = disk_read_on(d, 1 + i % 2);
    }
    assert_held(d, 8);
    machine_stop_often(d, 8);
    machine_step_us(m, INTERVAL_US);
    for (int i = 0; i < 8; i++) {
        request_ok(r[i]);
        g_assert_cmpint(r[i]->order, >, i < 2 ? 1 : r[i - 2]->order);
    }
    machine_free(m);
}

/* ---- the books */

typedef int64_t Counts[4][4];

static void assert_counts(TestMachine *m, Counts wanted)
{
    static const char *const state[] = {
        "idle", "foreground", "preemption", "background",
    };
    static const char *const event[] = {
        "foreground", "background", "timer", "empty",
    };

    for (int s = 0; s < 4; s++) {
        for (int e = 0; e < 4; e++) {
            g_autofree char *path = g_strdup_printf("counters.%s.%s",
                                                    state[s], event[e]);
            int64_t count = machine_number(m, RESOURCE, path);

            if (count != wanted[s][e]) {
                g_error("%s is %" PRId64 ", not %" PRId64, path, count,
                        wanted[s][e]);
            }
        }
    }
}

static void test_counters(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *f, *r;

    /* I[b], B[i]: background alone */
    request_ok(disk_read(bg));
    assert_counts(m, (Counts) { { 0, 1, 0, 0 }, {}, {}, { 0, 0, 0, 1 } });

    /* I[f], F[b]: foreground, and then background waits */
    foreground(fg);
    r = disk_read(bg);
    assert_counts(m, (Counts) { { 1, 1, 0, 0 }, { 0, 1, 0, 0 }, {},
                                { 0, 0, 0, 1 } });

    /* P[f], F[b]: again within the interval, seen at its end */
    machine_step_us(m, MS);
    foreground(fg);
    machine_step_us(m, INTERVAL_US - MS);
    assert_counts(m, (Counts) { { 1, 1, 0, 0 }, { 0, 2, 0, 0 },
                                { 1, 0, 0, 0 }, { 0, 0, 0, 1 } });

    /* P[t], I[b], B[i]: the interval is over */
    machine_step_us(m, MS);
    request_ok(r);
    assert_counts(m, (Counts) { { 1, 2, 0, 0 }, { 0, 2, 0, 0 },
                                { 1, 0, 1, 0 }, { 0, 0, 0, 2 } });

    /* I[b], B[f], F[f]: two collide with a background one; F[i] */
    disk_pause_read(bg, "A");
    r = disk_read(bg);
    foreground(fg);
    f = disk_read(fg);
    request_ok(f);
    disk_resume(bg, "A");
    request_ok(r);
    assert_counts(m, (Counts) { { 1, 3, 0, 0 }, { 1, 2, 0, 1 },
                                { 1, 0, 1, 0 }, { 1, 0, 0, 2 } });

    /* P[t]; I[b], B[b], B[i]: two in a row, nothing between them */
    machine_step_us(m, INTERVAL_US);
    disk_pause_read(bg, "A");
    r = disk_read(bg);
    f = disk_read(bg);
    disk_resume(bg, "A");
    request_ok(r);
    request_ok(f);
    assert_counts(m, (Counts) { { 1, 4, 0, 0 }, { 1, 2, 0, 1 },
                                { 1, 0, 2, 0 }, { 1, 1, 0, 3 } });
    g_assert_cmpint(machine_number(m, RESOURCE, "collisions"), ==, 1);
    machine_free(m);
}

static void test_collision_cost(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *f, *r;

    disk_pause_read(bg, "A");
    r = disk_read(bg);
    machine_step_us(m, 3 * MS);
    disk_pause_read(fg, "A");
    f = disk_read(fg);
    /* Foreground came at 3 ms, background was done at 5 ms: it waited for 2. */
    machine_step_us(m, 2 * MS);
    disk_resume(bg, "A");
    request_ok(r);
    g_assert_cmpint(machine_number(m, RESOURCE, "collision-cost-us"), ==,
                    2 * MS);
    disk_resume(fg, "A");
    request_ok(f);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/kind/never-held", test_never_held);
    ring_data_test("idletime/kind/discard",
                        GUINT_TO_POINTER(VIRTIO_BLK_T_DISCARD), test_discard);
    ring_data_test("idletime/kind/write-zeroes",
                        GUINT_TO_POINTER(VIRTIO_BLK_T_WRITE_ZEROES),
                        test_discard);
    ring_data_test("idletime/kind/foreground-discard",
                   GUINT_TO_POINTER(VIRTIO_BLK_T_DISCARD),
                   test_foreground_discard);
    ring_data_test("idletime/kind/foreground-write-zeroes",
                   GUINT_TO_POINTER(VIRTIO_BLK_T_WRITE_ZEROES),
                   test_foreground_discard);
    if (!disks_are_scsi()) {
        ring_test("idletime/kind/zone-append", test_zone_append);
    }
    qtest_add_func("idletime/kind/in-order", test_in_order);
    ring_test("idletime/kind/queues", test_queues);
    ring_test("idletime/kind/queues-stop", test_queues_stop);
    ring_test("idletime/books/counters", test_counters);
    ring_test("idletime/books/collision-cost", test_collision_cost);
    return g_test_run();
}
