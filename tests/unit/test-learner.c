/*
 * The learner as a whole, and the idle time that it tells.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/learner.h"

/* ---- the whole: a change is noticed */

typedef struct World {
    IdletimeLearner l;
    IdletimeFgBoard *fg;
    IdletimeFgWriter w;
    int64_t now;
} World;

static uint64_t look(World *w)
{
    static const IdletimeGoal goal = { 0.03, 20 * MS };
    IdletimeTotals totals = {
        .fg_done = w->w.started, .fg_request_ns = w->w.request_ns,
        .quiet = true,
    };

    return idletime_learner_look(&w->l, &goal, w->fg, 1, &totals, w->now);
}

static void burst(World *w, int64_t gap_ns)
{
    w->now += gap_ns;
    idletime_fg_begin(&w->w, w->now, 4096);
    w->now += 5 * MS;
    idletime_fg_end(&w->w, w->now);
    look(w);
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
    const IdletimeGoal goal = { 0.03, 20 * MS };

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
        g_assert_cmpint(idletime_learner_admit(&w.l, &goal,
                                                &q).closed_until_ns, <=,
                        q.now_ns);
        q.now_ns += 8 * MS;
        g_assert_cmpint(idletime_learner_admit(&w.l, &goal,
                                                &q).closed_until_ns, >,
                        q.now_ns);
        free(w.fg);
    }
}

static void test_safe_start(void)
{
    static World w;
    IdletimeGoal goal = { 0.03, 20 * MS };
    IdletimeQuestion q = { .bytes = 4096 };

    world_begin(&w);
    burst(&w, 50 * MS);
    q.fg_last_ns = w.now;
    q.now_ns = w.now + MS;
    g_assert_false(idletime_learner_admit(&w.l, &goal, &q).learned);
    g_assert_cmpint(idletime_learner_admit(&w.l, &goal, &q).interval_ns, ==,
                    20 * MS);
    for (int i = 0; i < 100; i++) {
        burst(&w, i % 6 ? MS / 3 : 70 * MS);
    }
    q.fg_last_ns = w.now;
    q.now_ns = w.now + MS;
    g_assert_true(idletime_learner_admit(&w.l, &goal, &q).learned);
    /* 13 of 5 ms fit into 70 ms also if they begin 5 ms later. */
    g_assert_cmpint(idletime_learner_admit(&w.l, &goal, &q).interval_ns, <,
                    5 * MS);
    free(w.fg);
}

/* From a completion until somebody asks first; who idles is not waited for. */
static void test_turnaround(void)
{
    static World w;
    IdletimeGoal goal = { 0.03, 20 * MS };
    IdletimeServed served = { .bytes = 4096, .fg_idle = true };
    IdletimeQuestion q = { .bytes = 4096, .fg_last_ns = INT64_MIN };

    world_begin(&w);
    for (int i = 0; i < 1000; i++) {
        served.since_ns = w.now;
        idletime_learner_done(&w.l, &served, w.now += 5 * MS);
        q.now_ns = w.now += 2 * MS;
        idletime_learner_admit(&w.l, &goal, &q);
        q.now_ns = w.now += 20 * MS;
        idletime_learner_admit(&w.l, &goal, &q);
    }
    g_assert_cmpfloat(ABS(w.l.services.turnaround_ns / MS - 2), <, 0.01);
    for (int i = 0; i < 1000; i++) {
        served.since_ns = w.now;
        idletime_learner_done(&w.l, &served, w.now += 5 * MS);
        q.now_ns = w.now += 1000 * MS;
        idletime_learner_admit(&w.l, &goal, &q);
    }
    g_assert_cmpfloat(ABS(w.l.services.turnaround_ns / MS - 5), <, 0.01);
    free(w.fg);
}

/* ---- what the foreground loses */

/* What other resources served as well tells a time until another does. */
static void test_mixed(void)
{
    IdletimeServed served = { .bytes = 4096, .fg_idle = true, .mixed = true };
    IdletimeLearner *l = g_new0(IdletimeLearner, 1);
    uint64_t known;

    idletime_learner_init(l, 0);
    for (int i = 0; i < 40; i++) {
        idletime_learner_done(l, &served, 50 * MS);
    }
    g_assert_true(idletime_service_known(&l->services));
    served.mixed = false;
    for (int i = 0; i < 400; i++) {
        idletime_learner_done(l, &served, 5 * MS);
    }
    known = idletime_service_any(&l->services).mean_ns;
    g_assert_cmpuint(known, <, 6 * MS);
    served.mixed = true;
    for (int i = 0; i < 40; i++) {
        idletime_learner_done(l, &served, 50 * MS);
    }
    g_assert_cmpuint(idletime_service_any(&l->services).mean_ns, ==,
                     known);
    g_free(l);
}

