/*
 * The distribution of gaps against its definition: what it forgets, how it is
 * spread, what is near; and the table of delays over it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/delay.h"
#include <math.h>

#define LAST (IDLETIME_BINS - 1)

static const IdletimeHalfLife never = { 1e12, 1e24 };

/* The place of a bin's begin. */
static int64_t at(unsigned bin)
{
    return idletime_bin_edge(bin);
}

static void test_edges(void)
{
    /* 1.024 us wide up to 65.536 us, then 64 bins an octave. */
    g_assert_cmpint(at(1), ==, 1024);
    g_assert_cmpint(at(63), ==, 63 * 1024);
    g_assert_cmpint(at(64), ==, 65536);
    g_assert_cmpint(at(65), ==, 65536 + 1024);
    g_assert_cmpint(at(128), ==, 131072);
    g_assert_cmpint(at(129), ==, 131072 + 2048);
    g_assert_cmpint(at(IDLETIME_BINS), ==, 1LL << 37);
    g_assert_cmpuint(idletime_bin_of(1023), ==, 0);
    g_assert_cmpuint(idletime_bin_of(65535), ==, 63);
    g_assert_cmpuint(idletime_bin_of(1LL << 37), ==, LAST);
    g_assert_cmpuint(idletime_bin_of((1LL << 37) - 1), ==, LAST);
}

/* ---- forgetting */

static void test_forgets(void)
{
    static IdletimeHistogram h;

    idletime_histogram_init(&h);
    g_assert_cmpfloat(idletime_histogram_count(&h), ==, 0);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1e9 }, MS, 0);
    g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 1), <, 1e-6);
    /* A tenth of a half-life in time: 0.1 ln 2 less, and the new one is 1. */
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1e9 }, MS, 1e8);
    g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 1 -
                          1 / (1 + 0.069314718)), <, 1e-6);
    /* A tenth in gaps. */
    idletime_histogram_init(&h);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 10, 1e24 }, MS, 0);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 10, 1e24 }, MS, 0);
    g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 1 -
                          1 / (1 + 0.069314718)), <, 1e-6);
    /* At the same time: nothing is forgotten, however short the life is. */
    idletime_histogram_init(&h);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1 }, MS, 0);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1 }, MS, 0);
    g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 2), <, 1e-6);
    /* A silence of an hour is one half-life; time that runs back is none. */
    idletime_histogram_init(&h);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1e9 }, MS, 0);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1e9 }, MS,
                           3600 * SEC);
    g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 1 - 1 / 1.69314718),
                      <, 1e-6);
    idletime_histogram_init(&h);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1e9 }, MS, 0);
    idletime_histogram_add(&h, (IdletimeHalfLife) { 1e12, 1e9 }, MS, -SEC);
    g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 2), <, 1e-6);
}

/* The unit grows, and is brought back before a float cannot hold a bin. */
static void test_rescale(void)
{
    static IdletimeHistogram h;
    const IdletimeHalfLife life = { 2, 1e24 };
    double largest = 0;

    idletime_histogram_init(&h);
    for (int i = 0; i < 2000; i++) {
        double before = h.unit;

        idletime_histogram_add(&h, life, (i % 50) * MS, 0);
        largest = MAX(largest, h.unit);
        g_assert_true(h.unit > before || h.unit == 1);
        /* 1 + 1/1.35 + ... = 1.35 / 0.35 */
        if (i > 100) {
            g_assert_cmpfloat(ABS(idletime_histogram_count(&h) - 3.8854), <,
                              0.001);
        }
        g_assert_cmpfloat(ABS(h.bin[idletime_bin_of((i % 50) * MS)] /
                              h.unit - 1), <, 1e-3);
    }
    g_assert_cmpfloat(largest, >, 5e11);
    g_assert_cmpfloat(largest, <=, 1e12);
}

/* ---- smoothing */

/* Wider by a neighbour on each side until 8 are seen, 16 at most. */
static int smooth_reference(const IdletimeHistogram *h, int bin, double *smooth)
{
    double seen = h->bin[bin] / h->unit;
    int low = bin, high = bin, steps = 0;

    if (h->bin[bin] <= 0) {
        return 1;
    }
    while (seen < 8 && steps++ < 16) {
        low = MAX(low - 1, 0);
        high = MIN(high + 1, LAST);
        seen += h->bin[low] / h->unit + h->bin[high] / h->unit;
    }
    for (int i = low; i <= high; i++) {
        smooth[i] += h->bin[bin] / h->unit / (high - low + 1);
    }
    return high - low + 1;
}

static void assert_smooth(const IdletimeHistogram *h)
{
    float smooth[IDLETIME_BINS] = { 0 };
    double reference[IDLETIME_BINS] = { 0 };

    for (int i = 0; i < IDLETIME_BINS; i++) {
        g_assert_cmpint(idletime_histogram_smooth(h, i, smooth), ==,
                        smooth_reference(h, i, reference));
    }
    for (int i = 0; i < IDLETIME_BINS; i++) {
        g_assert_cmpfloat(ABS(smooth[i] - reference[i]), <,
                          1e-4 * (1 + reference[i]));
    }
}

