/*
 * When background may start, from the gaps: histogram, expected delays and
 * windows, each against its definition.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/learner.h"
#include <math.h>

static const IdletimeHalfLife never = { 1e12, 1e24 };

/* All of a plan, as one look after the other makes it. */
static void windows_plan(IdletimeWindows *w, const IdletimeHistogram *h,
                         IdletimeService service, const IdletimeTerms *terms)
{
    static IdletimePlan plan;

    idletime_plan_begin(&plan, h, service, NULL, terms);
    while (idletime_plan_step(&plan, IDLETIME_LOOK_WORK) <= 0) {
    }
    *w = plan.windows;
}

static void smooth_all(const IdletimeHistogram *h, float smooth[IDLETIME_BINS])
{
    memset(smooth, 0, IDLETIME_BINS * sizeof(smooth[0]));
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        int work = idletime_histogram_smooth(h, i, smooth);

        g_assert_cmpint(work, >=, 1);
        g_assert_cmpint(work, <=, IDLETIME_PLAN_BIN_MAX);
    }
}

static void delay_build(IdletimeDelays *delays, const IdletimeHistogram *h)
{
    float smooth[IDLETIME_BINS];

    smooth_all(h, smooth);
    idletime_delay_begin(delays);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        idletime_delay_add(delays, i, smooth[i]);
    }
}

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
    smooth_all(&h, smooth);
    g_assert_cmpfloat(ABS(weight_of(smooth, 0, SEC) - 115), <, 0.01);
    g_assert_cmpfloat(smooth[idletime_bin_of(5 * MS)], >, 99.9);
    /* 15 in 60 ms: where there was none for 4 ms there is something now. */
    for (int64_t at_ns = 44 * MS; at_ns < 92 * MS; at_ns += 3 * MS) {
        g_assert_cmpfloat(weight_of(smooth, at_ns, at_ns + 3 * MS), >, 0.3);
    }
}

/*
 * Gaps of 2 min, too few to fill a distribution, near the end of all bins:
 * that no neighbour is left to look at is no reason to look for ever.
 */
static void test_smooth_end(void)
{
    static IdletimeHistogram h;
    float smooth[IDLETIME_BINS];

    idletime_histogram_init(&h);
    idletime_histogram_add(&h, never, 125 * SEC, 0);
    idletime_histogram_add(&h, never, 1, 0);
    smooth_all(&h, smooth);
    g_assert_cmpfloat(ABS(weight_of(smooth, 100 * SEC, 1000 * SEC) +
                          smooth[IDLETIME_BINS - 1] - 1), <, 1e-4);
    g_assert_cmpfloat(ABS(weight_of(smooth, 0, 18 * 1024) - 1), <, 1e-4);
}

/* ---- delay: E[(d - (G - t))+ | G > t] over the gaps themselves */

