/*
 * Plans against a reference: the recursion at the head of plan.c, written
 * once more without steps, for one price after the other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/learner.h"
#include <math.h>

#define PRICES 3585

static const IdletimeHalfLife never = { 1e12, 1e24 };

/* ---- the reference */

typedef struct Model {
    IdletimeWindows w;
    IdletimeTerms terms;
    const IdletimeBurst *burst;
    unsigned from, begin;
    double price, delay_ns[IDLETIME_BINS];      /* of a start in its middle */
    IdletimeYield yield[IDLETIME_BINS + 1], total;
    bool open[IDLETIME_BINS], first[IDLETIME_BINS];
} Model;

static double width_of(unsigned bin)
{
    return idletime_bin_edge(bin + 1) - idletime_bin_edge(bin);
}

/* Of the gaps: how they are spread, and how many reach the middle of a bin. */
static void model_gaps(Model *m, const IdletimeHistogram *h)
{
    float smooth[IDLETIME_BINS] = { 0 };
    double left = h->total;

    idletime_delay_begin(&m->w.delays);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        idletime_histogram_smooth(h, i, smooth);
    }
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        double part = left - h->bin[i] / 2;

        m->w.reached[i] = (part > 0 ? part : 0) / h->total;
        left -= h->bin[i];
        idletime_delay_add(&m->w.delays, i, smooth[i]);
    }
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        const IdletimeDelays *d = &m->w.delays;

        /* What was never seen weighs a millionth. */
        m->w.reached[i] += 1e-6 * (d->total - d->below[i]) / d->total;
        m->delay_ns[i] = idletime_delay_expected(d, m->w.service,
                                                 idletime_bin_edge(i) +
                                                 width_of(i) / 2);
    }
}

/* What may be had from the place that is @part of bin @i after its begin. */
static IdletimeYield yield_at(const Model *m, unsigned i, double part)
{
    const IdletimeYield *a = &m->yield[i], *b = a + 1;

    return (IdletimeYield) {
        a->value_ns + part * (b->value_ns - a->value_ns),
        a->delay_ns + part * (b->delay_ns - a->delay_ns),
        a->starts + part * (b->starts - a->starts),
    };
}

static IdletimeYield model_start(const Model *m, unsigned i)
{
    double d = m->w.service.mean_ns;
    double round = d + m->w.service.turnaround_ns;
    double each = m->delay_ns[i];
    double end = idletime_bin_edge(i) + round, n = 1;
    unsigned after = idletime_bin_of(end);
    IdletimeYield y;

    if (width_of(i) > round) {
        n = width_of(i) / round;
        y = m->yield[i + 1];
    } else if (after == i) {
        y = m->yield[i + 1];
    } else {
        double part = (end - idletime_bin_edge(after)) / width_of(after);

        y = yield_at(m, after, part < 1 ? part : 1);
    }
    n *= m->w.reached[i];
    y.starts += n;
    y.delay_ns += n * each;
    y.value_ns += n * d - (1 + m->price) * n * each;
    return y;
}

/* The best begin of the idle time: once a cycle, its bursts' gaps cost. */
static void model_burst(Model *m)
{
    double least = INFINITY, once = 0;

    for (unsigned i = 0; m->burst && i < m->burst->end; i++) {
        const IdletimeWindows *w = m->burst->by_age;
        double at = idletime_bin_edge(i);
        double cost = m->burst->gaps * w->reached[i] *
                      idletime_delay_within(&w->delays, w->service, at,
                                            m->burst->end);

        if (at + (1 + m->price) * cost < least) {
            least = at + (1 + m->price) * cost;
            once = cost;
            m->begin = i;
        }
    }
    m->total.delay_ns += once;
}

static void model_price(Model *m, int step)
{
    double seek = m->terms.seek_ns;

    m->price = step ? ldexp(1 + (step - 1) % 256 / 256.0,
                            (step - 1) / 256 - 3) : 0;
    memset(&m->yield[IDLETIME_BINS], 0, sizeof(m->yield[0]));
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        IdletimeYield now = model_start(m, i);

        m->open[i] = now.value_ns >= m->yield[i + 1].value_ns;
        m->first[i] = m->open[i];
        m->yield[i] = m->open[i] ? now : m->yield[i + 1];
    }
    m->total = m->yield[m->from];
    if (seek > 0) {
        memset(&m->total, 0, sizeof(m->total));
        for (int i = IDLETIME_BINS - 1; i >= (int)m->from; i--) {
            IdletimeYield now = model_start(m, i);

            now.delay_ns += m->w.reached[i] * seek;
            now.value_ns -= (1 + m->price) * m->w.reached[i] * seek;
            m->first[i] = now.value_ns >= m->total.value_ns;
            m->total = m->first[i] ? now : m->total;
        }
    }
    model_burst(m);
}

