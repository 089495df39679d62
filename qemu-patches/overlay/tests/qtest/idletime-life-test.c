/*
 * Idletime machine tests: stop, reset and unplug while requests are held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "standard-headers/linux/virtio_config.h"

#define HELD            3
#define LONG_US         (60 * 1000 * MS)
/* No release but by the interval, which is a minute. */
#define LONG            "interval-us=60000000,max-hold-ms=0"

static const char background[] = "'idletime': 'r0', "
                                 "'idletime-class': 'background'";

/* A write each, so that what was issued can be seen in the image. */
static void hold_some(TestDisk *fg, TestDisk *bg, TestRequest **r)
{
    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
    assert_held(bg, HELD);
}

static void all_ok(TestDisk *bg, TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0x5a));
}

static bool holds_bytes(TestMachine *m, uint64_t addr, size_t size,
                        uint8_t value)
{
    g_autofree uint8_t *data = g_malloc(size);
    size_t i = 0;

    qtest_bufread(m->qts, addr, data, size);
    while (i < size && data[i] == value) {
        i++;
    }
    return i == size;
}

static void assert_untouched(TestDisk *bg)
{
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 0);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
}

/* ---- stop and cont */

static void test_stop(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    machine_stop(m);
    /* On s->rq, from where a migration would take them. */
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    assert_untouched(bg);
    machine_cont(m);
    /* The interval was over long ago. */
    all_ok(bg, r);
    machine_free(m);
}

static void test_stop_100(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(LONG, &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    machine_stop_often(bg, HELD);
    assert_untouched(bg);
    machine_step_us(m, LONG_US - 1);
    assert_held(bg, HELD);
    machine_step_us(m, 1);
    all_ok(bg, r);
    for (int i = 0; i < HELD; i++) {
        g_assert_cmpint(r[i]->order, ==, i + 1);
    }
    machine_free(m);
}

/* Ones that come between the stop and the end of the kick wait, too. */
static void test_kick_while_stopped(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r;

    machine_stop(m);
    r = disk_read(bg);
    machine_step_us(m, LONG_US);
    g_assert_false(request_done(r));
    machine_cont(m);
    request_ok(r);
    machine_free(m);
}

/* A deadline counts the time in which the VM runs. */
static void test_stop_deadline(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("interval-us=60000000,max-hold-ms=1000",
                                  &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    for (int i = 0; i < 3; i++) {
        machine_step_us(m, 300 * MS);
        machine_stop(m);
        machine_step_us(m, 10 * 1000 * MS);
        machine_cont(m);
        disk_await(bg, "held", HELD);
    }
    machine_step_us(m, 100 * MS - 1);
    assert_held(bg, HELD);
    machine_step_us(m, 1);
    all_ok(bg, r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, HELD);
    machine_free(m);
}

/* Restarted in whichever order: the oldest leaves at its deadline. */
static void test_stop_oldest(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("interval-us=60000000,max-hold-ms=1000",
                                  &fg, &bg);
    TestRequest *older, *newer;

    foreground(fg);
    older = disk_write(bg, 0, BLOCK_BYTES, 0x11);
    machine_step_us(m, 900 * MS);
    newer = disk_write(bg, BLOCK_BYTES, BLOCK_BYTES, 0x22);
    disk_await(bg, "held", 2);
    machine_stop(m);
    machine_cont(m);
    disk_await(bg, "held", 2);
    machine_step_us(m, 100 * MS - 1);
    assert_held(bg, 2);
    machine_step_us(m, 1);
    request_ok(older);
    assert_held(bg, 1);
    machine_step_us(m, 900 * MS);
    request_ok(newer);
    machine_free(m);
}

static TestMachine *throttled_pair(TestDisk **fg, TestDisk **bg)
{
    TestMachine *m = machine_new();

    machine_resource(m, RESOURCE, "");
    *fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    *bg = machine_throttled(m, "bg", TWO_A_SECOND, "idletime=" RESOURCE
                            ",idletime-class=background");
    machine_start(m);
    return m;
}

/* Four pieces; one passes the throttle at once, the second is in service. */
static TestRequest *half_way(TestDisk *bg)
{
    TestRequest *r = disk_write(bg, 0, 512 * KiB, 0x5a);

    disk_await(bg, "pieces", 2);
    assert_in_service(bg, 1);
    return r;
}

/* The stop drains the second piece; cont begins the request anew. */
static void test_stop_half_way(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = throttled_pair(&fg, &bg);
    TestRequest *r = half_way(bg);

    machine_stop(m);
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 2);
    machine_cont(m);
    request_ok(r);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 2 + 4);
    g_assert_true(disk_holds(bg, 0, 512 * KiB, 0x5a));
    machine_free(m);
}

