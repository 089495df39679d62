/*
 * When background may start, from the gaps: histogram, law and windows, each
 * against its definition.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/learner.h"
#include <math.h>

static const IdletimeHalfLife never = { 1e12, 1e24 };

/* ---- histogram */

static void test_bins(void)
{
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        int64_t low = idletime_bin_edge(i), high = idletime_bin_edge(i + 1);

        g_assert_cmpuint(idletime_bin_of(low), ==, i);
        g_assert_cmpuint(idletime_bin_of(high - 1), ==, i);
        /* 1.6 % from 64 us on */
        g_assert_cmpint((high - low) * 64, <=, MAX(low, 64 * 1024));
    }
    g_assert_cmpuint(idletime_bin_of(-1), ==, 0);
    g_assert_cmpuint(idletime_bin_of(INT64_MIN), ==, 0);
    g_assert_cmpuint(idletime_bin_of(INT64_MAX), ==, IDLETIME_BINS - 1);
}

static void test_decay(void)
{
    static IdletimeHistogram h;
    IdletimeHalfLife life = { 100, 1e9 };
    double before;

    idletime_histogram_init(&h);
    for (int i = 0; i < 20000; i++) {
        idletime_histogram_add(&h, life, 5 * MS, 0);
    }
    /* Sum of 2^(-i/100) over all i is 100 / ln 2 = 144.8. */
    g_assert_cmpfloat(idletime_histogram_count(&h), >, 143);
    g_assert_cmpfloat(idletime_histogram_count(&h), <, 147);
    before = h.bin[idletime_bin_of(5 * MS)] / h.unit;
    for (int i = 0; i < 100; i++) {
        idletime_histogram_add(&h, life, 50 * MS, 0);
    }
    g_assert_cmpfloat(h.bin[idletime_bin_of(5 * MS)] / h.unit / before, <,
                      0.51);
    g_assert_cmpfloat(h.bin[idletime_bin_of(5 * MS)] / h.unit / before, >,
                      0.49);
    /* Rescaled many times, the total is still that of the bins. */
    before = 0;
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        before += h.bin[i];
    }
    g_assert_cmpfloat(ABS(before / h.total - 1), <, 1e-3);
}

static double weight_of(const float *bin, int64_t from_ns, int64_t to_ns)
{
    double sum = 0;

    for (unsigned i = idletime_bin_of(from_ns); i < idletime_bin_of(to_ns);
         i++) {
        sum += bin[i];
    }
    return sum;
}

/* Many that are alike stay, few that are not are spread, none gets lost. */
static void test_smooth(void)
{
    static IdletimeHistogram h;
    float smooth[IDLETIME_BINS];

    idletime_histogram_init(&h);
    for (int i = 0; i < 100; i++) {
        idletime_histogram_add(&h, never, 5 * MS, 0);
    }
    for (int i = 0; i < 15; i++) {
        idletime_histogram_add(&h, never, (40 + 4 * i) * MS, 0);
    }
    idletime_histogram_smooth(&h, smooth);
    g_assert_cmpfloat(ABS(weight_of(smooth, 0, SEC) - 115), <, 0.01);
    g_assert_cmpfloat(smooth[idletime_bin_of(5 * MS)], >, 99.9);
    /* 15 in 60 ms: where there was none for 4 ms there is something now. */
    for (int64_t at_ns = 44 * MS; at_ns < 92 * MS; at_ns += 3 * MS) {
        g_assert_cmpfloat(weight_of(smooth, at_ns, at_ns + 3 * MS), >, 0.3);
    }
}

/* ---- law: E[(d - (G - t))+ | G > t] over the gaps themselves */

static void test_law(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeDelays law;
    static double gap[20000];
    const int n = sizeof(gap) / sizeof(gap[0]);

    idletime_histogram_init(&h);
    for (int i = 0; i < n; i++) {
        gap[i] = (i % 6 ? 0.3 : 40 + 60 * test_uniform(&random)) * MS;
        idletime_histogram_add(&h, never, gap[i], 0);
    }
    idletime_delay_build(&law, &h, IDLETIME_BINS);
    for (double t = 0.5; t < 90; t += 1.7) {
        for (double d = 0.1; d < 20; d *= 1.9) {
            double sum = 0, count = 0, got;

            for (int i = 0; i < n; i++) {
                if (gap[i] > t * MS) {
                    count++;
                    sum += MAX(d * MS - (gap[i] - t * MS), 0);
                }
            }
            got = idletime_delay_expected(&law,
                                         (IdletimeService) { d * MS, 0, 0 },
                                         t * MS);
            /* Within the width of a bin (1.6 % of t) and the unseen half. */
            g_assert_cmpfloat(ABS(got - sum / count), <,
                              0.02 * t * MS * MIN(1, d / (100 - t)) +
                              0.01 * d * MS);
        }
    }
}