static bool model_within(const Model *m)
{
    return m->total.delay_ns <= m->terms.budget_ns;
}

/* The last percent of what may be spent brings a tenth, but three need not. */
static double model_exchange(const Model *m)
{
    return MIN(0.1 * m->terms.request_ns / m->terms.budget_ns, 3);
}

static double model_gain(const Model *m, IdletimeYield y)
{
    return y.starts * m->w.service.mean_ns - y.delay_ns;
}

static bool model_fair(const Model *m)
{
    return m->price * m->terms.request_ns >=
           model_exchange(m) * model_gain(m, m->total);
}

static bool model_good(Model *m, int step)
{
    model_price(m, step);
    return model_within(m) && model_fair(m);
}

/*
 * The lowest price that is good; if the next lower one costs too much, a
 * mixture, as long as what that brings more is worth it.
 */
static void model_search(Model *m)
{
    IdletimeYield less = { 0 }, more;
    double may = m->terms.budget_ns, part;
    int step = 0;

    while (step < PRICES && !model_good(m, step)) {
        step += 64;
    }
    step = MAX(step - 63, 0);
    while (step < PRICES && !model_good(m, step)) {
        step++;
    }
    model_price(m, step);
    if (step == 0) {
        return;
    }
    if (step < PRICES) {
        less = m->total;
    }
    model_price(m, step - 1);
    more = m->total;
    part = (may - less.delay_ns) / (more.delay_ns - less.delay_ns);
    if (model_within(m) ||
        (model_gain(m, more) - model_gain(m, less)) * m->terms.request_ns <
        model_exchange(m) * model_gain(m, less) *
        (more.delay_ns - less.delay_ns)) {
        model_price(m, step);
        return;
    }
    m->w.late_ns = MIN(m->w.service.mean_ns / 8, MS / 5);
    m->total.starts = less.starts + part * (more.starts - less.starts);
    m->total.delay_ns = may;
}

static void model_windows(Model *m)
{
    int next = IDLETIME_BINS, first = IDLETIME_BINS;

    m->w.harmless = 0.1 * m->terms.budget_ns / m->w.service.mean_ns /
                    MAX(m->total.starts, 1);
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        bool cheap = (float)(m->delay_ns[i] / m->w.service.mean_ns) <=
                     m->w.harmless;

        next = m->open[i] || cheap ? i : next;
        first = m->first[i] || (cheap && m->terms.seek_ns <= 0) ? i : first;
        m->w.next[i] = next;
        m->w.first[i] = first;
    }
}

/* ---- cases */

/*
 * RAGGED: bursts whose gaps vary.  CYCLE: as PERIODIC, and the ages are those
 * of a cycle with a burst in it.  DENSE: bursts with short pauses.
 */
typedef enum Kind {
    BURSTS, RAGGED, MEMORYLESS, PERIODIC, CYCLE, ONE, SHORT, DENSE
} Kind;

typedef struct Case {
    Kind kind;
    double mean_ms, sd_ms, turnaround_ms;
    IdletimeTerms terms;
} Case;

static void fill(IdletimeHistogram *h, Kind kind)
{
    uint64_t random = 7;

    idletime_histogram_init(h);
    for (int i = 0; i < (kind == ONE ? 1 : 1200); i++) {
        double u = test_uniform(&random);
        double ms = kind == MEMORYLESS ? -20 * log(1 - u) :
                    kind == PERIODIC || kind == CYCLE ? 100 + u :
                    kind == ONE ? 30 : kind == SHORT ? 0.3 :
                    kind == RAGGED && i % 6 ? -log(1 - u) :
                    i % 6 ? 0.2 + u / 5 :
                    kind == DENSE ? 16 + 8 * u : 50 + 40 * u;

        idletime_histogram_add(h, never, ms * MS, 0);
    }
}

static void plan_all(IdletimePlan *plan, const IdletimeHistogram *h,
                     IdletimeService d, const IdletimeBurst *burst,
                     const IdletimeTerms *terms)
{
    idletime_plan_begin(plan, h, d, burst, terms);
    while (idletime_plan_step(plan, IDLETIME_LOOK_WORK) <= 0) {
    }
}

