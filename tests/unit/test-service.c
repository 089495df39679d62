/*
 * Service times by size, and the idle time that the learner tells.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/service.h"
#include "idletime/learner/spare.h"
#include <math.h>

#define KIB 1024u

static void note(IdletimeServiceTimes *s, int n, uint32_t bytes, double ms)
{
    for (int i = 0; i < n; i++) {
        idletime_service_note(s, bytes, ms * MS);
    }
}

static double expected(const IdletimeServiceTimes *s, uint32_t bytes)
{
    return idletime_service_expected(s, bytes).mean_ns / MS;
}

/* ---- sizes */

/* 4 KiB and less, up to 8, 16, ... 32 MiB, and above. */
static void test_sizes(void)
{
    uint32_t largest = 4 * KIB;

    for (unsigned size = 0; size < IDLETIME_SIZES; size++, largest *= 2) {
        IdletimeServiceTimes s = { 0 };

        idletime_service_note(&s, largest, MS);
        g_assert_cmpfloat(s.size[size].count, ==, 1);
        if (size + 1 < IDLETIME_SIZES) {
            /* A page more is the next one. */
            idletime_service_note(&s, largest + 4 * KIB, MS);
            g_assert_cmpfloat(s.size[size].count, ==, 1);
            g_assert_cmpfloat(s.size[size + 1].count, ==, 1);
        }
    }
    IdletimeServiceTimes s = { 0 };

    idletime_service_note(&s, 0, MS);
    idletime_service_note(&s, 512, MS);
    g_assert_cmpfloat(s.size[0].count, ==, 2);
    idletime_service_note(&s, UINT32_MAX, MS);
    idletime_service_note(&s, 64u << 20, MS);
    idletime_service_note(&s, 128u << 20, MS);
    g_assert_cmpfloat(s.size[IDLETIME_SIZES - 1].count, ==, 3);
    g_assert_cmpfloat(s.any.count, ==, 5);
}

/* Three are a mean.  Never seen: the next larger one, else any. */
static void test_expected(void)
{
    IdletimeServiceTimes s = { 0 };

    g_assert_cmpfloat(idletime_service_any(&s).mean_ns, ==, 1000);
    note(&s, 2, 16 * KIB, 4);
    g_assert_false(idletime_service_known(&s));
    note(&s, 1, 16 * KIB, 4);
    g_assert_true(idletime_service_known(&s));
    note(&s, 2, 4 * KIB, 2);
    g_assert_cmpfloat(expected(&s, 4 * KIB), ==, 4);
    note(&s, 1, 4 * KIB, 2);
    g_assert_cmpfloat(expected(&s, 4 * KIB), ==, 2);
    g_assert_cmpfloat(expected(&s, 8 * KIB), ==, 4);
    g_assert_cmpfloat(expected(&s, 16 * KIB), ==, 4);
    g_assert_cmpfloat(expected(&s, 32 * KIB), ==,
                      idletime_service_any(&s).mean_ns / MS);
    note(&s, 3, 64u << 20, 50);
    g_assert_cmpfloat(expected(&s, 32 * KIB), ==, 50);
    g_assert_cmpfloat(expected(&s, UINT32_MAX), ==, 50);
    /* No device takes less than a microsecond. */
    s = (IdletimeServiceTimes) { 0 };
    note(&s, 5, 4 * KIB, 0);
    g_assert_cmpfloat(idletime_service_any(&s).mean_ns, ==, 1000);
}

/* Mean and deviation of the last 64, the newest with a 64th. */
static void test_memory(void)
{
    IdletimeServiceTimes s = { 0 };

    note(&s, 1, 4 * KIB, 4);
    note(&s, 1, 4 * KIB, 6);
    /* Mean 5, each 1 away. */
    g_assert_cmpfloat(s.any.mean_ns, ==, 5 * MS);
    g_assert_cmpfloat(ABS(idletime_service_any(&s).sd_ns - MS), <, 1);
    note(&s, 1, 4 * KIB, 8);
    g_assert_cmpfloat(ABS(s.any.mean_ns - 6 * MS), <, 1);
    g_assert_cmpfloat(ABS(idletime_service_any(&s).sd_ns -
                          MS * sqrt(8 / 3.0)), <, 1);
    s = (IdletimeServiceTimes) { 0 };
    note(&s, 64, 4 * KIB, 4);
    note(&s, 1, 4 * KIB, 4.64);
    g_assert_cmpfloat(ABS(s.any.mean_ns - 4.01 * MS), <, 1);
    g_assert_cmpfloat(s.any.count, ==, 64);
    /* A 64th of 0.64 * 0.63. */
    g_assert_cmpfloat(ABS(s.any.square / MS / MS - 0.0063), <, 1e-9);
}