static void test_smooth(void)
{
    static IdletimeHistogram h;
    uint64_t random = test_seed();
    float smooth[IDLETIME_BINS] = { 0 };

    for (int round = 0; round < 20; round++) {
        idletime_histogram_init(&h);
        for (int i = 0; i < 20 << round % 8; i++) {
            unsigned bin = round % 2 ? test_range(&random, 0, LAST) :
                           test_range(&random, 500, 560);

            idletime_histogram_add(&h, (IdletimeHalfLife) { 50, 1e24 },
                                   at(bin), 0);
        }
        assert_smooth(&h);
    }
    /* Eight are a distribution, seven are not. */
    idletime_histogram_init(&h);
    h.bin[300] = 8;
    h.bin[400] = 7;
    h.bin[500] = 7;
    h.bin[501] = 0.5;
    h.bin[499] = 0.5;
    g_assert_cmpint(idletime_histogram_smooth(&h, 300, smooth), ==, 1);
    g_assert_cmpint(idletime_histogram_smooth(&h, 400, smooth), ==, 33);
    g_assert_cmpint(idletime_histogram_smooth(&h, 500, smooth), ==, 3);
    g_assert_cmpint(idletime_histogram_smooth(&h, 600, smooth), ==, 1);
    g_assert_cmpfloat(smooth[300], ==, 8);
    g_assert_cmpfloat(ABS(smooth[384] - 7 / 33.0), <, 1e-6);
    g_assert_cmpfloat(smooth[383], ==, 0);
    g_assert_cmpfloat(ABS(smooth[416] - 7 / 33.0), <, 1e-6);
    g_assert_cmpfloat(smooth[417], ==, 0);
    /* At both ends there is nothing beyond. */
    h.bin[0] = h.bin[LAST] = 1;
    g_assert_cmpint(idletime_histogram_smooth(&h, 0, smooth), ==, 8);
    g_assert_cmpint(idletime_histogram_smooth(&h, LAST, smooth), ==, 8);
    assert_smooth(&h);
}

/* ---- what is near */

static void assert_near(const IdletimeHistogram *h, int64_t ns, double share)
{
    g_assert_cmpfloat(ABS(idletime_histogram_near(h, ns) - share), <, 1e-6);
}

static void test_near(void)
{
    static IdletimeHistogram h;

    idletime_histogram_init(&h);
    /* Nothing seen: nothing is impossible. */
    assert_near(&h, MS, 0.005);
    for (int i = 0; i < 9; i++) {
        idletime_histogram_add(&h, never, at(500) + 1, 0);
    }
    /* Four bins on each side. */
    assert_near(&h, at(500), 9.005 / 10);
    assert_near(&h, at(504), 9.005 / 10);
    assert_near(&h, at(496), 9.005 / 10);
    assert_near(&h, at(505), 0.005 / 10);
    assert_near(&h, at(495), 0.005 / 10);
    /* The first bin and the last one count, and nothing beyond. */
    idletime_histogram_init(&h);
    idletime_histogram_add(&h, never, 0, 0);
    idletime_histogram_add(&h, never, at(LAST), 0);
    idletime_histogram_add(&h, never, at(LAST), 0);
    assert_near(&h, 0, 1.005 / 4);
    assert_near(&h, at(2), 1.005 / 4);
    assert_near(&h, at(LAST), 2.005 / 4);
    assert_near(&h, at(LAST - 4), 2.005 / 4);
    assert_near(&h, at(LAST - 5), 0.005 / 4);
}

/* ---- delays: sums of all bins, exactly */

/* Gaps in a bin lie alike in it; half of one is anywhere from bin 64 on. */
static void test_sums(void)
{
    static IdletimeDelays d;
    double below = 0, area = 0;

    d.below[0] = d.area[0] = d.total = 1e9;
    idletime_delay_begin(&d);
    g_assert_cmpfloat(d.total, ==, 0);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        double width = at(i + 1) - at(i), gaps = i % 3;

        idletime_delay_add(&d, i, gaps);
        gaps += i >= 64 ? 0.5 / (IDLETIME_BINS - 64) : 0;
        g_assert_cmpfloat(ABS(d.below[i] - below), <, 1e-9 * (1 + below));
        g_assert_cmpfloat(ABS(d.area[i] - area), <, 1e-9 * (1 + area));
        area += width * (below + (below + gaps)) / 2;
        below += gaps;
        g_assert_cmpfloat(ABS(d.total - below), <, 1e-9 * (1 + below));
    }
}

