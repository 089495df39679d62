/*
 * Admission: each answer that the learner gives, from windows and sums that
 * are known.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "test.h"
#include "idletime/learner/learner.h"

#define NOW             (100 * SEC)
#define D               (5 * MS)
#define FOREVER         INT64_MIN   /* closed_until_ns: open */

static const IdletimeGoal goal = { 0.05, 20 * MS };

/* All bins open, or none but from @open on. */
static void open_from(IdletimeWindows *w, unsigned open)
{
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        w->next[i] = w->first[i] = MAX(i, open);
    }
}

/* Of gaps: all end between 30 and 30.5 ms. */
static void gaps_of_30ms(IdletimeWindows *w)
{
    idletime_delay_begin(&w->delays);
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        idletime_delay_add(&w->delays, i,
                           i == idletime_bin_of(30 * MS) ? 1e6 : 0);
    }
    w->service = (IdletimeService) { D, 0, 0 };
    open_from(w, 0);
}

/* It knows a disk of 5 ms and gaps of 30 ms; no credit. */
static IdletimeLearner *learner(void)
{
    static IdletimeLearner l;

    idletime_learner_init(&l, 0);
    for (int i = 0; i < 10; i++) {
        idletime_service_note(&l.services, 4096, D);
    }
    gaps_of_30ms(&l.windows);
    l.windows.harmless = -1;
    l.gap_count = 24;
    l.built_gaps = 24;
    l.budget.cap_ns = 1e12;
    return &l;
}

static IdletimeQuestion after(int64_t age_ns)
{
    return (IdletimeQuestion) {
        .bytes = 4096, .fg_last_ns = NOW - age_ns, .now_ns = NOW,
    };
}

static IdletimeAdmission ask(IdletimeLearner *l, IdletimeQuestion q)
{
    return idletime_learner_admit(l, &goal, &q);
}

/* The same, and it starts. */
static IdletimeAdmission begin(IdletimeLearner *l, IdletimeQuestion q)
{
    IdletimeAdmission a = ask(l, q);

    idletime_learner_started(l, a.fee, q.now_ns);
    return a;
}

static void assert_open(IdletimeLearner *l, IdletimeQuestion q)
{
    g_assert_cmpint(ask(l, q).closed_until_ns, ==, FOREVER);
}

static void assert_closed(IdletimeLearner *l, IdletimeQuestion q, int64_t until)
{
    g_assert_cmpint(ask(l, q).closed_until_ns, ==, until);
}

/* ---- before enough is known */

static void test_not_learned(void)
{
    IdletimeLearner *l = learner();
    IdletimeAdmission a;

    l->gap_count = 23;
    g_assert_false(idletime_learner_ready(l));
    a = ask(l, after(MS));
    g_assert_false(a.learned);
    g_assert_cmpint(a.interval_ns, ==, goal.interval_ns);
    g_assert_cmpint(a.closed_until_ns, ==, FOREVER);
    g_assert_cmpuint(a.max_inflight, ==, 1);
    /* Who owes waits, half a service time at a time. */
    l->budget.credit_ns = -1;
    assert_closed(l, after(MS), NOW + D / 2);
    /* So it is as long as there is no plan, or no service time. */
    l = learner();
    l->built_gaps = 0;
    g_assert_true(idletime_learner_ready(l));
    g_assert_false(ask(l, after(MS)).learned);
    l = learner();
    memset(&l->services, 0, sizeof(l->services));
    g_assert_false(idletime_learner_ready(l));
    g_assert_false(ask(l, after(MS)).learned);
}