/* A request of random length is the mean over its lengths. */
static void test_law_spread(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeDelays law;
    IdletimeService spread = { 5.0 * MS, 1.0 * MS, 0 };
    double three;

    idletime_histogram_init(&h);
    for (int i = 0; i < 5000; i++) {
        idletime_histogram_add(&h, never, 30 * MS * test_uniform(&random), 0);
    }
    idletime_delay_build(&law, &h, IDLETIME_BINS);
    /* Uniform arrivals: the square counts, d^2 + sd^2 = 26/25 of d^2. */
    three = idletime_delay_expected(&law, spread, 2.0 * MS) /
            idletime_delay_expected(&law, (IdletimeService) { 5.0 * MS, 0, 0 },
                                   2.0 * MS);
    g_assert_cmpfloat(three, >, 1.03);
    g_assert_cmpfloat(three, <, 1.05);
}

/* ---- windows */

static double window_share(const IdletimeWindows *w, double from, double to)
{
    double open = 0, all = 0;

    for (double t = from; t < to; t += 0.05) {
        all++;
        open += idletime_windows_next(w, t * MS, true) == (int64_t)(t * MS);
    }
    return open / all;
}

static void test_windows_bursts(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeWindows w;
    IdletimeService d = { 5.0 * MS, 0, 0 };

    idletime_histogram_init(&h);
    for (int i = 0; i < 1200; i++) {
        idletime_histogram_add(&h, never, i % 6 ? 0.3 * MS :
                               (69.5 + test_uniform(&random)) * MS, 0);
    }
    /* 3 % of 5 ms a gap */
    idletime_windows_build(&w, &h, d, NULL,
                           &(IdletimeTerms) { 0.15 * MS, 1, 5.0 * MS, 0 });
    g_assert_cmpfloat(window_share(&w, 0, 0.29), ==, 0);
    g_assert_cmpfloat(window_share(&w, 0.4, 63), ==, 1);
    /* Stops before the return, and goes on when it did not come. */
    g_assert_cmpfloat(window_share(&w, 67.2, 69.9), ==, 0);
    g_assert_cmpfloat(window_share(&w, 90, 300), ==, 1);
    g_assert_cmpint(idletime_windows_next(&w, 0, true), >, 0.29 * MS);
    g_assert_cmpint(idletime_windows_next(&w, 0, true), <, 0.4 * MS);
}

/* Never spends more than it may, whatever the gaps are. */
static void test_windows_budget(void)
{
    uint64_t random = test_seed();

    for (int round = 0; round < 60; round++) {
        static IdletimeHistogram h;
        static IdletimeWindows w;
        IdletimeWindow list[IDLETIME_WINDOWS_SHOWN];
        IdletimeService d = { (0.05 + 10 * test_uniform(&random)) * MS, 0, 0 };
        double delay = d.mean_ns * test_uniform(&random);
        unsigned n;

        idletime_histogram_init(&h);
        for (int i = 0; i < 300; i++) {
            idletime_histogram_add(&h, never, MS *
                                   (round % 3 ? 100 * test_uniform(&random) :
                                    test_range(&random, 1, 9) * 10), 0);
        }
        idletime_windows_build(&w, &h, d, NULL,
                           &(IdletimeTerms) { delay, 1, 20.0 * MS, 0 });
        g_assert_cmpfloat(w.delay_ns, <=, delay * 1.0001);
        n = idletime_windows_list(&w, list);
        for (unsigned i = 0; i < n; i++) {
            g_assert_cmpint(list[i].begin_ns, <, list[i].end_ns);
            g_assert_cmpint(list[i].begin_ns, >=,
                            i ? list[i - 1].end_ns : 0);
        }
    }
}

/* What happens in a gap if all that is open is used; adds to both sums. */
static void use_gap(const IdletimeWindows *w, IdletimeService d, double gap_ns,
                    double *delay, double *starts)
{
    int64_t age = idletime_windows_next(w, 0, false);

    *delay += age < gap_ns ? w->switch_ns : 0;
    while (age < gap_ns) {
        (*starts)++;
        age += d.mean_ns;
        *delay += MAX(age - gap_ns, 0);
        age = idletime_windows_next(w, age + d.turnaround_ns, true);
    }
}