static IdletimeDelays flat(unsigned bin, double gaps)
{
    IdletimeDelays d;

    idletime_delay_begin(&d);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        idletime_delay_add(&d, i, i == bin ? gaps : 0);
    }
    return d;
}

/* The integral of the share of gaps that are over, in small steps. */
static double integral(const IdletimeDelays *d, double t, double length,
                       double end)
{
    const int steps = 4000;
    double sum = 0, n;
    unsigned b = idletime_bin_of(t);

    n = d->below[b] + (t - at(b)) / (at(b + 1) - at(b)) *
        (d->below[b + 1] - d->below[b]);
    for (int i = 0; i < steps; i++) {
        double x = MIN(t + length * (i + 0.5) / steps, end - 1);

        b = idletime_bin_of(x);
        sum += d->below[b] + (x - at(b)) / (at(b + 1) - at(b)) *
               (d->below[b + 1] - d->below[b]) - n;
    }
    return sum * length / steps / (d->total - n);
}

static void test_expected(void)
{
    static IdletimeDelays d;
    uint64_t random = test_seed();

    d = flat(idletime_bin_of(30 * MS), 1000);
    for (int i = 0; i < 300; i++) {
        double t = 40 * MS * test_uniform(&random);
        double length = 20 * MS * test_uniform(&random);
        double end = at(idletime_bin_of(35 * MS));
        IdletimeService s = { length, 0, 0 };
        double want = integral(&d, t, length, 1e15);

        g_assert_cmpfloat(ABS(idletime_delay_expected(&d, s, t) - want), <,
                          2e-3 * length);
        /* Known to be longer: what is below the end counts, and no more. */
        if (t + length < 34 * MS) {
            g_assert_cmpfloat(idletime_delay_within(&d, s, t,
                                                    idletime_bin_of(end)), ==,
                              idletime_delay_expected(&d, s, t));
        } else if (t < 29 * MS) {
            g_assert_cmpfloat(ABS(idletime_delay_within(&d, s, t,
                                  idletime_bin_of(end)) -
                                  integral(&d, t, length, end)), <,
                              2e-3 * length);
        }
    }
    /* Never more than all of it, never less than nothing. */
    d = flat(0, 1000);
    g_assert_cmpfloat(idletime_delay_expected(&d, (IdletimeService) {
                      5 * MS, 0, 0 }, -5.0 * MS), <=, 5 * MS);
    g_assert_cmpfloat(idletime_delay_expected(&d, (IdletimeService) {
                      5 * MS, 0, 0 }, 200.0 * SEC), >=, 0);
    g_assert_cmpfloat(idletime_delay_expected(&d, (IdletimeService) {
                      200.0 * SEC, 0, 0 }, 0), <=, 200.0 * SEC);
}

/* Lengths d - 1.73 sd, d, d + 1.73 sd count once, four times, once. */
static void test_spread(void)
{
    static const double sd[] = { 0.2, 0.5, 2, 2.5, 3, 10 };
    static IdletimeDelays d;
    const double mean = 5.0 * MS;

    d = flat(idletime_bin_of(30 * MS), 1000);
    for (unsigned i = 0; i < G_N_ELEMENTS(sd); i++) {
        /* Half of the mean at most; less than a sixteenth is none. */
        double off = sqrt(3) * MIN(sd[i], 2.5) * MS;
        double want = 0, t = 24 * MS;

        if (off < mean / 16) {
            off = 0;
        }
        for (int k = -1; k <= 1; k++) {
            want += (k ? 1 : 4) * integral(&d, t, mean + k * off, 1e15) / 6;
        }
        g_assert_cmpfloat(ABS(idletime_delay_expected(&d, (IdletimeService) {
                          mean, sd[i] * MS, 0 }, t) - want), <, 2e-3 * mean);
    }
    /* sd of a sixteenth of the mean / 1.73 is one, less is none. */
    g_assert_cmpfloat(idletime_delay_expected(&d, (IdletimeService) {
                      mean, mean / 16 / 1.74, 0 }, 26.0 * MS), ==,
                      idletime_delay_expected(&d, (IdletimeService) {
                      mean, 0, 0 }, 26.0 * MS));
    g_assert_cmpfloat(idletime_delay_expected(&d, (IdletimeService) {
                      mean, mean / 16 / 1.72, 0 }, 25.0 * MS), >,
                      idletime_delay_expected(&d, (IdletimeService) {
                      mean, 0, 0 }, 25.0 * MS));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/histogram/edges", test_edges);
    g_test_add_func("/histogram/forgets", test_forgets);
    g_test_add_func("/histogram/rescale", test_rescale);
    g_test_add_func("/histogram/smooth/reference", test_smooth);
    g_test_add_func("/histogram/near", test_near);
    g_test_add_func("/delay/sums", test_sums);
    g_test_add_func("/delay/integral", test_expected);
    g_test_add_func("/delay/three-lengths", test_spread);
    return g_test_run();
}