static void test_interval(void)
{
    IdletimeLearner *l = learner();

    open_from(&l->windows, 300);
    g_assert_cmpint(idletime_learner_interval(l, 20 * MS), ==,
                    idletime_bin_edge(300));
    g_assert_cmpint(idletime_learner_interval(l, MS / 100), ==, MS / 100);
    g_assert_cmpint(ask(l, after(MS)).interval_ns, ==, idletime_bin_edge(300));
    /* Within a gap that ours used; not the age at which one is begun. */
    for (unsigned i = 0; i < IDLETIME_BINS; i++) {
        l->windows.first[i] = MAX(i, 400);
    }
    g_assert_cmpint(idletime_learner_interval(l, 20 * MS), ==,
                    idletime_bin_edge(300));
    l->built_gaps = 0;
    g_assert_cmpint(idletime_learner_interval(l, 20 * MS), ==, 20 * MS);
    /* By the clock of the cycle, if that is better. */
    l = learner();
    l->cycle.built = true;
    l->cycle.onset_ns = 0;
    l->cycle.gain_ns = 1;
    l->cycle.windows.begin_ns = 3 * MS;
    g_assert_cmpint(idletime_learner_interval(l, 20 * MS), ==, 3 * MS);
}

/* ---- by age */

/*
 * A start at 29 ms meets the foreground for 4 ms.  That may be a 24th of the
 * credit.
 */
static void test_credit(void)
{
    IdletimeLearner *l = learner();
    double cost_ns = idletime_delay_expected(&l->windows.delays,
                                             l->windows.service, 28.0 * MS);

    g_assert_cmpfloat(cost_ns, >, 2 * MS);
    l->budget.credit_ns = 24 * cost_ns * 1.0001;
    assert_open(l, after(28 * MS));
    l->budget.credit_ns = 24 * cost_ns * 0.9999;
    assert_closed(l, after(28 * MS), NOW + D / 2);
    /* All of that part. */
    l->budget.credit_ns = 24 * (D * idletime_windows_ratio(&l->windows,
                                                           l->windows.service,
                                                           28.0 * MS));
    assert_open(l, after(28 * MS));
    /* What it costs all of them is three times what the first one waits. */
    l->cost.service_ns = 1;
    l->cost.delay_ns = 1;
    l->cost.lost_ns = 5;
    g_assert_cmpfloat(idletime_cost_factor(&l->cost), ==, 3);
    l->budget.credit_ns = 24 * cost_ns * 3.0001;
    assert_open(l, after(28 * MS));
    l->budget.credit_ns = 24 * cost_ns * 2.9999;
    assert_closed(l, after(28 * MS), NOW + D / 2);
    /* No credit at all: what is early and costs little is paid by some. */
    l->budget.credit_ns = 0;
    assert_closed(l, after(10 * MS), NOW + D / 2);
}

/* Next to nothing is always open, unless a gap costs something by itself. */
static void test_harmless(void)
{
    IdletimeLearner *l = learner();
    double ratio = idletime_windows_ratio(&l->windows, l->windows.service,
                                          10.0 * MS);

    l->budget.credit_ns = -40 * MS;
    open_from(&l->windows, IDLETIME_BINS);
    l->windows.harmless = ratio;
    assert_open(l, after(10 * MS));
    l->windows.harmless = ratio * 0.999;
    assert_closed(l, after(10 * MS), NOW + D / 2);
    l->windows.harmless = ratio;
    l->windows.seek_ns = l->seek.cost_ns = 2 * MS;
    assert_closed(l, after(10 * MS), NOW + D / 2);
    /* Ours ran in it already. */
    l->seek.before = IDLETIME_BEFORE_BG;
    assert_open(l, after(10 * MS));
}