static void assert_near(double a, double b)
{
    g_assert_cmpfloat(ABS(a - b), <=, 1e-5 * MAX(ABS(a), ABS(b)) + 1e-9);
}

static void check(const Case *c)
{
    static IdletimeHistogram gaps, length;
    static IdletimePlan plan, by_age;
    static Model m;
    IdletimeService d = { c->mean_ms * MS, c->sd_ms * MS,
                          c->turnaround_ms * MS };
    IdletimeBurst burst = { .by_age = &by_age.windows, .gaps = 6,
                            .end = idletime_bin_of(d.mean_ns),
                            .lead_ns = 34 * MS };

    fill(&gaps, RAGGED);
    plan_all(&by_age, &gaps, d, NULL, &c->terms);
    fill(&length, c->kind);
    memset(&plan, 0xff, sizeof(plan));
    plan_all(&plan, &length, d, c->kind == CYCLE ? &burst : NULL, &c->terms);

    memset(&m, 0, sizeof(m));
    m.w.service = d;
    m.terms = c->terms;
    m.burst = c->kind == CYCLE ? &burst : NULL;
    m.from = c->kind == CYCLE ? idletime_bin_of(burst.lead_ns) : 0;
    model_gaps(&m, &length);
    model_search(&m);
    model_windows(&m);

    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        assert_near(plan.windows.reached[i], m.w.reached[i]);
    }
    assert_near(plan.windows.price, m.price);
    assert_near(plan.windows.starts, m.total.starts);
    assert_near(plan.windows.delay_ns, m.total.delay_ns);
    assert_near(plan.windows.harmless, m.w.harmless);
    assert_near(plan.windows.seek_ns, c->terms.seek_ns);
    assert_near(plan.windows.late_ns, m.w.late_ns);
    g_assert_cmpint(plan.windows.begin_ns, ==, idletime_bin_edge(m.begin));
    g_assert_cmpmem(plan.windows.next, sizeof(m.w.next), m.w.next,
                    sizeof(m.w.next));
    g_assert_cmpmem(plan.windows.first, sizeof(m.w.first), m.w.first,
                    sizeof(m.w.first));
}

#define BUDGET(budget_ms, request_ms, seek_ms) \
    { (budget_ms) * MS, (request_ms) * MS, (seek_ms) * MS }

static void test_reference(void)
{
    static const Case cases[] = {
        { BURSTS, 5, 0, 0, BUDGET(0.15, 5, 0) },
        { BURSTS, 5, 1, 2, BUDGET(0.5, 5, 0) },
        { BURSTS, 5, 2, 0, BUDGET(0.25, 20, 3) },
        { BURSTS, 0.05, 0, 0, BUDGET(0.01, 0.5, 0) },
        { BURSTS, 0.05, 0.01, 0.02, BUDGET(0.5, 5, 0.2) },
        { BURSTS, 20, 0, 0, BUDGET(0.01, 30, 100) },
        { MEMORYLESS, 5, 0, 0, BUDGET(0.5, 10, 0) },
        { MEMORYLESS, 5, 1, 1, BUDGET(0.2, 20, 2) },
        { MEMORYLESS, 0.3, 0, 0, BUDGET(0.05, 1, 0) },
        { PERIODIC, 5, 0, 0, BUDGET(4, 30, 0) },
        { CYCLE, 5, 0, 0, BUDGET(0.9, 30, 0) },
        { CYCLE, 5, 1, 1, BUDGET(5, 60, 8) },
        { CYCLE, 2, 0, 0, BUDGET(0.01, 30, 0) },
        { CYCLE, 2, 0, 0, BUDGET(16, 3, 0) },
        { CYCLE, 5, 0, 0, BUDGET(18, 3, 0) },
        { CYCLE, 1, 0.3, 0.1, BUDGET(4, 20, 1) },
        { RAGGED, 5, 0, 0, BUDGET(0.15, 5, 0) },
        { PERIODIC, 2, 0, 0, BUDGET(16, 3, 0) },
        { ONE, 5, 0, 0, BUDGET(0.15, 5, 0) },
        /* No gap is long enough for anything that is cheap. */
        { SHORT, 5, 0, 0, BUDGET(0.15, 5, 0) },
        { SHORT, 5, 1, 1, BUDGET(0.5, 5, 0) },
        { SHORT, 1, 0, 0, BUDGET(0.5, 5, 2) },
        /* The short gaps of a burst could be paid, but are not worth it. */
        { DENSE, 5, 0, 0, BUDGET(3, 5, 0) },
        { DENSE, 5, 0, 0, BUDGET(3.5, 5, 0) },
        { ONE, 2000, 0, 0, BUDGET(100, 300, 0) },
        { ONE, 90000, 0, 0, BUDGET(1000, 3000, 0) },
        /* All is open, the last bin too: nothing is behind it. */
        { ONE, 1200, 0, 0, BUDGET(1000000, 1000000, 0) },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_test_message("case %u", i);
        check(&cases[i]);
    }
}

