/*
 * Gate: the time stamp that is good for a while.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/gate/stamp.h"

static int64_t clock_says;
static int readings;

static int64_t read_clock(void)
{
    readings++;
    return clock_says;
}

static int64_t stamp_at(IdletimeStamp *stamp, int64_t ticks, int64_t now_ns)
{
    clock_says = now_ns;
    return idletime_stamp(stamp, ticks, read_clock);
}

/* Read at tick 5000; good for 100 ticks, that is up to 5099. */
static void test_limit(void)
{
    IdletimeStamp stamp = { .limit = 100 };

    readings = 0;
    g_assert_cmpint(stamp_at(&stamp, 5000, 7), ==, 7);
    g_assert_cmpint(stamp_at(&stamp, 5000, 8), ==, 7);
    g_assert_cmpint(stamp_at(&stamp, 5099, 8), ==, 7);
    g_assert_cmpint(readings, ==, 1);
    g_assert_cmpint(stamp_at(&stamp, 5100, 9), ==, 9);
    g_assert_cmpint(stamp_at(&stamp, 5199, 10), ==, 9);
    g_assert_cmpint(readings, ==, 2);
}

/* Without a limit the clock is read each time. */
static void test_no_limit(void)
{
    IdletimeStamp stamp = { 0 };

    readings = 0;
    for (int i = 0; i < 3; i++) {
        g_assert_cmpint(stamp_at(&stamp, 5000, i), ==, i);
    }
    g_assert_cmpint(readings, ==, 3);
}

/*
 * The ticks go back: the host slept, or the thread went to a processor whose
 * counter is behind.  The time goes on, as the clock has it.
 */
static void test_back(void)
{
    static const int64_t back[] = { 1, 99, 100, 4000, 5000, INT64_MAX };

    for (unsigned i = 0; i < G_N_ELEMENTS(back); i++) {
        IdletimeStamp stamp = { .limit = 100 };

        stamp_at(&stamp, 5000, 7);
        g_assert_cmpint(stamp_at(&stamp, 5000 - back[i], 20), ==, 20);
        g_assert_cmpint(stamp_at(&stamp, 5000 - back[i] + 99, 30), ==, 20);
        g_assert_cmpint(stamp_at(&stamp, 5000 - back[i] + 100, 30), ==, 30);
    }
}

/* The counter wraps: three ticks passed, not 2^64 - 3. */
static void test_wrap(void)
{
    IdletimeStamp stamp = { .limit = 100 };

    stamp_at(&stamp, INT64_MAX - 1, 7);
    g_assert_cmpint(stamp_at(&stamp, INT64_MIN + 1, 20), ==, 7);
    g_assert_cmpint(stamp_at(&stamp, INT64_MIN + 98, 20), ==, 20);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/stamp/limit", test_limit);
    g_test_add_func("/stamp/no-limit", test_no_limit);
    g_test_add_func("/stamp/back", test_back);
    g_test_add_func("/stamp/wrap", test_wrap);
    return g_test_run();
}