/* Not yet: when the window opens; but 20 ms ahead at most. */
static void test_next_window(void)
{
    IdletimeLearner *l = learner();
    unsigned bin = idletime_bin_of(15 * MS);

    l->budget.credit_ns = 40 * MS;
    open_from(&l->windows, bin);
    assert_closed(l, after(10 * MS), NOW - 10 * MS + idletime_bin_edge(bin));
    assert_open(l, after(15 * MS));
    /* Not a nanosecond before. */
    assert_open(l, after(idletime_bin_edge(bin)));
    assert_closed(l, after(idletime_bin_edge(bin) - 1), NOW + 1);
    open_from(&l->windows, idletime_bin_of(40 * MS));
    assert_closed(l, after(10 * MS), NOW + 20 * MS);
    /* None any more. */
    open_from(&l->windows, IDLETIME_BINS);
    assert_closed(l, after(10 * MS), NOW + D / 2);
    /* A foreground that will have been in some hundred years. */
    open_from(&l->windows, IDLETIME_BINS - 1);
    IdletimeQuestion q = after(0);

    q.fg_last_ns = INT64_MAX - 10;
    q.now_ns = INT64_MAX - 5;
    q.now_ns -= 30 * SEC;
    g_assert_cmpint(ask(l, q).closed_until_ns, ==, q.now_ns + D / 2);
}

/* Nobody is waited for who never came; who is in service is no age. */
static void test_no_age(void)
{
    IdletimeLearner *l = learner();
    IdletimeQuestion q = after(28 * MS);

    q.fg_last_ns = INT64_MIN;
    assert_open(l, q);
    q = after(28 * MS);
    q.fg_requests = 1;
    assert_open(l, q);
    g_assert_false(ask(l, q).beside);
    g_assert_true(ask(l, q).learned);
}

/* The clock of the cycle began when the last burst did. */
static void test_cycle(void)
{
    IdletimeLearner *l = learner();
    unsigned bin = idletime_bin_of(15 * MS);

    l->budget.credit_ns = 40 * MS;
    gaps_of_30ms(&l->cycle.windows);
    l->cycle.windows.harmless = -1;
    open_from(&l->windows, IDLETIME_BINS);
    open_from(&l->cycle.windows, bin);
    l->cycle.built = true;
    l->cycle.onset_ns = NOW - 10 * MS;
    l->cycle.gain_ns = 1;
    assert_closed(l, after(2 * MS), NOW - 10 * MS + idletime_bin_edge(bin));
    l->cycle.onset_ns = NOW - 16 * MS;
    assert_open(l, after(2 * MS));
}

/* ---- a gap that costs something by itself */

static void test_seek(void)
{
    IdletimeLearner *l = learner();
    IdletimeQuestion q = after(10 * MS);

    l->windows.seek_ns = l->seek.cost_ns = 2 * MS;
    l->budget.credit_ns = 2 * MS;
    assert_open(l, q);
    l->budget.credit_ns = 2 * MS - 1;
    assert_closed(l, q, NOW + D / 2);
    /* It was away for a second: nobody is kept waiting for it. */
    q.fg_last_ns = NOW - SEC;
    assert_open(l, q);
    q.fg_last_ns = NOW - SEC + 1;
    assert_closed(l, q, NOW + D / 2);
    /* A gap that is left alone, by lot, is left alone to its end. */
    l->budget.credit_ns = 40 * MS;
    l->seek.before = IDLETIME_BEFORE_PAUSE;
    assert_closed(l, after(10 * MS), NOW + D / 2);
    q.fg_last_ns = NOW - SEC;
    assert_open(l, q);
}

/* ---- how soon it looks again */

static void test_look_again(void)
{
    static const struct { int64_t service_ns, again_ns; } pair[] = {
        { 10000, 200000 }, { 400000, 200000 }, { 500000, 250000 },
        { 30 * MS, 15 * MS }, { 40 * MS, 20 * MS }, { 50 * MS, 20 * MS },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(pair); i++) {
        IdletimeLearner *l = learner();

        memset(&l->services, 0, sizeof(l->services));
        for (int k = 0; k < 5; k++) {
            idletime_service_note(&l->services, 4096, pair[i].service_ns);
        }
        l->gap_count = 0;
        l->budget.credit_ns = -1;
        assert_closed(l, after(MS), NOW + pair[i].again_ns);
    }
}

/* ---- several servers */

