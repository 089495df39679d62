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

/* ---- the human monitor */

static const char info_text[] =
    "r0: idle, interval 20000 us, path DIR/r0\n"
    "  max-inflight 1, max-request-bytes 131072, max-hold-ms 5000, weight 100\n"
    "  collisions 1, cost 5000 us\n"
    "    state         foreground   background        timer        empty\n"
    "    idle                   1            1            0            0\n"
    "    foreground             0            1            0            1\n"
    "    preemption             0            0            2            0\n"
    "    background             1            0            0            0\n"
    "  device fg: class foreground\n"
    "    foreground 2 requests, background 0 (0 of them pieces), held 0, "
    "longest hold 0 ms\n"
    "    promoted: deadline 0, flush 0, journal 0, ring 0, class change 0, "
    "flow 0, stop 0\n"
    "  device bg: class background, background queues 0\n"
    "    foreground 0 requests, background 1 (0 of them pieces), held 0, "
    "longest hold 20 ms\n"
    "    promoted: deadline 0, flush 0, journal 0, ring 0, class change 0, "
    "flow 0, stop 0\n";

/* As people see it: lines, and DIR for the test's folder. */
static char *info(TestMachine *m)
{
    g_autofree char *text = qtest_hmp(m->qts, "info idletime");
    g_auto(GStrv) line = g_strsplit(text, "\r\n", -1);
    g_autofree char *lines = g_strjoinv("\n", line);
    g_auto(GStrv) part = g_strsplit(lines, m->dir, -1);

    return g_strjoinv("DIR", part);
}

/* The same scene; then "fg" leaves, but for a request that is in service. */
static void test_info(void)
{
    TestDisk *fg, *bg;
    TestMachine *m = machine_pair("", &fg, &bg);
    g_autofree char *text = NULL, *leaving = NULL;
    TestRequest *r;

    scene(fg, bg, false);
    machine_ok(m, "idletime-set", "{'device': 'bg',"
               " 'background-queues': '0'}");
    text = info(m);
    g_assert_cmpstr(text, ==, info_text);
    disk_pause_read(fg, "F");
    r = disk_read(fg);
    disk_detach(fg);
    leaving = info(m);
    g_assert_nonnull(strstr(leaving, "\n  device fg: class foreground, "
                            "detaching\n    foreground 3 requests"));
    disk_resume(fg, "F");
    request_ok(r);
    machine_free(m);
}

static void test_info_of_none(void)
{
    TestMachine *m = machine_new();
    g_autofree char *text = NULL, *idle = NULL;

    machine_start(m);
    text = info(m);
    g_assert_cmpstr(text, ==, "no idletime-resource object\n");
    machine_ok(m, "object-add", "{'qom-type': 'idletime-resource',"
               " 'id': 'r0', 'path': %s}", m->dir);
    idle = info(m);
    /* Nobody looks at it. */
    g_assert_cmpstr(idle, ==, "r0: unknown, interval 20000 us, path DIR\n"
                    "  max-inflight 1, max-request-bytes 131072, "
                    "max-hold-ms 5000, weight 100\n");
    machine_free(m);
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
    qtest_add_func("idletime/query/info", test_info);
    qtest_add_func("idletime/query/info-of-none", test_info_of_none);
    qtest_add_func("idletime/query/slots", test_slots);
    return g_test_run();
}