/* Beside seven: on one server all seven wait for a service time. */
static void test_probe(void)
{
    static World w;
    const IdletimeGoal goal = { 0.5, 20 * MS };
    IdletimeQuestion q = { .bytes = 4096, .fg_requests = 7 };
    IdletimeAdmission a;

    world_begin(&w);
    for (int i = 0; i < 200; i++) {
        burst(&w, 70 * MS);
    }
    w.l.budget.credit_ns = 20 * MS;
    w.l.channels.purse_ns = 34 * MS;
    q.now_ns = q.fg_last_ns = w.now;
    g_assert_false(idletime_learner_admit(&w.l, &goal, &q).beside);
    w.l.channels.purse_ns = 36 * MS;
    a = idletime_learner_admit(&w.l, &goal, &q);
    g_assert_true(a.beside);
    /* Nothing is taken as long as it does not start. */
    g_assert_cmpuint(look(&w), ==, 0);
    g_assert_true(idletime_learner_admit(&w.l, &goal, &q).beside);
    idletime_learner_started(&w.l, a.fee, w.now);
    g_assert_cmpfloat(w.l.channels.purse_ns, ==, MS);
    g_assert_cmpuint(look(&w), ==, 35 * MS);
    g_assert_cmpuint(look(&w), ==, 0);
    free(w.fg);
}

/*
 * Three servers, so two at a time: beside the foreground while one stays free,
 * and a service time apart in all, half a one each.
 */
static void test_several_servers(void)
{
    static World w;
    const IdletimeGoal goal = { 0.05, 20 * MS };
    IdletimeQuestion q = { .bytes = 4096, .now_ns = SEC };
    IdletimeAdmission a;

    world_begin(&w);
    for (int i = 0; i < 20; i++) {
        for (int n = 1; n <= 4; n++) {
            idletime_channels_note(&w.l.channels, n, (n <= 3 ? 5 : 10) * MS);
        }
    }
    w.l.channels.away = false;
    g_assert_cmpuint(idletime_channels_limit(&w.l.channels), ==, 2);
    g_assert_cmpint(idletime_learner_interval(&w.l, 20 * MS), ==, 0);
    q.fg_requests = 1;
    a = idletime_learner_admit(&w.l, &goal, &q);
    g_assert_true(a.learned);
    g_assert_true(a.beside);
    g_assert_cmpint(a.interval_ns, ==, 0);
    g_assert_cmpuint(a.max_inflight, ==, 2);
    g_assert_cmpint(a.closed_until_ns, ==, INT64_MIN);
    /* One started a ms ago: 1.5 ms more. */
    idletime_learner_started(&w.l, (IdletimeFee) { .probe = false }, SEC - MS);
    a = idletime_learner_admit(&w.l, &goal, &q);
    g_assert_true(a.beside);
    g_assert_cmpint(a.closed_until_ns, ==, SEC + 3 * MS / 2);
    q.now_ns = SEC + 3 * MS / 2;
    a = idletime_learner_admit(&w.l, &goal, &q);
    g_assert_cmpint(a.closed_until_ns, ==, INT64_MIN);
    /* It would be the third: again in a quarter of a service time. */
    q.bg_in_service = 1;
    a = idletime_learner_admit(&w.l, &goal, &q);
    g_assert_false(a.beside);
    g_assert_cmpint(a.closed_until_ns, ==, q.now_ns + 5 * MS / 4);
    /* What was beside foreground tells a service time, and no collision. */
    memset(&w.l.services, 0, sizeof(w.l.services));
    w.l.arrival_ns = SEC;
    idletime_learner_done(&w.l, &(IdletimeServed) {
        .bytes = 4096, .beside = 1, .since_ns = SEC - 2 * MS,
    }, SEC + 3 * MS);
    g_assert_cmpfloat(w.l.services.any.count, ==, 1);
    g_assert_false(w.l.collision.open);
    free(w.fg);
}