/*
 * With its header and data in one descriptor: processing it cuts the header
 * off, and what the stop puts aside must be whole again.
 */
static void test_stop_any_layout(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = throttled_pair(&fg, &bg);
    TestRequest *r = disk_write_joined(bg, 512 * KiB, 0x5a);

    disk_await(bg, "pieces", 2);
    machine_stop(m);
    machine_cont(m);
    request_ok(r);
    g_assert_true(disk_holds(bg, 0, 512 * KiB, 0x5a));
    machine_free(m);
}

/* ---- resets */

static void by_system(TestDisk *bg)
{
    qtest_system_reset(bg->m->qts);
}

static void by_driver(TestDisk *bg)
{
    qvirtio_reset(&bg->pci->vdev);
}

static void by_unplug(TestDisk *bg)
{
    disk_unplug(bg);
}

static void by_system_stopped(TestDisk *bg)
{
    machine_stop(bg->m);
    by_system(bg);
    machine_cont(bg->m);
}

typedef void Ending(TestDisk *bg);

/* The guest that asked for them is gone: they are, too, and unwritten. */
static void test_reset(const void *opaque)
{
    Ending *reset = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    hold_some(fg, bg, r);
    reset(bg);
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    assert_untouched(bg);
    disk_init(fg);
    disk_init(bg);
    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x77));
    g_assert_true(disk_holds(bg, 0, BLOCK_BYTES, 0x77));
    g_assert_true(disk_holds(bg, BLOCK_BYTES, BLOCK_BYTES, 0));
    machine_free(m);
}

static void test_reset_half_way(const void *opaque)
{
    Ending *reset = opaque;
    TestDisk *fg, *bg;
    TestMachine *m = throttled_pair(&fg, &bg);

    half_way(bg);
    reset(bg);
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    machine_step_us(m, LONG_US);
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 2);
    g_assert_true(disk_holds(bg, 256 * KiB, 256 * KiB, 0));
    disk_init(fg);
    disk_init(bg);
    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x77));
    machine_free(m);
}

/* ---- the right to access memory */

/*
 * The driver takes the device's right away; its memory is somebody else's from
 * then on.  A read would write there.
 */
static void test_bus_master(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD], *w;

    disk_fill(bg, 0, BLOCK_BYTES, 0x5a);
    foreground(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_read(bg);
        qtest_memset(m->qts, r[i]->addr, 0x11, BLOCK_BYTES);
    }
    w = disk_write(bg, MiB, BLOCK_BYTES, 0x77);
    assert_held(bg, HELD + 1);
    disk_bus_master(bg, false);
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 0);
    for (int i = 0; i < HELD; i++) {
        g_assert_true(holds_bytes(m, r[i]->addr, BLOCK_BYTES, 0x11));
        g_assert_false(request_done(r[i]));
    }
    g_assert_false(request_done(w));
    g_assert_true(disk_holds(bg, MiB, BLOCK_BYTES, 0));
    /* Given back, nothing of that comes again; a new driver finds it well. */
    disk_bus_master(bg, true);
    machine_step_us(m, LONG_US);
    g_assert_true(holds_bytes(m, r[0]->addr, BLOCK_BYTES, 0x11));
    disk_init(bg);
    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x77));
    machine_free(m);
}

/* The piece in service ends; what is left of the request is dropped. */
static void test_bus_master_half_way(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = throttled_pair(&fg, &bg);
    TestRequest *r = half_way(bg);

    disk_bus_master(bg, false);
    assert_held(bg, 0);
    assert_in_service(bg, 0);
    machine_step_us(m, LONG_US);
    g_assert_false(request_done(r));
    g_assert_cmpint(disk_number(bg, "pieces"), ==, 2);
    g_assert_true(disk_holds(bg, 256 * KiB, 256 * KiB, 0));
    disk_init(bg);
    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x77));
    machine_free(m);
}

/* The same for a driver that clears DRIVER_OK in the status register. */
static void test_driver_not_ok(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];
    QVirtioDevice *vdev = &bg->pci->vdev;

    hold_some(fg, bg, r);
    vdev->bus->set_status(vdev, vdev->bus->get_status(vdev) &
                          ~VIRTIO_CONFIG_S_DRIVER_OK);
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    assert_untouched(bg);
    disk_init(bg);
    request_ok(disk_write(bg, 0, BLOCK_BYTES, 0x77));
    machine_free(m);
}

/* Reset while it is stopped: what comes before cont waits for that. */
static void test_reset_stopped(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD], *late;

    hold_some(fg, bg, r);
    machine_stop(m);
    disk_init(bg);
    late = disk_write(bg, 0, BLOCK_BYTES, 0x77);
    assert_held(bg, 0);
    machine_step_us(m, LONG_US);
    assert_untouched(bg);
    machine_cont(m);
    request_ok(late);
    machine_free(m);
}

