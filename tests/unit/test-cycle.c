/*
 * The second clock: what each clock would have gained, and which is believed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/cycle.h"

#define D       (5 * MS)

/* Open from the begin of bin @open on, before the begin of @end. */
static void open_between(IdletimeWindows *w, int open, int end)
{
    w->service = (IdletimeService) { D, 0, 0 };
    for (int i = IDLETIME_BINS - 1; i >= 0; i--) {
        w->next[i] = w->first[i] = i < open ? open :
                                   i < end ? i : IDLETIME_BINS;
    }
}

typedef struct World {
    IdletimeCycle c;
    IdletimeWindows by_age;
} World;

/* Two clocks with nothing open; a request of foreground takes 1 ms a gap. */
static World *world(void)
{
    static World w;

    memset(&w, 0, sizeof(w));
    idletime_cycle_init(&w.c);
    open_between(&w.by_age, IDLETIME_BINS, 0);
    open_between(&w.c.windows, IDLETIME_BINS, 0);
    w.c.built = true;
    w.c.onset_ns = 0;
    w.by_age.price = 2;
    return &w;
}

static void gap(World *w, int64_t begin_ns, int64_t end_ns)
{
    idletime_cycle_note(&w->c, &(IdletimeGap) { begin_ns, end_ns }, &w->by_age,
                        MS);
}

/* Of a gap that ends a burst a 64th is forgotten at once. */
static void assert_gains(const World *w, double gain_ns, double other_ns)
{
    g_assert_cmpfloat(ABS(w->c.gain_ns - gain_ns * 63 / 64), <, 0.1);
    g_assert_cmpfloat(ABS(w->c.other_ns - other_ns * 63 / 64), <, 0.1);
}

/* ---- what a clock would have gained */

/* Starts at 2, 7, 12, 17 and 22 ms; the last one is late by what is over. */
static void test_replay(void)
{
    World *w = world();
    unsigned open = idletime_bin_of(2 * MS);
    int64_t first = idletime_bin_edge(open);

    open_between(&w->by_age, open, IDLETIME_BINS);
    gap(w, 10 * MS, 33 * MS);
    assert_gains(w, 0, 5.0 * D - 2.0 * (first + 25 * MS - 23 * MS));
    /* None that begins when the foreground is back. */
    w = world();
    open_between(&w->by_age, open, IDLETIME_BINS);
    gap(w, 10 * MS, 10 * MS + first + D);
    assert_gains(w, 0, D);
    w = world();
    open_between(&w->by_age, open, IDLETIME_BINS);
    gap(w, 10 * MS, 10 * MS + first + D + 1);
    assert_gains(w, 0, 2.0 * D - 2.0 * (D - 1));
    /* Two open ages, and none after them. */
    w = world();
    open_between(&w->by_age, open, idletime_bin_of(8 * MS));
    gap(w, 10 * MS, 100 * MS);
    assert_gains(w, 0, 2.0 * D);
}

/* A guest that takes 3 ms to send the next. */
static void test_turnaround(void)
{
    World *w = world();

    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->by_age.service.turnaround_ns = 3 * MS;
    gap(w, 0, 16 * MS);
    assert_gains(w, 0, 2.0 * D);
    w = world();
    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->by_age.service.turnaround_ns = 3 * MS;
    gap(w, 0, 17 * MS);
    assert_gains(w, 0, 3.0 * D - 2.0 * 4 * MS);
}

/* The first start pays for the gap; before it, the ages differ. */
static void test_seek(void)
{
    World *w = world();

    open_between(&w->by_age, 0, IDLETIME_BINS);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        w->by_age.first[i] = MAX(i, idletime_bin_of(4 * MS));
    }
    w->by_age.seek_ns = 1 * MS;
    int64_t first = idletime_bin_edge(idletime_bin_of(4 * MS));

    gap(w, 0, 13 * MS);
    assert_gains(w, 0, 2.0 * D - 2.0 * MS - 2.0 * (first + 10 * MS - 13 * MS));
    /* A gap that is not used costs nothing. */
    w = world();
    w->by_age.seek_ns = 1 * MS;
    gap(w, 0, 14 * MS);
    assert_gains(w, 0, 0);
}

/* A gap with room for more than 256 says nothing. */
static void test_long(void)
{
    World *w = world();

    open_between(&w->by_age, 0, IDLETIME_BINS);
    gap(w, 0, 256 * D);
    assert_gains(w, 0, 0);
    w = world();
    open_between(&w->by_age, 0, IDLETIME_BINS);
    gap(w, 0, 256 * D - 1);
    assert_gains(w, 0, 256.0 * D - 2);
    w = world();
    open_between(&w->by_age, 0, IDLETIME_BINS);
    gap(w, 0, 255 * D);
    assert_gains(w, 0, 255.0 * D);
}