/* What was not seen of the gaps is in no cycle: the second clock is set anew. */
static void test_loss(void)
{
    static World w;

    world_begin(&w);
    for (int i = 0; i < 100; i++) {
        burst(&w, 70 * MS);
    }
    g_assert_cmpint(w.l.cycle.onset_ns, ==, w.now - 5 * MS);
    for (int i = 0; i < 200; i++) {
        idletime_fg_begin(&w.w, w.now += 70 * MS, 4096);
        idletime_fg_end(&w.w, w.now += 5 * MS);
    }
    look(&w);
    g_assert_cmpuint(w.l.gaps.overruns, ==, 1);
    /* No cycle is as long as what was not seen. */
    for (unsigned i = idletime_bin_of(SEC); i < IDLETIME_BINS; i++) {
        g_assert_cmpfloat(w.l.cycle.length.bin[i], ==, 0);
    }
    burst(&w, 70 * MS);
    g_assert_cmpint(w.l.cycle.onset_ns, ==, w.now - 5 * MS);
    free(w.fg);
}

/* Any history, any question: the answer is one of those that exist. */
static void test_admission_sane(void)
{
    uint64_t random = test_seed();
    static World w;
    IdletimeGoal goal = { 0.03, 20 * MS };

    world_begin(&w);
    for (int i = 0; i < 3000; i++) {
        IdletimeQuestion q = {
            .bytes = test_random(&random) >> test_random(&random) % 64,
            .fg_requests = test_random(&random) % 3,
            .bg_in_service = test_random(&random) % 3,
        };
        IdletimeAdmission p;

        burst(&w, 1 + (test_random(&random) >> 40 >>
                       test_random(&random) % 24));
        q.now_ns = w.now + (test_random(&random) >> 35);
        q.fg_last_ns = test_random(&random) % 5 ? w.now : INT64_MIN;
        p = idletime_learner_admit(&w.l, &goal, &q);
        g_assert_cmpint(p.interval_ns, >=, 0);
        g_assert_cmpint(p.interval_ns, <=, goal.interval_ns);
        g_assert_cmpuint(p.max_inflight, >=, 1);
        /* Never a wait for ever. */
        g_assert_cmpint(p.closed_until_ns, <=, q.now_ns + SEC);
    }
    free(w.fg);
}

/*
 * The work of one look is bounded, whatever is due in it: units of a plan,
 * and gaps that are learned from.
 */
static void test_look_bound(void)
{
    static const IdletimeGoal goal = { 0.03, 20 * MS };
    static World w;
    IdletimeTotals totals = { .quiet = true };
    int plans = 0, looks = 0, n = 0;
    bool cycle = false;

    world_begin(&w);
    for (int i = 0; i < 5000; i++) {
        uint64_t work = w.l.plan.work, gaps = w.l.gap_count;
        uint64_t built = w.l.built_gaps;

        /* Every tenth look finds more than it learns and plans in one. */
        for (int k = 0; k < (i % 10 ? 1 : 100); k++) {
            w.now += n++ % 6 ? MS / 3 : (50 + n % 29) * MS;
            idletime_fg_begin(&w.w, w.now, 4096);
            idletime_fg_end(&w.w, w.now += 5 * MS);
        }
        totals.fg_done = w.w.started;
        totals.fg_request_ns = w.w.request_ns;
        idletime_learner_look(&w.l, &goal, w.fg, 1, &totals, w.now);
        g_assert_cmpuint(w.l.plan.work - work, <,
                         IDLETIME_LOOK_WORK + IDLETIME_PLAN_BIN_MAX);
        g_assert_cmpuint(w.l.gap_count - gaps, <=, IDLETIME_LOOK_GAPS);
        g_assert_true(w.l.gap_count - gaps <= IDLETIME_LOOK_FEW ||
                      w.l.plan.work == work);
        plans += w.l.built_gaps != built;
        looks += w.l.planning != IDLETIME_PLANNING_NOTHING;
        cycle |= w.l.planning == IDLETIME_PLANNING_CYCLE;
    }
    /* At least one each second, each in some looks, and both clocks. */
    g_assert_cmpint(plans, >, 50);
    g_assert_cmpint(looks, >, 10 * plans);
    g_assert_true(cycle);
    free(w.fg);
}

