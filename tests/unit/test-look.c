/*
 * The learner's looks: what goes from the rings and the sums into its parts.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "looks.h"
#include <math.h>

/* ---- is it still the same workload? */

/* Evidence of each gap, before it is in either memory; Page's test. */
static void test_doubt(void)
{
    static const IdletimeHalfLife slow = { 1024, 120e9 }, fast = { 48, 2e9 };
    static IdletimeHistogram long_memory, short_memory;
    World *w = world();
    uint64_t random = test_seed();
    int64_t before = 0;
    double doubt = 0;
    int changes = 0;

    idletime_histogram_init(&long_memory);
    idletime_histogram_init(&short_memory);
    for (int i = 0; i < 3000; i++) {
        int64_t gap_ns = (1 + i / 500 * 7 + test_range(&random, 0, 3)) * MS;

        begin(w, gap_ns);
        if (i == 0) {
            gap_ns = 0;     /* not whole: it is not known when it began */
        } else {
            double evidence =
                log(idletime_histogram_near(&short_memory, gap_ns) /
                    idletime_histogram_near(&long_memory, gap_ns));

            doubt = MAX(doubt + evidence, 0);
            if (doubt > 8) {
                long_memory = short_memory;
                doubt = 0;
                changes++;
            }
            idletime_histogram_add(&long_memory, slow, gap_ns, w->now - before);
            idletime_histogram_add(&short_memory, fast, gap_ns,
                                   w->now - before);
            before = w->now;
        }
        end(w, D);
        look(w);
        g_assert_cmpuint(w->l.gap_count, ==, i);
        g_assert_cmpint(w->l.changes, ==, changes);
        g_assert_cmpfloat(ABS(w->l.doubt - doubt), <, 5e-4);
        doubt = w->l.doubt;
        near(idletime_histogram_count(&w->l.slow),
             idletime_histogram_count(&long_memory));
        near(idletime_histogram_count(&w->l.fast),
             idletime_histogram_count(&short_memory));
    }
    /* The workload changed five times; chance may look like more. */
    g_assert_cmpint(changes, >=, 4);
    free(w->fg);
}

/* A gap of which both say the same adds nothing: 8 is not more than 8. */
static void test_doubt_bound(void)
{
    World *w = world();

    burst(w, 10 * MS);
    g_assert_cmpuint(w->l.gap_count, ==, 0);
    w->l.doubt = 8;
    burst(w, 10 * MS);
    g_assert_cmpuint(w->l.gap_count, ==, 1);
    g_assert_cmpuint(w->l.changes, ==, 0);
    g_assert_cmpfloat(w->l.doubt, ==, 8);
    free(w->fg);
}

/* What is out of date goes, what may be of use weighs less. */
static void test_change(void)
{
    World *w = world();

    burst(w, 10 * MS);
    burst(w, 10 * MS);
    w->l.doubt = 8.5;
    w->l.built_gaps = 5;
    w->l.planning = IDLETIME_PLANNING_CYCLE;
    w->l.cycle.built = true;
    w->l.cost.clean_done = w->l.cost.clean_busy_ns = 1000;
    w->l.seek.cost_ns = 3 * MS;
    w->l.seek.pause.count = w->l.seek.bg.count = 100;
    begin(w, 10 * MS);
    end(w, D);
    look(w);
    g_assert_cmpuint(w->l.changes, ==, 1);
    g_assert_cmpfloat(w->l.doubt, ==, 0);
    g_assert_cmpuint(w->l.built_gaps, ==, 0);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_NOTHING);
    g_assert_false(w->l.cycle.built);
    near(w->l.cost.clean_done, 16);
    near(w->l.seek.cost_ns, 3 * MS);
    near(w->l.seek.pause.count, 8);
    near(w->l.seek.bg.count, 8);
    free(w->fg);
}

/* ---- sums */

