/*
 * Idletime machine tests: ten minutes pass at once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * As for a VM that nobody scheduled, or beside one that was stopped.  The
 * virtual clock runs each timer at its time; what a clock does to the core and
 * the tokens that really jumps is in tests/unit (/core/jump, /tokens/jump).
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"

#define HELD    3
#define JUMP_US (600 * 1000 * (int64_t)MS)
#define BUSY    "max-hold-ms=5000"

static void all_ok(TestRequest **r)
{
    for (int i = 0; i < HELD; i++) {
        request_ok(r[i]);
    }
}

/* A foreground request that was in service all the time: promotions. */
static void test_busy(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair(BUSY, &fg, &bg);
    TestRequest *r[HELD], *f;

    disk_pause_read(fg, "A");
    f = disk_read(fg);
    for (int i = 0; i < HELD; i++) {
        r[i] = disk_write(bg, i * BLOCK_BYTES, BLOCK_BYTES, 0x5a);
    }
    assert_held(bg, HELD);
    machine_step_us(m, JUMP_US);
    all_ok(r);
    g_assert_cmpint(disk_number(bg, "promotions.deadline"), ==, HELD);
    disk_resume(fg, "A");
    request_ok(f);
    machine_free(m);
}

/*
 * In service across the jump, so its lease is over: another one may start,
 * and in the end no token is lost and none is left over.
 */
static void test_lease(void)
{
    TestMachine *m = machine_new();
    TestRequest *r, *other, *third;
    TestDisk *bg, *bg2;

    machine_resource(m, RESOURCE, BUSY);
    bg = machine_disk(m, "bg", "idletime=" RESOURCE
                      ",idletime-class=background");
    bg2 = machine_disk(m, "bg2", "idletime=" RESOURCE
                       ",idletime-class=background");
    machine_start(m);
    disk_pause_read(bg, "A");
    r = disk_read(bg);
    assert_in_service(bg, 1);
    machine_step_us(m, JUMP_US);
    disk_pause_read(bg2, "B");
    other = disk_read(bg2);
    assert_in_service(bg2, 1);
    disk_resume(bg, "A");
    request_ok(r);
    /* What the late one gave back was no longer its own. */
    third = disk_read(bg);
    machine_step_us(m, 20 * MS);
    assert_held(bg, 1);
    disk_resume(bg2, "B");
    request_ok(other);
    disk_await(bg, "held", 0);
    request_ok(third);
    machine_free(m);
}

/* Settings of a minute, and back; an interval that ended in the jump. */
static void test_interval(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("max-hold-ms=0,interval-us=60000000", &fg,
                                  &bg);
    TestRequest *r;

    foreground(fg);
    r = disk_read(bg);
    machine_step_us(m, JUMP_US);
    request_ok(r);
    /* The gate goes by the last foreground event, not by the jump. */
    foreground(fg);
    r = disk_read(bg);
    machine_step_us(m, 60 * 1000 * MS - 1);
    assert_held(bg, 1);
    machine_step_us(m, 1);
    request_ok(r);
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/minutes/busy", test_busy);
    qtest_add_func("idletime/minutes/lease", test_lease);
    qtest_add_func("idletime/minutes/interval", test_interval);
    return g_test_run();
}