/* Four deviations above the mean, a quarter of the mean at least. */
static void test_believed(void)
{
    IdletimeServiceTimes s = { 0 };

    note(&s, 2, 4 * KIB, 8);
    g_assert_cmpfloat(idletime_service_believed(&s, 4 * KIB, 99 * MS), ==,
                      99 * MS);
    note(&s, 2, 4 * KIB, 8);
    g_assert_cmpfloat(idletime_service_believed(&s, 4 * KIB, 99 * MS), ==,
                      10 * MS);
    g_assert_cmpfloat(idletime_service_believed(&s, 4 * KIB, 9 * MS), ==,
                      9 * MS);
    s = (IdletimeServiceTimes) { 0 };
    for (int i = 0; i < 50; i++) {
        note(&s, 1, 4 * KIB, i % 2 ? 7 : 9);
    }
    g_assert_cmpfloat(ABS(idletime_service_believed(&s, 4 * KIB, 99 * MS) -
                          12 * MS), <, 0.01 * MS);
    /* A stall counts for that much and no more. */
    note(&s, 1, 4 * KIB, 1000);
    g_assert_cmpfloat(s.any.mean_ns, <, 8.1 * MS);
}

/* Between a completion and the next request: a 64th of each; d at most. */
static void test_turnaround(void)
{
    IdletimeServiceTimes s = { 0 };

    idletime_service_turnaround(&s, 5 * MS);
    g_assert_cmpfloat(s.turnaround_ns, ==, 0);
    note(&s, 3, 4 * KIB, 8);
    idletime_service_turnaround(&s, 6.4 * MS);
    g_assert_cmpfloat(ABS(s.turnaround_ns - 0.1 * MS), <, 1e-3);
    idletime_service_turnaround(&s, 6.5 * MS);
    g_assert_cmpfloat(ABS(s.turnaround_ns - 0.2 * MS), <, 1e-3);
    idletime_service_turnaround(&s, 99 * MS);
    g_assert_cmpfloat(ABS(s.turnaround_ns - (0.2 + 7.8 / 64) * MS), <, 1e-3);
    g_assert_cmpfloat(idletime_service_any(&s).turnaround_ns, ==,
                      s.turnaround_ns);
}

/* ---- spare time */

typedef struct World {
    IdletimeSpare s;
    int64_t now, idle;
} World;

static World world(void)
{
    World w = { .now = 100 * SEC };

    idletime_spare_init(&w.s);
    idletime_spare_look(&w.s, w.idle, w.now);
    return w;
}

/* So long, of which @percent was idle; one look. */
static void pass(World *w, int64_t ns, int percent)
{
    w->now += ns;
    w->idle += ns / 100 * percent;
    idletime_spare_look(&w->s, w->idle, w->now);
}

static void assert_share(double got, double want)
{
    g_assert_cmpfloat(ABS(got - want), <, 1e-6);
}

/* A second is over after a second, and not before. */
static void test_second(void)
{
    World w = world();

    assert_share(idletime_spare_second(&w.s), -1);
    assert_share(idletime_spare_minute(&w.s), -1);
    assert_share(idletime_spare_hour(&w.s), -1);
    assert_share(idletime_spare_forecast(&w.s), -1);
    pass(&w, SEC - 100, 50);
    assert_share(idletime_spare_second(&w.s), -1);
    pass(&w, 100, 50);
    assert_share(idletime_spare_second(&w.s), 0.5);
    pass(&w, SEC, 100);
    assert_share(idletime_spare_second(&w.s), 1);
    assert_share(idletime_spare_minute(&w.s), 0.75);
    assert_share(idletime_spare_forecast(&w.s), 0.75);
    /* Two looks at a time: the second began with the first of them. */
    w.idle += SEC / 10;
    idletime_spare_look(&w.s, w.idle, w.now);
    pass(&w, SEC, 20);
    assert_share(idletime_spare_second(&w.s), 0.3);
    w = world();
    pass(&w, SEC, 50);
    pass(&w, SEC, 100);
    /* Three seconds in one look: their mean for each. */
    pass(&w, 3 * SEC, 20);
    assert_share(idletime_spare_second(&w.s), 0.2);
    assert_share(idletime_spare_minute(&w.s), (0.5 + 1 + 0.6) / 5);
}