/* A change ends the plan that is being made of the old gaps. */
static void test_change_ends_plan(void)
{
    static World w;

    world_begin(&w);
    for (int i = 0; i < 2000; i++) {
        burst(&w, i % 6 ? MS / 3 : 70 * MS);
    }
    w.l.changes = 0;
    for (int i = 0; !w.l.changes; i++) {
        g_assert_cmpint(i, <, 400);
        burst(&w, i % 6 ? MS / 3 : 25 * MS);
    }
    /* The look that noticed has begun anew, with nothing of the old in force */
    g_assert_cmpuint(w.l.built_gaps, ==, 0);
    g_assert_cmpint(w.l.planning, ==, IDLETIME_PLANNING_WINDOWS);
    g_assert_cmpuint(w.l.planned_gaps, ==, w.l.gap_count);
    g_assert_false(w.l.cycle.built);
    for (int i = 0; !w.l.built_gaps; i++) {
        g_assert_cmpint(i, <, 40);
        burst(&w, i % 6 ? MS / 3 : 25 * MS);
    }
    /* Once noticed, it is not noticed again. */
    for (int i = 0; i < 1000; i++) {
        burst(&w, i % 6 ? MS / 3 : 25 * MS);
    }
    g_assert_cmpuint(w.l.changes, ==, 1);
    free(w.fg);
}

/* A device of 10 us, no credit: 5,000 looks a second, and not 200,000. */
static void test_look_floor(void)
{
    static const IdletimeGoal goal = { 0.03, 20 * MS };
    static World w;
    IdletimeQuestion q = { .bytes = 4096 };
    int looks = 0;

    world_begin(&w);
    memset(&w.l.services, 0, sizeof(w.l.services));
    for (int i = 0; i < 10; i++) {
        idletime_learner_done(&w.l, &(IdletimeServed) {
            .bytes = 4096, .fg_idle = true, .since_ns = w.now,
        }, w.now + 10000);
    }
    for (int i = 0; i < 200; i++) {
        burst(&w, 20 * MS);
    }
    g_assert_cmpfloat(idletime_service_any(&w.l.services).mean_ns, ==, 10000);
    w.l.budget.credit_ns = -MS;
    w.l.windows.harmless = -1;
    q.fg_last_ns = w.now;
    for (q.now_ns = w.now; q.now_ns < w.now + SEC; looks++) {
        IdletimeAdmission a = idletime_learner_admit(&w.l, &goal, &q);

        g_assert_cmpint(a.closed_until_ns, >=, q.now_ns + 200000);
        g_assert_cmpint(a.closed_until_ns, <=, q.now_ns + 20 * MS);
        q.now_ns = a.closed_until_ns;
    }
    g_assert_cmpint(looks, <=, 5000);
    g_assert_cmpint(looks, >=, 50);
    /* While a plan is being made, looks come that often. */
    w.l.planning = IDLETIME_PLANNING_WINDOWS;
    g_assert_cmpint(idletime_learner_again(&w.l, SEC, 0), ==, 200000);
    g_assert_cmpint(idletime_learner_again(&w.l, 1000, 0), ==, 1000);
    w.l.planning = IDLETIME_PLANNING_NOTHING;
    g_assert_cmpint(idletime_learner_again(&w.l, SEC, 0), ==, SEC);
    /* While a collision goes on, two in a service time. */
    for (int i = 0; i < 400; i++) {
        idletime_service_note(&w.l.services, 4096, 5 * MS);
    }
    w.l.collision.open = true;
    g_assert_cmpint(idletime_learner_again(&w.l, SEC, MS), >, MS + 2.4 * MS);
    g_assert_cmpint(idletime_learner_again(&w.l, SEC, MS), <=, MS + 2.5 * MS);
    g_assert_cmpint(idletime_learner_again(&w.l, 1000, 0), ==, 1000);
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
    g_test_add_func("/learner/change", test_change);
    g_test_add_func("/learner/mixed", test_mixed);
    g_test_add_func("/learner/clocks", test_clocks);
    g_test_add_func("/learner/safe-start", test_safe_start);
    g_test_add_func("/learner/turnaround", test_turnaround);
    g_test_add_func("/learner/probe", test_probe);
    g_test_add_func("/learner/several-servers", test_several_servers);
    g_test_add_func("/learner/loss", test_loss);
    g_test_add_func("/learner/admission-sane", test_admission_sane);
    g_test_add_func("/learner/look-bound", test_look_bound);
    g_test_add_func("/learner/change/plan", test_change_ends_plan);
    g_test_add_func("/learner/look-floor", test_look_floor);
    g_test_add_func("/spare", test_spare);
    return g_test_run();
}