static void test_delay(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeDelays delays;
    static double gap[20000];
    const int n = sizeof(gap) / sizeof(gap[0]);

    idletime_histogram_init(&h);
    for (int i = 0; i < n; i++) {
        gap[i] = (i % 6 ? 0.3 : 40 + 60 * test_uniform(&random)) * MS;
        idletime_histogram_add(&h, never, gap[i], 0);
    }
    delay_build(&delays, &h);
    for (double t = 0.5; t < 90; t += 1.7) {
        for (double d = 0.1; d < 20; d *= 1.9) {
            double sum = 0, count = 0, got;

            for (int i = 0; i < n; i++) {
                if (gap[i] > t * MS) {
                    count++;
                    sum += MAX(d * MS - (gap[i] - t * MS), 0);
                }
            }
            got = idletime_delay_expected(&delays,
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
static void test_delay_spread(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeDelays delays;
    IdletimeService spread = { 5.0 * MS, 1.0 * MS, 0 };
    double three;

    idletime_histogram_init(&h);
    for (int i = 0; i < 5000; i++) {
        idletime_histogram_add(&h, never, 30 * MS * test_uniform(&random), 0);
    }
    delay_build(&delays, &h);
    /* Uniform arrivals: the square counts, d^2 + sd^2 = 26/25 of d^2. */
    three = idletime_delay_expected(&delays, spread, 2.0 * MS) /
            idletime_delay_expected(&delays,
                                   (IdletimeService) { 5.0 * MS, 0, 0 },
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
    windows_plan(&w, &h, d, &(IdletimeTerms) { 0.15 * MS, 5.0 * MS, 0 });
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
        windows_plan(&w, &h, d, &(IdletimeTerms) { delay, 20.0 * MS, 0 });
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

    *delay += age < gap_ns ? w->seek_ns : 0;
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
static void foresee(IdletimeService d, double budget, double seek_ns)
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
        windows_plan(&w, &h, d, &(IdletimeTerms) { budget, 5.0 * MS,
                                                   seek_ns });
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
static void test_windows_seek(void)
{
    static IdletimeHistogram h;
    static IdletimeWindows w;
    IdletimeService d = { 5.0 * MS, 0, 0 };

    foresee(d, 0.6 * MS, 3.0 * MS);
    idletime_histogram_init(&h);
    for (int i = 0; i < 1000; i++) {
        idletime_histogram_add(&h, never, 70 * MS, 0);
    }
    /* Half of a seek a gap: half of the gaps, and each of them whole. */
    windows_plan(&w, &h, d, &(IdletimeTerms) { 1.5 * MS, 30.0 * MS,
                                              3.0 * MS });
    g_assert_cmpfloat(w.starts, >, 0.45 * 13);
    g_assert_cmpfloat(w.starts, <, 0.55 * 14);
    g_assert_cmpint(idletime_windows_next(&w, 0, false), <, MS);
    g_assert_cmpint(idletime_windows_next(&w, 60 * MS, true), ==, 60 * MS);
    /* What is nearly over is worth no seek. */
    g_assert_cmpint(idletime_windows_next(&w, 60 * MS, false), >, 70 * MS);
    /* More than anything that it may buy: never. */
    windows_plan(&w, &h, d, &(IdletimeTerms) { 0.001 * MS, 30.0 * MS,
                                              300.0 * MS });
    g_assert_cmpfloat(w.starts, <, 0.1);
}

/* ---- plans are made in steps */

static void add_bursts(IdletimeHistogram *h)
{
    idletime_histogram_init(h);
    for (int i = 0; i < 1200; i++) {
        idletime_histogram_add(h, never, i % 6 ? 0.3 * MS :
                               (60 + i % 20) * MS, 0);
    }
}

static void assert_same(const IdletimeWindows *a, const IdletimeWindows *b)
{
    g_assert_cmpfloat(a->price, ==, b->price);
    g_assert_cmpfloat(a->delay_ns, ==, b->delay_ns);
    g_assert_cmpfloat(a->starts, ==, b->starts);
    g_assert_cmpmem(a->next, sizeof(a->next), b->next, sizeof(b->next));
    g_assert_cmpmem(a->first, sizeof(a->first), b->first, sizeof(b->first));
}

/* However long the steps are, the plan is the same; none is longer. */
static void test_plan_steps(void)
{
    static IdletimeHistogram h;
    static IdletimePlan plan;
    static IdletimeWindows w;
    const IdletimeTerms terms = { 0.15 * MS, 5.0 * MS, 3.0 * MS };
    const IdletimeService d = { 5.0 * MS, MS, 0 };

    add_bursts(&h);
    windows_plan(&w, &h, d, &terms);
    g_assert_cmpfloat(w.starts, >, 0.5);
    for (int work = 1; work < 100000; work *= 7) {
        int steps = 0, left;
        uint64_t before;

        memset(&plan, 0, sizeof(plan));
        idletime_plan_begin(&plan, &h, d, NULL, &terms);
        do {
            before = plan.work;
            left = idletime_plan_step(&plan, work);
            steps++;
            g_assert_cmpuint(plan.work - before, <,
                             work + IDLETIME_PLAN_BIN_MAX);
            g_assert_cmpint(plan.work - before, ==, work - left);
        } while (left <= 0);
        assert_same(&plan.windows, &w);
        /* With nothing to do it does nothing. */
        g_assert_cmpint(idletime_plan_step(&plan, work), ==, work);
        g_assert_cmpuint(plan.work, <, 64000);
        g_assert_cmpint(steps, >=, plan.work / (work + IDLETIME_PLAN_BIN_MAX));
    }
}

/* Requests of seconds reach beyond the last bin: nothing is read from there. */
static void test_plan_long_service(void)
{
    static IdletimeHistogram h;
    static IdletimePlan clean, dirty;
    const IdletimeTerms terms = { 100.0 * MS, 5000.0 * MS, 0 };

    idletime_histogram_init(&h);
    for (int i = 0; i < 100; i++) {
        idletime_histogram_add(&h, never, (20 + i) * SEC, 0);
    }
    for (int64_t ns = SEC; ns < 200 * SEC; ns = ns * 3 / 2) {
        IdletimeService d = { ns, 0, 0 };

        memset(&clean, 0, sizeof(clean));
        memset(&dirty, 0xff, sizeof(dirty));      /* no numbers */
        idletime_plan_begin(&clean, &h, d, NULL, &terms);
        idletime_plan_begin(&dirty, &h, d, NULL, &terms);
        g_assert_cmpint(idletime_plan_step(&clean, 1000000), >, 0);
        g_assert_cmpint(idletime_plan_step(&dirty, 1000000), >, 0);
        assert_same(&clean.windows, &dirty.windows);
        g_assert_true(isfinite(clean.windows.delay_ns));
    }
}

/* More windows than people want to see. */
static void test_windows_list(void)
{
    static IdletimeWindows w;
    struct {
        IdletimeWindow window[IDLETIME_WINDOWS_SHOWN];
        uint64_t guard;
    } list = { .guard = 12345 };

    /* Bins 10 to 19, 30 to 39, ... to 190, and from 200 on. */
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        w.next[i] = i >= 200 || i / 10 % 2 ? i : w.next[i + 1];
    }
    g_assert_cmpuint(idletime_windows_list(&w, list.window), ==, 8);
    g_assert_cmpuint(list.guard, ==, 12345);
    for (int i = 0; i < 8; i++) {
        g_assert_cmpint(list.window[i].begin_ns, ==,
                        idletime_bin_edge(10 + 20 * i));
        g_assert_cmpint(list.window[i].end_ns, ==,
                        idletime_bin_edge(20 + 20 * i));
    }
    /* The last one has no end; none at all are none. */
    for (int i = 0; i < IDLETIME_BINS; i++) {
        w.next[i] = MAX(i, 500);
    }
    g_assert_cmpuint(idletime_windows_list(&w, list.window), ==, 1);
    g_assert_cmpint(list.window[0].begin_ns, ==, idletime_bin_edge(500));
    g_assert_cmpint(list.window[0].end_ns, ==, INT64_MAX);
    for (int i = 0; i < IDLETIME_BINS; i++) {
        w.next[i] = IDLETIME_BINS;
    }
    g_assert_cmpuint(idletime_windows_list(&w, list.window), ==, 0);
    g_assert_cmpint(idletime_windows_next(&w, 0, true), ==, INT64_MAX);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/histogram/bins", test_bins);
    g_test_add_func("/histogram/decay", test_decay);
    g_test_add_func("/histogram/smooth", test_smooth);
    g_test_add_func("/histogram/smooth/end", test_smooth_end);
    g_test_add_func("/delay/definition", test_delay);
    g_test_add_func("/delay/spread", test_delay_spread);
    g_test_add_func("/windows/bursts", test_windows_bursts);
    g_test_add_func("/windows/budget", test_windows_budget);
    g_test_add_func("/windows/foresee", test_windows_foresee);
    g_test_add_func("/windows/turnaround", test_windows_turnaround);
    g_test_add_func("/windows/seek", test_windows_seek);
    g_test_add_func("/windows/list", test_windows_list);
    g_test_add_func("/plan/steps", test_plan_steps);
    g_test_add_func("/plan/long-service", test_plan_long_service);
    return g_test_run();
}