/* Four that are as fast as one, so three at a time. */
static IdletimeLearner *several(void)
{
    IdletimeLearner *l = learner();

    for (int n = 1; n <= 4; n++) {
        l->channels.level[n] = (IdletimeLevel) { 100, D, 0 };
    }
    idletime_channels_note(&l->channels, IDLETIME_LEVELS, D);
    l->channels.away = false;
    g_assert_cmpuint(idletime_channels_limit(&l->channels), ==, 3);
    return l;
}

static void test_number(void)
{
    IdletimeLearner *l = several();
    IdletimeQuestion q = after(0);
    IdletimeAdmission a;

    q.fg_requests = 1;
    q.bg_in_service = 1;
    a = ask(l, q);
    g_assert_true(a.beside && a.learned);
    g_assert_cmpuint(a.max_inflight, ==, 3);
    g_assert_cmpint(a.interval_ns, ==, 0);
    g_assert_cmpint(a.closed_until_ns, ==, FOREVER);
    /* It would be the fourth: a quarter of a service time. */
    q.bg_in_service = 2;
    a = ask(l, q);
    g_assert_false(a.beside);
    g_assert_cmpint(a.closed_until_ns, ==, NOW + D / 4);
    /* A third of a service time after the last start. */
    q.bg_in_service = 1;
    l->start_ns = NOW - D / 3 + 1;
    g_assert_cmpint(ask(l, q).closed_until_ns, ==, NOW + 1);
    l->start_ns = NOW - D / 3;
    g_assert_cmpint(ask(l, q).closed_until_ns, ==, FOREVER);
    /* So it is learned, before anything is planned. */
    l->built_gaps = 0;
    g_assert_true(ask(l, q).learned);
}

static void test_probe(void)
{
    IdletimeLearner *l = learner();
    IdletimeQuestion q = after(0);
    IdletimeAdmission a;

    l->budget.credit_ns = 40 * MS;
    l->channels.mean_ns = D;
    l->channels.purse_ns = 100 * MS;
    open_from(&l->windows, IDLETIME_BINS);
    /* Alone there is nothing to probe. */
    g_assert_false(ask(l, q).beside);
    /* Beside one, who waits for a service time.  To ask takes nothing. */
    q.fg_requests = 1;
    g_assert_true(ask(l, q).beside);
    g_assert_cmpfloat(l->owed_ns, ==, 0);
    a = begin(l, q);
    g_assert_true(a.beside);
    g_assert_cmpuint(a.max_inflight, ==, 2);
    g_assert_cmpint(a.interval_ns, ==, 0);
    g_assert_cmpint(a.closed_until_ns, ==, FOREVER);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 95 * MS);
    g_assert_cmpfloat(l->owed_ns, ==, 5 * MS);
    /* Beside three: three of them, and not those of ours. */
    q.fg_requests = 3;
    q.bg_in_service = 2;
    g_assert_cmpuint(begin(l, q).max_inflight, ==, 6);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 80 * MS);
    g_assert_cmpfloat(l->owed_ns, ==, 20 * MS);
    /* Beside our own in a gap: a collision would be measured. */
    q = after(10 * MS);
    q.bg_in_service = 1;
    g_assert_cmpuint(begin(l, q).max_inflight, ==, 2);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 75 * MS);
    g_assert_cmpfloat(l->owed_ns, ==, 20 * MS);
    /* Not without credit for one. */
    q = after(0);
    q.fg_requests = 1;
    l->budget.credit_ns = D;
    g_assert_true(ask(l, q).beside);
    l->budget.credit_ns = D - 1;
    g_assert_false(ask(l, q).beside);
    /* Several servers: it costs nobody anything, but the purse. */
    l = several();
    l->budget.credit_ns = 40 * MS;
    l->channels.purse_ns = 100 * MS;
    q.fg_requests = 0;
    q.bg_in_service = 4;
    a = begin(l, q);
    g_assert_true(a.beside);
    g_assert_cmpuint(a.max_inflight, ==, 5);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 95 * MS);
    g_assert_cmpfloat(l->owed_ns, ==, 0);
    /* So it is with two at a time, the fewest that are several. */
    l->channels.ceiling = 2;
    q.bg_in_service = 2;
    g_assert_cmpuint(begin(l, q).max_inflight, ==, 3);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 15 * MS);
    l->channels.ceiling = IDLETIME_LEVELS;
    l->channels.purse_ns = 95 * MS;
    /* No probe where it may start anyhow. */
    q.bg_in_service = 2;
    g_assert_cmpuint(begin(l, q).max_inflight, ==, 3);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 95 * MS);
}