/*
 * What is foreseen happens: delay and starts, gap by gap.  Many times, for a
 * plan may lie between two prices: then it is the credit that keeps to it.
 */
static void foresee(IdletimeService d, double budget, double switch_ns)
{
    uint64_t random = test_seed();
    double delay = 0, starts = 0, delay_seen = 0, starts_seen = 0;

    for (int round = 0; round < 40; round++) {
        static IdletimeHistogram h;
        static IdletimeWindows w;
        double gap[6000];
        const int n = sizeof(gap) / sizeof(gap[0]);

        idletime_histogram_init(&h);
        for (int i = 0; i < n; i++) {
            gap[i] = MS * (i % 6 ? 0.2 - 0.3 * log(1 - test_uniform(&random)) :
                           50 + 40 * test_uniform(&random));
            idletime_histogram_add(&h, never, gap[i], 0);
        }
        idletime_windows_build(&w, &h, d, NULL,
                           &(IdletimeTerms) { budget, 1, 5.0 * MS, switch_ns });
        for (int i = 0; i < n; i++) {
            use_gap(&w, d, gap[i], &delay_seen, &starts_seen);
        }
        delay += n * w.delay_ns;
        starts += n * w.starts;
        /* Of a burst's 5,000 gaps half are over 0.4 ms, few 1.8, none 4. */
        g_assert_cmpint(idletime_windows_next(&w, 0, false), >, 1.0 * MS);
        g_assert_cmpint(idletime_windows_next(&w, 0, false), <, 4.0 * MS);
    }
    g_assert_cmpfloat(ABS(delay_seen / delay - 1), <, 0.3);
    g_assert_cmpfloat(ABS(starts_seen / starts - 1), <, 0.06);
}

static void test_windows_foresee(void)
{
    foresee((IdletimeService) { 5.0 * MS, 0, 0 }, 0.1 * MS, 0);
}

/* A guest that takes 2 ms to send the next: a quarter fewer starts. */
static void test_windows_turnaround(void)
{
    foresee((IdletimeService) { 5.0 * MS, 0, 2.0 * MS }, 0.1 * MS, 0);
}

/* A sixth of the gaps can be used, at 3 ms each; the rest is for collisions. */
static void test_windows_switch(void)
{
    static IdletimeHistogram h;
    static IdletimeWindows w;
    IdletimeService d = { 5.0 * MS, 0, 0 };

    foresee(d, 0.6 * MS, 3.0 * MS);
    idletime_histogram_init(&h);
    for (int i = 0; i < 1000; i++) {
        idletime_histogram_add(&h, never, 70 * MS, 0);
    }
    /* Half of a switch a gap: half of the gaps, and each of them whole. */
    idletime_windows_build(&w, &h, d, NULL,
                           &(IdletimeTerms) { 1.5 * MS, 1, 30.0 * MS,
                                              3.0 * MS });
    g_assert_cmpfloat(w.starts, >, 0.45 * 13);
    g_assert_cmpfloat(w.starts, <, 0.55 * 14);
    g_assert_cmpint(idletime_windows_next(&w, 0, false), <, MS);
    g_assert_cmpint(idletime_windows_next(&w, 60 * MS, true), ==, 60 * MS);
    /* What is nearly over is worth no switch. */
    g_assert_cmpint(idletime_windows_next(&w, 60 * MS, false), >, 70 * MS);
    /* More than anything that it may buy: never. */
    idletime_windows_build(&w, &h, d, NULL,
                           &(IdletimeTerms) { 0.001 * MS, 1, 30.0 * MS,
                                              300.0 * MS });
    g_assert_cmpfloat(w.starts, <, 0.1);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/histogram/bins", test_bins);
    g_test_add_func("/histogram/decay", test_decay);
    g_test_add_func("/histogram/smooth", test_smooth);
    g_test_add_func("/law/definition", test_law);
    g_test_add_func("/law/spread", test_law_spread);
    g_test_add_func("/windows/bursts", test_windows_bursts);
    g_test_add_func("/windows/budget", test_windows_budget);
    g_test_add_func("/windows/foresee", test_windows_foresee);
    g_test_add_func("/windows/turnaround", test_windows_turnaround);
    g_test_add_func("/windows/switch", test_windows_switch);
    return g_test_run();
}
