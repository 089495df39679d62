/*
 * Learner: the time in service that an observer shows, torn or replaced.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/observed.h"

static uint64_t time_at(IdletimeObservedTime *t, uint64_t started,
                        uint32_t in_service, int64_t request_ns,
                        int64_t now_ns)
{
    const IdletimeObservedFacts facts = { started, request_ns, in_service };

    return idletime_observed_time(t, &facts, now_ns);
}

/* Begins at 1000 s and 1000 s + 4 ms; the first ends after 10 ms. */
static void test_time(void)
{
    const int64_t t0 = 1000 * SEC;
    IdletimeObservedTime t = { 0 };

    g_assert_cmpuint(time_at(&t, 0, 0, 0, t0 - MS), ==, 0);
    g_assert_cmpuint(time_at(&t, 1, 1, 2 * MS, t0 + 2 * MS), ==, 2 * MS);
    /* 6 + 2 ms */
    g_assert_cmpuint(time_at(&t, 2, 2, 8 * MS, t0 + 6 * MS), ==, 8 * MS);
    /* 10 + 8 ms */
    g_assert_cmpuint(time_at(&t, 2, 1, 18 * MS, t0 + 12 * MS), ==, 18 * MS);
    /* Nothing new, and an event behind the reading of the clock. */
    g_assert_cmpuint(time_at(&t, 2, 1, 18 * MS - 500, t0 + 12 * MS), ==,
                     18 * MS);
}

/* Between two writes it is off by all that the clock shows, up or down. */
static void test_torn(void)
{
    const int64_t t0 = 1000 * SEC;
    IdletimeObservedTime t = { 0 };

    g_assert_cmpuint(time_at(&t, 1, 1, 0, t0), ==, 0);
    /* In service was counted, the begin not yet subtracted. */
    g_assert_cmpuint(time_at(&t, 2, 2, 10 * MS + t0, t0 + 10 * MS), ==,
                     10 * MS);
    /* Whole again: 20 ms and 10; the two looks that were torn estimate. */
    g_assert_cmpuint(time_at(&t, 2, 2, 30 * MS, t0 + 20 * MS), ==, 30 * MS);
    g_assert_cmpuint(time_at(&t, 2, 2, 50 * MS, t0 + 30 * MS), ==, 50 * MS);
    /* The other way round: an end was added before it left service. */
    g_assert_cmpuint(time_at(&t, 2, 2, 50 * MS + 2 * t0, t0 + 30 * MS), ==,
                     50 * MS);
    g_assert_cmpuint(time_at(&t, 2, 1, 60 * MS, t0 + 40 * MS), ==, 70 * MS);
}

/* A new observer begins with other sums; none at all is zero. */
static void test_replaced(void)
{
    IdletimeObservedTime t = { 0 };

    time_at(&t, 5, 0, 700 * MS, SEC);
    g_assert_cmpuint(time_at(&t, 0, 0, 0, 2 * SEC), ==, t.total_ns);
    g_assert_cmpuint(time_at(&t, 0, 0, 0, 3 * SEC), ==, t.total_ns);
    g_assert_cmpuint(time_at(&t, 9, 0, 123456 * SEC, 4 * SEC), ==, t.total_ns);
}

/* What can have passed is believed to the nanosecond, what cannot is not. */
static void test_bounds(void)
{
    static const struct {
        uint32_t before;        /* in service at the last look */
        uint64_t began;         /* since then */
        int64_t grown_ns, believed_ns;  /* in 10 ms */
    } pair[] = {
        /* One for 10 ms; events of another ms may be behind the clock. */
        { 1, 0, 11 * MS, 11 * MS }, { 1, 0, 11 * MS + 1, 10 * MS },
        { 1, 0, -MS, 0 }, { 1, 0, -MS - 1, 10 * MS },
        { 1, 0, -1, 0 }, { 1, 0, 0, 0 },
        /* Two more began; what is estimated is of those that were there. */
        { 1, 2, 33 * MS, 33 * MS }, { 1, 2, 33 * MS + 1, 10 * MS },
        { 3, 2, 55 * MS, 55 * MS }, { 3, 2, 55 * MS + 1, 30 * MS },
        { 0, 1, 11 * MS, 11 * MS }, { 0, 1, 11 * MS + 1, 0 },
        { 0, 0, 0, 0 }, { 0, 0, 1, 0 },
        /* No more than 65,536 are believed. */
        { UINT32_MAX, 0, 65536 * 11 * MS, 65536 * 11 * MS },
        { UINT32_MAX, 0, 65536 * 11 * MS + 1, 65536 * 10 * MS },
        { 0, UINT32_MAX, 65536 * 11 * MS, 65536 * 11 * MS },
        { 0, UINT32_MAX, 65536 * 11 * MS + 1, 0 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(pair); i++) {
        IdletimeObservedTime t = {
            .last = { 1000, 7 * SEC, pair[i].before },
            .now_ns = SEC, .total_ns = 5,
        };

        g_test_message("case %u", i);
        g_assert_cmpuint(time_at(&t, 1000 + pair[i].began, 4,
                                 7 * SEC + pair[i].grown_ns, SEC + 10 * MS),
                         ==, 5 + pair[i].believed_ns);
        g_assert_cmpint(t.now_ns, ==, SEC + 10 * MS);
        g_assert_cmpuint(t.last.in_service, ==, 4);
        g_assert_cmpuint(t.last.request_ns, ==, 7 * SEC + pair[i].grown_ns);
    }
}

/* A count that runs back is of another observer: nothing began. */
static void test_runs_back(void)
{
    IdletimeObservedTime t = { .last = { 1000, SEC, 0 }, .now_ns = SEC };

    g_assert_cmpuint(time_at(&t, 999, 1, SEC + 1, SEC + 10 * MS), ==, 0);
    /* A clock that runs back: nothing passed, but what a look may take. */
    g_assert_cmpuint(time_at(&t, 999, 1, SEC + 1 + MS, SEC), ==, MS);
    g_assert_cmpuint(time_at(&t, 999, 1, SEC + 2 + 2 * MS, SEC - MS), ==, MS);
    /* From the begin of time to its end: more than a sum may hold. */
    t = (IdletimeObservedTime) { .last = { 0, 0, 65536 } };
    g_assert_cmpuint(time_at(&t, 0, 0, -2 * MS, INT64_MAX - SEC), ==,
                     INT64_MAX / 65536 * 65536);
}

/* Whatever it shows: the sum only grows, and not faster than is possible. */
static void test_hostile(void)
{
    uint64_t seed = test_seed(), before = 0;
    IdletimeObservedTime t = { .now_ns = SEC };
    int64_t now_ns = SEC;

    for (int i = 0; i < 100000; i++) {
        uint64_t now_total;

        now_ns += test_range(&seed, 0, 10 * MS);
        now_total = time_at(&t, test_random(&seed),
                            test_range(&seed, 0, UINT32_MAX),
                            test_random(&seed) >> test_range(&seed, 0, 63),
                            now_ns);
        g_assert_cmpuint(now_total, >=, before);
        /* 65,536 were in service, and as many began. */
        g_assert_true(now_total - before <= 2 * 65536 * 11 * MS);
        before = now_total;
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/observed/time", test_time);
    g_test_add_func("/observed/time/torn", test_torn);
    g_test_add_func("/observed/time/replaced", test_replaced);
    g_test_add_func("/observed/time/bounds", test_bounds);
    g_test_add_func("/observed/time/runs-back", test_runs_back);
    g_test_add_func("/observed/time/hostile", test_hostile);
    return g_test_run();
}