/* No service time is known, as the foreground has been there all the time. */
static void test_first_probe(void)
{
    IdletimeLearner *l = learner();
    IdletimeQuestion q = after(0);
    const IdletimeGoal nothing = { 0, 20 * MS };

    memset(&l->services, 0, sizeof(l->services));
    l->gap_count = 0;
    /* Nothing at all is known: one is free, and alone. */
    q.fg_requests = 2;
    q.bg_in_service = 1;
    g_assert_false(ask(l, q).beside);
    q.bg_in_service = 0;
    g_assert_false(idletime_learner_admit(l, &nothing, &q).beside);
    /* It may be another one's turn: then it is still free. */
    g_assert_true(ask(l, q).beside);
    g_assert_true(begin(l, q).beside);
    g_assert_cmpfloat(l->owed_ns, ==, 0);
    /* There is no second one, should this one tell nothing. */
    g_assert_false(ask(l, q).beside);
    /* It took two service times: that is what each costs, of the purse, too. */
    l->channels.mean_ns = 2 * D;
    l->budget.credit_ns = 2 * D;
    l->channels.purse_ns = 2 * D - 1;
    g_assert_false(ask(l, q).beside);
    l->channels.purse_ns = 2 * D;
    g_assert_true(begin(l, q).beside);
    g_assert_cmpfloat(l->owed_ns, ==, 2 * D);
    l->channels.purse_ns = 20 * D;
    l->budget.credit_ns = 2 * D - 1;
    g_assert_false(ask(l, q).beside);
}

/* What is served by others, too, tells a price, and no level. */
static void test_mixed_probe(void)
{
    IdletimeLearner *l = learner();
    IdletimeQuestion q = after(0);
    IdletimeServed served = { .bytes = 4096, .beside = 1, .mixed = true,
                              .since_ns = NOW };

    memset(&l->services, 0, sizeof(l->services));
    l->gap_count = 0;
    q.fg_requests = 1;
    begin(l, q);
    idletime_learner_done(l, &served, NOW + 2 * D);
    g_assert_cmpfloat(l->channels.mean_ns, ==, 2 * D);
    g_assert_cmpfloat(l->channels.level[2].count, ==, 0);
    l->budget.credit_ns = l->channels.purse_ns = 2 * D;
    g_assert_true(ask(l, q).beside);
}

/* A request that starts alone tells how long one takes: short gaps will do. */
static void test_told_in_gaps(void)
{
    IdletimeLearner *l = learner();
    IdletimeQuestion q = after(MS);

    l->channels.mean_ns = 2 * D;
    l->channels.purse_ns = 2 * D;
    l->budget.credit_ns = 100 * MS;
    /* Who knows it waits for the window, or the interval. */
    g_assert_false(ask(l, q).beside);
    l->services.any.count = 2;
    g_assert_cmpint(idletime_learner_again(l, NOW + D, NOW), ==, NOW + MS / 5);
    g_assert_true(begin(l, q).beside);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 0);
    g_assert_cmpfloat(l->owed_ns, ==, 2 * D);
    g_assert_false(ask(l, q).beside);
    g_assert_cmpint(idletime_learner_again(l, NOW + D, NOW), ==, NOW + D);
    /* Nobody hurries for what cannot be paid. */
    l->channels.purse_ns = 2 * D;
    l->budget.credit_ns = 2 * D - 1;
    g_assert_cmpint(idletime_learner_again(l, NOW + D, NOW), ==, NOW + D);
    l->budget.credit_ns = 100 * MS;
    /* After the interval it may start as it is, and where nobody ever was. */
    g_assert_false(ask(l, after(20 * MS)).beside);
    q.fg_last_ns = INT64_MIN;
    g_assert_false(ask(l, q).beside);
    /* Beside the foreground it would tell less: twice as much is left here. */
    q = after(MS);
    q.fg_requests = 1;
    g_assert_false(ask(l, q).beside);
    l->channels.purse_ns = 4 * D;
    g_assert_true(begin(l, q).beside);
    g_assert_cmpfloat(l->channels.purse_ns, ==, 2 * D);
    /* Where there are no gaps it is all that there is. */
    l->gap_count = 23;
    g_assert_true(ask(l, q).beside);
}