/* Foreground time a gap: without what we cost it; of 256 gaps. */
static void test_requests(void)
{
    World *w = world();

    burst(w, 10 * MS);
    near(w->l.request_gaps, 0);
    burst(w, 10 * MS);
    near(w->l.request_gaps, 1);
    near(w->l.request_ns, D);
    w->totals.bg_cost_ns += 2 * MS;
    burst(w, 10 * MS);
    near(w->l.request_gaps, 2);
    near(w->l.request_ns, 2 * D - 2 * MS);
    near(w->l.budget.cost_ns, 2 * MS);
    near(w->l.channels.done, 2);
    w->l.request_gaps = 511;
    burst(w, 10 * MS);
    near(w->l.request_gaps, 256);
    near(w->l.request_ns, (3 * D - 2 * MS) / 2.0);
    /* A twentieth for the budget, of that a tenth for probes. */
    near(w->l.channels.purse_ns, 0);
    w->l.channels.mean_ns = D;
    burst(w, 10 * MS);
    near(w->l.channels.purse_ns, D * 0.05 * 0.1);
    near(w->l.channels.done, 4);
    near(w->l.channels.request_ns, 4 * D);
    free(w->fg);
}

/* Gaps that were over before the first look: between as long as it was busy. */
static void test_first_look(void)
{
    World *w = world();

    for (int i = 0; i < 10; i++) {
        begin(w, 10 * MS);
        end(w, D);
        w->totals.fg_done++;
        w->totals.fg_request_ns += 2 * D;
    }
    look(w);
    near(w->l.request_gaps, 9);
    near(w->l.request_ns, 10 * D);
    burst(w, 10 * MS);
    near(w->l.request_gaps, 10);
    near(w->l.request_ns, 11 * D);
    free(w->fg);
}

/* What the parts are told of the time between two looks. */
static void test_span(void)
{
    World *w = world();

    burst(w, 10 * MS);
    burst(w, 10 * MS);
    near(w->l.cost.clean_done, 1);
    near(w->l.cost.clean_busy_ns, 2 * D);
    near(w->l.seek.near_done, 1);
    near(w->l.seek.near_ns, D);
    near(w->l.cost.service_ns, D);
    /* Ours began and is over: it met something of ours all the same. */
    w->totals.bg_started = 3;
    w->l.own_started = 2;
    burst(w, 10 * MS);
    near(w->l.cost.clean_done, 1);
    g_assert_false(w->l.cost.dirty);
    near(w->l.seek.near_done, 1);
    near(w->l.seek.bg.count, 1);
    g_assert_cmpuint(w->l.own_started, ==, 0);
    g_assert_cmpuint(w->l.bg_started, ==, 3);
    burst(w, 10 * MS);
    near(w->l.cost.clean_done, 2);
    near(w->l.cost.clean_busy_ns, 3 * D);
    /* Ours is in service. */
    w->totals.bg_in_service = true;
    w->totals.quiet = false;
    burst(w, 10 * MS);
    g_assert_true(w->l.cost.dirty);
    g_assert_cmpint(w->l.seek.before, ==, IDLETIME_BEFORE_BG);
    w->totals.bg_in_service = false;
    /* Two of foreground are left: it is not settled. */
    w->totals.fg_in_service = 2;
    burst(w, 10 * MS);
    g_assert_cmpint(w->l.seek.before, ==, IDLETIME_BEFORE_BG);
    w->totals.fg_in_service = 1;
    w->l.collision.open = true;
    w->l.collision.arrival_ns = INT64_MAX - 1;
    w->totals.quiet = true;
    /* One is: it is.  But it goes on to lose by the collision. */
    burst(w, 10 * MS);
    g_assert_cmpint(w->l.seek.before, ==, IDLETIME_BEFORE_FG);
    g_assert_true(w->l.cost.dirty);
    w->l.collision.open = false;
    burst(w, 10 * MS);
    g_assert_false(w->l.cost.dirty);
    /* A sum that shrinks is that of one who left: no starts. */
    w->totals.bg_started = 1;
    burst(w, 10 * MS);
    g_assert_cmpuint(w->l.bg_started, ==, 1);
    free(w->fg);
}

