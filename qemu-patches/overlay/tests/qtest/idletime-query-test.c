/*
 * Idletime machine tests: the numbers of query-idletime.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "idletime-machine.h"
#include "idletime/arena/arena.h"

typedef struct Number {
    const char *member;
    int64_t value;
} Number;

/*
 * A foreground request (idle: foreground), a background request that waits
 * for it (foreground: background) through the interval (preemption: timer)
 * and starts (idle: background); a foreground request that collides with it
 * (background: foreground), 5 ms before its end (foreground: empty); and the
 * second interval.
 */
static const Number of_resource[] = {
    { "counters.idle.foreground", 1 },
    { "counters.idle.background", 1 },
    { "counters.idle.timer", 0 },
    { "counters.idle.empty", 0 },
    { "counters.foreground.foreground", 0 },
    { "counters.foreground.background", 1 },
    { "counters.foreground.timer", 0 },
    { "counters.foreground.empty", 1 },
    { "counters.preemption.foreground", 0 },
    { "counters.preemption.background", 0 },
    { "counters.preemption.timer", 2 },
    { "counters.preemption.empty", 0 },
    { "counters.background.foreground", 1 },
    { "counters.background.background", 0 },
    { "counters.background.timer", 0 },
    { "counters.background.empty", 0 },
    { "collisions", 1 },
    { "collision-cost-us", 5 * MS },
    { "foreground.requests", 2 },
    { "foreground.bytes", 2 * BLOCK_BYTES },
    { "background.requests", 1 },
    { "background.bytes", BLOCK_BYTES },
    { "held", 0 },
};

static const Number of_background[] = {
    { "participants", 1 },
    { "foreground.requests", 0 },
    { "foreground.bytes", 0 },
    { "background.requests", 1 },
    { "background.bytes", BLOCK_BYTES },
    { "passed", 0 },
    { "dropped", 0 },
    { "held", 0 },
    { "in-service", 0 },
    { "pieces", 0 },
    { "promotions.deadline", 0 },
    { "promotions.flush", 0 },
    { "promotions.journal", 0 },
    { "promotions.ring", 0 },
    { "promotions.class-change", 0 },
    { "promotions.flow", 0 },
    { "promotions.stop", 0 },
    { "waits.foreground", 0 },
    { "waits.interval", 1 },
    { "waits.budget", 0 },
    { "waits.inflight", 0 },
    { "waits.turn", 0 },
    { "waits.arena", 0 },
    /* 20 ms: between 12.8 and 25.6 */
    { "hold.boundaries-us.7", 12800 },
    { "hold.boundaries-us.8", 25600 },
    { "hold.bins.7", 0 },
    { "hold.bins.8", 1 },
    { "hold.bins.9", 0 },
    { "hold.max-us", INTERVAL_US },
    { "hold.drained-us", 0 },
};

static void look(TestMachine *m, bool often)
{
    if (often) {
        machine_number(m, RESOURCE, "held");
    }
}

static void scene(TestDisk *fg, TestDisk *bg, bool often)
{
    TestMachine *m = fg->m;
    TestRequest *r;

    disk_pause_read(bg, "A");
    foreground(fg);
    look(m, often);
    r = disk_read(bg);
    look(m, often);
    machine_step_us(m, INTERVAL_US);
    look(m, often);
    foreground(fg);
    look(m, often);
    machine_step_us(m, 5 * MS);
    look(m, often);
    disk_resume(bg, "A");
    request_ok(r);
    look(m, often);
    machine_step_us(m, INTERVAL_US - 5 * MS);
}

/* Who asks changes nothing: the same numbers, however often. */
static void check_numbers(bool often)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    g_autofree char *state = NULL;

    scene(fg, bg, often);
    for (int i = 0; i < ARRAY_SIZE(of_resource); i++) {
        const Number *n = &of_resource[i];

        g_test_message("%s", n->member);
        g_assert_cmpint(machine_number(m, RESOURCE, n->member), ==, n->value);
    }
    for (int i = 0; i < ARRAY_SIZE(of_background); i++) {
        const Number *n = &of_background[i];

        g_test_message("%s", n->member);
        g_assert_cmpint(disk_number(bg, n->member), ==, n->value);
    }
    g_assert_cmpint(disk_number(fg, "participants"), ==, 1);
    g_assert_cmpint(disk_number(fg, "foreground.requests"), ==, 2);
    g_assert_cmpint(disk_number(fg, "foreground.bytes"), ==, 2 * BLOCK_BYTES);
    state = machine_string(m, RESOURCE, "state");
    g_assert_cmpstr(state, ==, "idle");
    machine_free(m);
}

static void test_numbers(void)
{
    check_numbers(false);
}

static void test_asked_often(void)
{
    check_numbers(true);
}

/* ---- slots */

/* Slots of a board that were ever taken. */
static uint32_t slots_high(TestMachine *m, const char *board)
{
    g_autofree char *path = g_strdup_printf("%s/" RESOURCE "/%s", m->dir,
                                            board);
    IdletimeBoardHeader header;
    int fd = open(path, O_RDONLY);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(read(fd, &header, sizeof(header)), ==, sizeof(header));
    close(fd);
    return header.slots_high;
}

static unsigned open_files(TestMachine *m)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/fd",
                                            (int)qtest_pid(m->qts));
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    unsigned n = 0;

    g_assert_nonnull(dir);
    while (g_dir_read_name(dir)) {
        n++;
    }
    return n;
}

/* Whatever is plugged in and out takes the same slots again. */
static void test_slots(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    unsigned files = 0;

    for (int i = 0; i < 20; i++) {
        disk_unplug(bg);
        if (!i) {
            files = open_files(m);
        }
        g_assert_cmpint(open_files(m), ==, files);
        disk_plug(bg, "'idletime': 'r0', 'idletime-class': 'guest'");
        /* "fg" and "bg", and "bg" alone */
        g_assert_cmpint(slots_high(m, "foreground"), ==, 2);
        g_assert_cmpint(slots_high(m, "background"), ==, 1);
        g_assert_cmpint(disk_number(bg, "participants"), ==, 2);
    }
    machine_free(m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("idletime/query/numbers", test_numbers);
    qtest_add_func("idletime/query/asked-often", test_asked_often);
    qtest_add_func("idletime/query/slots", test_slots);
    return g_test_run();
}