/* It knows a foreground that has sent the next one at once for two seconds. */
static IdletimeLearner *without_gaps(void)
{
    IdletimeLearner *l = learner();

    l->budget.cap_ns = l->budget.credit_ns = 24 * D;
    l->spare.seconds.count = 1;
    l->spare.seconds.share[0] = 0;
    l->probed = true;
    l->gaps.busy = true;
    l->gap_ns = NOW - SEC;
    l->channels.away = false;
    l->channels.alone_ns = 20 * MS;
    l->cost.seen = 1024;
    l->cost.mean = 4;
    l->cost.square = 4;
    return l;
}

static void test_spend(void)
{
    IdletimeLearner *l = without_gaps();
    IdletimeQuestion q = after(0);

    q.fg_requests = 1;
    g_assert_true(ask(l, q).beside);
    g_assert_cmpfloat(l->owed_ns, ==, 0);
    begin(l, q);
    g_assert_cmpfloat(l->owed_ns, ==, D);
    /* Each of three waits for it. */
    q.fg_requests = 3;
    g_assert_cmpuint(begin(l, q).max_inflight, ==, 4);
    g_assert_cmpfloat(l->owed_ns, ==, 4 * D);
    /* It was seen to cost twice as much as is reckoned. */
    l->channels.dear = 2;
    begin(l, q);
    g_assert_cmpfloat(l->owed_ns, ==, 10 * D);
    l->channels.dear = 1;
    /* What costs more than can be owed is left. */
    q.fg_requests = 48;
    g_assert_true(ask(l, q).beside);
    q.fg_requests = 49;
    g_assert_false(ask(l, q).beside);
}

/* Each of what it takes to spend, at its bound. */
static void test_no_spending(void)
{
    IdletimeLearner *l = without_gaps();
    IdletimeQuestion q = after(0);
    float *idle = l->spare.seconds.share;

    q.fg_requests = 1;
    q.bg_in_service = 1;
    g_assert_false(ask(l, q).beside);
    q.bg_in_service = 0;
    l->budget.credit_ns = 24 * D - 1;
    g_assert_false(ask(l, q).beside);
    l->budget.credit_ns = 24 * D;
    l->gap_ns++;
    g_assert_false(ask(l, q).beside);
    l->gap_ns--;
    l->cost.seen--;
    g_assert_false(ask(l, q).beside);
    l->cost.seen++;
    l->cost.square += 0.01;
    g_assert_false(ask(l, q).beside);
    l->cost.square -= 0.01;
    /* While it is measured without us, and before it was. */
    l->channels.away = true;
    g_assert_false(ask(l, q).beside);
    l->channels.away = false;
    l->channels.alone_ns = 0;
    g_assert_false(ask(l, q).beside);
    l->channels.alone_ns = 20 * MS;
    /* A percent of 5 has to bring two percent: a third of the time is idle. */
    idle[0] = 0.33;
    g_assert_true(ask(l, q).beside);
    idle[0] = 0.34;
    g_assert_false(ask(l, q).beside);
}