/* A ns of delay costs the price, or what a percent costs if that is more. */
static void test_price(void)
{
    World *w = world();

    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->by_age.starts = 0.3;             /* 1.5 ms of ours for 1 ms */
    gap(w, 0, 9 * MS);
    assert_gains(w, 0, 2.0 * D - 2.0 * MS);
    w = world();
    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->by_age.starts = 0.6;             /* 3 ms */
    gap(w, 0, 9 * MS);
    assert_gains(w, 0, 2.0 * D - 3.0 * MS);
}

/* The cycle's clock is ahead by the burst, its windows begin at an age. */
static void test_cycle_clock(void)
{
    World *w = world();
    unsigned end = idletime_bin_of(50 * MS);

    open_between(&w->c.windows, 0, end);
    w->c.windows.begin_ns = 2 * MS;
    w->c.onset_ns = 7 * MS;
    /* 30 ms after the onset: starts at 32, 37, 42, 47, not at 52. */
    gap(w, 37 * MS, 97 * MS);
    assert_gains(w, 4.0 * D, 0);
    /* A gap of 8 ms: at 2 and 7, and 4 ms too late. */
    w = world();
    open_between(&w->c.windows, 0, end);
    w->c.windows.begin_ns = 2 * MS;
    gap(w, 10 * MS, 18 * MS);
    assert_gains(w, 2.0 * D - 2.0 * 4 * MS, 0);
    /* The window is over before it. */
    w = world();
    open_between(&w->c.windows, 0, end);
    gap(w, 60 * MS, 80 * MS);
    assert_gains(w, 0, 0);
}

/* With nothing to compare, or no foreground to pay, neither gains. */
static void test_not_compared(void)
{
    World *w = world();

    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->c.built = false;
    gap(w, 0, 10 * MS);
    assert_gains(w, 0, 0);
    w = world();
    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->c.onset_ns = INT64_MIN;
    gap(w, 0, 10 * MS);
    assert_gains(w, 0, 0);
    w = world();
    open_between(&w->by_age, 0, IDLETIME_BINS);
    idletime_cycle_note(&w->c, &(IdletimeGap) { 0, 10 * MS }, &w->by_age, 0);
    assert_gains(w, 0, 0);
    idletime_cycle_note(&w->c, &(IdletimeGap) { 0, 10 * MS }, &w->by_age, 1);
    g_assert_cmpfloat(w->c.other_ns, >, 0);
}

/* ---- cycles */

static void test_onset(void)
{
    World *w = world();
    unsigned bin = idletime_bin_of(100 * MS);

    idletime_cycle_init(&w->c);
    g_assert_cmpint(w->c.onset_ns, ==, INT64_MIN);
    /* The first long gap begins a cycle; one of a burst does not. */
    gap(w, 10 * MS, 20 * MS);
    g_assert_cmpint(w->c.onset_ns, ==, 20 * MS);
    g_assert_cmpfloat(idletime_histogram_count(&w->c.length), ==, 0);
    gap(w, 30 * MS, 30 * MS + D - 1);
    g_assert_cmpint(w->c.onset_ns, ==, 20 * MS);
    g_assert_cmpuint(w->c.gap_count, ==, 1);
    gap(w, 50 * MS, 120 * MS);
    g_assert_cmpint(w->c.onset_ns, ==, 120 * MS);
    g_assert_cmpuint(w->c.gap_count, ==, 0);
    /* It was over 30 ms after its begin, had two gaps, and took 100 ms. */
    g_assert_cmpfloat(w->c.lead_ns, ==, 30 * MS);
    g_assert_cmpfloat(w->c.gaps, ==, 2);
    g_assert_cmpfloat(w->c.length.bin[bin], >, 0);
    /* The next one: a 64th each.  A gap of one service time is a long one. */
    gap(w, 120 * MS + 94 * MS, 120 * MS + 94 * MS + D);
    g_assert_cmpint(w->c.onset_ns, ==, 214 * MS + D);
    g_assert_cmpfloat(w->c.lead_ns, ==, 31 * MS);
    g_assert_cmpfloat(w->c.gaps, ==, 2 - 1 / 64.0);
    /* Half a life is 256 cycles, or 120 s. */
    g_assert_cmpfloat(ABS(idletime_histogram_count(&w->c.length) - 1 -
                          1 / (1 + 0.69314718 * (1 / 256.0 + 0.099 / 120))),
                      <, 1e-6);
    idletime_cycle_lost(&w->c);
    g_assert_cmpint(w->c.onset_ns, ==, INT64_MIN);
}