/* ---- unplug and plug */

static void test_unplug(void)
{
    TestMachine *m = machine_new();
    TestRequest *r[HELD], *other;
    TestDisk *fg, *bg, *bg2;

    machine_resource(m, RESOURCE, "");
    fg = machine_disk(m, "fg", "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    bg2 = machine_disk(m, "bg2", "idletime=" RESOURCE
                       ",idletime-class=background");
    machine_start(m);
    hold_some(fg, bg, r);
    other = disk_read(bg2);
    by_unplug(bg);
    g_assert_true(disk_holds(bg, 0, HELD * BLOCK_BYTES, 0));
    /* Its place in the line is free, and nobody waits for it. */
    machine_step_us(m, INTERVAL_US);
    request_ok(other);

    disk_plug(bg, background);
    g_assert_cmpint(disk_number(bg, "background.requests"), ==, 0);
    hold_some(fg, bg, r);
    machine_step_us(m, INTERVAL_US);
    all_ok(bg, r);
    machine_free(m);
}

static void test_unplug_half_way(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = throttled_pair(&fg, &bg);

    half_way(bg);
    by_unplug(bg);
    machine_step_us(m, LONG_US);
    g_assert_true(disk_holds(bg, 256 * KiB, 256 * KiB, 0));
    /* The token came back: another one gets it. */
    disk_set_class(fg, "background");
    request_ok(disk_read(fg));
    machine_free(m);
}

/* A foreground device that leaves while it is in service blocks nobody. */
static void test_unplug_foreground(void)
{
    TestMachine *m = machine_new();
    TestDisk *fg, *bg;
    TestRequest *r;

    machine_resource(m, RESOURCE, "max-hold-ms=0");
    fg = machine_throttled(m, "fg", TWO_A_SECOND, "idletime=" RESOURCE);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    machine_start(m);
    foreground(fg);
    disk_read(fg);
    r = disk_read(bg);
    assert_held(bg, 1);
    by_unplug(fg);
    machine_step_us(m, INTERVAL_US);
    request_ok(r);
    machine_free(m);
}

/* Within the interval, nothing held; then all leave, and come again. */
static void test_all_leave(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    TestRequest *r[HELD];

    foreground(fg);
    by_unplug(bg);
    machine_step_us(m, INTERVAL_US);
    by_unplug(fg);
    for (int i = 0; i < 3; i++) {
        disk_plug(fg, "'idletime': 'r0'");
        disk_plug(bg, background);
        disk_fill(bg, 0, HELD * BLOCK_BYTES, 0);
        hold_some(fg, bg, r);
        machine_step_us(m, INTERVAL_US - 1);
        assert_untouched(bg);
        machine_step_us(m, 1);
        all_ok(bg, r);
        by_unplug(fg);
        by_unplug(bg);
    }
    machine_ok(m, "object-del", "{'id': 'r0'}");
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ring_test("idletime/stop/once", test_stop);
    ring_test("idletime/stop/hundred", test_stop_100);
    ring_test("idletime/stop/kick", test_kick_while_stopped);
    ring_test("idletime/stop/deadline", test_stop_deadline);
    ring_test("idletime/stop/oldest", test_stop_oldest);
    ring_test("idletime/stop/half-way", test_stop_half_way);
    /* Stock virtio-scsi wants headers in descriptors of their own. */
    if (!disks_are_scsi()) {
        ring_test("idletime/stop/any-layout", test_stop_any_layout);
    }
    ring_data_test("idletime/reset/system", by_system, test_reset);
    ring_data_test("idletime/reset/system-stopped", by_system_stopped,
                        test_reset);
    ring_data_test("idletime/reset/driver", by_driver, test_reset);
    ring_data_test("idletime/reset/system-half-way", by_system,
                        test_reset_half_way);
    ring_data_test("idletime/reset/driver-half-way", by_driver,
                        test_reset_half_way);
    ring_test("idletime/reset/stopped", test_reset_stopped);
    ring_test("idletime/reset/bus-master", test_bus_master);
    ring_test("idletime/reset/bus-master-half-way", test_bus_master_half_way);
    ring_test("idletime/reset/driver-not-ok", test_driver_not_ok);
    ring_test("idletime/unplug/held", test_unplug);
    ring_test("idletime/unplug/half-way", test_unplug_half_way);
    ring_test("idletime/unplug/foreground", test_unplug_foreground);
    ring_test("idletime/unplug/all", test_all_leave);
    return g_test_run();
}