/* Who could soon spend it looks twice a service time, else when it is due. */
static void test_spend_again(void)
{
    IdletimeLearner *l = without_gaps();

    l->budget.credit_ns = 18 * D;
    g_assert_cmpint(idletime_learner_again(l, NOW + SEC, NOW), ==, NOW + D / 2);
    l->budget.credit_ns = 18 * D - 1;
    g_assert_cmpint(idletime_learner_again(l, NOW + SEC, NOW), ==, NOW + SEC);
    l->budget.credit_ns = 18 * D;
    l->gap_ns++;
    g_assert_cmpint(idletime_learner_again(l, NOW + SEC, NOW), ==, NOW + SEC);
}

/* A larger request than others: all of the credit is enough. */
static void test_large(void)
{
    IdletimeLearner *l = learner();
    double cost_ns = D * idletime_windows_ratio(&l->windows,
                                                l->windows.service, 28 * MS);

    l->budget.cap_ns = 20 * cost_ns;
    l->budget.credit_ns = 20 * cost_ns;
    assert_open(l, after(28 * MS));
    l->budget.credit_ns = 20 * cost_ns - 1;
    assert_closed(l, after(28 * MS), NOW + D / 2);
}

/* A window that the credit meters is open a moment longer. */
static void test_late(void)
{
    IdletimeLearner *l = learner();

    l->budget.credit_ns = 1000 * MS;
    for (unsigned i = 1; i < IDLETIME_BINS; i++) {
        l->windows.next[i] = l->windows.first[i] = IDLETIME_BINS;
    }
    assert_open(l, after(0));
    assert_closed(l, after(MS / 10), NOW + D / 2);
    l->windows.late_ns = MS / 5;
    assert_open(l, after(MS / 10));
    assert_open(l, after(MS / 5));
    assert_closed(l, after(MS / 5 + 2000), NOW + D / 2);
}

/* The ceiling may be one: then it is by age, and one at a time. */
static void test_ceiling_of_one(void)
{
    IdletimeLearner *l = several();

    l->channels.ceiling = 1;
    g_assert_cmpuint(ask(l, after(10 * MS)).max_inflight, ==, 1);
    g_assert_cmpint(idletime_learner_interval(l, 20 * MS), ==, 0);
    open_from(&l->windows, 300);
    g_assert_cmpint(idletime_learner_interval(l, 20 * MS), ==,
                    idletime_bin_edge(300));
}

/* Asked for the first time after a completion: that was the turnaround. */
static void test_turnaround(void)
{
    IdletimeLearner *l = learner();

    l->done_ns = NOW - MS;
    ask(l, after(10 * MS));
    g_assert_cmpfloat(l->services.turnaround_ns, ==, MS / 64.0);
    g_assert_cmpint(l->done_ns, ==, INT64_MIN);
    ask(l, after(10 * MS));
    g_assert_cmpfloat(l->services.turnaround_ns, ==, MS / 64.0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/admission/not-learned", test_not_learned);
    g_test_add_func("/admission/interval", test_interval);
    g_test_add_func("/admission/credit", test_credit);
    g_test_add_func("/admission/harmless", test_harmless);
    g_test_add_func("/admission/next-window", test_next_window);
    g_test_add_func("/admission/no-age", test_no_age);
    g_test_add_func("/admission/cycle", test_cycle);
    g_test_add_func("/admission/seek", test_seek);
    g_test_add_func("/admission/look-again", test_look_again);
    g_test_add_func("/admission/number", test_number);
    g_test_add_func("/admission/probe", test_probe);
    g_test_add_func("/admission/probe/first", test_first_probe);
    g_test_add_func("/admission/probe/mixed", test_mixed_probe);
    g_test_add_func("/admission/probe/told-in-gaps", test_told_in_gaps);
    g_test_add_func("/admission/spend", test_spend);
    g_test_add_func("/admission/spend/not", test_no_spending);
    g_test_add_func("/admission/spend/again", test_spend_again);
    g_test_add_func("/admission/large", test_large);
    g_test_add_func("/admission/late", test_late);
    g_test_add_func("/admission/ceiling-of-one", test_ceiling_of_one);
    g_test_add_func("/admission/turnaround", test_turnaround);
    return g_test_run();
}