/* Idle for two seconds: a second of that earns, but not while it is busy. */
static void test_away(void)
{
    World *w = world();
    double credit_ns;

    burst(w, 10 * MS);
    burst(w, 10 * MS);
    credit_ns = w->l.budget.credit_ns;
    w->now += 2 * SEC;
    look(w);
    near(w->l.budget.credit_ns, credit_ns + D / 15.0);
    near(w->l.budget.cap_ns, 24 * D);
    /* A collision costs what all that wait lose. */
    w->l.cost.delay_ns = D;
    w->l.cost.lost_ns = 3 * D;
    g_assert_cmpfloat(idletime_cost_factor(&w->l.cost), ==, 2);
    look(w);
    near(w->l.budget.cap_ns, 48 * D);
    credit_ns = w->l.budget.credit_ns;
    begin(w, MS);
    look(w);
    credit_ns = w->l.budget.credit_ns;
    w->now += 3 * SEC;
    look(w);
    near(w->l.budget.credit_ns, credit_ns);
    /* And none of it is spare, but for the ms before. */
    g_assert_cmpfloat(idletime_spare_second(&w->l.spare), <, 0.001);
    free(w->fg);
}

/* ---- plans */

static void test_terms(void)
{
    World *w = world();

    for (int i = 0; i < 24; i++) {
        burst(w, 30 * MS);
        g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_NOTHING);
    }
    /* Without a plan nobody knows what a burst is. */
    g_assert_cmpint(w->l.cycle.onset_ns, ==, INT64_MIN);
    w->l.cost.service_ns = 1;
    w->l.cost.delay_ns = D;
    w->l.cost.lost_ns = 2 * D + 5 * MS;
    w->l.seek.cost_ns = 6 * MS;
    burst(w, 30 * MS);
    g_assert_cmpuint(w->l.gap_count, ==, 24);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_WINDOWS);
    /* 5 ms a gap, of which 5 % may be lost; all of them lose 3 for one. */
    near(w->l.request_gaps, 24);
    near(idletime_cost_factor(&w->l.cost), 2);
    near(w->l.plan.terms.request_ns, D / 2.0);
    near(w->l.plan.terms.budget_ns, 0.05 * D / 2.0);
    near(w->l.plan.terms.seek_ns, 6 * MS);
    g_assert_cmpuint(w->l.planned_gaps, ==, 24);
    g_assert_cmpint(w->l.planned_ns, ==, w->now);
    g_assert_null(w->l.plan.burst.by_age);
    free(w->fg);
}

/* Until a plan that is being made is in force; both clocks. */
static void finish(World *w)
{
    for (int i = 0; w->l.planning != IDLETIME_PLANNING_NOTHING; i++) {
        g_assert_cmpint(i, <, 200);
        look(w);
    }
}

/* Anew after a second, or after 50 ms and a sixteenth more gaps. */
static void test_due(void)
{
    World *w = world();
    int64_t planned_ns;

    for (int i = 0; i < 65; i++) {
        burst(w, 30 * MS);
    }
    finish(w);
    g_assert_cmpuint(w->l.built_gaps, >, 0);
    w->l.built_gaps = w->l.gap_count;
    planned_ns = w->l.built_ns;
    w->now = planned_ns + SEC - 1;
    look(w);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_NOTHING);
    w->now++;
    look(w);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_WINDOWS);
    finish(w);
    g_assert_cmpint(w->l.built_ns, ==, planned_ns + SEC);
    g_assert_cmpuint(w->l.built_gaps, ==, w->l.gap_count);
    /* 32 gaps are known: two more are a sixteenth, in 50 ms. */
    w->l.slow.total = 32 * w->l.slow.unit;
    w->l.gap_count++;
    w->now += 60 * MS;
    look(w);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_NOTHING);
    w->l.gap_count++;
    w->now = w->l.built_ns + 50 * MS - 1;
    look(w);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_NOTHING);
    w->now++;
    look(w);
    g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_WINDOWS);
    free(w->fg);
}

