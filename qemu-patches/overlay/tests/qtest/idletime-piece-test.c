/*
 * Idletime machine tests: large requests are issued in pieces.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

typedef struct PieceCase {
    const char *options;
    uint64_t offset;
    size_t size;
    int pieces;             /* 0: not cut */
} PieceCase;

static const PieceCase piece_case[] = {
    /* 1 MiB / 128 KiB, the default */
    { "", 0, MiB, 8 },
    { "max-request-bytes=65536", 4096, MiB, 16 },
    /* 1048576 / 12288 = 85.3: the last one is smaller */
    { "max-request-bytes=12288", 512, MiB, 86 },
    { "max-request-bytes=4096", 0, 4096 + 512, 2 },
    { "max-request-bytes=65536", 0, 65536, 0 },
    { "max-request-bytes=1073741824", 0, MiB, 0 },
};

static void assert_pieces(TestDisk *bg, const PieceCase *c)
{
    g_assert_cmpint(disk_number(bg, "pieces"), ==, c->pieces);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==,
                    MAX(c->pieces, 1));
    g_assert_cmpint(disk_number(bg, "background.bytes"), ==, c->size);
    /* One request was held once. */
    g_assert_cmpint(disk_number(bg, "hold.bins.0"), ==, 1);
}

static void test_write(const void *opaque)
{
    const PieceCase *c = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(c->options, &fg, &bg);

    disk_fill(bg, 0, 2 * MiB, 0x11);
    request_ok(disk_write(bg, c->offset, c->size, 0x5a));
    assert_pieces(bg, c);
    g_assert_true(disk_holds(bg, c->offset, c->size, 0x5a));
    g_assert_true(disk_holds(bg, c->offset + c->size, KiB, 0x11));
    g_assert_true(!c->offset || disk_holds(bg, 0, c->offset, 0x11));
    machine_free(m);
}

static void test_read(const void *opaque)
{
    const PieceCase *c = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(c->options, &fg, &bg);
    TestRequest *r;

    disk_fill(bg, c->offset, c->size, 0xa5);
    r = disk_submit(bg, 0, VIRTIO_BLK_T_IN, IOPRIO_NONE,
                    c->offset / SECTOR_BYTES, NULL, c->size);
    request_ok(r);
    assert_pieces(bg, c);
    g_assert_true(request_holds(r, 0xa5));
    machine_free(m);
}

/* Header and data in one descriptor, data and status in another. */
static void test_any_layout(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-request-bytes=4096", &fg, &bg);
    const size_t header = sizeof(struct virtio_blk_outhdr);
    TestPart part[2];
    TestRequest *r;

    request_ok(disk_write_joined(bg, 64 * KiB, 0x77));
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 16);
    g_assert_true(disk_holds(bg, 0, 64 * KiB, 0x77));

    part[0].addr = disk_header(bg, VIRTIO_BLK_T_IN, 0, 0, NULL, 64 * KiB);
    part[0] = (TestPart) { part[0].addr, header, false };
    part[1] = (TestPart) { part[0].addr + header, 64 * KiB + 1, true };
    r = disk_submit_parts(bg, 0, part, 2);
    r->size = 64 * KiB;
    request_ok(r);
    g_assert_true(request_holds(r, 0x77));
    machine_free(m);
}

static void test_stopped_by_foreground(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-request-bytes=65536", &fg, &bg);
    TestRequest *r;

    disk_pause_write(bg, "A");
    r = disk_write(bg, 0, MiB, 0x5a);
    assert_in_service(bg, 1);
    foreground(fg);
    disk_resume(bg, "A");
    disk_await(bg, "held", 1);
    machine_step_us(m, INTERVAL_US - 1);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 1);
    assert_held(bg, 1);
    assert_in_service(bg, 0);
    machine_step_us(m, 1);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 16);
    g_assert_cmpint(machine_number(m, RESOURCE, "collisions"), ==, 1);
    g_assert_true(disk_holds(bg, 0, MiB, 0x5a));
    machine_free(m);
}

/* What came after a large request waits until its last piece is done. */
static void test_order(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-request-bytes=65536", &fg, &bg);
    TestRequest *large, *small;

    foreground(fg);
    large = disk_write(bg, 0, MiB, 1);
    small = disk_write(bg, 0, BLOCK_BYTES, 2);
    machine_step_us(m, INTERVAL_US);
    request_ok(small);
    request_ok(large);
    g_assert_cmpint(large->order, <, small->order);
    g_assert_true(disk_holds(bg, 0, BLOCK_BYTES, 2));
    machine_free(m);
}

/* Half-way through, the rest of it is foreground's and not held any more. */
static void test_class_change(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-request-bytes=65536", &fg, &bg);
    TestRequest *r;

    disk_pause_write(bg, "A");
    r = disk_write(bg, 0, MiB, 0x5a);
    foreground(fg);
    disk_set_class(bg, "foreground");
    disk_resume(bg, "A");
    request_ok(r);
    /* One piece, then all the rest. */
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 2);
    g_assert_cmpint(disk_number(bg, "promotions.class-change"), ==, 1);
    g_assert_true(disk_holds(bg, 0, MiB, 0x5a));
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(piece_case); i++) {
        g_autofree char *w = g_strdup_printf("idletime/piece/write-%u", i);
        g_autofree char *r = g_strdup_printf("idletime/piece/read-%u", i);

        ring_data_test(w, &piece_case[i], test_write);
        ring_data_test(r, &piece_case[i], test_read);
    }
    if (!disks_are_scsi()) {
        ring_test("idletime/piece/any-layout", test_any_layout);
    }
    ring_test("idletime/piece/stopped-by-foreground",
                   test_stopped_by_foreground);
    ring_test("idletime/piece/order", test_order);
    ring_test("idletime/piece/class-change", test_class_change);
    return g_test_run();
}
