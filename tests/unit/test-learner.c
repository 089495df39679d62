/*
 * What the learner is built of, each against its definition.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner.h"
#include <math.h>

static const IdletimeHalfLife never = { 1e12, 1e24 };

static double uniform(uint64_t *random)
{
    return (test_random(random) >> 11) / 9007199254740992.0;
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

/* ---- law: E[(d - (G - t))+ | G > t] over the gaps themselves */

static void test_law(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeLaw law;
    static double gap[20000];
    const int n = sizeof(gap) / sizeof(gap[0]);

    idletime_histogram_init(&h);
    for (int i = 0; i < n; i++) {
        gap[i] = (i % 6 ? 0.3 : 40 + 60 * uniform(&random)) * MS;
        idletime_histogram_add(&h, never, gap[i], 0);
    }
    idletime_law_build(&law, &h, IDLETIME_BINS);
    for (double t = 0.5; t < 90; t += 1.7) {
        for (double d = 0.1; d < 20; d *= 1.9) {
            double sum = 0, count = 0, got;

            for (int i = 0; i < n; i++) {
                if (gap[i] > t * MS) {
                    count++;
                    sum += MAX(d * MS - (gap[i] - t * MS), 0);
                }
            }
            got = idletime_law_collision(&law, (IdletimeService) { d * MS, 0 },
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
    static IdletimeLaw law;
    IdletimeService spread = { 5.0 * MS, 1.0 * MS };
    double three;

    idletime_histogram_init(&h);
    for (int i = 0; i < 5000; i++) {
        idletime_histogram_add(&h, never, 30 * MS * uniform(&random), 0);
    }
    idletime_law_build(&law, &h, IDLETIME_BINS);
    /* Uniform arrivals: the square counts, d^2 + sd^2 = 26/25 of d^2. */
    three = idletime_law_collision(&law, spread, 2.0 * MS) /
            idletime_law_collision(&law, (IdletimeService) { 5.0 * MS, 0 },
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
        open += idletime_windows_next(w, t * MS) == (int64_t)(t * MS);
    }
    return open / all;
}

static void test_windows_bursts(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeWindows w;
    IdletimeService d = { 5.0 * MS, 0 };

    idletime_histogram_init(&h);
    for (int i = 0; i < 1200; i++) {
        idletime_histogram_add(&h, never, i % 6 ? 0.3 * MS :
                               (69.5 + uniform(&random)) * MS, 0);
    }
    /* 3 % of 5 ms a gap */
    idletime_windows_build(&w, &h, d, NULL, 0.15 * MS, 1, 5.0 * MS);
    g_assert_cmpfloat(window_share(&w, 0, 0.29), ==, 0);
    g_assert_cmpfloat(window_share(&w, 0.4, 63), ==, 1);
    /* Stops before the return, and goes on when it did not come. */
    g_assert_cmpfloat(window_share(&w, 67.2, 69.9), ==, 0);
    g_assert_cmpfloat(window_share(&w, 90, 300), ==, 1);
    g_assert_cmpint(idletime_windows_next(&w, 0), >, 0.29 * MS);
    g_assert_cmpint(idletime_windows_next(&w, 0), <, 0.4 * MS);
}

/* Never spends more than it may, whatever the gaps are. */
static void test_windows_budget(void)
{
    uint64_t random = test_seed();

    for (int round = 0; round < 60; round++) {
        static IdletimeHistogram h;
        static IdletimeWindows w;
        IdletimeWindow list[IDLETIME_WINDOWS_SHOWN];
        IdletimeService d = { (0.05 + 10 * uniform(&random)) * MS, 0 };
        double delay = d.mean_ns * uniform(&random);
        unsigned n;

        idletime_histogram_init(&h);
        for (int i = 0; i < 300; i++) {
            idletime_histogram_add(&h, never, MS *
                                   (round % 3 ? 100 * uniform(&random) :
                                    test_range(&random, 1, 9) * 10), 0);
        }
        idletime_windows_build(&w, &h, d, NULL, delay, 1, 20.0 * MS);
        g_assert_cmpfloat(w.delay_ns, <=, delay * 1.0001);
        n = idletime_windows_list(&w, list);
        for (unsigned i = 0; i < n; i++) {
            g_assert_cmpint(list[i].begin_ns, <, list[i].end_ns);
            g_assert_cmpint(list[i].begin_ns, >=,
                            i ? list[i - 1].end_ns : 0);
        }
    }
}

/* What is foreseen happens: delay and starts, gap by gap. */
static void test_windows_foresee(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeWindows w;
    IdletimeService d = { 5.0 * MS, 0 };
    double gap[6000], delay = 0, starts = 0;
    const int n = sizeof(gap) / sizeof(gap[0]);

    idletime_histogram_init(&h);
    for (int i = 0; i < n; i++) {
        gap[i] = MS * (i % 6 ? 0.2 - 0.3 * log(1 - uniform(&random)) :
                       50 + 40 * uniform(&random));
        idletime_histogram_add(&h, never, gap[i], 0);
    }
    idletime_windows_build(&w, &h, d, NULL, 0.1 * MS, 1, 5.0 * MS);
    for (int i = 0; i < n; i++) {
        int64_t age = idletime_windows_next(&w, 0);

        while (age < gap[i]) {
            starts++;
            age += d.mean_ns;
            delay += MAX(age - gap[i], 0);
            age = idletime_windows_next(&w, age);
        }
    }
    g_assert_cmpfloat(ABS(delay / n / w.delay_ns - 1), <, 0.3);
    g_assert_cmpfloat(ABS(starts / n / w.starts - 1), <, 0.06);
    /* Half of the bursts' gaps are longer than 0.4 ms, one in 200 than 1.8. */
    g_assert_cmpint(idletime_windows_next(&w, 0), >, 1.0 * MS);
    g_assert_cmpint(idletime_windows_next(&w, 0), <, 3.0 * MS);
}

/* ---- budget */

static void look(IdletimeBudget *b, double request, double cost, int64_t now)
{
    IdletimeTotals totals = b->last;

    totals.fg_done += 1;
    totals.fg_request_ns += request;
    totals.bg_cost_ns += cost;
    totals.quiet = true;
    idletime_budget_look(b, 0.05, 5.0 * MS, &totals, 0, now);
}

static void test_bucket(void)
{
    IdletimeBudget b;
    int64_t now = 0;

    idletime_budget_init(&b);
    look(&b, 0, 0, now);
    look(&b, 0, 0, ++now);
    /* 8 collisions of 5 ms is full, one of them to begin with. */
    g_assert_cmpfloat(ABS(b.cap_ns - 40 * MS), <, 1);
    g_assert_cmpfloat(ABS(b.credit_ns - 5 * MS), <, 1);
    /* 100 ms of foreground earn 5 ms. */
    look(&b, 100.0 * MS, 0, now += 100 * MS);
    g_assert_cmpfloat(ABS(b.credit_ns - 10 * MS), <, 1);
    /* An hour earns no more than the cap. */
    look(&b, 3600.0 * SEC, 0, now += 3600 * SEC);
    g_assert_cmpfloat(b.credit_ns, ==, b.cap_ns);
    /* Cost is spent, and does not earn. */
    look(&b, 10.0 * MS, 10.0 * MS, now += 10 * MS);
    g_assert_cmpfloat(ABS(b.credit_ns - 30 * MS), <, 1);
    g_assert_cmpfloat(idletime_budget_slowdown(&b), <, 1e-4);
    /* A participant that leaves takes its sum: neither earned nor spent. */
    b.last.fg_request_ns += 1000 * SEC;
    b.last.bg_cost_ns += 1000 * SEC;
    look(&b, -500.0 * SEC, -500.0 * SEC, now += MS);
    g_assert_cmpfloat(ABS(b.credit_ns - 30 * MS), <, 1);
}

/* Random spending that obeys the credit: the mean stays within the budget. */
static void test_budget_invariant(void)
{
    uint64_t random = test_seed();

    for (int round = 0; round < 50; round++) {
        double request = 0, cost = 0;
        IdletimeBudget b;
        int64_t now = 0;

        idletime_budget_init(&b);
        look(&b, 0, 0, now);
        look(&b, 0, 0, ++now);
        for (int i = 0; i < 5000; i++) {
            double wait = uniform(&random) * 5 * MS;
            bool collide = b.credit_ns > 0 && test_random(&random) % 2;

            request += 5.0 * MS;
            cost += collide ? wait : 0;
            look(&b, 5.0 * MS + (collide ? wait : 0), collide ? wait : 0,
                 now += 20 * MS);
        }
        g_assert_cmpfloat(cost, <=, 0.05 * request + b.cap_ns / 8 + 5.0 * MS);
    }
}

static void test_brake(void)
{
    IdletimeBudget b;
    int64_t now = 0;

    idletime_budget_init(&b);
    look(&b, 0, 0, now);
    look(&b, 0, 0, ++now);
    look(&b, 100.0 * MS, 0, now += 60 * MS);
    g_assert_cmpuint(b.brake, ==, 0);
    /* 30 ms of 100 ms where 5 are allowed: halved at the next look. */
    look(&b, 100.0 * MS, 30.0 * MS, now += 60 * MS);
    g_assert_cmpuint(b.brake, ==, 1);
    look(&b, 100.0 * MS, 30.0 * MS, now += 60 * MS);
    g_assert_cmpuint(b.brake, ==, 2);
    look(&b, 100.0 * MS, 0, now += 60 * MS);
    look(&b, 100.0 * MS, 0, now += 60 * MS);
    g_assert_cmpuint(b.brake, ==, 0);
}

/*
 * Requests of 5 ms; each collision delays three of them by its delay: the
 * factor is 3, learned from sums alone.
 */
static void test_factor(void)
{
    uint64_t random = test_seed();
    IdletimeBudget b;
    int64_t now = 0;

    idletime_budget_init(&b);
    for (int i = 0; i < 4000; i++) {
        double wait = i % 4 ? 0 : uniform(&random) * 5 * MS;
        IdletimeTotals t = b.last;

        if (wait > 0) {
            t.bg_started++;
            idletime_budget_collision(&b, wait);
        }
        t.fg_done += 5;
        t.fg_request_ns += 5 * (5 * MS) + 3 * wait;
        t.quiet = true;
        idletime_budget_look(&b, 0.05, 5.0 * MS, &t, 0, now += 50 * MS);
    }
    g_assert_cmpfloat(idletime_budget_factor(&b), >, 2.7);
    g_assert_cmpfloat(idletime_budget_factor(&b), <, 3.1);
}

/* ---- channels */

static void serve(IdletimeChannels *c, uint64_t *random, unsigned servers,
                  uint32_t n)
{
    double mean = n <= servers ? 1 : 1 + (double)(n - servers) / servers;

    idletime_channels_note(c, n, 0.1 * MS * (mean + 0.2 * uniform(random)));
}

static void test_channels(void)
{
    uint64_t random = test_seed();

    for (unsigned servers = 1; servers <= 32; servers *= 2) {
        IdletimeChannels c;

        idletime_channels_init(&c);
        for (int i = 0; i < 200 * 40; i++) {
            serve(&c, &random, servers, 1 + i % 40);
        }
        /* One stays free; what is flat up to 1 or 2 says nothing. */
        g_assert_cmpuint(idletime_channels_limit(&c), ==, MAX(servers, 2) - 1);
    }
}

/* Where it is always busy and never faster, nothing is learned. */
static void test_channels_one_level(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;

    idletime_channels_init(&c);
    for (int i = 0; i < 1000; i++) {
        serve(&c, &random, 1, 9);
    }
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 1);
    /* The foreground gets slower: the ceiling falls. */
    for (int i = 0; i < 400; i++) {
        serve(&c, &random, 16, 1 + i % 16);
    }
}

static void test_channels_ceiling(void)
{
    uint64_t random = test_seed();
    IdletimeChannels c;
    uint32_t before;

    idletime_channels_init(&c);
    for (int i = 0; i < 20000; i++) {
        serve(&c, &random, 16, 1 + i % 20);
    }
    before = idletime_channels_limit(&c);
    g_assert_cmpuint(before, ==, 15);
    idletime_channels_fg(&c, 5000, 5000 * 0.10 * MS, 0.05);
    idletime_channels_fg(&c, 5000, 5000 * 0.10 * MS, 0.05);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 15);
    idletime_channels_fg(&c, 5000, 5000 * 0.12 * MS, 0.05);
    g_assert_cmpuint(idletime_channels_limit(&c), ==, 14);
}

/* ---- sizes: 1 ms and 12 ms for 128 KiB */

static void served_size(IdletimeSizes *s, uint64_t bytes)
{
    idletime_sizes_note(s, bytes, MS + 12.0 * MS * bytes / 131072);
}

/* Ask for pieces as they are chosen, until the choice settles. */
static uint64_t settled_piece(IdletimeSizes *s, const IdletimeWindows *w,
                              double budget_ns, double request_ns)
{
    int64_t now_ns = SEC;

    memset(s, 0, sizeof(*s));
    for (int i = 0; i < 40; i++, now_ns += 2 * SEC) {
        for (int k = 0; k < 4; k++) {
            served_size(s, idletime_sizes_piece(s, 131072));
        }
        idletime_sizes_choose(s, w, 131072, budget_ns, request_ns, now_ns);
        g_assert_cmpuint(idletime_sizes_piece(s, 131072), <=, 131072);
        g_assert_cmpuint(idletime_sizes_piece(s, 131072), >=, 4096);
    }
    return idletime_sizes_piece(s, 131072);
}

static void test_sizes(void)
{
    uint64_t random = test_seed();
    static IdletimeHistogram h;
    static IdletimeWindows w;
    IdletimeService d = { 13.0 * MS, 0 };
    IdletimeSizes s;

    /*
     * Memoryless gaps of 3.3 ms, tight budget: the cost of a piece grows with
     * the square of its time, bytes with the time less 1 ms.  Best is twice
     * the 1 ms: 12 KiB; of the sizes that there are, 8 or 16.
     */
    idletime_histogram_init(&h);
    for (int i = 0; i < 4000; i++) {
        idletime_histogram_add(&h, never, -log(1 - uniform(&random)) * 3.3 *
                               MS, 0);
    }
    idletime_windows_build(&w, &h, d, NULL, 0.03 * MS, 1, 1.2 * MS);
    g_assert_cmpuint(settled_piece(&s, &w, 0.03 * MS, 1.2 * MS), >=, 8192);
    g_assert_cmpuint(settled_piece(&s, &w, 0.03 * MS, 1.2 * MS), <=, 16384);
    /* Gaps of a second, exactly: nothing is gained by small pieces. */
    idletime_histogram_init(&h);
    for (int i = 0; i < 4000; i++) {
        idletime_histogram_add(&h, never, 1000 * MS, 0);
    }
    idletime_windows_build(&w, &h, d, NULL, 0.03 * MS, 1, 1.2 * MS);
    g_assert_cmpuint(settled_piece(&s, &w, 0.03 * MS, 1.2 * MS), ==, 131072);
    /* The operator's bound holds. */
    g_assert_cmpuint(idletime_sizes_piece(&s, 20480), ==, 20480);
}

/* ---- the whole: a change is noticed */

typedef struct World {
    IdletimeLearner l;
    IdletimeFgBoard *fg;
    IdletimeFgWriter w;
    int64_t now;
} World;

static void burst(World *w, int64_t gap_ns)
{
    static const IdletimeGoal goal = { 0.03, 20 * MS, 131072 };
    IdletimeTotals totals = { .quiet = true };

    w->now += gap_ns;
    idletime_fg_begin(&w->w, w->now, 4096);
    w->now += 5 * MS;
    idletime_fg_end(&w->w, w->now);
    totals.fg_done = w->w.started;
    totals.fg_request_ns = w->w.request_ns;
    idletime_learner_look(&w->l, &goal, w->fg, 1, &totals, w->now);
}

static void world_begin(World *w)
{
    w->fg = aligned_alloc(IDLETIME_PAGE_BYTES, sizeof(*w->fg));
    memset(w->fg, 0, sizeof(*w->fg));
    w->w = (IdletimeFgWriter) { .line = &w->fg->line[0],
                                .page = &w->fg->page[0] };
    w->now = 0;
    idletime_learner_init(&w->l, 0);
    for (int i = 0; i < 4; i++) {
        idletime_learner_done(&w->l, &(IdletimeServed) {
            .bytes = 4096, .fg_idle = true, .since_ns = w->now,
        }, w->now + 5 * MS);
    }
}

static void test_change(void)
{
    static World w;
    int gaps = 0;

    world_begin(&w);
    for (int i = 0; i < 2000; i++) {
        burst(&w, i % 6 ? MS / 3 : 70 * MS);
    }
    g_assert_cmpuint(w.l.changes, <=, 2);
    w.l.changes = 0;
    while (!w.l.changes && gaps < 400) {
        burst(&w, ++gaps % 6 ? MS / 3 : 25 * MS);
    }
    g_test_message("noticed after %d requests", gaps);
    g_assert_cmpint(gaps, <, 200);
    free(w.fg);
}

/*
 * Bursts of two to twelve requests.  They begin every 100 ms, or 60 ms after
 * the end of the last one: the clock that is right is found.
 */
static void test_clocks(void)
{
    uint64_t random = test_seed();
    static World w;
    const IdletimeGoal goal = { 0.03, 20 * MS, 131072 };

    for (int fixed = 0; fixed < 2; fixed++) {
        IdletimeQuestion q = { .bytes = 4096 };
        int64_t onset = 0;

        world_begin(&w);
        for (int i = 0; i < 300; i++) {
            burst(&w, fixed ? MAX(onset + 100 * MS - w.now, 1) : 60 * MS);
            onset = w.now - 5 * MS;
            for (int k = test_range(&random, 1, 11); k; k--) {
                burst(&w, MS / 3);
            }
        }
        g_assert_cmpint(idletime_cycle_better(&w.l.cycle), ==, fixed);
        q.fg_last_ns = w.now;
        q.now_ns = fixed ? onset + 90 * MS : w.now + 50 * MS;
        g_assert_cmpint(idletime_learner_permit(&w.l, &goal,
                                                &q).closed_until_ns, <=,
                        q.now_ns);
        q.now_ns += 8 * MS;
        g_assert_cmpint(idletime_learner_permit(&w.l, &goal,
                                                &q).closed_until_ns, >,
                        q.now_ns);
        free(w.fg);
    }
}

static void test_safe_start(void)
{
    static World w;
    IdletimeGoal goal = { 0.03, 20 * MS, 131072 };
    IdletimeQuestion q = { .bytes = 4096 };

    world_begin(&w);
    burst(&w, 50 * MS);
    q.fg_last_ns = w.now;
    q.now_ns = w.now + MS;
    g_assert_false(idletime_learner_permit(&w.l, &goal, &q).learned);
    g_assert_cmpint(idletime_learner_permit(&w.l, &goal, &q).interval_ns, ==,
                    20 * MS);
    for (int i = 0; i < 100; i++) {
        burst(&w, i % 6 ? MS / 3 : 70 * MS);
    }
    q.fg_last_ns = w.now;
    q.now_ns = w.now + MS;
    g_assert_true(idletime_learner_permit(&w.l, &goal, &q).learned);
    g_assert_cmpint(idletime_learner_permit(&w.l, &goal, &q).interval_ns, <,
                    MS);
    free(w.fg);
}

/* Any history, any question: the answer is one of those that exist. */
static void test_permit_sane(void)
{
    uint64_t random = test_seed();
    static World w;
    IdletimeGoal goal = { 0.03, 20 * MS, 131072 };

    world_begin(&w);
    for (int i = 0; i < 3000; i++) {
        IdletimeQuestion q = {
            .bytes = test_random(&random) >> test_random(&random) % 64,
            .fg_requests = test_random(&random) % 3,
            .bg_in_service = test_random(&random) % 3,
        };
        IdletimePermit p;

        burst(&w, 1 + (test_random(&random) >> 40 >> test_random(&random) % 24));
        q.now_ns = w.now + (test_random(&random) >> 35);
        q.fg_last_ns = test_random(&random) % 5 ? w.now : INT64_MIN;
        p = idletime_learner_permit(&w.l, &goal, &q);
        g_assert_cmpint(p.interval_ns, >=, 0);
        g_assert_cmpint(p.interval_ns, <=, goal.interval_ns);
        g_assert_cmpuint(p.max_inflight, >=, 1);
        /* Never a wait for ever. */
        g_assert_cmpint(p.closed_until_ns, <=, q.now_ns + SEC);
    }
    free(w.fg);
}

static void test_spare(void)
{
    IdletimeSpare s;
    int64_t now = SEC, idle = 0;

    idletime_spare_init(&s);
    idletime_spare_look(&s, idle, now);
    g_assert_cmpfloat(idletime_spare_second(&s), <, 0);
    for (int i = 0; i < 6000; i++) {
        idletime_spare_look(&s, idle += 70 * MS, now += 100 * MS);
    }
    g_assert_cmpfloat(ABS(idletime_spare_second(&s) - 0.7), <, 0.01);
    g_assert_cmpfloat(ABS(idletime_spare_minute(&s) - 0.7), <, 0.01);
    g_assert_cmpfloat(ABS(idletime_spare_hour(&s) - 0.7), <, 0.01);
    for (int i = 0; i < 1300; i++) {
        idletime_spare_look(&s, idle += 20 * MS, now += 100 * MS);
    }
    g_assert_cmpfloat(ABS(idletime_spare_second(&s) - 0.2), <, 0.01);
    g_assert_cmpfloat(ABS(idletime_spare_minute(&s) - 0.2), <, 0.01);
    g_assert_cmpfloat(idletime_spare_hour(&s), >, 0.5);
    g_assert_cmpfloat(idletime_spare_forecast(&s), >=, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/windows/foresee", test_windows_foresee);
    g_test_add_func("/learner/clocks", test_clocks);
    g_test_add_func("/histogram/bins", test_bins);
    g_test_add_func("/histogram/decay", test_decay);
    g_test_add_func("/law/definition", test_law);
    g_test_add_func("/law/spread", test_law_spread);
    g_test_add_func("/windows/bursts", test_windows_bursts);
    g_test_add_func("/windows/budget", test_windows_budget);
    g_test_add_func("/budget/bucket", test_bucket);
    g_test_add_func("/budget/invariant", test_budget_invariant);
    g_test_add_func("/budget/brake", test_brake);
    g_test_add_func("/budget/factor", test_factor);
    g_test_add_func("/channels/servers", test_channels);
    g_test_add_func("/channels/one-level", test_channels_one_level);
    g_test_add_func("/channels/ceiling", test_channels_ceiling);
    g_test_add_func("/sizes", test_sizes);
    g_test_add_func("/learner/change", test_change);
    g_test_add_func("/learner/safe-start", test_safe_start);
    g_test_add_func("/learner/permit-sane", test_permit_sane);
    g_test_add_func("/spare", test_spare);
    return g_test_run();
}