/* Seven eighths of what was seen, and none of what was not. */
static void test_reached(void)
{
    static IdletimeHistogram h;
    static IdletimePlan plan;
    const float *reached = plan.windows.reached;

    idletime_histogram_init(&h);
    for (int i = 0; i < 8; i++) {
        idletime_histogram_add(&h, never, (10 + 10 * i) * MS, 0);
    }
    plan_all(&plan, &h, (IdletimeService) { 5 * MS, 0, 0 }, NULL,
             &(IdletimeTerms) BUDGET(0.15, 5, 0));
    g_assert_cmpfloat(ABS(reached[0] - 1), <, 1e-4);
    g_assert_cmpfloat(ABS(reached[idletime_bin_of(5 * MS)] - 1), <, 1e-4);
    g_assert_cmpfloat(ABS(reached[idletime_bin_of(10 * MS)] - 7.5 / 8), <,
                      1e-4);
    g_assert_cmpfloat(ABS(reached[idletime_bin_of(75 * MS)] - 1 / 8.0), <,
                      1e-4);
    g_assert_cmpfloat(reached[idletime_bin_of(90 * MS)], <, 1e-4);
    g_assert_cmpfloat(reached[idletime_bin_of(90 * MS)], >, 0);
}

/* So much work in a step, counted as it is: what a look may take. */
static void test_work(void)
{
    static IdletimeHistogram h;
    static IdletimePlan plan;
    const IdletimeTerms terms = BUDGET(0.15, 5, 0);

    fill(&h, ONE);
    idletime_plan_begin(&plan, &h, (IdletimeService) { 5 * MS, 0, 0 }, NULL,
                        &terms);
    plan.work = 0;
    /* A bin with nothing in it is one unit, one that is spread over 33: 33. */
    g_assert_cmpint(idletime_plan_step(&plan, IDLETIME_BINS + 32), ==, 0);
    g_assert_cmpint(plan.stage, ==, IDLETIME_PLAN_SUM);
    g_assert_cmpint(idletime_plan_step(&plan, IDLETIME_BINS), ==, 0);
    g_assert_cmpint(plan.stage, ==, IDLETIME_PLAN_TABLE);
    /* A bin of the table is four. */
    g_assert_cmpint(idletime_plan_step(&plan, 4 * IDLETIME_BINS), ==, 0);
    g_assert_cmpint(plan.stage, ==, IDLETIME_PLAN_STARTS);
    g_assert_cmpint(idletime_plan_step(&plan, IDLETIME_BINS), ==, 0);
    g_assert_cmpint(plan.stage, ==, IDLETIME_PLAN_BURST);
    g_assert_cmpint(idletime_plan_step(&plan, 1), ==, 0);
    g_assert_cmpint(plan.stage, ==, IDLETIME_PLAN_PRICE);
    g_assert_cmpint(idletime_plan_step(&plan, 1), ==, 0);
    g_assert_cmpint(plan.stage, ==, IDLETIME_PLAN_STARTS);
    g_assert_cmpuint(plan.work, ==, 7 * IDLETIME_BINS + 32 + 2);
}

/* Twelve prices to find one of 3,585, and that one again. */
static void test_search_is_short(void)
{
    static IdletimeHistogram h;
    static IdletimePlan plan;
    const IdletimeTerms terms = BUDGET(0.15, 5, 0);
    int prices = 0;

    fill(&h, BURSTS);
    idletime_plan_begin(&plan, &h, (IdletimeService) { 5 * MS, 0, 0 }, NULL,
                        &terms);
    while (idletime_plan_step(&plan, 1) <= 0) {
        prices += plan.stage == IDLETIME_PLAN_PRICE;
    }
    g_assert_cmpint(prices, >=, 12);
    g_assert_cmpint(prices, <=, 14);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/plan/reference", test_reference);
    g_test_add_func("/plan/reached", test_reached);
    g_test_add_func("/plan/work", test_work);
    g_test_add_func("/plan/search-is-short", test_search_is_short);
    return g_test_run();
}
