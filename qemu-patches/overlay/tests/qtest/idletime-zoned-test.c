/*
 * Idletime machine tests: appends to the zones of a zoned disk.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "idletime-zoned-host.h"

typedef struct Bench {
    TestMachine *m;
    TestDisk *zoned, *other;
    char *image;
} Bench;

static void image_create(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, DISK_BYTES), ==, 0);
    close(fd);
}

/* A zoned disk and another one, each with its class; writes to it wait. */
static Bench bench(const char *zoned, const char *other)
{
    Bench b = { .m = machine_new() };
    g_autofree char *zoned_options =
        g_strdup_printf("idletime=" RESOURCE ",idletime-class=%s", zoned);
    g_autofree char *other_options =
        g_strdup_printf("idletime=" RESOURCE ",idletime-class=%s", other);
    g_autofree char *blockdev = NULL;

    QEMU_BUILD_BUG_ON(ZONED_HOST_ZONES * ZONED_HOST_ZONE_BYTES != DISK_BYTES);
    b.image = g_strdup_printf("%s/zoned.img", b.m->dir);
    image_create(b.image);
    blockdev = g_strdup_printf("driver=host_device,locking=off,filename=%s",
                               b.image);
    machine_resource(b.m, RESOURCE, "max-hold-ms=0");
    b.zoned = machine_disk_on(b.m, "zoned", blockdev, zoned_options);
    b.other = machine_disk(b.m, "other", other_options);
    g_setenv(ZONED_HOST_IMAGE, b.image, true);
    g_setenv("LD_PRELOAD", zoned_host_library(), true);
    machine_start(b.m);
    g_unsetenv("LD_PRELOAD");
    g_unsetenv(ZONED_HOST_IMAGE);
    return b;
}

static void done(Bench *b)
{
    machine_free(b->m);
    g_free(b->image);
}

static void let_go(Bench *b)
{
    g_autofree char *path = g_strconcat(b->image, ZONED_HOST_GO, NULL);

    g_assert_true(g_file_set_contents(path, "", 0, NULL));
}

/* The driver gets the sector that it became, and the status behind it. */
static TestRequest *append_as(TestDisk *d, uint32_t type, unsigned zone,
                              uint8_t value)
{
    g_autofree uint8_t *data = g_malloc(BLOCK_BYTES);
    TestPart part[3];
    TestRequest *r;
    uint64_t addr;

    memset(data, value, BLOCK_BYTES);
    addr = disk_header(d, type, 0,
                       zone * (ZONED_HOST_ZONE_BYTES / SECTOR_BYTES), data,
                       BLOCK_BYTES);
    part[0] = (TestPart) { addr, sizeof(struct virtio_blk_outhdr), false };
    part[1] = (TestPart) { addr + part[0].size, BLOCK_BYTES, false };
    part[2] = (TestPart) { part[1].addr + BLOCK_BYTES, 8 + 1, true };
    r = disk_submit_parts(d, 0, part, 3);
    r->size = BLOCK_BYTES + 8;
    return r;
}

static TestRequest *append(TestDisk *d, unsigned zone, uint8_t value)
{
    return append_as(d, VIRTIO_BLK_T_ZONE_APPEND, zone, value);
}

/* In service from its begin to its end; then the interval. */
static void test_foreground(void)
{
    Bench b = bench("foreground", "background");
    TestRequest *f, *r;

    f = append(b.zoned, 3, 0x5a);
    g_assert_cmpint(disk_number(b.zoned, "foreground.requests"), ==, 1);
    g_assert_cmpint(disk_number(b.zoned, "foreground.bytes"), ==, BLOCK_BYTES);
    r = disk_read(b.other);
    machine_step_us(b.m, 500 * MS);
    assert_held(b.other, 1);
    g_assert_false(request_done(f));
    let_go(&b);
    request_ok(f);
    machine_step_us(b.m, INTERVAL_US - 1);
    assert_held(b.other, 1);
    machine_step_us(b.m, 1);
    request_ok(r);
    g_assert_true(disk_holds(b.zoned, 3 * ZONED_HOST_ZONE_BYTES, BLOCK_BYTES,
                             0x5a));
    done(&b);
}

/* Held through the interval, then in service until it is written. */
static void test_background(void)
{
    Bench b = bench("background", "foreground");
    TestRequest *r[2];

    foreground(b.other);
    r[0] = append(b.zoned, 3, 0x11);
    r[1] = append(b.zoned, 3, 0x22);
    machine_step_us(b.m, INTERVAL_US - 1);
    assert_held(b.zoned, 2);
    machine_step_us(b.m, 1);
    assert_held(b.zoned, 1);
    assert_in_service(b.zoned, 1);
    g_assert_false(request_done(r[0]));
    let_go(&b);
    request_ok(r[0]);
    request_ok(r[1]);
    assert_in_service(b.zoned, 0);
    g_assert_cmpint(disk_number(b.zoned, "background.requests"), ==, 2);
    g_assert_true(disk_holds(b.zoned, 3 * ZONED_HOST_ZONE_BYTES, BLOCK_BYTES,
                             0x11));
    g_assert_true(disk_holds(b.zoned, 3 * ZONED_HOST_ZONE_BYTES + BLOCK_BYTES,
                             BLOCK_BYTES, 0x22));
    done(&b);
}

/* The stock device does not look at the direction of an append. */
static void test_without_direction(void)
{
    Bench b = bench("background", "foreground");
    TestRequest *r;

    foreground(b.other);
    r = append_as(b.zoned, VIRTIO_BLK_T_ZONE_APPEND & ~VIRTIO_BLK_T_OUT, 3,
                  0x11);
    machine_step_us(b.m, INTERVAL_US - 1);
    assert_held(b.zoned, 1);
    machine_step_us(b.m, 1);
    assert_in_service(b.zoned, 1);
    let_go(&b);
    request_ok(r);
    done(&b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/zoned/foreground", test_foreground);
    ring_test("idletime/zoned/background", test_background);
    ring_test("idletime/zoned/without-direction", test_without_direction);
    return g_test_run();
}