/* Sixty seconds are remembered; what is before them is not. */
static void test_minute(void)
{
    World w = world();

    for (int i = 0; i < 60; i++) {
        pass(&w, SEC, 100);
    }
    assert_share(idletime_spare_minute(&w.s), 1);
    assert_share(idletime_spare_hour(&w.s), 1);
    for (int i = 1; i <= 60; i++) {
        pass(&w, SEC, 0);
        assert_share(idletime_spare_minute(&w.s), 1 - i / 60.0);
    }
    assert_share(idletime_spare_hour(&w.s), 0.5);
    /* A pause of an hour fills all of them, and takes no longer. */
    pass(&w, 3600 * SEC, 30);
    assert_share(idletime_spare_minute(&w.s), 0.3);
    g_assert_cmpuint(w.s.seconds.count, ==, 180);
    g_assert_cmpuint(w.s.minutes.count, ==, 62);
    assert_share(idletime_spare_hour(&w.s), 0.3);
    pass(&w, INT64_MAX / 200, 40);
    assert_share(idletime_spare_hour(&w.s), 0.4);
    g_assert_cmpuint(w.s.minutes.count, ==, 122);
}

/* Shares are shares: sums that run back, or clocks, are no more than that. */
static void test_bounds(void)
{
    World w = world();

    pass(&w, SEC, 300);
    assert_share(idletime_spare_second(&w.s), 1);
    pass(&w, SEC, -50);
    assert_share(idletime_spare_second(&w.s), 0);
    /* The clock runs back: a new beginning. */
    w.now -= 50 * SEC;
    idletime_spare_look(&w.s, w.idle, w.now);
    g_assert_cmpuint(w.s.seconds.count, ==, 2);
    pass(&w, SEC, 30);
    assert_share(idletime_spare_second(&w.s), 0.3);
}

/* Whoever was nearer to the truth in the last minutes. */
static void test_forecast(void)
{
    World w = world();
    double miss_minute = 0, miss_hour = 0;
    static const int percent[] = { 80, 20, 80, 20, 80, 80, 80, 80, 80, 80,
                                   80, 80, 80, 80, 80, 80, 80, 80 };
    double sum = 0, before = -1, mean = -1;

    for (unsigned i = 0; i < G_N_ELEMENTS(percent); i++) {
        double share = percent[i] / 100.0;

        pass(&w, 60 * SEC, percent[i]);
        if (before >= 0) {
            miss_minute += (ABS(share - before) - miss_minute) / 8;
            miss_hour += (ABS(share - mean) - miss_hour) / 8;
        }
        assert_share(w.s.miss[IDLETIME_FORECAST_MINUTE], miss_minute);
        assert_share(w.s.miss[IDLETIME_FORECAST_HOUR], miss_hour);
        before = share;
        sum += share;
        mean = sum / (i + 1);
        assert_share(idletime_spare_forecast(&w.s),
                     miss_hour < miss_minute ? mean : before);
    }
    /* A clock that runs back says nothing about them. */
    w.now -= 300 * SEC;
    idletime_spare_look(&w.s, w.idle, w.now);
    assert_share(w.s.miss[IDLETIME_FORECAST_MINUTE], miss_minute);
    assert_share(w.s.miss[IDLETIME_FORECAST_HOUR], miss_hour);
    /* In turns the mean was better, in the end the last minute. */
    assert_share(idletime_spare_forecast(&w.s), 0.8);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/service/sizes", test_sizes);
    g_test_add_func("/service/expected", test_expected);
    g_test_add_func("/service/memory", test_memory);
    g_test_add_func("/service/believed", test_believed);
    g_test_add_func("/service/turnaround", test_turnaround);
    g_test_add_func("/spare/second", test_second);
    g_test_add_func("/spare/minute", test_minute);
    g_test_add_func("/spare/bounds", test_bounds);
    g_test_add_func("/spare/forecast", test_forecast);
    return g_test_run();
}