/* More than 32 gaps in a look: the plan has to wait for the next one. */
static void test_few(void)
{
    World *w = world();

    for (int i = 0; i < 40; i++) {
        burst(w, 30 * MS);
    }
    finish(w);
    w->now += SEC;
    for (int n = 32; n <= 33; n++) {
        uint64_t work = w->l.plan.work;

        for (int i = 0; i < n; i++) {
            begin(w, 30 * MS);
            end(w, D);
        }
        look(w);
        g_assert_cmpuint(w->l.gaps.count, ==, n);
        g_assert_cmpint(w->l.planning, ==, IDLETIME_PLANNING_WINDOWS);
        g_assert_true((w->l.plan.work > work) == (n == 32));
    }
    free(w->fg);
}

/* 128 gaps are learned from in a look, all of them are arrivals. */
static void test_many_gaps(void)
{
    World *w = world();

    burst(w, 10 * MS);
    burst(w, 10 * MS);
    for (int n = 127; n <= 128; n++) {
        uint64_t gaps = w->l.gap_count;

        for (int i = 0; i < n - 1; i++) {
            begin(w, 10 * MS);
            end(w, D);
        }
        begin(w, 10 * MS);
        look(w);
        end(w, D);
        g_assert_cmpuint(w->l.gaps.count, >, 90);
        g_assert_cmpuint(w->l.gap_count - gaps, ==, w->l.gaps.count);
    }
    free(w->fg);
}

/* With what was not learned from, nobody knows when a burst began. */
static void test_too_many_gaps(void)
{
    for (int n = 128; n <= 129; n++) {
        World *w = world();
        IdletimeFgWriter other = { .line = &w->fg->line[1],
                                   .page = &w->fg->page[1] };

        burst(w, 10 * MS);
        burst(w, 10 * MS);
        for (int i = 0; i < n; i++) {
            IdletimeFgWriter *writer = i % 2 ? &other : &w->w;

            idletime_fg_begin(writer, w->now += 10 * MS, 1);
            idletime_fg_end(writer, w->now += D);
        }
        w->l.built_gaps = 1;
        w->l.windows.service.mean_ns = D;
        idletime_learner_look(&w->l, &goal, w->fg, 2, &w->totals, w->now);
        g_assert_cmpuint(w->l.gaps.count, ==, n);
        g_assert_cmpuint(w->l.gap_count, ==, 1 + 128);
        g_assert_true((w->l.cycle.onset_ns == INT64_MIN) == (n == 129));
        free(w->fg);
    }
}

/* Nothing before the start is learned from. */
static void test_init(void)
{
    static IdletimeLearner l;

    memset(&l, 0xff, sizeof(l));
    idletime_learner_init(&l, -5);
    g_assert_cmpint(l.gap_ns, ==, 0);
    idletime_learner_init(&l, 7 * SEC);
    g_assert_cmpint(l.gap_ns, ==, 7 * SEC);
    g_assert_cmpint(l.gaps.whole_from_ns, ==, 7 * SEC);
    g_assert_cmpint(l.start_ns, ==, INT64_MIN);
    g_assert_cmpint(l.done_ns, ==, INT64_MIN);
    g_assert_cmpint(l.arrival_ns, ==, INT64_MAX);
    g_assert_cmpint(l.cycle.onset_ns, ==, INT64_MIN);
    g_assert_cmpuint(l.channels.limit, ==, 1);
    g_assert_cmpint(l.spare.seconds.period_ns, ==, SEC);
    near(l.slow.unit, 1);
    near(l.fast.unit, 1);
    near(l.budget.cap_ns, 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/learner/init", test_init);
    g_test_add_func("/learner/doubt", test_doubt);
    g_test_add_func("/learner/doubt/bound", test_doubt_bound);
    g_test_add_func("/learner/doubt/change", test_change);
    g_test_add_func("/learner/requests", test_requests);
    g_test_add_func("/learner/requests/first-look", test_first_look);
    g_test_add_func("/learner/span", test_span);
    g_test_add_func("/learner/away", test_away);
    g_test_add_func("/learner/terms", test_terms);
    g_test_add_func("/learner/due", test_due);
    g_test_add_func("/learner/few", test_few);
    g_test_add_func("/learner/many-gaps", test_many_gaps);
    g_test_add_func("/learner/too-many-gaps", test_too_many_gaps);
    return g_test_run();
}