static void test_better(void)
{
    IdletimeCycle *c = &world()->c;

    c->other_ns = 1000;
    c->gain_ns = 1000.9;
    g_assert_false(idletime_cycle_better(c));
    c->gain_ns = 1001.1;
    g_assert_true(idletime_cycle_better(c));
    c->onset_ns = INT64_MIN;
    g_assert_false(idletime_cycle_better(c));
    c->onset_ns = 0;
    c->built = false;
    g_assert_false(idletime_cycle_better(c));
    c->built = true;
    /* Who loses nothing is no better than who loses. */
    c->other_ns = -1000;
    c->gain_ns = 0;
    g_assert_false(idletime_cycle_better(c));
    c->gain_ns = 0.5;
    g_assert_true(idletime_cycle_better(c));
    /* By two standard errors. */
    c->square = 250000;
    g_assert_true(idletime_cycle_better(c));
    c->square = 250600;
    g_assert_false(idletime_cycle_better(c));
}

/* A cycle's gaps are ahead or behind together; 64 cycles are remembered. */
static void test_ahead(void)
{
    World *w = world();

    open_between(&w->by_age, 0, IDLETIME_BINS);
    w->c.onset_ns = 0;
    gap(w, 0, 4 * MS);
    gap(w, 0, 3 * MS);
    g_assert_cmpfloat(w->c.ahead_ns, ==, 2.0 * (1 + 2) * MS - 2.0 * D);
    g_assert_cmpfloat(w->c.square, ==, 0);
    gap(w, 0, 9 * MS);
    g_assert_cmpfloat(w->c.ahead_ns, ==, 0);
    g_assert_cmpfloat(ABS(w->c.square - 12.0 * MS * 12.0 * MS * 31 / 32), <, 1);
}

/* Six cycles; what is paid and earned is that of all gaps in one. */
static void test_plan(void)
{
    static IdletimePlan plan;
    World *w = world();
    IdletimeTerms terms = { 0.1 * MS, 3.0 * MS, 2.0 * MS };

    w->c.gaps = 6;
    w->c.lead_ns = 30 * MS;
    w->c.length.total = 6 * w->c.length.unit - 0.01;
    g_assert_false(idletime_cycle_plan(&w->c, &plan, &w->by_age, &terms));
    w->c.length.total = 6 * w->c.length.unit;
    w->c.length.bin[700] = 6;
    g_assert_true(idletime_cycle_plan(&w->c, &plan, &w->by_age, &terms));
    g_assert_cmpfloat(plan.terms.budget_ns, ==, 6 * terms.budget_ns);
    g_assert_cmpfloat(plan.terms.request_ns, ==, 6 * terms.request_ns);
    g_assert_cmpfloat(plan.terms.seek_ns, ==, 2.0 * MS);
    g_assert_true(plan.burst.by_age == &w->by_age);
    g_assert_cmpuint(plan.burst.end, ==, idletime_bin_of(D));
    g_assert_cmpfloat(plan.burst.gaps, ==, 6);
    g_assert_cmpuint(plan.from, ==, idletime_bin_of(30 * MS));
    g_assert_cmpfloat(plan.gaps.bin[700], ==, 6);
    g_assert_cmpfloat(plan.windows.service.mean_ns, ==, D);
    /* The terms themselves stay. */
    g_assert_cmpfloat(terms.budget_ns, ==, 0.1 * MS);
}

static void test_planned(void)
{
    World *w = world();
    static IdletimeWindows answer;

    w->c.built = false;
    answer.price = 7;
    idletime_cycle_planned(&w->c, &answer);
    g_assert_true(w->c.built);
    g_assert_cmpfloat(w->c.windows.price, ==, 7);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cycle/replay", test_replay);
    g_test_add_func("/cycle/turnaround", test_turnaround);
    g_test_add_func("/cycle/seek", test_seek);
    g_test_add_func("/cycle/long", test_long);
    g_test_add_func("/cycle/price", test_price);
    g_test_add_func("/cycle/clock", test_cycle_clock);
    g_test_add_func("/cycle/not-compared", test_not_compared);
    g_test_add_func("/cycle/onset", test_onset);
    g_test_add_func("/cycle/better", test_better);
    g_test_add_func("/cycle/ahead", test_ahead);
    g_test_add_func("/cycle/plan", test_plan);
    g_test_add_func("/cycle/planned", test_planned);
    return g_test_run();
}
